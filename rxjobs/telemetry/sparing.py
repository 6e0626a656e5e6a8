"""Keep a log from being flooded by what fails over and over."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

SECONDS = 60.0


class Sparing(logging.Filter):
    """Lets one record through a minute, as one line that also says how many were left out."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._lock = threading.Lock()
        self._next = float("-inf")
        self._left_out = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is logged."""
        with self._lock:
            now = self._clock()
            if now < self._next:
                self._left_out += 1
                return False
            self._next = now + SECONDS
            left_out, self._left_out = self._left_out, 0
        record.msg = _one_line(record, left_out)
        record.args = record.exc_info = None
        return True


def _one_line(record: logging.LogRecord, left_out: int) -> str:
    text = record.getMessage()
    error = record.exc_info[1] if record.exc_info else None
    if error is not None:
        text = f"{text}: {type(error).__name__}: {error}"
    if left_out:
        text = f"{text} ({left_out} more like this since the last)"
    return " ".join(text.split())
