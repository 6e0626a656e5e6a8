"""Servers that tests start, break and throw away."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import psutil

from rxjobs.store.installation import find_installation, prepare_folder


@contextmanager
def folder_for_a_server() -> Iterator[Path]:
    """Lend a folder directly under the temp folder: as root the server's OS user may not enter pytest's tmp_path."""
    folder = Path(tempfile.mkdtemp(prefix="rxjobs-test-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


class Databases:
    """Fresh databases on one server, made ahead on a thread while tests run: to make one takes 150 ms."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="databases")
        self._ready: deque[Future[str]] = deque()
        self._dropped: list[Future[None]] = []
        self._make_ahead()

    def take(self) -> str:
        """Take the DSN of an empty database."""
        self._make_ahead()
        return self._ready.popleft().result()

    def give_back(self, dsn: str) -> None:
        """Drop a database, and end the connections that a test left open."""
        name = urlsplit(dsn).path.removeprefix("/")
        self._dropped.append(self._thread.submit(self._execute, f"DROP DATABASE {name} WITH (FORCE)"))

    def close(self) -> None:
        for made in self._ready:
            self.give_back(made.result())
        self._thread.shutdown()
        for dropped in self._dropped:
            dropped.result()

    def _make_ahead(self) -> None:
        while len(self._ready) <= 2:
            self._ready.append(self._thread.submit(self._make))

    def _make(self) -> str:
        name = f"rxjobs_test_{uuid4().hex}"
        # template1 may be in use by somebody else on a shared server, template0 never is
        self._execute(f"CREATE DATABASE {name} TEMPLATE template0")
        return urlsplit(self._server)._replace(path=f"/{name}").geturl()

    def _execute(self, statement: str) -> None:
        async def connect_and_execute() -> None:
            connection = await asyncpg.connect(self._server)
            try:
                await connection.execute(statement)
            finally:
                await connection.close()

        asyncio.run(connect_and_execute())


class PrivatePostgres:
    """A PostgreSQL of one test's own, on one port of 127.0.0.1 for all its lives.

    ```
    async with PrivatePostgres() as postgres:      # settings go here: PrivatePostgres(max_connections="20")
        await postgres.kill_postmaster()
        await postgres.start()
    ```
    """

    def __init__(self, *, programs: Path | None = None, **settings: str) -> None:
        """`programs` is the folder of another PostgreSQL than the embedded one."""
        self._programs = programs
        self._lent = folder_for_a_server()
        self._port = find_free_port()
        self._settings = settings

    @property
    def dsn(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self._port}/postgres"

    @property
    def owner(self) -> os.stat_result:
        """Whose a folder has to be, by its `st_uid` and `st_gid`, for the server to use it."""
        return (self._folder / "data").stat()

    async def __aenter__(self) -> Self:
        self._folder = self._lent.__enter__()
        self._installation = find_installation(self._folder)
        if self._programs is not None:
            self._installation = replace(self._installation, programs=self._programs)
        prepare_folder(self._folder, self._installation.account)
        await asyncio.to_thread(self._installation.make_data, self._folder / "data")
        await self.start()
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.stop("immediate")
        self._lent.__exit__(None, None, None)

    async def start(self) -> None:
        """Start, and wait until connections are accepted."""
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self._port),
            "unix_socket_directories": "",
            **self._settings,
        }
        folder = self._folder
        refusal = await asyncio.to_thread(self._installation.start_server, folder / "data", folder / "log", settings)
        assert refusal is None, refusal

    async def stop(self, mode: str = "fast") -> None:
        """Stop and wait; "fast" ends the sessions in order, "immediate" is a crash that recovery has to mend."""
        await asyncio.to_thread(self._installation.stop_server, self._folder / "data", mode)

    async def restart(self, mode: str = "fast") -> None:
        await self.stop(mode)
        await self.start()

    async def stand_by(self) -> None:
        """Restart as a standby which nobody feeds: it can be read, and written to once it is promoted."""
        await self.stop()
        signal_file = self._folder / "data" / "standby.signal"
        signal_file.touch(mode=0o600)
        os.chown(signal_file, self.owner.st_uid, self.owner.st_gid)
        await self.start()

    async def promote(self) -> None:
        """End the standby's waiting."""
        await asyncio.to_thread(self._installation.run, "pg_ctl", "promote", "-D", self._folder / "data", "-w")

    async def kill_postmaster(self) -> None:
        """Kill the server with SIGKILL, and wait until its backends have noticed and ended."""
        pid = int((self._folder / "data" / "postmaster.pid").read_text().splitlines()[0])
        postmaster = psutil.Process(pid)
        family = [postmaster, *postmaster.children(recursive=True)]
        os.kill(pid, signal.SIGKILL)
        await asyncio.to_thread(psutil.wait_procs, family, timeout=10)


@asynccontextmanager
async def no_room_for_notifications(dsn: str) -> AsyncIterator[None]:
    """A session that listens idles in a transaction, and what is notified meanwhile has filled the server's room."""
    idle = await asyncpg.connect(dsn)
    try:
        await idle.add_listener("anything", lambda *_: None)
        await idle.execute("BEGIN; SELECT 1")
        await fill_with_notifications(dsn)
        yield
    finally:
        await idle.close()


async def fill_with_notifications(dsn: str) -> None:
    """Notify until the server refuses to; a session must be in the way, or it never does."""
    filling = await asyncpg.connect(dsn)
    try:
        while True:
            await filling.execute("SELECT pg_notify('others', repeat('x', 7000) || n) FROM generate_series(1, 10) AS n")
    except asyncpg.ProgramLimitExceededError:
        pass
    finally:
        await filling.close()


def find_free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
