"""Worker processes, and a connection to look at the rows with."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import asyncpg
import pytest

import rxjobs as rj
from tests.appended import whole_lines
from tests.forked import Forked, can_fork, fork

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("worker.py")


class Line(NamedTuple):
    """One fact of the ledger."""

    what: str
    id: int
    attempt: int
    at: float


class Worker:
    """A worker process of one test."""

    process: subprocess.Popen[bytes] | Forked

    def __init__(self, folder: Path, number: int, environ: dict[str, str], script: Path = SCRIPT, *, may_fork: bool = True) -> None:
        self._ledger = folder / f"ledger-{number}"
        self._log = folder / f"log-{number}"
        all_ = {**os.environ, "PYTHONPATH": str(ROOT), "LEDGER": str(self._ledger), **environ}
        self._log.touch()
        if may_fork and can_fork(environ):
            self.process = fork([script], environ=all_, out=self._log)
            return
        with self._log.open("w") as log:
            self.process = subprocess.Popen([sys.executable, "-W", "error", script], env=all_, stdout=log, stderr=log)

    @property
    def log(self) -> str:
        return self._log.read_text()

    def lines(self, what: str | None = None) -> list[Line]:
        """What ran here so far."""
        found = (line.split() for line in whole_lines(self._ledger))
        lines = [Line(kind, int(id_), int(attempt), float(at)) for kind, id_, attempt, at in found]
        return [line for line in lines if what is None or line.what == what]

    def ids(self, what: str) -> list[int]:
        return [line.id for line in self.lines(what)]

    async def ended(self, seconds: float = 40.0) -> int:
        """Its exit code, once it has ended; a job that is not to be waited for takes longer than this, a minute."""
        return await asyncio.to_thread(self.process.wait, seconds)


Start = Callable[..., Worker]


@pytest.fixture
def start(tmp_path):
    """Start worker processes; what is left of them is killed in the end."""
    workers: list[Worker] = []

    def start(dsn: str, *, script: Path = SCRIPT, may_fork: bool = True, **settings: object) -> Worker:
        environ = {"RXJOBS_DSN": dsn} | {name.upper(): str(value) for name, value in settings.items()}
        workers.append(Worker(tmp_path, len(workers), environ, script, may_fork=may_fork))
        return workers[-1]

    yield start
    for worker in workers:
        worker.process.kill()
        worker.process.wait()


@pytest.fixture
async def connection(dsn):
    """A connection to a migrated database."""
    await rj.App(dsn).migrate()
    connection = await asyncpg.connect(dsn)
    yield connection
    await connection.close()
