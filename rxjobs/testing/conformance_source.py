"""The laws that every source keeps."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable

from rxjobs.job import Job
from rxjobs.operators.ack import ack
from rxjobs.operators.complete import complete
from rxjobs.outcome import COMPLETE, Cancel, Discard, Finished, Outcome, Release, Retry, Snooze
from rxjobs.source import Source
from rxjobs.sources.pull import pull
from rxjobs.testing.watched import Watched, runs

Make = Callable[[int], Source | Awaitable[Source]]

COUNT = 500
SECONDS = 30.0
"""How long any of it may take."""


async def source(make: Make) -> None:
    """Hold a source to all laws; `make(n)` makes one that has n jobs and gets no others, or a coroutine that does."""
    await gives_each_job_once(await _made(make, COUNT))
    await gives_nothing_when_it_has_nothing(await _made(make, 0))
    await takes_every_outcome(await _made(make, 10))
    await gives_a_released_job_again(await _made(make, 1))
    await feeds_a_pipeline(await _made(make, COUNT))


async def gives_each_job_once(source: Source) -> None:
    """Never more than it is asked for, never one twice, and in the end all."""
    seen = dict[int, Job]()
    while jobs := await _fetch(source, 7):
        twice = [job.id for job in jobs if job.id in seen]
        assert not twice, f"it gave jobs {twice} twice, which nobody had settled"
        seen |= {job.id: job for job in jobs}
    assert len(seen) == COUNT, f"of {COUNT} jobs, it gave {len(seen)}"
    unclaimed = [job.id for job in seen.values() if job.attempt != 1 or job.state != "executing"]
    assert not unclaimed, f"jobs {unclaimed[:5]} were given without attempt 1 having begun"
    await source.settle([Finished(job, COMPLETE) for job in seen.values()])


async def gives_nothing_when_it_has_nothing(source: Source) -> None:
    """An empty answer, soon, and as often as it is asked."""
    for _ in range(3):
        assert await _fetch(source, 5) == []


async def takes_every_outcome(source: Source) -> None:
    """Once settled, a job whose outcome is final or delayed is not given again."""
    outcomes: list[Outcome] = [
        COMPLETE, Cancel("not wanted"), Discard("cannot be done"), Retry(3600), Snooze(3600), Release(3600)
    ]  # fmt: skip
    jobs = await _fetch(source, len(outcomes))
    await source.settle([Finished(job, outcome) for job, outcome in zip(jobs, outcomes, strict=True)])
    again = {job.id for job in await _fetch(source, 100)} & {job.id for job in jobs}
    assert not again, f"it gave {len(again)} jobs again that were settled"


async def gives_a_released_job_again(source: Source) -> None:
    """A job that is released is given again, without having spent an attempt."""
    (job,) = await _fetch(source, 1)
    await source.settle([Finished(job, Release())])
    (again,) = await _fetch_some(source)
    assert again.id == job.id, f"it gave job {again.id}, not the released job {job.id}"
    assert again.attempt == job.attempt, f"the released job came with attempt {again.attempt}, not {job.attempt} again"
    await source.settle([Finished(again, COMPLETE)])


async def feeds_a_pipeline(source: Source) -> None:
    """Pulled from, all its jobs are settled once, within demand; its wakes can be listened to."""
    watched = Watched(source, 20)
    async with runs(pull(watched, max_demand=20).pipe(complete(), ack())) as observed:
        deadline = asyncio.get_running_loop().time() + SECONDS
        while len(watched.settled) < COUNT:
            assert asyncio.get_running_loop().time() < deadline, (
                f"of {COUNT} jobs, {len(watched.settled)} were settled within {SECONDS:g} s"
            )
            await asyncio.sleep(0.005)
    watched.hold_to_the_laws()
    observed.hold_to_the_laws()


async def _made(make: Make, count: int) -> Source:
    made = make(count)
    return await made if inspect.isawaitable(made) else made


async def _fetch(source: Source, n: int) -> list[Job]:
    try:
        jobs = await asyncio.wait_for(source.fetch(n), SECONDS)
    except TimeoutError:
        raise AssertionError(f"asked for {n} jobs, it has not answered after {SECONDS:g} s") from None
    assert len(jobs) <= n, f"asked for {n} jobs, it gave {len(jobs)}"
    return jobs


async def _fetch_some(source: Source) -> list[Job]:
    deadline = asyncio.get_running_loop().time() + SECONDS
    while not (jobs := await _fetch(source, 1)):
        assert asyncio.get_running_loop().time() < deadline, f"a released job was not given again within {SECONDS:g} s"
        await asyncio.sleep(0.005)
    return jobs
