"""Run jobs in threads of our own: what `def` functions get by default."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from rxjobs.calls import Call
from rxjobs.executors.crew import Crew, check_count
from rxjobs.executors.ran import Reply
from rxjobs.executors.scheduling import ClosureScheduler
from rxjobs.executors.threaded import ThreadedCall
from rxjobs.log_lines import logger
from rxjobs.stopping import RUNS_ON

log = logger("rxjobs")


def in_threads(n: int, *, spare: int | None = None) -> InThreads:
    """An executor of n threads; an `async def` function gets an event loop of its own in its thread.

    A thread that runs on after its job was cancelled is replaced, for at most `spare` of them (default n) at a time.
    """
    return InThreads(n, n if spare is None else spare)


class InThreads(ClosureScheduler):
    """n daemon threads, started as they are needed."""

    name = "thread"
    tells_start = True

    def __init__(self, size: int, spare: int) -> None:
        check_count("in_threads", "n", size)
        check_count("in_threads", "spare", spare, least=0)
        super().__init__()
        self.size = size
        self.spare = spare
        self._crew = Crew("rxjobs-thread", size, spare)

    def __repr__(self) -> str:
        return f"in_threads({self.size}, spare={self.spare})"

    @property
    def abandoned(self) -> int:
        """How many threads still run a job that was cancelled. Beyond `spare`, each takes one of the n."""
        return self._crew.abandoned

    @property
    def busy(self) -> int:
        """How many threads run something."""
        return self._crew.busy

    @property
    def waiting(self) -> int:
        """How many calls wait for a thread."""
        return self._crew.waiting

    @property
    def is_worn_out(self) -> bool:
        """Whether no thread is left to put in the place of the next one that is abandoned."""
        return self.abandoned >= max(self.spare, 1)

    async def run(self, call: Call) -> Any:
        """Run the function in a thread. Cancelled, it never starts if it had to wait, and is abandoned if it runs.

        With stopping.STOP it is waited for instead: it may see that its job is cancelled.
        """
        threaded = ThreadedCall(call)
        reply = Reply()
        crew = self._crew
        work = crew.submit(threaded.run, reply.give)

        def stop() -> bool:
            if not crew.withdraw(work):
                threaded.interrupt()
                return False
            return True

        try:
            return await reply.taken(stop)
        except asyncio.CancelledError:
            # where the job itself raised this, the work has ended, and neither applies
            if crew.withdraw(work) or not crew.abandon(work):
                raise
            reply.leave_behind()
            if not threaded.interrupt():
                log.warning(
                    "job %s (%s) was cancelled and still runs in its thread, which cannot be stopped; %d of at most %d "
                    "such threads have been replaced",
                    call.job.id,
                    call.job.type,
                    min(crew.abandoned, self.spare),
                    self.spare,
                )
            raise asyncio.CancelledError(RUNS_ON) from None

    async def close(self) -> None:
        """Let the threads end; one that still runs a job ends after it."""
        self._crew.dismiss()
        self._crew = Crew("rxjobs-thread", self.size, self.spare)

    def _begin(self, closure: Callable[[], None]) -> Callable[[], Any]:
        crew = self._crew
        return partial(crew.withdraw, crew.submit(closure, _nothing))


def _nothing(_: None) -> None:
    """What follows on a closure that was scheduled."""
