"""What the tests run in other processes."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import logging
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from datetime import datetime
from functools import wraps
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from rxjobs.codec import PlainCodec
from rxjobs.definition import Definition, Options
from rxjobs.job import Job, current_job
from rxjobs.outcome import Complete, Retry, Snooze
from rxjobs.secret import Secret
from rxjobs.settings import Settings

trace: ContextVar[str] = ContextVar("trace")


def log_in(password: Secret[str], tokens: list[Secret[int]], at: datetime) -> None:
    """A job type that a stage looks at."""


def look_at(job: Job) -> dict[str, Any]:
    """What a stage finds in a job's arguments."""
    args = dict(job.args)
    return {
        "shown": str(args),
        "password": args["password"].get(),
        "tokens": [token.get() for token in args["tokens"]],
        "at": type(args["at"]).__name__,
    }


class Later(Snooze):
    """An outcome of the user's own making."""


def pid() -> int:
    return os.getpid()


def length(text: str) -> int:
    return len(text)


def exit_now(code: int) -> None:
    os._exit(code)


def crash() -> None:
    ctypes.string_at(0)


def signal_self(number: int) -> None:
    os.kill(os.getpid(), number)


def stop_self(mark: str) -> None:
    Path(mark).touch()
    os.kill(os.getpid(), signal.SIGSTOP)


def stop_in_the_middle_of_an_answer(mark: str) -> None:
    os.write(_pipe(), struct.pack("!i", 1000) + b"the first part")
    stop_self(mark)


def hog(megabytes: int, step: int = 16) -> int:
    """Take memory, so many megabytes at a time, and let go of it all at the end; returns this process's id."""
    held = []
    for _ in range(0, megabytes, step):
        held.append(bytearray(step * 1024 * 1024))
    return os.getpid()


LEAKED: list[bytearray] = []


def leak(megabytes: int) -> int:
    LEAKED.append(bytearray(megabytes * 1024 * 1024))
    return os.getpid()


def hog_and_die(megabytes: int) -> None:
    try:
        hog(megabytes)
    except MemoryError:
        os.abort()


def wait_for(mark: str, release: str) -> int:
    """Tell that it runs, and end when it is told to."""
    Path(mark).write_text(str(os.getpid()))
    while not Path(release).exists():
        time.sleep(0.01)
    return os.getpid()


async def sleep_and_tell_the_end(mark: str, end: str) -> None:
    """Tell that it runs, and how it ends."""
    tell(mark, "")
    try:
        await asyncio.sleep(60)
    except BaseException as error:
        tell(end, type(error).__name__)
        raise


def tell(mark: str, what: str) -> None:
    Path(mark).write_text(what)


def pause_and_tell(mark: str, seconds: float) -> None:
    """Tell where it runs, and do nothing else for so long."""
    Path(mark).write_text(str(os.getpid()))
    time.sleep(seconds)


def pause(seconds: float) -> None:
    time.sleep(seconds)


async def pause_softly(seconds: float) -> None:
    await asyncio.sleep(seconds)


def look_whether_cancelled(mark: str, end: str) -> None:
    """Tell that it runs, and end when its job says so."""
    Path(mark).touch()
    while not current_job().cancelled:
        time.sleep(0.01)
    Path(end).write_text("saw it")


def note(log: str, number: int, how: str = "end") -> int:
    """Write down that it ran, and end: well, not at all, by exit, or with an error."""
    fd = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, f"{number}\n".encode())
    os.close(fd)
    match how:
        case "hang":
            time.sleep(3600)
        case "exit":
            os._exit(9)
        case "raise":
            raise ValueError(number)
    return number


def ports() -> list[int]:
    """The ports that this process has a socket for."""
    found = []
    for fd in range(256):
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(fd)) as opened:
            if opened.family == socket.AF_INET:
                found.append(opened.getsockname()[1])
    return found


def write_garbage() -> None:
    os.write(_pipe(), struct.pack("!i", 7) + b"garbage")


def close_the_pipe() -> None:
    socket.socket(fileno=os.dup(_pipe())).shutdown(socket.SHUT_RDWR)
    time.sleep(60)


def fork_and_return() -> int:
    os.fork()
    return os.getpid()


def leave_a_process_behind(seconds: float) -> None:
    """Exit, with a fork that holds the pipe open for a while."""
    if os.fork():
        os._exit(3)
    time.sleep(seconds)
    os._exit(0)


def handles_of_a_program() -> str:
    """What a program that a job starts does with SIGINT and SIGTERM."""
    code = "import signal; print(signal.getsignal(2) is signal.default_int_handler, signal.getsignal(15) is signal.SIG_DFL)"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def say(text: str) -> None:
    print(text)


def log_and_tell(text: str) -> int:
    logging.getLogger("tests.busy").error(text)
    return os.getpid()


def log_and_exit(text: str) -> None:
    log_and_tell(text)
    os._exit(7)


def unstorable() -> object:
    return object()


def complete_with_unstorable() -> Complete:
    return Complete({1, 2})


def later() -> Later:
    return Later(30, "of my own")


def retry_with_cause() -> Retry:
    return Retry(1, "no luck", exception=ValueError("the cause"))


def a_thousand_bits() -> int:
    return 2**1000


@contextlib.contextmanager
def attach(carrier: Mapping[str, str]) -> Iterator[None]:
    token = trace.set(carrier["trace"])
    yield
    trace.reset(token)


async def current_trace() -> str:
    return trace.get()


def plain_trace() -> str:
    return trace.get("none")


class Registry:
    max_args_bytes = 1024
    codec = PlainCodec()
    settings = Settings()

    async def enqueue(self, new, connection=None):
        raise NotImplementedError


def _double(number: int) -> int:
    return number * 2


_double.__qualname__ = "double"
double = Definition(_double, Registry(), Options(name="double"))


def _decorated(function):
    @wraps(function)
    def around(*args, **kwargs):
        return function(*args, **kwargs)

    return around


decorated = _decorated(double)


def unlike() -> None:
    """A function under a decorator that another process would not find below it."""


hidden = unlike
unlike = _decorated(lambda: None)


class Unrebuilt(Exception):
    """Cannot be made again from what pickle keeps of it."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


class Irreducible(Exception):
    def __reduce__(self) -> Any:
        raise TypeError("not this one")


def raise_unrebuilt() -> None:
    raise Unrebuilt(1, 2)


def raise_irreducible() -> None:
    raise Irreducible("not to be had")


def give_a_lambda() -> object:
    return lambda: None


def give_a_generator() -> object:
    return (n for n in range(3))


def give_an_open_file() -> object:
    return Path(__file__).open()


def _pipe() -> int:
    """The end of the pipe that this process answers by."""
    [fd] = {connection.fileno() for connection in gc.get_objects() if type(connection) is Connection}
    return fd
