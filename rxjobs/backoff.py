"""How long a failed job waits before its next attempt."""

from __future__ import annotations

import random
from collections.abc import Callable

Backoff = Callable[[int, BaseException | None], float]
"""`attempt, error -> seconds`: attempt counts from 1, error is None for a Retry without an exception, and after a rescue."""


def default_backoff(attempt: int, max_attempts: int) -> float:
    """Oban's: 15 + 2**a seconds plus up to 10 % jitter, `a` being the attempt scaled to 20 attempts."""
    scaled = attempt if max_attempts <= 20 else round(attempt / max_attempts * 20)
    return float((15 + 2**scaled) * random.uniform(1.0, 1.1))  # noqa: S311 - jitter, no secret
