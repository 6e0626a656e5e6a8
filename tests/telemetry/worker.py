"""A worker as it is run in production, `rxjobs run`, with an app that tests write: for as long as a test takes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FAST = {"OTEL_BSP_SCHEDULE_DELAY": "100", "OTEL_METRIC_EXPORT_INTERVAL": "300", "OTEL_BLRP_SCHEDULE_DELAY": "100"}
"""Exports many times a second, so that nobody waits for them."""


class Worker:
    """A running one."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self.process = process
        self._log = log

    @property
    def log(self) -> str:
        """What it has logged so far."""
        return self._log.read_text("utf-8")

    def stop(self, seconds: float = 60.0) -> float:
        """Have it drain and end in order; gives the seconds that took."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(seconds)
        assert code == 0, self.log
        return time.monotonic() - began


@contextmanager
def working(folder: Path, app: str, dsn: str, *options: str, **environ: str) -> Iterator[Worker]:
    """Run the text of a module with an `app` in it."""
    (folder / "told_app.py").write_text(app, "utf-8")
    without = {key: value for key, value in os.environ.items() if not key.startswith(("OTEL_", "RXJOBS_"))}
    settings = {"RXJOBS_DSN": dsn, "RXJOBS_MIGRATE": "true", "RXJOBS_POLL_SECONDS": "0.1", "RXJOBS_SHUTDOWN_GRACE": "5"}
    log = folder / "worker.log"
    with log.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "rxjobs", "run", "told_app:app", *options],
            cwd=folder, env={**without, **settings, **FAST, **environ}, stderr=file, stdout=file, text=True,
        )  # fmt: skip
        try:
            yield Worker(process, log)
        finally:
            process.kill()
            process.wait()
