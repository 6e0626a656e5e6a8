"""What the operators of the table are made with: functions of jobs, jobs that end in some way, a table in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NoReturn

import reactivex as rx
from reactivex import operators as ops

import rxjobs as rj
from rxjobs.operators.stage import finish
from rxjobs.testing import MemorySource, a_job, job_type

Stage = Callable[[rx.Observable[Any]], rx.Observable[Any]]


def refuse(*_: Any) -> NoReturn:
    raise RuntimeError("refused")


async def refuse_soon(*_: Any) -> NoReturn:
    await asyncio.sleep(0)
    raise RuntimeError("refused")


async def find(job: rj.Job) -> dict[str, int]:
    await asyncio.sleep(0)
    return {"found": job.id}


async def keep(job: rj.Job) -> rj.Job:
    return job.assign({"kept": True})


def is_even(job: rj.Job) -> bool:
    return job.args["n"] % 2 == 0


def seventh(job: rj.Job) -> int:
    return job.args["n"] % 7


async def write(jobs: list[rj.Job]) -> list[rj.Outcome]:
    await asyncio.sleep(0)
    return [rj.Discard("odd") if job.args["n"] % 2 else rj.Complete() for job in jobs]


# what the lines are made with


async def two_seconds(job: rj.Job) -> None:
    await asyncio.sleep(2)


async def two_seconds_for_all(jobs: list[rj.Job]) -> None:
    await asyncio.sleep(2)


async def same_after_two_seconds(job: rj.Job) -> rj.Job:
    await asyncio.sleep(2)
    return job


def is_a(job: rj.Job) -> bool:
    return job.args["letter"] == "a"


def letter(job: rj.Job) -> str:
    return str(job.args["letter"])


async def sleep(seconds: float) -> None:
    await asyncio.sleep(seconds)


async def end(outcome: str) -> Any:
    match outcome:
        case "retry":
            return rj.Retry(delay=3)
        case "snooze":
            return rj.Snooze(3)
        case "release":
            return rj.Release(3)
        case "cancel":
            return rj.Cancel("no")
        case "discard":
            return rj.Discard("no")
        case "raise":
            raise ValueError("no")


def sleeping(**seconds: float) -> dict[str, rj.Job]:
    """Jobs by letter, and how long they take."""
    definition = job_type(sleep)
    return {name: a_job(definition=definition, args={"seconds": each}, attempt=1) for name, each in seconds.items()}


def ending(outcome: str, **fields: Any) -> rj.Job:
    """A job that ends so whenever it is run."""
    return a_job(definition=job_type(end, backoff=lambda attempt, error: 3.0), args={"outcome": outcome}, **fields)


def pulled(*stages: Stage, max_demand: Any = 5, min_demand: int | None = None) -> Callable[[], rx.Observable[Any]]:
    return lambda: rj.pull(MemorySource(), max_demand=max_demand, min_demand=min_demand).pipe(*stages)


def slow(seconds: float, concurrency: int = 1) -> rj.Branch:
    """A branch that takes so long for a job."""

    async def wait(job: rj.Job) -> None:
        await asyncio.sleep(seconds)

    return rj.branch(rj.tap(wait, concurrency=concurrency), rj.complete())


class Inserting:
    """What rows are inserted into, which takes a while."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.inserts: list[int] = []
        self._seconds = seconds

    async def enqueue_many(self, news: Any, connection: Any = None) -> list[rj.Enqueued]:
        self.inserts.append(len(news))
        await asyncio.sleep(self._seconds)
        if any(new.type == "refused" for new in news):
            raise ConnectionError("no database")
        return [rj.Enqueued(id=int(new.meta["id"]), state="available") for new in news]


def new(job: rj.Job) -> rj.NewJob:
    return rj.NewJob(
        type="follow_up" if job.args.get("letter") != "x" else "refused", queue="default", payload="{}", meta={"id": job.id}
    )


def enqueued(seconds: float) -> Stage:
    """New jobs are made of jobs, and the jobs come out as their rows do."""

    def operator(jobs: rx.Observable[Any]) -> rx.Observable[Any]:
        known: dict[int, rj.Job] = {}
        return jobs.pipe(
            ops.do_action(lambda job: known.update({job.id: job})),
            ops.map(new),
            rj.enqueue(Inserting(seconds)),
            ops.map(lambda row: known[row.id]),
        )

    return operator


def followed_up() -> Stage:
    """Each job that is not finished is complete when the job that follows it is inserted."""
    inserting = Inserting()

    def follow_up(item: Any) -> rx.Observable[Any]:
        if isinstance(item, rj.Finished):
            return rx.of(item)
        return rx.of(new(item)).pipe(rj.enqueue(inserting), ops.map(lambda row: finish(item, rj.Complete(row.id))))

    return ops.flat_map(follow_up)


RUN_AND_ACK = (rj.execute(concurrency=9), rj.ack())
STEADY = {"loop_delay": 1e9, "cpu": 1e9}
"""A node that is never too busy, whatever this one is."""
