"""Jobs that do harm, often: what the short tests of the executors do a few times."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import types
from logging.handlers import RotatingFileHandler

import pytest

from rxjobs.executors.in_processes import in_processes
from rxjobs.testing.conformance_executor import call_of, caught
from tests.executors import jobs

pytestmark = pytest.mark.chaos

STARTS = int(os.environ.get("CHAOS_STARTS", "12"))


@pytest.fixture(autouse=True)
def light_children(monkeypatch):
    """A spawned child imports the program's main module anew. That is pytest here, which no job needs."""
    monkeypatch.setitem(sys.modules, "__main__", types.ModuleType("__main__"))


@pytest.mark.timeout(60 + 2 * STARTS)
async def test_children_start_again_and_again_while_threads_are_busy_logging(tmp_path):
    """As celery#9808 and #496 (row 56): each job ends its child. CHAOS_STARTS says how many."""
    handler, done = RotatingFileHandler(tmp_path / "log", maxBytes=10**7, backupCount=1), threading.Event()
    log = logging.getLogger("tests.busy")
    log.propagate = False
    log.addHandler(handler)

    def write():
        while not done.wait(0.0001):
            log.error("a line of some length, to hold the lock for a while: %s", "x" * 1000)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    executor = in_processes(4)
    try:
        for _ in range(0, STARTS, 4):
            calls = [caught(executor, call_of(jobs.log_and_exit, "a line of a child")) for _ in range(4)]
            errors = await asyncio.wait_for(asyncio.gather(*calls), 60)
            assert all("exited with code 7" in str(error) for error in errors), errors
    finally:
        await executor.close()
        done.set()
        for thread in threads:
            thread.join()
        log.removeHandler(handler)
        handler.close()
