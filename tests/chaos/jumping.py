"""`python -m tests.chaos.jumping [MODULE]`: a worker, with a wall clock that is somewhere else at every look."""

from __future__ import annotations

import random
import sys
import time
from datetime import datetime, timedelta, tzinfo
from importlib import import_module

JUMPS = (-3600.0, 3600.0, -90.0, 90.0, 0.0)
"""Seconds."""

real_time, real_time_ns = time.time, time.time_ns


def jump() -> float:
    """How far off the clock is now, seconds."""
    return random.choice(JUMPS)


class Jumping(datetime):
    """Stands for datetime in the modules of rxjobs."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        return datetime.now(tz) + timedelta(seconds=jump())


if __name__ == "__main__":
    time.time = lambda: real_time() + jump()
    time.time_ns = lambda: real_time_ns() + int(jump() * 1e9)
    worker = import_module(sys.argv[1] if len(sys.argv) > 1 else "tests.chaos.worker")
    for name, module in tuple(sys.modules.items()):
        if name.startswith("rxjobs.") and getattr(module, "datetime", None) is datetime:
            module.datetime = Jumping  # type: ignore[attr-defined]
    worker.run()
