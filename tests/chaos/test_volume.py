"""Many jobs, as many as go in a few seconds; test_long.py has very many."""

from __future__ import annotations

import pytest

from tests.chaos import volume
from tests.chaos.loaded import shown

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(240)]


async def test_jobs_that_are_done_take_no_memory(ground):
    """Row 18."""
    growth = await volume.memory_between(ground, 5_000, 20_000, seconds=60)
    shown("from 5,000 to 20,000 jobs", growth=growth, **{what: found[-1] for what, found in ground.figures.items()})
    assert growth < 10


async def test_jobs_that_fail_together_do_not_come_back_together(ground):
    """F46."""
    found = await volume.storm(ground, 1_000, seconds=60)
    shown("1,000 failures at once", **found)
    assert found["most"] - found["least"] > 0.08 * found["least"]  # up to a tenth, at random
    assert found["error_bytes"] < 64 * 1024
    assert found["healthy"] > 0  # of ten that are enqueued a second
