"""How many calls there were lately, and how many of them failed."""

from __future__ import annotations

from collections.abc import Callable


class Window:
    """Calls in the last `seconds`, counted by halves: those of the half that runs now and of the one before."""

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._half = seconds / 2
        self._clock = clock
        self._turns_at = 0.0
        self._now = self._before = (0, 0)

    def add(self, *, is_good: bool) -> None:
        """Count a call."""
        self._turn()
        calls, failed = self._now
        self._now = calls + 1, failed + (not is_good)

    @property
    def counts(self) -> tuple[int, int]:
        """How many calls, and how many of them failed."""
        self._turn()
        return self._now[0] + self._before[0], self._now[1] + self._before[1]

    def take(self) -> tuple[int, int]:
        """What is counted, and count from the start again."""
        counts = self.counts
        self._now = self._before = (0, 0)
        return counts

    def put_back(self, calls: int, failed: int) -> None:
        """Count again what was taken."""
        self._turn()
        self._now = self._now[0] + calls, self._now[1] + failed

    def _turn(self) -> None:
        late = self._clock() - self._turns_at
        if late >= 0:
            self._before = self._now if late < self._half else (0, 0)
            self._now = (0, 0)
            self._turns_at += self._half * (1 + late // self._half)
