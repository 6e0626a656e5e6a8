"""How far a worker is, and what it takes: counted in the process that is measured."""

from __future__ import annotations

import re
import time
from pathlib import Path

from rxjobs.bench.said import Looked, Reached, tell
from rxjobs.executors.memory import resident


class Tally:
    """Counts the bodies of jobs as they start, and tells of the first and then of every so many."""

    def __init__(self, step: int) -> None:
        self._step = step
        self._next = 1
        self._bodies = 0
        self._starts: list[tuple[int, float]] = []

    def count(self, at: float | None = None) -> None:
        """A body has started, just now or at an instant."""
        self._bodies += 1
        if self._bodies >= self._next:
            self._next = (self._bodies // self._step + 1) * self._step
            tell(self._reached(time.monotonic() if at is None else at))

    def note(self, number: int) -> None:
        """The body of the job with this number has started."""
        self._starts.append((number, time.monotonic()))

    def look(self) -> Looked:
        """How far it is now."""
        return Looked(self._reached(time.monotonic()), self._starts)

    def _reached(self, at: float) -> Reached:
        return Reached(bodies=self._bodies, at=at, cpu=time.process_time(), resident=resident(), peak=_peak())


def _peak() -> int:
    """The most bytes of memory that this process ever took."""
    try:
        # not ru_maxrss: on Linux that begins with what the process had taken that started this one
        found = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
        return int(found[1]) * 1024 if found else 0
    except OSError:
        import resource  # here, since Windows has none

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
