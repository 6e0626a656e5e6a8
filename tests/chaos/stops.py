"""Workers that are asked to stop at one moment or another, many at once; what they leave must be as it was promised."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import asyncpg

from rxjobs.serving import ONE_WISH
from tests.chaos.faults import CLAIM, put
from tests.chaos.ground import LEASE, Ground, Worker
from tests.chaos.ledger import now
from tests.numbers import HANG, at_most
from tests.proxy import Link
from tests.waiting import until

GRACE = 3.0
"""Seconds: what the ground gives its workers."""


async def ended(ground: Ground, workers: Sequence[Worker], seconds: float = GRACE + HANG) -> list[tuple[int, float]]:
    """The exit codes of workers that were asked to stop now, and how long each took, in seconds."""

    async def one(worker: Worker, since: float) -> tuple[int, float]:
        code = await worker.ended(seconds)
        ground.died[worker.pid] = now()
        return code, time.monotonic() - since

    return await asyncio.gather(*(one(worker, time.monotonic()) for worker in workers))


async def stop(ground: Ground, workers: Sequence[Worker]) -> list[float]:
    """SIGTERM to all of them: each has to end well; gives how long it took them, seconds."""
    for worker in workers:
        worker.process.send_signal(signal.SIGTERM)
    return await ended_well(ground, workers)


async def heard(worker: Worker) -> None:
    """Wait until it has said that it stops: on a busy machine that is long after the signal."""
    await until(lambda: "stopping; jobs in flight may end" in worker.log)


async def ended_well(ground: Ground, workers: Sequence[Worker]) -> list[float]:
    """Wait until these have ended as they should; gives how long it took them, seconds."""
    found = await ended(ground, workers)
    for worker, (code, _) in zip(workers, found, strict=True):
        assert code == 0, (code, worker.log)
        assert not any(word in worker.log for word in ("Traceback", "Exception ignored")), worker.log
    return [took for _, took in found]


async def states(ground: Ground) -> Counter[tuple[str, str, int]]:
    """How many jobs there are by type, state and attempt."""
    rows = await ground.rows("SELECT type, state, attempt, count(*) AS jobs FROM rxjobs.jobs GROUP BY 1, 2, 3")
    return Counter({(row["type"], row["state"], row["attempt"]): row["jobs"] for row in rows})


async def clear(ground: Ground) -> None:
    """Begin anew."""
    await ground.execute("TRUNCATE rxjobs.live_jobs, rxjobs.finished_jobs")


async def short_jobs(ground: Ground, count: int) -> None:
    """So many jobs of 50 ms each."""
    await ground.execute(
        "INSERT INTO rxjobs.live_jobs (type, priority, args) "
        """SELECT 'work', 5, '{"key": "short", "seconds": 0.05}' FROM generate_series(1, $1::integer)""",
        count,
    )


LONG_AND_SHORT = """
INSERT INTO rxjobs.live_jobs (type, queue, args)
SELECT CASE WHEN n >= $2 OR n % 4 = 0 THEN 'work' ELSE 'tidy' END,
       CASE WHEN n < $2 THEN 'default' ELSE 'healthy' END,
       json_build_object('key', n::text, 'seconds', CASE WHEN n < $2 THEN ('{1, 10, 120, 120}'::float8[])[n % 4 + 1] ELSE 0.05 END)
FROM generate_series(0, $1::integer - 1) AS n
"""


async def stop_with_long_jobs(ground: Ground, count: int) -> None:
    """F2: jobs of 1, 10 and 120 s in each of so many workers, which take more and more short ones from another queue."""
    await clear(ground)
    jobs, long = 4_000 * count, 60 * count
    await ground.execute(LONG_AND_SHORT, jobs, 80 * count)
    tidy = {row["id"] for row in await ground.rows("SELECT id FROM rxjobs.live_jobs WHERE type = 'tidy'")}
    workers = await ground.start(count)
    pids = {worker.pid for worker in workers}
    await until(lambda: pids <= {line.pid for line in ground.lines if line.id in tidy}, every=0.1)
    for worker in workers:
        worker.process.send_signal(signal.SIGTERM)
    for worker in workers:
        await heard(worker)
    told_at = await ground.value("SELECT clock_timestamp()")
    took = await ended_well(ground, workers)
    claim = await ground.value("SELECT extract(epoch FROM max(attempted_at) - $1)::float8 FROM rxjobs.jobs", told_at)
    ground.figures["exit beyond the grace"] += [one - GRACE for one in took]
    ground.figures["last claim after they said that they stop"].append(claim)
    at_most("exit beyond the grace", max(took) - GRACE, 2)
    at_most("last claim after they said that they stop", claim, 0.1)
    claims = await ground.value("SELECT count(DISTINCT attempted_at) FROM rxjobs.jobs WHERE attempted_at > $1", told_at)
    assert claims <= 4 * count  # those that were on their way from two queues; in the grace there would be hundreds
    told: dict[int, list[str]] = defaultdict(list)
    for line in ground.lines:
        if line.id in tidy:
            told[line.id].append(line.what)
    assert {tuple(what) for what in told.values()} == {("start", "stop")}
    done = await ground.value("SELECT count(*) FROM rxjobs.finished_jobs")
    assert await states(ground) == {
        ("work", "completed", 1): done,
        ("work", "available", 0): jobs - long - done,
        ("tidy", "available", 0): long,
    }
    assert await ground.value("SELECT count(*) FROM rxjobs.nodes") == 0


async def stop_twice(ground: Ground, count: int) -> None:
    """F2: a second signal exits at once, whatever runs."""
    await clear(ground)
    for _ in range(40 * count):  # as many as each of them holds
        await put(ground, "tidy", key="120 s", seconds=120.0)
    workers = await ground.start(count)
    await until(lambda: {worker.pid for worker in workers} <= {line.pid for line in ground.lines})
    for worker in workers:
        worker.process.send_signal(signal.SIGTERM)
    for worker in workers:
        await heard(worker)
    await asyncio.sleep(ONE_WISH + 0.05)  # two signals at once are one wish
    for worker in workers:
        worker.process.send_signal(signal.SIGTERM)
    found = await ended(ground, workers)
    assert {code for code, _ in found} == {128 + signal.SIGTERM}
    ground.figures["exit at a second signal"] += [took for _, took in found]
    at_most("exit at a second signal", max(took for _, took in found), 1)
    await ground.execute("TRUNCATE rxjobs.nodes")  # nobody is to look for them


async def stop_while_starting(ground: Ground, delays: Sequence[float]) -> None:
    """Row 24: SIGTERM so many seconds after each of these workers was begun."""
    workers = []

    async def one(delay: float) -> tuple[int, float]:
        (worker,) = await ground.spawn(may_fork=False)
        workers.append(worker)
        await asyncio.sleep(delay)
        worker.process.send_signal(signal.SIGTERM)
        (found,) = await ended(ground, [worker])
        assert found[0] in (0, -signal.SIGTERM), (delay, found, worker.log)
        return found

    found = await asyncio.gather(*map(one, delays))
    ground.figures["exit of one that was starting"] += [took for _, took in found]
    for worker in workers:
        assert "Traceback" not in worker.log, worker.log
    assert await ground.value("SELECT count(*) FROM rxjobs.nodes") == 0
    assert await ground.value("SELECT count(*) FROM rxjobs.live_jobs WHERE state = 'executing' OR attempt > 0") == 0


async def stop_in_a_flood(ground: Ground, count: int) -> None:
    """Row 38: as many notifications as go while they stop."""
    await clear(ground)
    workers = await ground.start(count)
    async with flooding(ground):
        await short_jobs(ground, 2000 * count)
        await ground.started(20 * count)
        ground.figures["exit in a flood"] += await stop(ground, workers)
    assert await ground.value("SELECT count(*) FROM rxjobs.live_jobs WHERE state <> 'available' OR attempt > 0") == 0


@asynccontextmanager
async def flooding(ground: Ground) -> AsyncIterator[None]:
    """Notify without pause."""
    connection = await asyncpg.connect(ground.dsn)

    async def flood() -> None:
        while True:
            await connection.execute("SELECT pg_notify('rxjobs', 'default')")

    task = asyncio.create_task(flood())
    try:
        yield
        assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.wait([task])
        await connection.close()


async def stop_with_a_claim_in_flight(ground: Ground, random: Random, *, answer: str) -> None:
    """Row 58: SIGTERM at the moment at which the claim has been sent; its answer comes when they stop already, or never."""
    await clear(ground)
    (worker,) = await ground.start(queues="default")
    asked = worker.link.watch_for(CLAIM, "B", _terminate(worker))
    lost = worker.link.cut_after(CLAIM, "Z") if answer == "lost" else None
    await short_jobs(ground, 30)
    await ground.execute("SELECT pg_notify('rxjobs', 'default')")
    await asyncio.wait_for(asked.sprung.wait(), HANG)
    await heard(worker)
    worker.link.silence(lambda link: False)
    ((code, _),) = await ended(ground, [worker])
    assert code == 0, worker.log
    assert lost is None or lost.sprung.is_set()
    begun = {line.id for line in ground.lines if line.what == "start"}
    assert await states(ground) == +Counter({("work", "completed", 1): len(begun), ("work", "available", 0): 30 - len(begun)})
    assert not begun, "what was claimed after the signal ran"


def _terminate(worker: Worker) -> Any:
    def terminate(link: Link) -> None:
        worker.link.silence(lambda one: one is link)
        worker.process.send_signal(signal.SIGTERM)

    return terminate


async def stop_with_a_job_longer_than_the_lease(ground: Ground) -> None:
    """Row 60: it needs most of the grace, which is longer than a lease; another worker looks for the dead meanwhile."""
    (stopping,) = await ground.start(environ={"RXJOBS_SHUTDOWN_GRACE": str(10 * LEASE)})
    id_ = await put(ground, "work", key="long", seconds=2.5 * LEASE)
    thread = await put(ground, "thread", key="long", seconds=2.5 * LEASE)
    await ground.running(id_, thread)
    await ground.start()
    stopping.process.send_signal(signal.SIGTERM)
    ((code, _),) = await ended(ground, [stopping], 10 * LEASE + HANG)
    assert code == 0, stopping.log
    await ground.drained()
    assert [line.what for line in ground.lines if line.id == id_] == ["start", "end"]
    assert [line.what for line in ground.lines if line.id == thread] == ["start", "end"]
    assert await states(ground) == {("work", "completed", 1): 1, ("thread", "completed", 1): 1}
