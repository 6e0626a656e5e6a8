"""The numbers of docs/faults.md: to be reached on a machine that does nothing else, and to be shown on any other."""

from __future__ import annotations

import os

IS_QUIET = "RXJOBS_TEST_QUIET" in os.environ
"""Whether the machine is said to do nothing else."""
HANG = 60.0
"""Seconds within which whatever is waited for has surely happened, on a machine with much else to do."""


def at_most(what: str, figure: float, number: float, *, surely: float = HANG) -> None:
    """What was measured must be no more than that: the number on a quiet machine, what is sure on any other."""
    most = number if IS_QUIET else surely
    assert figure <= most, f"{what}: {figure:.3f}, not at most {most:g}"


def at_least(what: str, figure: float, number: float, *, surely: float) -> None:
    """What was measured must be no less than that: the number on a quiet machine, what is sure on any other."""
    least = number if IS_QUIET else surely
    assert figure >= least, f"{what}: {figure:.3f}, not at least {least:g}"
