"""What happened, as it was written down outside of the database: attempts by the workers, answers by the enqueuer."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import NamedTuple

CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""The one that worker.py uses."""


class Line(NamedTuple):
    """One fact, `at` in nanoseconds since boot.

    `start` and `end`; `stop` where the attempt was asked to stop, `crash` where it is about to end its own process.
    """

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


class Ledgers:
    """The files of all processes in a folder. Each is read as it grows: whoever waits for a line looks many times a second."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: Counter[Path] = Counter()
        self._lines: list[Line] = []

    def lines(self) -> list[Line]:
        """All lines so far, in the order of time."""
        for path in self._folder.iterdir():
            self._lines += self._new(path)
        self._lines.sort(key=lambda line: line.at)
        return self._lines

    def _new(self, path: Path) -> Iterator[Line]:
        with path.open("rb") as file:
            file.seek(self._read[path])
            whole = file.read().rpartition(b"\n")[0]
        if whole:
            self._read[path] += len(whole) + 1
        for line in whole.decode().splitlines():
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
    to = max(start.at, died[start.pid]) if start.pid in died else None
    return Interval(start.id, start.attempt, start.pid, start.at, to, "died", start.queue)
