"""What the tests of executors share."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest

Start = Callable[..., "subprocess.Popen[str]"]

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def light_children(monkeypatch):
    """A spawned child imports the program's main module anew. That is pytest here, which no job needs."""
    monkeypatch.setitem(sys.modules, "__main__", types.ModuleType("__main__"))


@pytest.fixture
def program(tmp_path):
    """Start a Python program of its own session, from its text."""
    started = []

    def start(text: str) -> subprocess.Popen[str]:
        script = tmp_path / f"program_{len(started)}.py"
        script.write_text(text)
        process = subprocess.Popen(
            [sys.executable, "-W", "error", str(script)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
