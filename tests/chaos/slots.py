"""Leaders that are killed when slots of cron are due; whoever leads next makes what is missing, and nothing twice."""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from random import Random
from typing import Any

from tests.chaos.ground import CONNECTING, LEADER, Ground
from tests.chaos.ledger import now
from tests.chaos.loaded import HANG
from tests.waiting import until

JUMPING = ("-m", "tests.chaos.jumping", "tests.chaos.secondly")
"""The nodes' own clocks are an hour off, or not, at every look."""
TAKE, MAKE = "-- Take the slots", "-- Insert jobs"
"""How the statements begin by which slots are made into jobs, in one transaction."""
PHASES = {"slots asked": (TAKE, "B"), "slots taken": (TAKE, "Z"), "jobs asked": (MAKE, "B"), "jobs made": (MAKE, "Z")}
EVERY = {"tick": 1, "tock": 2}
"""The job type of each entry, and how many seconds lie between two slots."""
NEWER = "SELECT max(scheduled_at) > $1 FROM rxjobs.jobs"
CLOCK = "SELECT extract(epoch FROM clock_timestamp())::float8"
MADE = """
SELECT extract(epoch FROM scheduled_at)::float8 AS slot, count(*) AS jobs
FROM rxjobs.jobs
WHERE type = $1 AND scheduled_at <= to_timestamp($2::float8)
GROUP BY scheduled_at
ORDER BY scheduled_at
"""


async def kill_leaders(ground: Ground, random: Random, kills: int, nodes: int = 3) -> None:
    """SIGKILL to whoever leads, so many times, just when a slot is due or is being made; another takes its place."""
    await ground.start(nodes, command=JUMPING)
    await until(lambda: ground.value("SELECT count(*) > 0 FROM rxjobs.jobs"), seconds=HANG, every=CONNECTING)
    for _ in range(kills):
        victim = await ground.leader()
        phase = random.choice(["due", "due", *PHASES])
        if phase == "due":
            clock: float = await ground.value(CLOCK)
            await asyncio.sleep(math.ceil(clock) - clock + random.uniform(0.0, 0.1))
        else:
            with suppress(TimeoutError):  # somebody else leads by now
                await asyncio.wait_for(victim.link.watch_for(*PHASES[phase]).sprung.wait(), 4 * LEADER)
        ground.kill(victim)
        died = now()
        made = await ground.value("SELECT max(scheduled_at) FROM rxjobs.jobs")
        await ground.spawn(command=JUMPING)
        await until(lambda made=made: ground.value(NEWER, made), seconds=4 * HANG, every=CONNECTING)  # type: ignore[misc]
        ground.figures[f"without a new slot, killed when {phase}"].append((now() - died) / 1e9)


async def each_slot_once(ground: Ground) -> int:
    """Check that every slot from the first on up to now has one job; gives how many there were."""
    end = math.floor(await ground.value(CLOCK))
    return sum([await _each_once(ground, type_, step, end) for type_, step in EVERY.items()])


async def _each_once(ground: Ground, type_: str, step: int, end: int) -> int:
    async def come_to_the_end() -> list[Any]:
        rows = await ground.rows(MADE, type_, end)
        return rows if rows and end - rows[-1]["slot"] < step else []

    rows = await until(come_to_the_end, seconds=HANG, every=CONNECTING)
    first = rows[0]["slot"]
    expected = {first + step * n for n in range(int((end - first) // step) + 1)}
    missing = expected - {row["slot"] for row in rows}
    assert not missing, f"{type_} has no job for {sorted(missing)}"
    odd = {row["slot"]: row["jobs"] for row in rows if row["jobs"] != 1 or row["slot"] not in expected}
    assert not odd, f"{type_} has other than one job, or one that is no slot: {odd}"
    return len(rows)
