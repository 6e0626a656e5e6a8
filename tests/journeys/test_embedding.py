"""Jobs inside programs of others: web applications under a real server, an event loop of one's own, a reactivex program."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from reactivex import operators as ops
from reactivex.subject import Subject

import rxjobs as rj
from tests.journeys.beside_requests import measure
from tests.waiting import until

ROOT = Path(__file__).parents[2]


@contextmanager
def under_uvicorn(example, folder, dsn):
    """A client of an example that a real uvicorn serves, over a socket of its own; stopped as an operator would."""
    socket = folder / "socket"
    environ = {**os.environ, "RXJOBS_DSN": dsn, "RXJOBS_MIGRATE": "true", "PYTHONWARNINGS": "error", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "uvicorn", "--app-dir", str(ROOT / "examples"), "--uds", str(socket), f"{example}:web"]
    with (folder / "log").open("w+") as log:
        server = subprocess.Popen(command, env=environ, stdout=log, stderr=subprocess.STDOUT)
        try:
            end = time.monotonic() + 60
            while not socket.exists():
                assert server.poll() is None, (folder / "log").read_text()
                assert time.monotonic() < end
                time.sleep(0.05)
            with httpx.Client(transport=httpx.HTTPTransport(uds=str(socket)), base_url="http://localhost", timeout=60) as client:
                yield client
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(60)
    # uvicorn ends its lifespan, and then by the signal that it got
    assert server.returncode in (0, -signal.SIGTERM), (folder / "log").read_text()
    assert "Application shutdown complete" in (folder / "log").read_text()


@pytest.mark.parametrize("example", ["04_embedded_in_fastapi", "12_embedded_in_starlette"])
def test_requests_enqueue_and_the_same_process_works(example, tmp_path, dsn):
    with under_uvicorn(example, tmp_path, dsn) as client:
        jobs = [client.post(f"/pictures/{n}.png").json() for n in range(20)]
        assert {job["state"] for job in jobs} == {"available"}
        end = time.monotonic() + 60
        for job in jobs:
            while (answer := client.get(f"/jobs/{job['job']}").json())["state"] != "completed":
                assert time.monotonic() < end, answer
                time.sleep(0.02)
        assert client.get("/jobs/1000000").status_code == 404
    app = rj.App(dsn)
    assert app.sync.jobs.count() == {"completed": 20}
    assert [node.state for node in app.sync.nodes.list()] == ["left"]  # it drained
    app.sync.close()


async def test_a_hot_queue_leaves_requests_their_turn(dsn):
    """Thousands of jobs a second in the web process's own loop. The bound is on what hangs; docs/embedding.md has the figures."""
    without, beside = await measure(dsn, jobs=3000, quiet=20)
    assert without.jobs == 0
    assert beside.jobs == 3000
    assert len(beside.requests) >= 3  # answered while jobs ran, and not when all had ended
    assert max(beside.requests) < 20
    assert max(beside.late) < 20


async def test_a_stream_of_domain_events_becomes_jobs(dsn):
    """A reactivex program that was there before: its Subject is told of what happens, and a part of that is enqueued."""
    app, greeted = rj.App(dsn, migrate=True), []

    @app.job(name="greet", queue="greetings")
    async def greet(name: str) -> None:
        greeted.append(name)

    happened: Subject[dict[str, str]] = Subject()
    rows = []
    signed_up = happened.pipe(ops.filter(lambda event: event["kind"] == "signed up"), ops.map(lambda event: event["name"]))
    async with app.running():
        enqueuing = signed_up.pipe(ops.map(lambda name: greet.new(name=name)), rj.enqueue(app)).subscribe(rows.append)
        for name in ("Ada", "Grace", "Edsger"):
            happened.on_next({"kind": "signed up", "name": name})
            happened.on_next({"kind": "looked around", "name": name})
        await until(lambda: len(greeted) == 3)
        enqueuing.dispose()
        happened.on_next({"kind": "signed up", "name": "too late"})
    assert sorted(greeted) == ["Ada", "Edsger", "Grace"]
    assert len(rows) == 3


async def test_one_app_starts_stops_and_starts_again(dsn):
    """Also in another event loop than before, and with jobs that came in between."""
    app, ran = rj.App(dsn, migrate=True), []

    @app.job(name="note")
    async def note(n: int) -> None:
        ran.append(n)

    for n in range(3):
        async with app:
            await note.enqueue(n=n)
        async with app.running():
            await until(lambda n=n: ran == list(range(n + 1)))

    def elsewhere():
        async def main():
            async with app.running():
                await note.enqueue(n=3)
                await until(lambda: ran == [0, 1, 2, 3])

        asyncio.run(main())

    await asyncio.to_thread(elsewhere)
    async with app:
        assert await app.jobs.count() == {"completed": 4}
        assert [node.state for node in await app.nodes.list()] == ["left"] * 4


BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "embedding.md").read_text("utf-8"), re.DOTALL)


# what has a title is of a Django project, and tests/contrib/test_django.py runs it
@pytest.mark.parametrize("code", BLOCKS, ids=["fastapi", "asyncio", "reactivex"])
async def test_the_code_of_the_page_runs(code, dsn, monkeypatch):
    monkeypatch.setenv("RXJOBS_DSN", dsn)
    monkeypatch.setenv("RXJOBS_MIGRATE", "true")
    there = {"__name__": "page"}
    exec(compile(code, "embedding.md", "exec", dont_inherit=True), there)  # noqa: S102 - it is our own page
    if "main" in there:
        await asyncio.wait_for(there["main"](), 60)
        return
    web = there["web"]
    async with (
        web.router.lifespan_context(web),
        httpx.AsyncClient(transport=httpx.ASGITransport(web), base_url="http://localhost") as client,
    ):
        job = (await client.post("/pictures/cat.png")).json()["job"]
        await until(lambda: is_completed(there["app"], job))


async def is_completed(app, id_):
    return (await app.jobs.get(id_)).state == "completed"
