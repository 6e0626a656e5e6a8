"""Where faults happen: a database, workers that each have a link of their own to it, and a look at everything afterwards."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any, Self
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import psutil

import rxjobs as rj
from rxjobs.settings import Settings
from tests.chaos import checker, ledger
from tests.chaos.ledger import Answer
from tests.forked import Forked, can_fork, fork
from tests.proxy import Proxy
from tests.servers import PrivatePostgres
from tests.waiting import until

ROOT = Path(__file__).parents[2]
LEASE, HEARTBEAT, RESCUE, LEADER, POLL = 3.0, 0.5, 1.0, 1.0, 0.5
"""Seconds: a lease, between two renewals of it, two looks for the dead, of a leader that fell silent, between two polls."""
FAST = {
    "RXJOBS_LEASE_SECONDS": str(LEASE),
    "RXJOBS_HEARTBEAT_SECONDS": str(HEARTBEAT),
    "RXJOBS_RESCUE_SECONDS": str(RESCUE),
    "RXJOBS_LEADER_SECONDS": str(LEADER),
    "RXJOBS_POLL_SECONDS": str(POLL),
    "RXJOBS_SHUTDOWN_GRACE": "3",
}
DEFAULT = {name: str(getattr(Settings(), name.removeprefix("RXJOBS_").lower())) for name in FAST}
"""What nobody has set: a lease of half a minute."""
SMALL = {"shared_buffers": os.environ.get("CHAOS_SHARED_BUFFERS", "32MB"), "max_connections": "80", "max_notify_queue_pages": "64"}
WORKER = ("-m", "tests.chaos.worker")
LOOK = 0.25
CONNECTING = 0.1
"""Seconds between two looks that connect each."""

WATCHED = """
CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'job % has ended, and must not change', OLD.id;
END $$;
CREATE TRIGGER terminal_rows_never_change BEFORE UPDATE OR DELETE ON rxjobs.finished_jobs
    FOR EACH ROW EXECUTE FUNCTION public.refuse();
CREATE FUNCTION public.take_long() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_sleep(3);
    RETURN NEW;
END $$;
CREATE TRIGGER late_rows_take_long BEFORE INSERT ON rxjobs.live_jobs
    FOR EACH ROW WHEN (NEW.type = 'late') EXECUTE FUNCTION public.take_long();
"""
ROWS = """
SELECT id, type, state, attempt, max_attempts, errors, args::text AS args,
       EXISTS (SELECT FROM rxjobs.nodes WHERE id = jobs.node AND expires_at > now()) AS is_leased
FROM rxjobs.jobs AS jobs
"""


class Worker:
    """A worker process, and its own link to the database."""

    def __init__(self, process: subprocess.Popen[bytes] | Forked, link: Proxy, log: Path) -> None:
        self.process = process
        self.link = link
        self._log = log

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def connections(self) -> int:
        """How many it has to its own link: the server sees only that, and one that is silent does not hear that it was closed."""
        port, process = urlsplit(self.link.dsn).port, psutil.Process(self.pid)
        find = process.net_connections if hasattr(process, "net_connections") else process.connections  # before psutil 6
        return sum(bool(one.raddr) and one.raddr.port == port for one in find("tcp"))

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    async def ended(self, seconds: float) -> int:
        """Its exit code, once it has ended within so many seconds."""
        return await asyncio.to_thread(self.process.wait, seconds)


class Ground:
    """One database on a server that may be broken, and who works on it."""

    def __init__(self, server: PrivatePostgres, *, tablespace: str = "pg_default") -> None:
        self.server = server
        self.figures: dict[str, list[float]] = defaultdict(list)
        """What was measured, by what it is; seconds where nothing else is said."""
        self.workers: list[Worker] = []
        self.answers: dict[str, Answer] = {}
        self.died: dict[int, int] = {}
        """When which worker was killed."""
        self._seen: Counter[int] = Counter()
        """When which child was there last, ns."""
        self.absences: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self.use: dict[int, tuple[int, int, int]] = {}
        self.may_wait: frozenset[str] = frozenset()
        self._name = f"chaos_{uuid4().hex[:12]}"
        self._tablespace = tablespace
        self._stack = AsyncExitStack()

    @property
    def dsn(self) -> str:
        """The database, by no proxy."""
        return urlsplit(self.server.dsn)._replace(path=f"/{self._name}").geturl()

    async def __aenter__(self) -> Self:
        self._folder = Path(self._stack.enter_context(TemporaryDirectory(prefix="rxjobs-chaos-")))
        self._ledgers = self._folder / "ledgers"
        self._ledgers.mkdir()
        self._read = ledger.Ledgers(self._ledgers)
        await self._execute(self.server.dsn, f"CREATE DATABASE {self._name} TEMPLATE template0 TABLESPACE {self._tablespace}")
        await rj.App(self.dsn).migrate()
        await self.execute(WATCHED)
        # before it has been up for a lease nobody is rescued
        await until(lambda: self.value(f"SELECT now() - pg_postmaster_start_time() > interval '{LEASE} seconds'"), every=CONNECTING)
        looking = asyncio.create_task(self._look_for_ever())
        self._stack.callback(looking.cancel)
        return self

    async def __aexit__(self, *raised: object) -> None:
        for worker in self.workers:
            self._kill(worker)
        await self._stack.aclose()
        with suppress(OSError, asyncpg.PostgresError):  # the server may be what was broken last
            await self._execute(self.server.dsn, f"DROP DATABASE {self._name} WITH (FORCE)")

    # who works

    async def start(self, count: int = 1, queues: str = "default healthy", **how: Any) -> list[Worker]:
        """Start workers, and wait until they have joined."""
        started = await self.spawn(count, queues, **how)
        await self.joined(started)
        return started

    async def joined(self, workers: Sequence[Worker]) -> None:
        """Wait until they have joined."""
        for worker in workers:
            await until(
                lambda worker=worker: self.value("SELECT count(*) FROM rxjobs.nodes WHERE pid = $1", worker.pid),  # type: ignore[misc]
                every=CONNECTING,
            )

    async def spawn(
        self,
        count: int = 1,
        queues: str = "default healthy",
        *,
        command: Sequence[str] = WORKER,
        environ: Mapping[str, str] | None = None,
        out: Any = None,
        may_fork: bool = True,
    ) -> list[Worker]:
        """Start workers; `command` is what Python is to run, `out` where they print, and whether they begin with all imported."""
        started = []
        for _ in range(count):
            link = await self._stack.enter_async_context(Proxy(self.dsn))
            started.append(self._spawn(link, command, {"QUEUES": queues, **(environ or {})}, out, may_fork=may_fork))
        self.workers += started
        return started

    def _spawn(self, link: Proxy, command: Sequence[str], how: Mapping[str, str], out: Any, *, may_fork: bool) -> Worker:
        log = self._folder / f"log-{uuid4().hex}"
        ours = {"RXJOBS_DSN": link.dsn, "LEDGERS": str(self._ledgers), "PYTHONPATH": str(ROOT)}
        environ = {**os.environ, **FAST, **ours, **how}
        log.touch()
        if may_fork and out is None and can_fork(how):
            return Worker(fork(command, environ=environ, out=log), link, log)
        with log.open("wb") as logged:
            printed = logged if out is None else out
            process = subprocess.Popen(
                [sys.executable, "-W", "error", *command], cwd=ROOT, env=environ, stdout=printed, stderr=printed
            )
        return Worker(process, link, log)

    @property
    def alive(self) -> list[Worker]:
        """The workers that were not killed."""
        return [worker for worker in self.workers if worker.is_alive]

    async def leader(self) -> Worker:
        """The one that leads."""
        leading = "SELECT pid FROM rxjobs.nodes JOIN rxjobs.leaders ON node = id WHERE leaders.expires_at > now()"
        pids = {worker.pid: worker for worker in self.alive}
        found: Worker = await until(lambda: self._one_of(pids, leading), every=CONNECTING)
        return found

    async def _one_of(self, pids: dict[int, Worker], sql: str) -> Worker | None:
        return pids.get(await self.value(sql))

    def kill(self, worker: Worker) -> int:
        """Kill it with SIGKILL; gives when it was dead."""
        family = self._kill(worker)
        self.died |= dict.fromkeys(family, ledger.now())
        return self.died[worker.pid]

    def kill_child(self, child: psutil.Process) -> None:
        """Kill one of a worker's children."""
        child.kill()
        self.died[child.pid] = ledger.now()

    def _kill(self, worker: Worker) -> list[int]:
        children: list[psutil.Process] = []
        with suppress(psutil.NoSuchProcess):
            children = psutil.Process(worker.pid).children(recursive=True)
        worker.process.kill()
        for child in children:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        worker.process.wait()
        return [worker.pid, *(child.pid for child in children)]

    def freeze(self, worker: Worker) -> int:
        """Stop it with SIGSTOP; gives when."""
        worker.process.send_signal(signal.SIGSTOP)
        return ledger.now()

    def thaw(self, worker: Worker, since: int) -> None:
        """Let it go on; from now on it is a node that was away."""
        worker.process.send_signal(signal.SIGCONT)
        # what it does until it has noticed is done in good faith
        self.absences[worker.pid].append((since, ledger.now() + int(LEASE * 1e9)))

    # what is there

    async def execute(self, sql: str, *args: Any) -> None:
        await self._execute(self.dsn, sql, *args)

    async def value(self, sql: str, *args: Any) -> Any:
        """The first value of a row."""
        rows = await self.rows(sql, *args)
        return rows[0][0] if rows else None

    async def rows(self, sql: str, *args: Any) -> list[asyncpg.Record]:
        connection = await asyncpg.connect(self.dsn)
        try:
            found: list[asyncpg.Record] = await connection.fetch(sql, *args)
            return found
        finally:
            await connection.close()

    @property
    def lines(self) -> list[ledger.Line]:
        """What the workers have noted so far."""
        return self._read.lines()

    @property
    def attempts(self) -> list[ledger.Interval]:
        """The attempts so far."""
        return ledger.intervals(self.lines, self._ended_at_the_earliest | self.died)

    @property
    def _ended_at_the_earliest(self) -> dict[int, int]:
        """When children that are gone were still seen: their worker ends those whose jobs are to stop, and none notes that."""
        ours = {worker.pid for worker in self.workers}
        return {pid: self._seen[pid] for pid in {line.pid for line in self.lines} - ours if not psutil.pid_exists(pid)}

    async def started(self, more: int, *, queue: str | None = None, seconds: float = 60.0) -> float:
        """Wait until so many more attempts have begun; gives how long that took, seconds."""
        since = ledger.now()

        def begun() -> bool:
            new = takewhile(lambda line: line.at > since, reversed(self.lines))
            return sum(line.what == "start" and queue in (None, line.queue) for line in new) >= more

        await until(begun, seconds=seconds)
        return (ledger.now() - since) / 1e9

    async def running(self, *ids: int, seconds: float = 60.0) -> None:
        """Wait until each of these jobs has begun."""
        await until(lambda: set(ids) <= {line.id for line in self.lines if line.what == "start"}, seconds=seconds)

    async def drained(self, seconds: float = 60.0) -> None:
        """Wait until every job has ended that anybody runs."""
        # what was rescued twice waits for its backoff, a quarter of a minute: that is not what is looked at here
        await self.execute("UPDATE rxjobs.live_jobs SET scheduled_at = now() WHERE state = 'retryable'")
        left = "SELECT count(*) FROM rxjobs.live_jobs WHERE NOT type = ANY ($1::text[])"
        try:
            await until(lambda: self._is_zero(left, list(self.may_wait)), seconds=seconds, every=0.1)
        except AssertionError:
            found = await self.rows(
                f"SELECT *, now() AS now FROM ({ROWS}) AS jobs WHERE state IN ('available','executing','scheduled','retryable')"
            )
            raise AssertionError(
                f"not drained after {seconds:g} s: {[dict(row) for row in found[:5]]} and more, {len(found)}"
            ) from None

    async def _is_zero(self, sql: str, *args: Any) -> bool:
        with suppress(OSError, asyncpg.PostgresError):
            return bool(await self.value(sql, *args) == 0)
        return False

    async def verdict(self) -> list[str]:
        """What was not kept. To be asked when everything is drained, healed and thawed."""
        run = checker.Run(
            rows=[_row(record) for record in await self.rows(ROWS)],
            attempts=self.attempts,
            answers=self.answers,
            absences=self.absences,
            given_up=[at for worker in self.workers for at in _given_up(worker.log)],
            changed_when_terminal=sum(worker.log.count("has ended, and must not change") for worker in self.workers),
            use=self.use,
            may_wait=self.may_wait,
        )
        return checker.violations(run)

    async def keep(self, told: Sequence[str]) -> Path:
        """Keep what is known of a run that violated something: `told`, ledgers, logs, rows, absences and deaths; gives where."""
        kept = Path(mkdtemp(prefix="rxjobs-chaos-kept-"))
        shutil.copytree(self._folder, kept, dirs_exist_ok=True)
        for worker in self.workers:
            (kept / f"log-of-{worker.pid}").write_text(worker.log)
        rows = await self.rows("SELECT *, args::text AS args FROM rxjobs.jobs")
        for name, known in {
            "faults": told,
            "rows": [dict(row) for row in rows],
            "nodes": [dict(row) for row in await self.rows("SELECT * FROM rxjobs.nodes")],
            "absences": list(self.absences.items()),
            "died": list(self.died.items()),
        }.items():
            (kept / name).write_text("\n".join(map(str, known)))
        return kept

    async def _look_for_ever(self) -> None:
        while True:
            for worker in self.alive:
                with suppress(psutil.Error):
                    process = psutil.Process(worker.pid)
                    seen = process.memory_info().rss, process.num_threads(), worker.connections
                    self.use[worker.pid] = tuple(map(max, seen, self.use.get(worker.pid, seen)))  # type: ignore[assignment]
                    at, children = ledger.now(), process.children()
                    self._seen |= Counter(dict.fromkeys((child.pid for child in children if is_there(child)), at))
            await asyncio.sleep(LOOK)

    async def _execute(self, dsn: str, sql: str, *args: Any) -> None:
        connection = await asyncpg.connect(dsn)
        try:
            await connection.execute(sql, *args)
        finally:
            await connection.close()


def is_there(process: psutil.Process) -> bool:
    """Whether it has not ended."""
    with suppress(psutil.Error):
        return process.status() != psutil.STATUS_ZOMBIE
    return False


def _row(record: asyncpg.Record) -> checker.Row:
    key = None
    with suppress(ValueError, AttributeError, RecursionError):
        key = json.loads(record["args"]).get("key")
    return checker.row_of(dict(record), key, json.loads(record["errors"]))


def _given_up(log: str) -> list[int]:
    """When a worker whose log is stamped said that it gives its jobs up, ns."""
    told = (line.split(" ", 1) for line in log.splitlines() if "gives its jobs up before others may take them" in line)
    return [int(at) for at, _ in told if at.isdecimal()]
