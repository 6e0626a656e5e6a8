"""One run of the demo, from an empty schema to its summary."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

import msgspec

import rxjobs as rj
from rxjobs.demo.ground import prepared
from rxjobs.demo.index import MAKE_TABLE, declare_index
from rxjobs.demo.library import find_files
from rxjobs.demo.summary import Summary, summarize
from rxjobs.demo.view import Moment, View
from rxjobs.demo.weather import declare_weather
from rxjobs.demo.witness import Witness
from rxjobs.runner import Running
from rxjobs.signals import stopped_by_sigterm
from rxjobs.store.advice import masked

LOOK_SECONDS = 0.25
STALLED_SECONDS = 30.0
"""After so long without a job that ends, the demo gives up and says what is missing."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What a run is to do: where, and for how many files (None: all)."""

    dsn: str
    schema: str
    files: int | None = None


async def run(wanted: Wanted, view: View) -> Summary:
    """Run the demo; raises what rxjobs raises where it cannot."""
    files = find_files(wanted.files)
    view.say(f"opening {masked(wanted.dsn)} and making the schema {wanted.schema} anew")
    with stopped_by_sigterm(), _logged(view.say):
        async with prepared(wanted.dsn, wanted.schema) as database:
            # keep: the rows are counted at the end, whatever RXJOBS_KEEP says
            app = rj.App(database.dsn, schema=wanted.schema, migrate=True, shutdown_grace=2, poll_seconds=0.5, keep=86400)
            witness = Witness(view.say)
            index_file, _ = declare_index(app, database, witness.acked)
            weather, _ = declare_weather(app, witness.acked)
            with app.events.subscribe(witness.hear):
                async with app.running() as running:
                    await database.fetch(MAKE_TABLE.format(schema=wanted.schema))
                    began = time.monotonic()
                    news = [*weather, *(index_file.new(file.name, file.path) for file in files)]
                    ids = {row.id for row in await app.enqueue_many(news)}
                    await _until_ended(app, running, ids, witness, view)
                    dead = await app.jobs.list(state="discarded", limit=100)
                    return await summarize(database, wanted.schema, ids, dead, witness, witness.ended_at - began)


async def _until_ended(app: rj.App, running: Running, ids: Collection[int], witness: Witness, view: View) -> None:
    broken = asyncio.ensure_future(running.wait())
    try:
        while True:
            view.show(await _moment(app, running, ids, witness))
            stalled = time.monotonic() - witness.ended_at > STALLED_SECONDS
            if stalled or len(witness.ends) >= len(ids):
                return None
            await asyncio.wait([broken], timeout=LOOK_SECONDS)
            if broken.done():
                return broken.result()
    finally:
        broken.cancel()


async def _moment(app: rj.App, running: Running, ids: Collection[int], witness: Witness) -> Moment:
    depths = {queue.name: queue.jobs for queue in await app.queues.list()}
    return Moment(
        total=len(ids),
        ended=len(witness.ends),
        in_flight=len(running.held_ids),
        rate=witness.rate,
        retries=witness.retries,
        dead_letters=witness.dead_letters,
        depths=depths,
        breakers=app.breakers(),
        events=dict(witness.events),
    )


@contextmanager
def _logged(say: Callable[[str], object]) -> Iterator[None]:
    """Show what rxjobs logs where the rest is shown: on stderr it would break the picture."""
    log, handler = logging.getLogger("rxjobs"), _Saying(say)
    log.addHandler(handler)
    propagate, log.propagate = log.propagate, False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.propagate = propagate


class _Saying(logging.Handler):
    """Passes warnings and worse on to the loop, from any thread, but for what the event stream says too."""

    def __init__(self, say: Callable[[str], object]) -> None:
        super().__init__(logging.WARNING)
        self._say = say
        self._loop = asyncio.get_running_loop()

    def emit(self, record: logging.LogRecord) -> None:
        if record.name != "rxjobs.breaker":
            self._loop.call_soon_threadsafe(self._say, f"{record.levelname.lower()}: {record.getMessage()}")
