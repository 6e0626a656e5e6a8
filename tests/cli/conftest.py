"""The command `rxjobs` on a database of its own, in a folder that holds a user's modules."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import pytest

import rxjobs as rj
from tests.appended import whole_lines
from tests.servers import Databases

# a process that was started in the background, or under nohup, has its children ignore these
for _number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _number == signal.SIGINT else signal.SIG_DFL)

SCRIPT = Path(sysconfig.get_path("scripts")) / "rxjobs"
FORKING = Path(__file__).with_name("forking.py")
SHOP = """
import asyncio
import os
from pathlib import Path

import rxjobs as rj

app = rj.App()
number = 5


@app.job(name="send", queue="mail", tags=["letters"])
async def send(user_id: int, locale: str = "en"):
    note("sent", user_id, locale)


@app.job(name="fail", max_attempts=1)
def fail(text: str):
    raise RuntimeError(text)


@app.job(name="wait", queue="slow")
async def wait(number: int):
    note("began", os.getpid())
    while not Path("go").exists():
        await asyncio.sleep(0.02)
    note("ended", os.getpid())


@app.job(name="add")
def add(first: int, /, *more: int): ...


def note(*words):
    with open("notes", "a") as notes:
        print(*words, file=notes)
"""


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Its answer, which is one JSON document."""
        return json.loads(self.out)


class Commands:
    """Runs `rxjobs`, and what it needs around it."""

    def __init__(self, folder: Path, dsn: str, server: subprocess.Popen[str]) -> None:
        self.folder = folder
        self.dsn = dsn
        self.environment = {"PATH": os.environ["PATH"], "RXJOBS_DSN": dsn, "HOME": str(folder)}
        self._server = server
        self._started: list[subprocess.Popen[str]] = []

    def __call__(self, *arguments: str, environment: Mapping[str, str] | None = None) -> Ran:
        """Run a command to its end."""
        out, err = self.folder / "stdout", self.folder / "stderr"
        order = {
            "arguments": arguments,
            "folder": str(self.folder),
            "environment": {**self.environment, **(environment or {})},
            "out": str(out),
            "err": str(err),
        }
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        print(json.dumps(order), file=self._server.stdin, flush=True)
        code = int(self._server.stdout.readline())
        return Ran(code, out.read_text(), err.read_text())

    def start(self, *arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """Start the installed command; its stderr goes to the file `stderr`."""
        with (self.folder / "stderr").open("w") as err:
            process = subprocess.Popen(
                [SCRIPT, *arguments],
                cwd=self.folder,
                env={**self.environment, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=err,
                text=True,
                # a shell that runs the tests in the background has them ignore Ctrl-C, which a program of theirs inherits
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )
        self._started.append(process)
        return process

    def write(self, name: str, text: str) -> None:
        """Write one of the user's files."""
        (self.folder / name).write_text(text)

    def read(self, name: str) -> str:
        """What stands in a file by now."""
        path = self.folder / name
        return path.read_text() if path.exists() else ""

    def lines(self, name: str) -> list[str]:
        """The lines of a file that are there to their end by now."""
        return whole_lines(self.folder / name)

    def pids(self) -> list[int]:
        """The processes that began a job, in that order."""
        began = [int(line.split()[1]) for line in self.lines("notes") if line.startswith("began")]
        return list(dict.fromkeys(began))

    def sql(self, statement: str, *values: Any) -> list[asyncpg.Record]:
        """Ask the database."""

        async def fetch() -> list[asyncpg.Record]:
            connection = await asyncpg.connect(self.dsn)
            try:
                return await connection.fetch(statement, *values)
            finally:
                await connection.close()

        return asyncio.run(fetch())

    def states(self) -> dict[int, str]:
        """Every job's state."""
        return {row["id"]: row["state"] for row in self.sql("SELECT id, state FROM rxjobs.jobs ORDER BY id")}

    def end_all(self) -> None:
        for process in self._started:
            process.kill()
            process.communicate()


def until(fact: Callable[[], object], seconds: float = 60) -> None:
    """Wait until something is so."""
    end = time.monotonic() + seconds
    while not fact():
        assert time.monotonic() < end, "it did not become so"
        time.sleep(0.02)


def hurry(process: subprocess.Popen[str], number: int) -> int:
    """Send a signal again and again, since one that follows at once may count as the same; gives the exit code."""

    def is_gone() -> bool:
        process.send_signal(number)
        return process.poll() is not None

    until(is_gone)
    return process.returncode


@pytest.fixture(scope="session")
def forking() -> Iterator[subprocess.Popen[str]]:
    server = subprocess.Popen([sys.executable, str(FORKING)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    yield server
    server.communicate()


@pytest.fixture(scope="session")
def migrated(databases: Databases) -> Iterator[str]:
    """The DSN of a migrated database that is emptied for each test: to make one takes longer than most commands."""
    dsn = databases.take()
    asyncio.run(rj.App(dsn).migrate())
    yield dsn
    databases.give_back(dsn)


@pytest.fixture
def bare(forking: subprocess.Popen[str], tmp_path: Path, dsn: str) -> Commands:
    """`rxjobs` on an empty database."""
    return Commands(tmp_path, dsn, forking)


@pytest.fixture
def rxjobs(forking: subprocess.Popen[str], tmp_path: Path, migrated: str) -> Iterator[Commands]:
    """`rxjobs` on a migrated database without jobs, beside a user's module."""
    commands = Commands(tmp_path, migrated, forking)
    commands.sql(
        "TRUNCATE rxjobs.live_jobs, rxjobs.finished_jobs, rxjobs.nodes, rxjobs.leaders, rxjobs.queues, rxjobs.breakers, "
        "rxjobs.limits, rxjobs.limit_keys, rxjobs.gone_nodes, rxjobs.cron_entries, rxjobs.cron_slots, rxjobs.job_types "
        "RESTART IDENTITY"
    )
    commands.write("shop.py", SHOP)
    yield commands
    commands.end_all()
