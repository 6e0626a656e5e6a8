"""Notice a worker that is alive and idle although there is work: what should not be possible is to be seen, and mended."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from reactivex import Observable

from rxjobs.awaiting import every
from rxjobs.demand import now
from rxjobs.events import Emit, QueueStalled
from rxjobs.ledger import Ledger
from rxjobs.log_lines import logger
from rxjobs.sources.postgres import PostgresSource
from rxjobs.store.patience import patiently

log = logger("rxjobs.progress")

LEAST_SECONDS = 10.0


def quiet_seconds(poll_seconds: float) -> float:
    """For how long a source may give nothing, though there is room, before it is looked into."""
    return max(LEAST_SECONDS, 3 * poll_seconds)


def progress(ledgers: Callable[[], Iterable[Ledger]], *, quiet: float, emit: Emit) -> Observable[int]:
    """How many sources stand still, again and again: there is room, jobs have waited, and for `quiet` seconds none was fetched.

    A source that does so at two looks is told of once, and asked again until it moves: at the first it may be coming back from an
    outage. One that gives jobs, or has no room, costs no query.
    """
    looks: dict[Ledger, int] = {}

    async def once() -> int:
        nonlocal looks
        looks = {ledger: looks.get(ledger, 0) + 1 for ledger in ledgers() if await _stands_still(ledger, quiet)}
        stalled = [ledger for ledger, times in looks.items() if times > 1]
        for ledger in stalled:
            if looks[ledger] == 2:
                _tell(ledger, emit)
            ledger.ask_anew()
        return len(stalled)

    return every(lambda: quiet / 2, once)


async def _stands_still(ledger: Ledger, quiet: float) -> bool:
    source = ledger.source
    if not isinstance(source, PostgresSource) or not _is_quiet(ledger, quiet):
        return False
    has_waited = await patiently("looking whether jobs wait", lambda: source.has_waited(quiet))
    return has_waited and _is_quiet(ledger, quiet)


def _is_quiet(ledger: Ledger, quiet: float) -> bool:
    return ledger.is_pulled and ledger.demand.free > 0 and now() - ledger.fetched_at > quiet * 1e9


def _tell(ledger: Ledger, emit: Emit) -> None:
    queue, seconds = ledger.source.queue, (now() - ledger.fetched_at) / 1e9  # type: ignore[attr-defined]  # a PostgresSource
    log.error(
        "jobs of queue %s are ready and there is room for them, but none was fetched for %.0f s; asking again", queue, seconds
    )
    emit(QueueStalled(queue=queue, seconds=seconds))
