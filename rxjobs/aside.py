"""Outcomes that the server has no room for: kept aside and tried again, so that they hold up nobody who is behind them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from rxjobs.awaiting import LoopScheduler
from rxjobs.hold import Acked
from rxjobs.log_lines import logger
from rxjobs.outcome import Finished

log = logger("rxjobs.demand")

FIRST_DELAY, LONGEST_DELAY = 0.1, 2.0
"""Seconds between tries to write them down."""

Settling = tuple[Finished, Acked | None]


class Unwritten(Exception):
    """A source has written down all but these, for which there is no room; `left` are the ids of their jobs."""

    def __init__(self, left: Collection[int], error: Exception) -> None:
        super().__init__(f"there is no room for {len(left)} outcomes: {type(error).__name__}: {error}")
        self.left = frozenset(left)


class Aside:
    """What was too large to be written down, and is handed to `again` after a while, a longer one each time."""

    def __init__(self, scheduler: LoopScheduler, again: Callable[[list[Settling]], object]) -> None:
        self._scheduler = scheduler
        self._again = again
        self._waiting: list[Settling] = []
        self._tries = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, settling: Sequence[Settling], error: Unwritten) -> tuple[list[Settling], list[Settling]]:
        """Keep those of them that are left over, too; gives what was written, and what was not."""
        if not self._waiting:
            self._tries += 1
            delay = min(LONGEST_DELAY, FIRST_DELAY * 2 ** min(self._tries - 1, 10))
            self._scheduler.later(delay, self._take_up)
            if self._tries & (self._tries - 1) == 0:  # the 1st, 2nd, 4th, 8th … time
                log.warning("%s; they are kept and tried again, while others go on", error)
        left = [one for one in settling if one[0].job.id in error.left]
        self._waiting += left
        return [one for one in settling if one[0].job.id not in error.left], left

    def wrote_all(self) -> None:
        """Something was written down, and nothing of it left over."""
        if self._tries and not self._waiting:
            log.warning("there is room again: all outcomes are written down")
            self._tries = 0

    def _take_up(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._again(waiting)
