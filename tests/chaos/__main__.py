"""`python -m tests.chaos --minutes 30 --seed N`: faults at random for so long. Exit code 1 where anything was not kept."""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import sys

from tests.chaos import checker
from tests.chaos.faults import ALL
from tests.chaos.ground import SMALL, Ground
from tests.chaos.nemesis import Nemesis
from tests.servers import PrivatePostgres

ROUND = 300.0
"""Seconds of faults, after which everything is drained and judged, on a fresh database each time."""


async def main(minutes: float, seed: int, workers: int, names: list[str]) -> int:
    """Rounds of faults; gives the exit code."""
    os.environ["STAMPED"] = "1"  # for the workers: what they log is evidence
    faults = [fault for fault in ALL if not names or fault.__name__ in names]
    left, found, number = minutes * 60, [], 0
    while left > 0:
        async with PrivatePostgres(**SMALL) as server, Ground(server) as ground:
            await ground.start(workers)
            nemesis = Nemesis(ground, seed + number, faults)
            await nemesis.rage(min(left, ROUND))
            attempts = ground.attempts
            # a child that was killed costs its job an attempt, which has its backoff
            killed = {worker.pid: ground.died[worker.pid] for worker in ground.workers if worker.pid in ground.died}
            rescues = checker.recovery(attempts, killed)
            recoveries = sorted(nemesis.recoveries)
            print(
                f"round {number + 1} (seed {seed + number}): {sum(nemesis.done.values())} faults, {len(ground.answers)} enqueues, "
                f"{len(attempts)} attempts; 20 jobs begun after a fault: p99 {checker.percentile(recoveries, 0.99):.1f} s; "
                f"a killed worker's job begun again: p99 {checker.percentile(rescues, 0.99):.1f} s of {len(rescues)}",
                flush=True,
            )
            for violation in nemesis.violations:
                print(f"  VIOLATION {violation}", flush=True)
            found += nemesis.violations
        left, number = left - ROUND, number + 1
    print(f"seed {seed}: {len(found)} violations" if found else f"seed {seed}: everything held")
    return 1 if found else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--faults", nargs="*", default=[], help=f"some of: {', '.join(fault.__name__ for fault in ALL)}")
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    sys.exit(asyncio.run(main(given.minutes, given.seed, given.workers, given.faults)))
