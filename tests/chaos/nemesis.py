"""Who chooses the next fault: at random, from a seed that is printed, so that a run can be made again."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from random import Random

from tests.chaos.enqueuer import enqueuing
from tests.chaos.faults import Fault
from tests.chaos.ground import Ground
from tests.chaos.ledger import now

RECOVERY = 15.0
"""Seconds after a fault within which new jobs must run: a lease, a look for the dead, the longest wait between two tries, and a
machine that is busy."""


class Nemesis:
    """Does one fault after the other to a ground that is at work."""

    def __init__(self, ground: Ground, seed: int, faults: Sequence[Fault]) -> None:
        self.ground = ground
        self.random = Random(seed)
        self.faults = faults
        self.done: Counter[str] = Counter()
        self.recoveries: list[float] = []
        self.violations: list[str] = []
        self._told: list[str] = []
        """When each fault began and ended, on the ledger's clock."""

    async def rage(self, seconds: float) -> None:
        """Work and faults for so long; afterwards everything is drained and judged."""
        ground, end = self.ground, time.monotonic() + seconds
        async with (
            enqueuing(ground.dsn, "default", rate=60.0) as busy,
            enqueuing(ground.dsn, "healthy", queue="healthy", rate=10.0) as healthy,
        ):
            while time.monotonic() < end:
                await self._strike(self.random.choice(self.faults))
        ground.answers |= busy.answers | healthy.answers
        await self._drain()
        self.violations += await ground.verdict()
        if self.violations:
            print(f"what is known of it: {await ground.keep(self._told)}", flush=True)

    async def _strike(self, fault: Fault) -> None:
        print(f"{time.strftime('%H:%M:%S')} {fault.__name__}", flush=True)
        began = now()
        try:
            # one that took the place of a killed one needs a server to begin: it waits for none that was never there
            await self.ground.joined(self.ground.alive)
            await fault(self.ground, self.random)
        except AssertionError as error:
            self.violations.append(f"{fault.__name__}: {error}")
        self.done[fault.__name__] += 1
        self._told.append(f"{began} {now()} {fault.__name__}")
        for worker in self.ground.workers:
            if not worker.is_alive and worker.pid not in self.ground.died:
                self.violations.append(f"{fault.__name__}: worker {worker.pid} ended by itself\n{worker.log[-2000:]}")
                self.ground.kill(worker)
                await self.ground.start()
        try:
            self.recoveries.append(await self.ground.started(20, seconds=RECOVERY))
        except AssertionError:
            self.violations.append(f"{fault.__name__}: nothing ran within {RECOVERY:g} s after it")
        await asyncio.sleep(self.random.uniform(0, 1))

    async def _drain(self) -> None:
        try:
            await self.ground.drained(60)
        except AssertionError as error:
            self.violations.append(str(error))
