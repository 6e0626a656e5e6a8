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
    "execute": lambda: rj.execute(concurrency=5),
    "execute one at a time": lambda: rj.execute(concurrency=1),
    "execute_batch": lambda: compose(rj.buffer(7, 0.002), rj.execute_batch(write, concurrency=2)),
    "execute_batch of single jobs": lambda: rj.execute_batch(write),
    "complete": lambda: rj.complete(),
    "ack": lambda: rj.ack(),
}
FAILING = {
    "filter": lambda: rj.filter(refuse),
    "enrich": lambda: rj.enrich(refuse_soon),
    "enrich in threads": lambda: rj.enrich(refuse),
    "map": lambda: rj.map(refuse_soon),
    "execute_batch": lambda: compose(rj.buffer(7, 0.002), rj.execute_batch(refuse)),
    "execute_batch of single jobs": lambda: rj.execute_batch(refuse_soon),
}


@pytest.mark.parametrize("stage", STAGES)
async def test_the_stage_keeps_the_laws(stage):
    await conformance.operator(STAGES[stage], failing=FAILING.get(stage))
