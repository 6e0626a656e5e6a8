"""The world that the pages' code runs in: a folder with a user's modules, a migrated database, the real command."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Commands, Ran, forking

__all__ = ["forking"]


class Reader(Commands):
    """A reader with a shell: runs what a page says."""

    def write(self, name: str, text: str) -> None:
        """Write one of the user's files, in a folder or not."""
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        super().write(name, text)

    def python(self, file: str) -> Ran:
        """Run one of the reader's programs."""
        done = subprocess.run(
            [sys.executable, file],
            cwd=self.folder,
            env={**self.environment, "PYTHONWARNINGS": "error"},
            capture_output=True,
            text=True,
            timeout=60,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    def is_worked_off(self) -> bool:
        """Whether no job is ready, or runs."""
        return not self.sql("SELECT FROM rxjobs.live_jobs WHERE state IN ('available', 'executing') LIMIT 1")


@pytest.fixture
def reader(forking: subprocess.Popen[str], tmp_path: Path, dsn: str) -> Iterator[Reader]:
    commands = Reader(tmp_path, dsn, forking)
    yield commands
    commands.end_all()
