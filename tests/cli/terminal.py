"""A terminal to run a command on: what stands on its screen, and keys to press."""

from __future__ import annotations

import fcntl
import os
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyte

ROOT = Path(__file__).parents[2]


class Terminal:
    """`rxjobs` on a pseudo-terminal, whose screen is kept as a person would see it."""

    def __init__(
        self, arguments: Sequence[str], folder: Path, environment: Mapping[str, str], *, columns: int = 160, rows: int = 40
    ) -> None:
        self._ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self._theirs = theirs
        self._before = termios.tcgetattr(theirs)
        self.screen = pyte.Screen(columns, rows)
        """The screen, cell by cell."""
        self._stream = pyte.ByteStream(self.screen)
        self.sent = bytearray()
        """Everything that it wrote."""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rxjobs", *arguments], cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs,
            env={**environment, "TERM": "xterm-256color", "PYTHONPATH": str(ROOT)}, start_new_session=True,
        )  # fmt: skip

    @property
    def text(self) -> str:
        """What stands on the screen."""
        return "\n".join(line.rstrip() for line in self.screen.display)

    @property
    def is_as_before(self) -> bool:
        """Whether keys are shown and lines are gathered, as before it began, and the screen is the ordinary one."""
        return termios.tcgetattr(self._theirs) == self._before and self.sent.rfind(b"\x1b[?1049l") > self.sent.rfind(b"\x1b[?1049h")

    def press(self, keys: str) -> None:
        """Press keys."""
        os.write(self._ours, keys.encode())

    def shows(self, *words: str, seconds: float = 30) -> str:
        """Wait until the screen shows all of these, and give it."""
        end = time.monotonic() + seconds
        while not all(word in self.text for word in words):
            is_late = self.process.poll() is not None or time.monotonic() > end
            assert not is_late, f"{words} is not on the screen:\n{self.text}"
            self.read(0.05)
        return self.text

    def ended(self, seconds: float = 30) -> int:
        """Wait until it has ended; gives its exit code."""
        end = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < end, f"it goes on:\n{self.text}"
            self.read(0.05)
        while self.read(0.05):
            pass
        return self.process.returncode

    def close(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()
        os.close(self._ours)
        os.close(self._theirs)

    def read(self, seconds: float) -> bool:
        """Take what it writes, waiting so long for it; gives whether there was any."""
        if not select.select([self._ours], [], [], seconds)[0]:
            return False
        came = os.read(self._ours, 65536)
        self.sent += came
        self._stream.feed(came)
        return True
