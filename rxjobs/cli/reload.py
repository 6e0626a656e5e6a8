"""`rxjobs run --reload`: in development, end the processes and start new ones whenever the code in the current folder changes.

The whole folder is looked at and not only what the app has imported: a module that fails is not there to be asked, and what mends
it may be a new file.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from rxjobs.cli.processes import Supervisor, take_signals
from rxjobs.log_lines import logger

log = logger("rxjobs.reload")

LOOK_SECONDS = 0.5
SETTLE_SECONDS = 0.1
"""Who writes many files is done when so long nothing has changed."""
SHARE = 0.1
"""The part of a core that looking may take: a large folder is looked at less often."""
GRACE = 2.0
"""Seconds that jobs in flight get, where one waits for the new code to run."""

Seen = Mapping[str, tuple[int, int]]
"""Each file's time of change, in ns, and its size."""


def reload_on_change(arguments: Sequence[str], count: int) -> int:
    """As supervise, with new processes after each change of a Python file, until a signal; gives the exit code."""

    async def reloading() -> int:
        return await Reloading(arguments, count, Path.cwd()).run()

    return asyncio.run(reloading())


def look(folder: Path) -> Seen:
    """The Python files in a folder and below it, but for what is installed there, hidden or made by Python."""
    seen = {}
    for entry in _files(str(folder)):
        with suppress(OSError):  # gone meanwhile, or a link to nothing
            is_now = entry.stat()
            seen[entry.path] = (is_now.st_mtime_ns, is_now.st_size)
    return seen


class Reloading:
    """One supervisor after another, each with the code of its time."""

    def __init__(self, arguments: Sequence[str], count: int, folder: Path) -> None:
        self._arguments = arguments
        self._count = count
        self._folder = folder
        self._seen: Seen = {}
        self._supervisor: Supervisor | None = None
        self._ending = asyncio.Event()

    async def run(self) -> int:
        """Run until a signal; what ends by itself waits for the next change."""
        take_signals(self._take)
        self._seen = await asyncio.to_thread(look, self._folder)
        code = 0
        while not self._ending.is_set():
            # -B: whether a .pyc is up to date is told by the second, and by the size
            self._supervisor = Supervisor(self._arguments, self._count, flags=["-B"])
            running = asyncio.ensure_future(self._supervisor.run())
            changing = asyncio.ensure_future(self._change())
            await _first(running, changing)
            if not running.done():
                self._supervisor.stop(signal.SIGTERM)
            code = await running
            if not (self._ending.is_set() or changing.done()):
                log.error("it ended with exit code %d; the next change of a file starts it again, Ctrl-C ends this", code)
                await _first(changing, ending := asyncio.ensure_future(self._ending.wait()))
                ending.cancel()
            if changing.done() and not self._ending.is_set():
                log.warning("%s: starting anew", changing.result())
            changing.cancel()
        return code

    async def _change(self) -> str:
        """Wait until files have changed, and do not any more; says which."""
        loop, before, last = asyncio.get_running_loop(), self._seen, self._seen
        pause = LOOK_SECONDS
        while True:
            await asyncio.sleep(pause)
            began = loop.time()
            seen = await asyncio.to_thread(look, self._folder)
            if seen == last != before:
                self._seen = seen
                return self._told(before, seen)
            pause = max(SETTLE_SECONDS if seen != last else LOOK_SECONDS, (loop.time() - began) / SHARE)
            last = seen

    def _told(self, before: Seen, seen: Seen) -> str:
        changed = sorted({path for path, _ in before.items() ^ seen.items()})
        first = os.path.relpath(changed[0], self._folder)
        return f"{first} changed" if len(changed) == 1 else f"{first} and {len(changed) - 1} more files changed"

    def _take(self, number: int) -> None:
        self._ending.set()
        if self._supervisor is not None:
            # the terminal that is closed in development takes everything with it
            self._supervisor.take(signal.SIGTERM if number == signal.SIGHUP else number)


async def _first(*waiting: Awaitable[object]) -> None:
    await asyncio.wait([asyncio.ensure_future(one) for one in waiting], return_when=asyncio.FIRST_COMPLETED)


def _files(folder: str) -> Iterator[os.DirEntry[str]]:
    try:
        entries = list(os.scandir(folder))
    except OSError:  # gone meanwhile, or not for us
        return
    if any(entry.name == "pyvenv.cfg" for entry in entries):
        return
    for entry in entries:
        if entry.name.startswith(".") or entry.name in ("__pycache__", "node_modules", "site-packages"):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _files(entry.path)
        elif entry.name.endswith(".py"):
            yield entry
