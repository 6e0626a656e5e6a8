"""The rows, looked after from outside: `app.jobs`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import asyncpg
import reactivex as rx
from reactivex import Observable
from reactivex import operators as ops

from rxjobs.awaiting import every
from rxjobs.checks import check_number
from rxjobs.client import Client
from rxjobs.codec import is_hidden
from rxjobs.definition import Definition
from rxjobs.errors import InvalidOption, JobFailed, UnknownJobType
from rxjobs.failure import clean
from rxjobs.hold import CANCELLED
from rxjobs.job import Job, State, progress_of
from rxjobs.log_lines import logger
from rxjobs.payload import load_untyped
from rxjobs.results import Ended
from rxjobs.store.encoding import Filters, job_from_row, plain
from rxjobs.store.patience import patiently
from rxjobs.store.store import Store

log = logger("rxjobs.jobs")

BATCH = 1000
MOST = 100_000
MOST_ATTEMPTS = 1000
LONGEST = timedelta(days=3653)
FOLLOW_SECONDS = 0.25
"""Between two looks at how far a job has come."""

Names = str | Iterable[str] | None


class Jobs:
    """Find, count, cancel, retry and delete jobs, by id or by filters; a filter takes one value or several."""

    def __init__(
        self, store: Callable[[], Store], definitions: Mapping[str, Definition[..., Any]], client: Callable[[], Client]
    ) -> None:
        self._store = store
        self._definitions = definitions
        self._client = client

    async def get(self, id: int) -> Job | None:
        """The job with this id, or None."""
        check_ids("jobs.get", [id])
        rows = await self._store().get_jobs([id])
        return self._job(rows[0]) if rows else None

    async def list(
        self,
        *,
        state: Names = None,
        queue: Names = None,
        type: Names = None,
        tags: Names = None,
        limit: int = 100,
        after: int | None = None,
    ) -> list[Job]:
        """Jobs, the newest first; `after` is the id of the last one of the page before, `limit` at most 100,000."""
        check_number("jobs.list", "limit", limit, 1, MOST)
        rows = await self._store().list_jobs(_filters(state, queue, type, tags), after, limit)
        return [self._job(row) for row in rows]

    async def count(
        self,
        *,
        state: Names = None,
        queue: Names = None,
        type: Names = None,
        tags: Names = None,
    ) -> dict[str, int]:
        """How many jobs there are, by state."""
        return await self._store().count_jobs(_filters(state, queue, type, tags))

    async def cancel(self, ids: int | Iterable[int] | None = None, **filters: Names) -> int:
        """Cancel jobs: those that wait at once, those that run when they have ended, which their node tells them to do.

        Gives how many are cancelled, or will be. A coroutine is cancelled, a child process is killed, and code in a thread finds
        `rj.current_job().cancelled` set; the row stays `executing`, and keeps its unique key, until it has ended.
        """
        return await self._apply(self._cancel, ids, filters)

    async def result(self, id: int, timeout: float | None = None) -> Any:  # noqa: ASYNC109 - as asyncio.wait_for has it
        """Wait for a job's end, wherever it runs; gives what it returned, where its type has `record=True`, else None.

        Raises JobFailed where it was discarded, cancelled or deleted, and TimeoutError after so many seconds.
        """
        check_wait(id, timeout)
        try:
            async with asyncio.timeout(timeout):
                ended = await self._client().endings.of(id)
        except TimeoutError:
            raise TimeoutError(f"job {id} has not ended within {timeout:g} s") from None
        if ended.state == State.COMPLETED:
            return self._result(id, ended)
        raise failed(id, await self.get(id))

    def follow(self, id: int) -> Observable[tuple[float, str]]:
        """What a job says about how far it has come, as fraction and message: what it has said last, then whatever is new, until
        it ends. To be subscribed on the app's event loop.
        """
        check_wait(id, None)

        async def look() -> tuple[tuple[float, str] | None, bool]:
            said, has_ended = await patiently("following a job", lambda: self._store().read_progress(id))
            return progress_of(plain(said)), has_ended

        def is_running(looked: tuple[object, bool]) -> bool:
            return not looked[1]

        def said(looked: tuple[tuple[float, str] | None, bool]) -> Observable[tuple[float, str]]:
            return rx.empty() if looked[0] is None else rx.just(looked[0])

        return every(lambda: FOLLOW_SECONDS, look).pipe(
            ops.take_while(is_running, inclusive=True), ops.concat_map(said), ops.distinct_until_changed()
        )

    async def retry(self, ids: int | Iterable[int] | None = None, *, attempts: int = 1, **filters: Names) -> int:
        """Make jobs available at once; where attempts are used up, `attempts` more. Gives how many were."""
        return await self._apply(lambda some: self._retry(some, attempts), ids, filters)

    async def redrive(
        self,
        ids: int | Iterable[int] | None = None,
        *,
        type: Names = None,
        queue: Names = None,
        tags: Names = None,
        error: Names = None,
        since: datetime | timedelta | None = None,
        rate: float | None = None,
        attempts: int = 1,
    ) -> int:
        """Bring dead letters back, at most `rate` a second: they are scheduled one after the other. Gives how many were.

        By ids, or by any of the filters: `error` is the type of the last error, such as "ValueError" or "shop.errors.NoStock", or
        the last part of it; `since` is an instant, or how far back, by PostgreSQL's clock. Each has `attempts` more where they are
        used up. Raises InvalidOption where nothing is said of which.
        """
        check_number("jobs.redrive", "attempts", attempts, 1, MOST_ATTEMPTS)
        if rate is not None:
            check_number("jobs.redrive", "rate", rate, 0.001, 1_000_000, int | float)
        filters, errors = _filters(None, queue, type, tags), _several(error)
        if (ids is None) == (filters == Filters() and errors is None and since is None):
            raise InvalidOption("say which dead letters: by id, or by any of type=, queue=, tags=, error= and since=, not both")
        apart = 0.0 if rate is None else 1 / rate
        if ids is not None:
            given = sorted(set(check_ids("jobs.redrive", ids)))
            return (await self._redrive(given, attempts, None, 0, apart))[0]
        begin, back, above = await self._begin(since), 0, 0
        base: datetime | None = None
        while page := await self._store().find_dead(filters, errors, begin, above, BATCH):
            count, base = await self._redrive(page, attempts, base, back * apart, apart)
            back, above = back + count, page[-1]
        return back

    async def delete(self, ids: int | Iterable[int] | None = None, **filters: Names) -> int:
        """Delete jobs that are not executing; gives how many were."""
        return await self._apply(self._store().delete_jobs, ids, filters)

    async def _cancel(self, ids: Sequence[int]) -> set[int]:
        return await self._store().cancel_jobs(ids)

    def _result(self, id: int, ended: Ended) -> Any:
        """What a job returned, as its type has it; of a type that is not known here as plain JSON, if that can be read."""
        if ended.result is None:
            return None
        definition = self._definitions.get(ended.type or "")
        if definition is not None:
            return definition.open_result(ended.result)
        if is_hidden(ended.result):
            raise UnknownJobType(
                f"job {id} is of the type {ended.type}, which this app does not know, and its result cannot be read"
            )
        return load_untyped(ended.result)

    async def _begin(self, since: datetime | timedelta | None) -> datetime | None:
        """The instant from which on dead letters are meant."""
        match since:
            case timedelta() if timedelta(0) < since < LONGEST:
                now: datetime = (await self._store().describe_server())["now"]
                return now - since
            case datetime(tzinfo=tz) if tz is not None:
                return since
            case None:
                return None
            case _:
                raise InvalidOption(
                    "jobs.redrive: since is a datetime with a time zone, or a timedelta above 0 of at most ten years, "
                    f"not {since!r:.100}"
                )

    async def _redrive(
        self, ids: Sequence[int], attempts: int, base: datetime | None, after: float, apart: float
    ) -> tuple[int, datetime]:
        """As _retry, spread over time; gives how many were, and the instant from which their times are counted."""
        count = 0
        while True:
            try:
                back, ids, base = await self._store().redrive_jobs(ids, attempts, base, after + count * apart, apart)
            except asyncpg.UniqueViolationError:
                ids = await self._without_twins(ids)
            else:
                count += len(back)
                if not ids:
                    return count, base

    async def _without_twins(self, ids: Sequence[int]) -> Sequence[int]:
        """Those of the jobs whose unique key no other job has by now; the others stay ended, or are cancelled if they waited."""
        twins = await self._store().twins_of(ids)
        if twins:  # they may have gone meanwhile
            pairs = ", ".join(f"{id_} ({twin})" for id_, twin in twins.items())
            log.warning("not retried, since others have their unique keys: %s", pairs)
        await self._store().cancel_twins(list(twins), None, list(twins.values()))
        return [id_ for id_ in ids if id_ not in twins]

    async def _retry(self, ids: Sequence[int], attempts: int) -> set[int]:
        """All but those whose unique key another job has by now: these stay ended, or are cancelled if they waited."""
        back = set[int]()
        while ids:
            try:
                some, ids = await self._store().retry_jobs(ids, attempts)
            except asyncpg.UniqueViolationError:
                ids = await self._without_twins(ids)
            else:
                back |= some
        return back

    async def _apply(
        self,
        change: Callable[[Sequence[int]], Awaitable[set[int]]],
        ids: int | Iterable[int] | None,
        filters: Mapping[str, Names],
    ) -> int:
        filters = {name: value for name, value in filters.items() if value is not None}
        if (ids is None) == (not filters):
            raise InvalidOption("say which jobs: by id, or by filters such as state='discarded', queue=, type=, tags=")

        if ids is not None:
            return len(await change(check_ids("jobs", ids)))
        unknown = filters.keys() - {"state", "queue", "type", "tags"}
        if unknown:
            raise InvalidOption(f"jobs are filtered by state, queue, type and tags, not by {', '.join(sorted(unknown))}")
        wanted = _filters(filters.get("state"), filters.get("queue"), filters.get("type"), filters.get("tags"))
        changed, above = 0, 0
        while True:
            page, read = await self._store().find_jobs(wanted, above, BATCH)
            if page:
                changed += len(await change(page))
            if read is None:
                return changed
            above = read

    def _job(self, row: asyncpg.Record) -> Job:
        definition, stored, result = self._definitions.get(row["type"]), row["args"], row["result"]
        if definition is None:
            return job_from_row(row, stored, result=result)
        if result is not None:
            with suppress(Exception):  # whatever a codec raises: the row is shown as far as it can be read
                result = definition.unseal(result)
        try:
            args, stored = definition.read(stored)
            return job_from_row(row, stored, args, result)
        except Exception:  # BadPayload, or what a codec raises
            return job_from_row(row, stored, result=result)


def check_ids(owner: str, ids: Any) -> list[int]:
    """These ids of jobs, or this one; raises InvalidOption for what is none."""
    given = list(ids) if isinstance(ids, Iterable) and not isinstance(ids, str | bytes) else [ids]
    for one in given:
        if isinstance(one, bool) or not isinstance(one, int):
            raise InvalidOption(f"{owner}: a job's id is a whole number, such as `enqueued.id`, not {one!r:.100}")
    return given


def check_wait(id: Any, timeout: Any) -> None:
    """Refuse what is no id of a job, or no number of seconds."""
    check_number("a job that is waited for", "its id", id, 1, 2**63 - 1)
    if timeout is not None:
        check_number(f"waiting for job {id}", "timeout", timeout, 0, 10**9, int | float)


def failed(id: int, job: Job | None) -> JobFailed:
    """What whoever waits for a job is told of one that ended without a result."""
    if job is None:
        return JobFailed(f"job {id} is not there: it was deleted, or pruned, or its insert is not committed yet")
    error = job.errors[-1] if job.errors else {"type": "rxjobs.Cancel", "message": CANCELLED}
    return JobFailed(f"job {id} ({job.type}) was {job.state}: {error.get('type')}: {error.get('message')}", job, error)


def _filters(state: Names, queue: Names, type: Names, tags: Names) -> Filters:
    states = _several(state)
    known = {one.value for one in State}
    for one in states or ():
        if one not in known:
            raise InvalidOption(f"state is one of {', '.join(sorted(known))}, not {one!r}")
    return Filters(states, _several(queue), _several(type), _several(tags))


def _several(names: Names) -> tuple[str, ...] | None:
    if names is None:
        return None
    several = (names,) if isinstance(names, str) else tuple(names)
    for name in several:
        if not isinstance(name, str) or clean(name, len(name)) != name:
            raise InvalidOption(f"jobs are filtered by text that PostgreSQL can hold, not by {name!r:.100}")
    return several
