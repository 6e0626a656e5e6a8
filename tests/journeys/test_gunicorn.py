"""`app.sync` in a web server that loads the application once and forks its workers: a real gunicorn."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

import rxjobs as rj

ROOT = Path(__file__).parents[2]


@pytest.fixture
def served(dsn, tmp_path):
    """A client of two workers that were forked from one process, over a socket of their own."""
    rj.App(dsn).sync.migrate()
    socket = tmp_path / "socket"
    log = (tmp_path / "log").open("w+")
    environ = {**os.environ, "RXJOBS_DSN": dsn, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "gunicorn", "--preload", "--workers=2", "--worker-tmp-dir", str(tmp_path)]
    command += [f"--bind=unix:{socket}", "--no-control-socket", "tests.journeys.preloaded:web"]
    server = subprocess.Popen(command, env=environ, stdout=log, stderr=subprocess.STDOUT, cwd=ROOT)
    try:
        until = time.monotonic() + 60
        while not socket.exists():
            assert server.poll() is None, (tmp_path / "log").read_text()
            assert time.monotonic() < until
            time.sleep(0.05)
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(socket)), base_url="http://localhost", timeout=60) as client:
            yield client
    finally:
        server.terminate()
        assert server.wait(60) == 0, (tmp_path / "log").read_text()
        log.close()


def test_workers_that_were_forked_enqueue_each_by_itself(served, dsn):
    processes: set[str] = set()
    ids, until = [], time.monotonic() + 60
    while len(processes) < 2 or len(ids) < 20:
        answer = served.post(f"/{len(ids)}", headers={"Connection": "close"})
        assert answer.status_code == 200
        process, id_ = answer.text.split()
        processes.add(process)
        ids.append(int(id_))
        assert time.monotonic() < until, f"only {processes} answered"
    app = rj.App(dsn)
    numbers = sorted(job.args["n"] for job in app.sync.jobs.list(limit=10_000))
    app.sync.close()
    assert numbers == list(range(-1, len(ids)))
    assert len(set(ids)) == len(ids)
