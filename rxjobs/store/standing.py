"""What nodes tell each other of a breaker."""

from __future__ import annotations

from typing import NamedTuple

import msgspec


class Standing(msgspec.Struct, frozen=True):
    """How a job type's breaker stands for all nodes."""

    type: str
    version: int = 0
    """It goes up whenever the state changes."""
    state: str = "closed"
    is_by_hand: bool = False
    failures: int = 0
    """In a row, while it is closed."""
    successes: int = 0
    """Of probes, while it is half open."""
    probing: int = 0
    """How many probes are out."""
    wait: float | None = None
    """Seconds until probes may try, while it is open."""
    calls: int = 0
    failed: int = 0


class Report(NamedTuple):
    """What a node has seen of a job type since it told last."""

    version: int
    """The version of the row that it is about."""
    moved: str | None
    """That it has opened or closed its own breaker."""
    opened_for: float
    """Seconds for which it has been open."""
    failures: int
    has_succeeded: bool
    """Whether a job went well before these failures."""
    successes: int
    calls: int
    failed: int
    probing: int
    """How many probes it has out now."""
