"""How often Hypothesis tries: as often as a test says, or HYPOTHESIS_PROFILE=nightly, 20,000 times."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

NIGHTLY = 20_000


def profile(examples: int, steps: int = 40) -> settings:
    """The settings of a machine that tries so many examples in a short run."""
    is_nightly = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
    return settings(
        max_examples=NIGHTLY if is_nightly else examples,
        stateful_step_count=steps,
        deadline=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
