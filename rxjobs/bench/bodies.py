"""The jobs of the bench. Both runners run the same ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from rxjobs.bench.tally import Tally

QUEUE = "default"
NOTHING, NOTED, STAYING, COMPUTING = "nothing", "noted", "staying", "computing"
"""The job types: one that does nothing, one whose start is noted, one that never ends, and one that computes."""

TURNS = 100_000
"""How long a job computes: a few milliseconds."""

Body = Callable[[int], Coroutine[Any, Any, None]]
"""The function of a job, which is given the job's number."""


def bodies(tally: Tally) -> Mapping[str, Body]:
    """The functions of the job types that run on the event loop."""

    async def nothing(number: int) -> None:
        tally.count()

    async def noted(number: int) -> None:
        tally.note(number)

    async def staying(number: int) -> None:
        tally.count()
        await asyncio.get_running_loop().create_future()

    return {NOTHING: nothing, NOTED: noted, STAYING: staying}


def compute(number: int) -> int:
    """Keep a core busy."""
    for turn in range(TURNS):
        number = (number * 31 + turn) % 1_000_003
    return number


def echo(payload: str) -> str:
    """Give back what came: a call whose time is all on the way."""
    return payload
