"""Every stage keeps the laws."""

from __future__ import annotations

import asyncio
from typing import Any, NoReturn

import pytest
from reactivex import compose

import rxjobs as rj
from rxjobs.testing import conformance


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


STAGES = {
    "filter": lambda: rj.filter(lambda job: job.args["n"] % 2 == 0),
    "enrich": lambda: rj.enrich(find, concurrency=7),
    "enrich in threads": lambda: rj.enrich(lambda job: {"found": job.id}, concurrency=3),
    "map": lambda: rj.map(keep, concurrency=3),
    "buffer": lambda: rj.buffer(7, 0.002),
    "buffer of one": lambda: rj.buffer(1, None),
    "buffer without a timespan": lambda: rj.buffer(7, None),
    "buffer by size": lambda: rj.buffer(timespan=0.002, size=40),
    "enrich with a fallback": lambda: rj.enrich(refuse_soon, fallback={}),
    "tap": lambda: rj.tap(find, concurrency=3),
    "rate_limit": lambda: rj.rate_limit(50, per=0.01),
    "rate_limit by a key": lambda: rj.rate_limit(1, per=0.001, by=lambda job: job.args["n"] % 500),
    "execute": lambda: rj.execute(concurrency=5),
    "execute one at a time": lambda: rj.execute(concurrency=1),
    "execute_batch": lambda: compose(rj.buffer(7, 0.002), rj.execute_batch(write, concurrency=2)),
    "execute_batch of single jobs": lambda: rj.execute_batch(write),
    "complete": lambda: rj.complete(),
    "ack": lambda: rj.ack(),
    "balance": lambda: rj.balance(rj.execute(concurrency=3), rj.branch(rj.filter(is_even), rj.execute(), max_demand=2)),
    "balance of what settles nothing": lambda: rj.balance(rj.enrich(find), rj.branch(rj.buffer(3, 0.002), max_demand=9)),
    "balance with acks inside": lambda: rj.balance(rj.branch(rj.execute(), rj.ack()), rj.complete()),
    "broadcast": lambda: rj.broadcast(rj.execute(concurrency=3), rj.branch(rj.enrich(find), rj.complete())),
    "broadcast with acks inside": lambda: rj.broadcast(rj.branch(rj.execute(), rj.ack()), rj.branch(rj.complete(), rj.ack())),
    "partition": lambda: rj.partition(4, by=seventh, branch=rj.execute(concurrency=3)),
    "partition, strict": lambda: rj.partition(4, by="args.n", branch=rj.execute(concurrency=3), strict=True),
    "a balance in a broadcast in a partition": lambda: rj.partition(
        3,
        by=seventh,
        branch=rj.branch(rj.broadcast(rj.balance(rj.execute(), rj.complete()), rj.execute()), max_demand=4),
    ),
}
FAILING = {
    "balance": lambda: rj.balance(rj.enrich(refuse_soon), rj.filter(refuse)),
    "broadcast": lambda: rj.broadcast(rj.complete(), rj.branch(rj.enrich(refuse_soon), rj.execute())),
    "partition": lambda: rj.partition(4, by=refuse, branch=rj.execute()),
    "partition, strict": lambda: rj.partition(4, by=seventh, branch=rj.enrich(refuse_soon), strict=True),
    "filter": lambda: rj.filter(refuse),
    "enrich": lambda: rj.enrich(refuse_soon),
    "enrich in threads": lambda: rj.enrich(refuse),
    "map": lambda: rj.map(refuse_soon),
    "enrich with a fallback": lambda: rj.enrich(refuse_soon, fallback=lambda job, error: refuse()),
    "buffer by size": lambda: rj.buffer(timespan=0.002, size=40, measure=refuse),
    "tap": lambda: rj.tap(refuse_soon),
    "rate_limit by a key": lambda: rj.rate_limit(20, per=0.01, by=refuse),
    "execute_batch": lambda: compose(rj.buffer(7, 0.002), rj.execute_batch(refuse)),
    "execute_batch of single jobs": lambda: rj.execute_batch(refuse_soon),
}


@pytest.mark.parametrize("stage", STAGES)
async def test_the_stage_keeps_the_laws(stage):
    await conformance.operator(STAGES[stage], failing=FAILING.get(stage))
