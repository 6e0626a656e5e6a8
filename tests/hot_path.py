"""Where the microseconds of a job go: `make hot-path`, or with `--profile` a tree of where they are spent.

No PostgreSQL is asked: a source in memory gives jobs that do nothing, so that what is left is the work of this process. The least
of many short rounds is told, which other work on the machine touches least. docs/design/hot-path.md has what was found.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import reactivex as rx
from reactivex import Observable

import rxjobs as rj
from rxjobs.awaiting import LoopScheduler
from rxjobs.declared import Pipeline
from rxjobs.outcome import COMPLETE, Finished
from rxjobs.runner import Running
from rxjobs.serving import run
from rxjobs.stopping import spawn

JOBS = 800


class Source:
    """Gives jobs out of a list, and takes note of how many were settled."""

    wakes: Observable[object] = rx.never()

    def __init__(self, jobs: list[rj.Job]) -> None:
        self._jobs = jobs
        self.settled = 0

    async def fetch(self, n: int) -> list[rj.Job]:
        taken, self._jobs = self._jobs[:n], self._jobs[n:]
        return taken

    async def settle(self, finished: list[Finished]) -> None:
        self.settled += len(finished)


async def through(app: rj.App, jobs: list[rj.Job], *stages: Any) -> float:
    """CPU µs that a job takes on its way from the source through these stages to its ack."""
    source = Source(jobs)
    stream = rj.pull(source, max_demand=100).pipe(*stages)
    running = Running(
        [Pipeline("hot", stream)], LoopScheduler(asyncio.get_running_loop()), app.events, max_restarts=0, restart_window=1
    )
    began = time.process_time()
    running.start()
    while source.settled < len(jobs):  # noqa: ASYNC110 - nothing to be told by that would not be measured too
        await asyncio.sleep(0)
    took = time.process_time() - began
    await running.stop(1)
    return took / len(jobs) * 1e6


async def measure(rounds: int) -> dict[str, float]:
    """CPU µs a job, by step."""
    app = rj.App("postgresql://nowhere")

    @app.job(name="noop")
    async def noop(n: int) -> None: ...

    @app.job(name="limited", timeout=60)
    async def limited(n: int) -> None: ...

    @app.job(name="waiting")
    async def waiting(n: int) -> None:
        await asyncio.sleep(0)

    def made(name: str) -> list[rj.Job]:
        now, definition = datetime.now(UTC), app.definition(name)
        return [
            rj.Job(id=n, type=name, args={"n": n}, definition=definition, attempt=1, scheduled_at=now, attempted_at=now)
            for n in range(JOBS)
        ]

    jobs, with_timeout, that_wait = made("noop"), made("limited"), made("waiting")
    loop, perform = asyncio.get_running_loop(), app.definition("noop").perform
    assert perform is not None

    async def nothing(job: rj.Job) -> None: ...

    def each(step: Callable[[rj.Job], object]) -> float:
        began = time.process_time()
        for job in jobs:
            step(job)
        return (time.process_time() - began) / JOBS * 1e6

    steps: dict[str, Callable[[], float]] = {
        "a task": lambda: each(lambda job: spawn(loop, nothing(job))),
        "a task that performs the job": lambda: each(lambda job: spawn(loop, perform(job, None))),
        "its start, told the metrics": lambda: each(lambda job: app.events.run_began(job, 1, 1)),
        "its end, told them": lambda: each(lambda job: app.events.run_stopped(job, COMPLETE, 1, 1)),
    }
    found = dict.fromkeys(steps, float("inf"))
    ways = {
        "source → execute → ack": (jobs, lambda: [rj.execute(concurrency=50), rj.ack()]),
        "source → execute → ack, of jobs that wait once": (that_wait, lambda: [rj.execute(concurrency=50), rj.ack()]),
        "source → complete → ack": (jobs, lambda: [rj.complete(), rj.ack()]),
        "source → filter → enrich → execute → ack": (
            jobs,
            lambda: [rj.filter(lambda job: True), rj.enrich(_nothing_more), rj.execute(concurrency=50), rj.ack()],
        ),
        "source → execute, with a timeout → ack": (with_timeout, lambda: [rj.execute(concurrency=50), rj.ack()]),
    }
    found |= dict.fromkeys(ways, float("inf"))
    for _ in range(rounds):
        for name, step in steps.items():
            found[name] = min(found[name], step())
            await asyncio.sleep(0.001)  # tasks that are not eager run now, and are not counted
        for name, (some, stages) in ways.items():
            found[name] = min(found[name], await through(app, some, *stages()))
    return found


async def _nothing_more(job: rj.Job) -> dict[str, Any]:
    return {}


async def main(rounds: int, profile: bool) -> None:
    if profile:
        from pyinstrument import Profiler

        with Profiler(interval=0.0002, async_mode="disabled") as profiler:
            await measure(rounds)
        print(profiler.output_text(show_all=True))
        return
    for name, took in (await measure(rounds)).items():
        print(f"{took:7.2f} µs  {name}")


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=100)
    options.add_argument("--profile", action="store_true")
    asked = options.parse_args()
    run(main(asked.rounds, asked.profile))
