"""The embedded PostgreSQL: one server a folder, shared by every process that asks, stopped by the last that leaves.

```
folder/
  lock      held alone while the server is started or stopped
  sharers   held shared by all who use the server; the kernel lets go for one that was killed
  data/     what initdb made, renamed into place whole
  log       the server's words since it last started
```
"""

from __future__ import annotations

import atexit
import fcntl
import os
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from rxjobs.errors import NoDatabase
from rxjobs.store.installation import (
    START_SECONDS,
    Installation,
    default_folder,
    find_installation,
    locked,
    open_lock,
    prepare_folder,
)

LONGEST_SOCKET_PATH = 99  # bytes; the kernel's limit is 107 on Linux and 103 on macOS
SHORT_FOLDER = Path("/tmp")  # noqa: S108 (what is made in it has a random name, and is closed to others)
START_TRIES = 20
SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "200",
    # what it reads is in memory: to hand each read to a worker doubles the time of a CREATE DATABASE
    "io_method": "sync",
}


def start(folder: Path | None = None) -> EmbeddedServer:
    """Start the server of a folder, or share the one that runs; blocks for about a second when it has to start."""
    folder = (folder or default_folder()).expanduser().resolve()
    try:
        installation = find_installation(folder)
        prepare_folder(folder, installation.account)
        return EmbeddedServer(folder, installation)
    except (OSError, subprocess.SubprocessError) as error:
        raise NoDatabase(f"the embedded server cannot use {folder}: {error}") from error


class EmbeddedServer:
    """One share in the server of a folder."""

    def __init__(self, folder: Path, installation: Installation) -> None:
        self._folder = folder
        self._data = folder / "data"
        self._installation = installation
        self._sharing_process = os.getpid()
        with locked(folder / "lock", installation.account):
            if not self._data.exists():
                installation.make_data(self._data)
            self._socket_folder = self._find_accepting() or self._start()
            self._sharers = open_lock(folder / "sharers", installation.account)
            fcntl.flock(self._sharers, fcntl.LOCK_SH)
        atexit.register(self.stop)

    @property
    def dsn(self) -> str:
        """The database `postgres` as its superuser, over the Unix socket."""
        return f"postgresql://postgres@/postgres?host={quote(str(self._socket_folder), safe='')}&port=5432"

    def stop(self) -> None:
        """Leave; the last that leaves stops the server. To leave twice does no harm."""
        # a forked child has no share of its own to give up
        if self._sharers.closed or os.getpid() != self._sharing_process:
            return
        atexit.unregister(self.stop)
        with locked(self._folder / "lock", self._installation.account), self._sharers:
            with suppress(BlockingIOError):  # somebody else shares the server
                fcntl.flock(self._sharers, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._installation.stop_server(self._data)
                self._remove(self._socket_folder)
            # closing is not enough: a forked child may have the file open still
            fcntl.flock(self._sharers, fcntl.LOCK_UN)

    def _find_accepting(self) -> Path | None:
        """Find the socket's folder of a server that runs on our data, once it has recovered from a crash."""
        until = time.monotonic() + START_SECONDS
        while (socket_folder := self._read_socket_folder()) and time.monotonic() < until:
            answer = self._installation.run("pg_isready", "-h", socket_folder, "-p", "5432")
            match answer.returncode:
                case 0:
                    return socket_folder
                case 1:
                    time.sleep(0.05)
                case 2:
                    return None
                case _:
                    raise NoDatabase(f"pg_isready cannot ask the server in {self._folder}: {answer.stderr.strip()}")
        return None

    def _start(self) -> Path:
        self._forget_reused_pid()
        refusal: str | None = None
        for _ in range(START_TRIES):
            socket_folder = self._choose_socket_folder()
            settings = SETTINGS | {"unix_socket_directories": f'"{socket_folder}"'}
            refusal = self._installation.start_server(self._data, self._folder / "log", settings)
            if refusal is None:
                return socket_folder
            self._remove(socket_folder)
            if not self._read_pid_file():
                break
            # its starter was killed and it is about to accept, or it was killed and its backends are about to end
            time.sleep(0.5)
            if accepting := self._find_accepting():
                return accepting
        raise NoDatabase(f"the embedded server does not start in {self._folder}: {refusal}")

    def _choose_socket_folder(self) -> Path:
        if len(os.fsencode(self._folder / ".s.PGSQL.5432")) <= LONGEST_SOCKET_PATH:
            return self._folder
        folder = Path(tempfile.mkdtemp(prefix="rxjobs-", dir=SHORT_FOLDER))
        if account := self._installation.account:
            os.chown(folder, account.pw_uid, account.pw_gid)
        return folder

    def _remove(self, socket_folder: Path) -> None:
        if socket_folder.parent == SHORT_FOLDER:
            with suppress(OSError):
                socket_folder.rmdir()

    def _read_pid_file(self) -> list[str]:
        with suppress(FileNotFoundError):
            return (self._data / "postmaster.pid").read_text().splitlines()
        return []

    def _read_socket_folder(self) -> Path | None:
        match self._read_pid_file():
            case [_pid, _data, _started, _port, socket_folder, *_] if socket_folder:
                return Path(socket_folder)
        return None

    def _forget_reused_pid(self) -> None:
        """Remove the pid file of a server that a reboot ended, if its pid is another program's by now."""
        # PostgreSQL would take that program for the server and refuse to start, for ever
        import psutil  # comes with the wheel, which may be absent

        if not (lines := self._read_pid_file()):
            return
        with suppress(psutil.NoSuchProcess, ValueError):
            if psutil.Process(int(lines[0])).name() == "postgres":
                return
            # a backend that outlived its server writes still: the pid file is what holds a second server back
            at_work = {
                process.info["cwd"] for process in psutil.process_iter(["name", "cwd"]) if process.info["name"] == "postgres"
            }
            if str(self._data) not in at_work:
                (self._data / "postmaster.pid").unlink()
