"""The laws that every operator keeps."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from reactivex import Observable
from reactivex import operators as ops
from reactivex.scheduler import ThreadPoolScheduler

from rxjobs.autoscaling import Autoscale
from rxjobs.operators.ack import ack
from rxjobs.operators.complete import complete
from rxjobs.outcome import Finished
from rxjobs.sources.memory import MemorySource
from rxjobs.sources.pull import pull
from rxjobs.testing.jobs import a_job, job_type
from rxjobs.testing.watched import Observed, Watched, runs

Operator = Callable[[Observable[Any]], Observable[Any]]
Make = Callable[[], Operator]

COUNT = 1000
MAX_DEMAND = 40
SECONDS = 30.0
"""How long any of it may take."""


class Pulled(NamedTuple):
    """The demand of the pull that the operator is behind."""

    max_demand: int | Autoscale = MAX_DEMAND
    min_demand: int | None = None

    def watched(self, count: int, definition: Any = None) -> Watched:
        """A source of so many jobs."""
        most = self.max_demand.max if isinstance(self.max_demand, Autoscale) else self.max_demand
        return Watched(_source(count, definition), most, self.min_demand)

    def pipeline(self, watched: Watched, *stages: Operator) -> Observable[Any]:
        """Its jobs through the stages, and acked."""
        jobs: Observable[Any] = pull(watched, max_demand=self.max_demand, min_demand=self.min_demand)
        for stage in (*stages, ack()):
            jobs = stage(jobs)
        return jobs


USUALLY = Pulled()


async def operator(
    make: Make, *, failing: Make | None = None, max_demand: int | Autoscale = MAX_DEMAND, min_demand: int | None = None
) -> None:
    """Hold an operator to all laws; `failing` makes the same operator around a function that raises.

    `max_demand` and `min_demand` are those of the pull that it is behind.
    """
    pulled = Pulled(max_demand, min_demand)
    await settles_every_job_exactly_once(make, pulled)
    if failing is not None:
        await makes_values_of_failures(failing, pulled)
    await passes_on_what_is_finished(make, pulled)
    await completes_when_it_is_stopped(make, pulled)
    await gives_jobs_back_when_it_is_killed(make, pulled)
    await emits_on_the_loop_what_came_from_threads(make, pulled)


async def settles_every_job_exactly_once(make: Make, pulled: Pulled = USUALLY) -> None:
    """A thousand jobs, some of which fail, leave as a thousand outcomes, within demand."""
    watched = pulled.watched(COUNT)
    await _run_to_the_end(pulled.pipeline(watched, make(), complete()))
    watched.hold_to_the_laws()
    assert len(watched.settled) == COUNT, f"of {COUNT} jobs, {len(watched.settled)} were settled"


async def makes_values_of_failures(failing: Make, pulled: Pulled = USUALLY) -> None:
    """What the operator's function raises ends that job, and nothing else."""
    watched = pulled.watched(COUNT, job_type(_do_nothing))
    await _run_to_the_end(pulled.pipeline(watched, failing(), complete()))
    watched.hold_to_the_laws()
    failures = [getattr(one.outcome, "failure", None) for one in watched.settled]
    assert all(failures), f"{failures.count(None)} of {len(failures)} jobs did not fail, though the function raised"


async def passes_on_what_is_finished(make: Make, pulled: Pulled = USUALLY) -> None:
    """What is finished passes untouched, whatever the operator does to jobs."""
    watched = pulled.watched(COUNT)
    ended, came = list[Finished](), list[Any]()
    pipeline = pulled.pipeline(watched, complete(), ops.do_action(ended.append), make(), ops.do_action(came.append))
    await _run_to_the_end(pipeline)
    watched.hold_to_the_laws()
    assert sorted(map(id, came)) == sorted(map(id, ended)), f"of {len(ended)} finished jobs, {len(came)} came out, or as others"


async def completes_when_it_is_stopped(make: Make, pulled: Pulled = USUALLY) -> None:
    """Stopped in the middle, nothing more is fetched, and it completes once what it holds is acked."""
    watched = pulled.watched(COUNT)
    async with runs(pulled.pipeline(watched, make(), complete()), grace=SECONDS) as observed:
        await _until(lambda: len(watched.settled) >= COUNT // 10, "a tenth of the jobs is settled")
        fetched = len(watched.fetched)
    assert len(watched.fetched) <= fetched + MAX_DEMAND, "after stop, fetching went on"
    _hold(watched, observed)


async def gives_jobs_back_when_it_is_killed(make: Make, pulled: Pulled = USUALLY) -> None:
    """Killed in the middle, what it holds is released, or was settled."""
    watched = pulled.watched(COUNT)
    async with runs(pulled.pipeline(watched, make(), complete()), grace=0) as observed:
        await _until(lambda: len(watched.fetched) >= MAX_DEMAND, "the first jobs are fetched")
    _hold(watched, observed)


async def emits_on_the_loop_what_came_from_threads(make: Make, pulled: Pulled = USUALLY) -> None:
    """Fed from other threads, everything comes out on the event loop's own."""
    watched = pulled.watched(COUNT)
    elsewhere = set[int]()
    here = threading.get_ident()

    def look(_: Any) -> None:
        if threading.get_ident() != here:
            elsewhere.add(threading.get_ident())

    threads = ThreadPoolScheduler(2)
    try:
        pipeline = pulled.pipeline(watched, ops.observe_on(threads), make(), ops.do_action(look), complete())
        await _run_to_the_end(pipeline)
    finally:
        threads.executor.shutdown()
    watched.hold_to_the_laws()
    assert not elsewhere, "jobs that came from other threads came out on other threads than the event loop's"
    assert len(watched.settled) == COUNT, f"of {COUNT} jobs that came from other threads, {len(watched.settled)} were settled"


def _source(count: int, definition: Any = None) -> MemorySource:
    definition = definition or job_type(_fail_now_and_then, backoff=_at_once)
    source = MemorySource(
        a_job(definition=definition, args={"n": n}, max_attempts=1, payload=f'{{"n": {n}}}') for n in range(count)
    )
    source.close()
    return source


async def _fail_now_and_then(n: int) -> None:
    if n % 3 == 0:
        await asyncio.sleep(0)
    if n % 10 == 0:
        raise ValueError(f"job {n} fails")


async def _do_nothing(n: int) -> None:
    """A job that would end well."""


def _at_once(attempt: int, error: BaseException | None) -> float:
    return 0.0


async def _run_to_the_end(pipeline: Observable[Any]) -> None:
    async with runs(pipeline, grace=0) as observed:
        try:
            await asyncio.wait_for(observed.running.wait(), SECONDS)
        except TimeoutError:
            observed.never_broke()
            raise AssertionError(f"the pipeline has not ended after {SECONDS:g} s, though its source has") from None
    observed.hold_to_the_laws()


def _hold(watched: Watched, observed: Observed) -> None:
    watched.hold_to_the_laws()
    observed.hold_to_the_laws()
    assert not observed.running.held_ids, f"{len(observed.running.held_ids)} jobs are still held"


async def _until(condition: Callable[[], bool], what: str) -> None:
    deadline = asyncio.get_running_loop().time() + SECONDS
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, f"it did not come about within {SECONDS:g} s that {what}"
        await asyncio.sleep(0)
