"""What the bench and the programs that it measures say to each other, in lines of JSON: an order, and then facts.

A program reads its order from stdin, and stops when that is closed: of a bench that was killed nothing is left. Instants are
time.monotonic(), which is one clock for all processes of a machine.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Literal, TypeVar

import msgspec

Runner = Literal["rxjobs", "raw"]
Level = Literal["off", "metrics", "sampled-10", "all"]
Way = Literal["bulk", "single", "together", "paced"]


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What every program is told: where, and which of the two runners it is to be."""

    dsn: str
    schema: str
    runner: Runner


class Work(Order, frozen=True, kw_only=True):
    """Run jobs, so many at once; tell of the first body that starts and then of every `step`."""

    concurrency: int
    step: int
    telemetry: Level = "off"
    computing: bool = False
    """Whether the jobs compute: their bodies are then counted as events tell of them, since they may start elsewhere."""
    children: int = 0
    """How many child processes those that compute run in; 0 is none."""


class Send(Order, frozen=True, kw_only=True):
    """Enqueue so many jobs in one of the ways."""

    way: Way
    count: int


class Hop(Order, frozen=True, kw_only=True):
    """Call a function in a child process so often, one call after the other."""

    count: int


class Compute(Order, frozen=True, kw_only=True):
    """Compute what so many jobs would, in so many processes that do nothing else."""

    count: int
    processes: int


class Ready(msgspec.Struct, frozen=True, tag=True):
    """All is set up: the next line that the program reads has it begin."""


class Reached(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """How far a worker is, and what it has taken so far: seconds of CPU, and bytes of memory now and at most."""

    bodies: int
    at: float
    cpu: float
    resident: int
    peak: int


class Looked(msgspec.Struct, frozen=True, tag=True):
    """The answer to a look: how far a worker is, and when the bodies of noted jobs started, each with the number of its job."""

    now: Reached
    starts: list[tuple[int, float]]


class Sent(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Jobs were enqueued: how long that took, and when the call for each began, where they were paced."""

    seconds: float
    calls: list[float] = []


class Hopped(msgspec.Struct, frozen=True, tag=True):
    """How long each call took, in seconds."""

    seconds: list[float]


class Computed(msgspec.Struct, frozen=True, tag=True):
    """All has been computed, in so many seconds."""

    seconds: float


Fact = Ready | Reached | Looked | Sent | Hopped | Computed

O = TypeVar("O", bound=Order)  # noqa: E741 - an order


def tell(fact: Fact) -> None:
    """Say a fact."""
    sys.stdout.buffer.write(msgspec.json.encode(fact) + b"\n")
    sys.stdout.buffer.flush()


class Bench:
    """The bench, as a program hears it."""

    def __init__(self, lines: asyncio.StreamReader) -> None:
        self._lines = lines

    @classmethod
    async def listen(cls) -> Bench:
        """Begin to listen to stdin."""
        lines = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
        return cls(lines)

    async def order(self, kind: type[O]) -> O:
        """The order, which is the first thing that is said."""
        return msgspec.json.decode(await self._lines.readline(), type=kind)

    async def says_on(self) -> bool:
        """Wait for the next line, which has the program go on; False when there is none and it is to end."""
        return bool(await self._lines.readline())
