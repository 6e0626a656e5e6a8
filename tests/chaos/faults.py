"""Faults: each does one bad thing to a ground that is at work, and mends it again before it returns, if it can be mended."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random

import asyncpg
import psutil

from tests.chaos import away
from tests.chaos.away import lasts
from tests.chaos.enqueuer import definitions
from tests.chaos.ground import CONNECTING, LEASE, Ground, Worker
from tests.chaos.ledger import Answer, now
from tests.proxy import listening
from tests.waiting import until

Fault = Callable[[Ground, Random], Awaitable[None]]

CLAIM, ACK = "-- Claim up to", "-- Write down"
"""How the statements begin."""
STARTED = 60.0
"""Seconds in which a child has surely started: each imports what the worker does, on a machine with much else to do."""
PHASES = {"claim sent": (CLAIM, "B"), "claim answered": (CLAIM, "Z"), "ack sent": (ACK, "B"), "ack answered": (ACK, "Z")}


async def kill(ground: Ground, random: Random) -> None:
    """F1: SIGKILL to a worker at a random phase of its work; another takes its place."""
    victim = random.choice(ground.alive)
    phase = random.choice(["running", *PHASES])
    await reached(victim, phase, random)
    ground.kill(victim)
    await ground.spawn()


async def reached(victim: Worker, phase: str, random: Random, patience: float = 0.5) -> None:
    """Wait until a worker comes to a phase; not for ever, since it may have nothing to do."""
    if phase == "running":
        await lasts(random.uniform(0.0, 0.3))
        return
    with suppress(TimeoutError):
        await asyncio.wait_for(victim.link.watch_for(*PHASES[phase]).sprung.wait(), patience)


async def kill_leader(ground: Ground, random: Random) -> None:
    """F34: SIGKILL to the worker that leads; there is another leader by the time its lease is over."""
    ground.kill(await ground.leader())
    died = now()
    await ground.leader()
    ground.figures["without a leader"].append((now() - died) / 1e9)
    await ground.start()


async def pause(ground: Ground, random: Random) -> None:
    """F3, F35: SIGSTOP to the worker that leads for three leases, then SIGCONT."""
    victim = await ground.leader()
    logged = len(victim.log)
    since = ground.freeze(victim)
    await lasts(3 * LEASE)
    # on a busy machine the others may take longer to see that it is gone
    gone = "SELECT NOT EXISTS (SELECT FROM rxjobs.nodes WHERE pid = $1)"
    await until(lambda: ground.value(gone, victim.pid), every=CONNECTING)
    ground.thaw(victim, since)
    woken = now()
    await until(lambda: "the lease of this node ran out" in victim.log[logged:])
    ground.figures["awake until it noticed"].append((now() - woken) / 1e9)


async def restart_fast(ground: Ground, random: Random) -> None:
    """F4: the server ends its sessions in order, and starts again."""
    await ground.server.restart("fast")


async def restart_immediate(ground: Ground, random: Random) -> None:
    """F4: the server crashes, and recovers."""
    await ground.server.restart("immediate")


async def kill_postmaster(ground: Ground, random: Random) -> None:
    """F4: SIGKILL to the server itself."""
    await ground.server.kill_postmaster()
    await ground.server.start()


async def kill_backend(ground: Ground, random: Random) -> None:
    """F4: SIGKILL to one session, for which the server ends all others and recovers."""
    pids = await ground.rows("SELECT pid FROM pg_stat_activity WHERE application_name = 'rxjobs' AND datname = current_database()")
    if pids:
        with suppress(ProcessLookupError):
            os.kill(random.choice(pids)["pid"], signal.SIGKILL)
    await server_is_back(ground)


async def terminate_backends(ground: Ground, random: Random) -> None:
    """Sessions that are ended by an administrator."""
    await ground.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'rxjobs' AND datname = current_database()"
    )


async def server_is_back(ground: Ground) -> None:
    """Wait until connections are accepted."""

    async def answers() -> bool:
        with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            return await ground.value("SELECT true") is True
        return False

    await until(answers)


async def reset(ground: Ground, random: Random, *, rounds: int = 3) -> None:
    """F7: a RST on all links every two seconds."""
    for _ in range(rounds):
        for worker in ground.alive:
            worker.link.reset()
        await lasts(2)


async def finish(ground: Ground, random: Random) -> None:
    """A FIN on all links."""
    for worker in ground.alive:
        worker.link.finish()


async def blackhole(ground: Ground, random: Random, *, seconds: float = 2 * LEASE) -> None:
    """F8: all links of one worker are silent for longer than its lease: it has to stop its coroutines in time by itself."""
    victim = random.choice(ground.alive)
    await ground.running(*[await put(ground, "work", key=f"long/{n}/{now()}", seconds=2 * LEASE) for n in range(9)])
    victim.link.silence()
    await lasts(seconds)
    victim.link.heal()


async def blackhole_listen(ground: Ground, random: Random, *, seconds: float = 3.0) -> None:
    """F9: the links on which workers listen are silent."""
    for worker in ground.alive:
        worker.link.silence(listening)
    await lasts(seconds)
    for worker in ground.alive:
        worker.link.heal()


async def swallow_notifications(ground: Ground, random: Random, *, seconds: float = 3.0) -> None:
    """Not one notification arrives, on links that are well."""
    for worker in ground.alive:
        worker.link.swallow("A")
    await lasts(seconds)
    for worker in ground.alive:
        worker.link.heal()


async def slow_links(ground: Ground, random: Random, *, seconds: float = 4.0) -> None:
    """F10: 200 ms each way."""
    for worker in ground.alive:
        worker.link.delay(0.2)
    await lasts(seconds)
    for worker in ground.alive:
        worker.link.heal()


async def narrow_links(ground: Ground, random: Random, *, seconds: float = 6.0) -> None:
    """F10: 10 kB a second."""
    for worker in ground.alive:
        worker.link.slow(10_000)
    await lasts(seconds)
    for worker in ground.alive:
        worker.link.heal()


async def cut_acks(ground: Ground, random: Random, *, times: int = 10) -> None:
    """F11: outcomes are committed and the answer is lost, so often."""
    workers = ground.alive
    traps = [worker.link.cut_after(ACK, random.choice("CZ"), -(-times // len(workers))) for worker in workers]
    await asyncio.gather(*(until(lambda trap=trap: trap.sprung.is_set()) for trap in traps))  # type: ignore[misc]


async def cut_claims(ground: Ground, random: Random, *, times: int = 4) -> None:
    """Claims are committed and the answer is lost, so often."""
    workers = ground.alive
    traps = [worker.link.cut_after(CLAIM, "Z", -(-times // len(workers))) for worker in workers]
    await asyncio.gather(*(until(lambda trap=trap: trap.sprung.is_set()) for trap in traps))  # type: ignore[misc]


async def greedy_jobs(ground: Ground, random: Random) -> None:
    """F12: a job holds every connection of its node's pool, for longer than a lease: see Ground."""
    await ended(ground, await put(ground, "greedy", key=f"greedy/{now()}", calls=10))


async def deadlocks(ground: Ground, random: Random, *, rounds: int = 3) -> None:
    """F14: two sessions lock rows that are worked on, in opposite orders, and cancel some of them meanwhile."""
    for _ in range(rounds):
        ids = [row["id"] for row in await ground.rows("SELECT id FROM rxjobs.live_jobs ORDER BY id LIMIT 40")]
        await asyncio.gather(_touch(ground, ids), _touch(ground, ids[::-1]))


async def _touch(ground: Ground, ids: list[int]) -> None:
    connection = await asyncpg.connect(ground.dsn)
    try:
        async with connection.transaction():
            for id_ in ids:
                await connection.execute("SELECT FROM rxjobs.live_jobs WHERE id = $1 FOR UPDATE", id_)
                await lasts(0.005)
    except asyncpg.DeadlockDetectedError:
        pass
    finally:
        await connection.close()


async def serialization(ground: Ground, random: Random) -> None:
    """F14: for a time every statement runs into the errors of strict isolation."""
    name = (await ground.value("SELECT current_database()")) or ""
    await ground.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
    await terminate_backends(ground, random)
    await lasts(3)
    await ground.execute(f"ALTER DATABASE {name} RESET default_transaction_isolation")
    await terminate_backends(ground, random)


async def lock_table(ground: Ground, random: Random, *, seconds: float = 2 * LEASE) -> None:
    """F15: somebody holds the table for himself."""
    connection = await asyncpg.connect(ground.dsn)
    async with connection.transaction():
        await connection.execute("LOCK TABLE rxjobs.live_jobs IN ACCESS EXCLUSIVE MODE")
        await lasts(seconds)
    await connection.close()


async def block_loop(ground: Ground, random: Random) -> None:
    """F19: a job holds the whole event loop of its worker for three leases."""
    await ended(ground, await put(ground, "block", key=f"block/{now()}", seconds=3 * LEASE))


async def ended(ground: Ground, id_: int) -> None:
    """Wait until an attempt of this job has ended, whatever came of it."""
    await until(lambda: any(line.id == id_ and line.what != "start" for line in ground.lines))


async def crash_children(ground: Ground, random: Random) -> None:
    """F24: jobs kill their own process, beside others that do not."""
    ids = []
    for n in range(2):
        ids.append(await put(ground, "crash", key=f"crash/{n}/{now()}"))
        ids.append(await put(ground, "child", key=f"child/{n}/{now()}", seconds=0.5))
    await ground.running(*ids, seconds=STARTED)


async def freeze_child(ground: Ground, random: Random) -> None:
    """F24: a child stops answering, and is killed."""
    await ground.running(await put(ground, "child", key=f"frozen/{now()}", seconds=2.0), seconds=STARTED)
    for worker in ground.alive:
        for child in psutil.Process(worker.pid).children():
            with suppress(psutil.Error):
                child.suspend()
                await lasts(0.2)
                ground.kill_child(child)


async def unknown_type(ground: Ground, random: Random) -> None:
    """F32: jobs of a type that nobody here knows."""
    ground.may_wait |= {"of_tomorrow"}
    await ground.execute("INSERT INTO rxjobs.live_jobs (type, args) SELECT 'of_tomorrow', '{}' FROM generate_series(1, 1000)")


POISON = (
    "null",
    "1",
    "[]",
    '"x"',
    "{}",
    '{"key": 1}',
    '{"key": "k", "seconds": "long"}',
    '{"key": "k", "seconds": NaN}',
    "deep",
    "large",
)


async def poison_rows(ground: Ground, random: Random) -> None:
    """F22: rows whose arguments no app has written, each among others that are well."""
    for args in POISON:
        text = {"deep": '{"key": ' + "[" * 1000 + "]" * 1000 + "}", "large": '{"key": "' + "x" * 4_000_000 + '"}'}.get(args, args)
        with suppress(asyncpg.DataError):  # what PostgreSQL refuses cannot be there
            await ground.execute("INSERT INTO rxjobs.live_jobs (type, args) VALUES ('work', $1::text::json)", text)


async def large_ids(ground: Ground, random: Random) -> None:
    """F51: ids beyond 2^53, where a float would take one for another."""
    if await ground.value("SELECT last_value FROM rxjobs.live_jobs_id_seq") < 2**53:
        await ground.execute(f"ALTER TABLE rxjobs.live_jobs ALTER COLUMN id RESTART WITH {2**53 + 1}")


async def junk_notifications(ground: Ground, random: Random, *, count: int = 2000) -> None:
    """F42: anybody may notify."""
    junk = ["", "x" * 7_990, "default\x01", '{"pause": "default"}', "défaut", "\\xff", "default"]
    connection = await asyncpg.connect(ground.dsn)
    try:
        for n in range(count // 100):
            await connection.executemany("SELECT pg_notify('rxjobs', $1 || $2)", [(one, str(n)) for one in junk for _ in range(14)])
    finally:
        await connection.close()


async def herd(ground: Ground, random: Random, *, count: int = 1000) -> None:
    """F40: as many enqueues as go, each by itself, each with its own notification."""
    async with definitions(ground.dsn) as app:
        work = app.definition("work")

        async def some(part: int) -> None:
            for n in range(count // 20):
                key = f"herd/{now()}/{part}/{n}"
                await app.enqueue(work.new(key=key))
                ground.answers[key] = Answer.OK

        await asyncio.gather(*(some(part) for part in range(20)))


async def toggle_queue(ground: Ground, random: Random, *, times: int = 12, longest: float = 0.5, long: float = 3.0) -> None:
    """F39: a queue is paused and goes on, for all nodes or one, and is scaled, while notifications do and do not arrive.

    Every tenth pause is long: from the middle of it on nothing may start.
    """
    async with definitions(ground.dsn) as app:
        for number in range(times):
            for worker in ground.alive:
                worker.link.heal()
                random.choice([lambda link: None, lambda link: link.swallow("A"), lambda link: link.silence(listening)])(
                    worker.link
                )
            victim = random.choice([None, *ground.alive])
            node = None if victim is None else await ground.value("SELECT id FROM rxjobs.nodes WHERE pid = $1", victim.pid)
            await app.queues.scale("default", max_demand=random.choice([None, 5, 40, 200]), node=node)
            await app.queues.pause("default", node=node)
            since = now()
            await lasts(random.uniform(0.0, longest) if number % 10 else long)
            late = [at for at in _starts(ground, victim) if at > since]
            await app.queues.resume("default", node=random.choice([None, node]))
            ground.figures["started in a pause"] += [(at - since) / 1e9 for at in late]
            assert not any(at > since + long / 2 * 1e9 for at in late), (
                f"jobs start in a pause: {late[-1] - since} ns after it began"
            )
            await lasts(random.uniform(0.0, longest))
        await app.queues.scale("default", max_demand=None)
    for worker in ground.alive:
        worker.link.heal()


def _starts(ground: Ground, victim: Worker | None) -> list[int]:
    """When jobs of the queue began, on that worker or on any."""
    lines = [line for line in ground.lines if line.what == "start" and line.queue == "default"]
    return [line.at for line in lines if victim is None or line.pid == victim.pid]


async def put(ground: Ground, type_: str, *, max_attempts: int = 3, **args: object) -> int:
    """One job of a type that the workers know; gives its id."""
    insert = "INSERT INTO rxjobs.live_jobs (type, args, max_attempts) VALUES ($1, $2::text::json, $3) RETURNING id"
    id_: int = await ground.value(insert, type_, json.dumps(args), max_attempts)
    return id_


SERVER_FAULTS: tuple[Fault, ...] = (restart_fast, restart_immediate, kill_postmaster, kill_backend, terminate_backends)
LINK_FAULTS: tuple[Fault, ...] = (
    reset, finish, blackhole, blackhole_listen, swallow_notifications, slow_links, narrow_links, cut_acks, cut_claims,
)  # fmt: skip
WORKER_FAULTS: tuple[Fault, ...] = (kill, kill_leader, pause)
LOCK_FAULTS: tuple[Fault, ...] = (deadlocks, serialization, lock_table, greedy_jobs)
JOB_FAULTS: tuple[Fault, ...] = (
    block_loop, crash_children, freeze_child, unknown_type, poison_rows, large_ids, junk_notifications, herd, toggle_queue,
)  # fmt: skip
ALL: tuple[Fault, ...] = (*SERVER_FAULTS, *away.FAULTS, *LINK_FAULTS, *WORKER_FAULTS, *LOCK_FAULTS, *JOB_FAULTS)
