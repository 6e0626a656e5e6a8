"""Whatever many clients ask of the same jobs at once, none is refused since statements wait for each other in a circle."""

from __future__ import annotations

import pytest

from tests.chaos import crowd
from tests.chaos.loaded import shown

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(240)]


async def argue(ground, random, *, seconds):
    """Have eight clients ask opposites beside two workers, and see that none was refused for it."""
    # rows that have ended are deleted, and made to run again, here
    await ground.execute("DROP TRIGGER terminal_rows_never_change ON rxjobs.finished_jobs")
    await ground.start(2)
    done = await crowd.quarrel(ground, random, seconds=seconds)
    shown("asked", deadlocks=await crowd.deadlocks(ground), **done)
    assert not [what for what in done if "Error" in what and "TimeoutError" not in what], done
    await ground.drained()


async def test_eight_who_ask_opposites_of_the_same_jobs_are_all_served(ground, random):
    """F14; test_long.py has ten minutes of it."""
    await argue(ground, random, seconds=2)
