"""What happened, as it was written down outside of the database: attempts by the workers, answers by the enqueuer."""

from __future__ import annotations

import time
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import NamedTuple

CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""The one that worker.py uses."""


class Line(NamedTuple):
    """One fact: `start`, `end`, or `stop` where the attempt was asked to stop. `at` is in nanoseconds since boot."""

    what: str
    id: int
    attempt: int
    pid: int
    at: int
    queue: str


class Interval(NamedTuple):
    """One attempt. One that has neither ended nor died has no `to`."""

    id: int
    attempt: int
    pid: int
    since: int
    to: int | None
    how: str
    queue: str


class Answer(Enum):
    """What the caller of enqueue was told: done, surely not done, or neither."""

    OK = "ok"
    FAIL = "fail"
    INFO = "info"


def now() -> int:
    """The ledger's clock, ns."""
    return time.clock_gettime_ns(CLOCK)


def read(folder: Path) -> list[Line]:
    """All lines of all processes, in the order of time."""
    return sorted(_lines(folder), key=lambda line: line.at)


def _lines(folder: Path) -> Iterator[Line]:
    for path in folder.iterdir():
        for line in path.read_text().splitlines():
            what, id_, attempt, pid, at, queue = line.split()
            yield Line(what, int(id_), int(attempt), int(pid), int(at), queue)


def intervals(lines: list[Line], died: dict[int, int]) -> list[Interval]:
    """The attempts. What a process was at when it died ended then."""
    begun: dict[tuple[int, int, int], Line] = {}
    found: list[Interval] = []
    for line in lines:
        key = line.id, line.attempt, line.pid
        if line.what == "start":
            if key in begun:  # given back and begun again by the same process: what came of the first is not known
                found.append(_open(begun[key], died))
            begun[key] = line
        elif key in begun:
            start = begun.pop(key)
            found.append(Interval(start.id, start.attempt, start.pid, start.at, line.at, line.what, start.queue))
    found += [_open(start, died) for start in begun.values()]
    return sorted(found, key=lambda one: (one.id, one.since))


def _open(start: Line, died: dict[int, int]) -> Interval:
    return Interval(start.id, start.attempt, start.pid, start.at, died.get(start.pid), "died", start.queue)
