"""Worker processes that begin with rxjobs imported: to import it costs each of hundreds half a second of a processor."""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from queue import Queue

ROOT = Path(__file__).parents[1]


class Forked:
    """A process that another one than this has forked; what `subprocess.Popen` offers of it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ended = threading.Event()

    def poll(self) -> int | None:
        """Its exit code, if it has ended."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, once it has ended."""
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it is there."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def has_ended(self, code: int) -> None:
        self.returncode = code
        self._ended.set()


class _Forking:
    """The process that forks, and what it has forked."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._began: Queue[Forked] = Queue()
        self._there: dict[int, Forked] = {}
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "tests.forking"],
            cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        threading.Thread(target=self._listen, name="forked", daemon=True).start()
        atexit.register(self._end)

    def fork(self, order: str) -> Forked:
        assert self._process.stdin is not None
        with self._lock:
            print(order, file=self._process.stdin, flush=True)
            return self._began.get(timeout=60)

    def _end(self) -> None:
        with self._process:
            self._process.kill()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            match json.loads(line):
                case {"began": pid}:
                    self._there[pid] = forked = Forked(pid)
                    self._began.put(forked)
                case {"ended": pid, "code": code}:
                    self._there.pop(pid).has_ended(code)


_forking: _Forking | None = None


def fork(command: Sequence[str | Path], *, environ: Mapping[str, str], out: Path) -> Forked:
    """Start `python -W error COMMAND` in the root of the project; what it prints is appended to a file."""
    global _forking
    if _forking is None:
        _forking = _Forking()
    order = {"command": list(map(str, command)), "folder": str(ROOT), "environ": dict(environ), "out": str(out)}
    return _forking.fork(json.dumps(order))


def can_fork(environ: Mapping[str, str]) -> bool:
    """Whether a process may begin with everything imported: not where the variables are those that Python itself, or OpenTelemetry,
    reads when it begins."""
    return not any(name.startswith(("PYTHON", "LD_", "OTEL_")) for name in environ)
