"""Keys as they are pressed, on a terminal."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

NAMES = {
    "\x1b[A": "up", "\x1bOA": "up", "k": "up", "\x1b[B": "down", "\x1bOB": "down", "j": "down", "q": "q", "Q": "q", "\x1b": "q",
    "p": "p", "r": "r", "s": "s",
}  # fmt: skip


def named(text: str) -> list[str]:
    """The keys that were pressed, by name, of what a terminal sent: those that mean nothing are left out."""
    found, rest = list[str](), text
    while rest:
        length = next((size for size in (3, 1) if rest[:size] in NAMES and (size > 1 or rest[:2] not in ("\x1b[", "\x1bO"))), 0)
        if length:
            found.append(NAMES[rest[:length]])
        rest = rest[length or (3 if rest[:2] in ("\x1b[", "\x1bO") else 1) :]
    return found


@contextmanager
def pressed(hear: Callable[[str], object]) -> Iterator[bool]:
    """Have each key heard while inside, on the running event loop; gives whether there can be any: not on Windows."""
    try:
        import termios
        import tty
    except ImportError:
        yield False
        return
    loop, fd = asyncio.get_running_loop(), sys.stdin.fileno()
    if not sys.stdin.isatty():
        yield False
        return
    before = termios.tcgetattr(fd)

    def read() -> None:
        sent = os.read(fd, 1024)
        if not sent:  # the terminal is gone
            loop.remove_reader(fd)
        for key in named(sent.decode(errors="replace")) if sent else ["q"]:
            hear(key)

    tty.setcbreak(fd)
    loop.add_reader(fd, read)
    try:
        yield True
    finally:
        loop.remove_reader(fd)
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
