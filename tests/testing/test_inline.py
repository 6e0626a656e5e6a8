"""Jobs that run at once where they are enqueued, without a database."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime
from uuid import UUID

import pytest
import reactivex as rx

import rxjobs as rj
from rxjobs.testing import inline

NOWHERE = "postgresql://nobody@127.0.0.1:1/nothing"


@pytest.fixture
def app():
    return rj.App(NOWHERE)


@pytest.fixture
def ran(app):
    with inline(app) as ran:
        yield ran


async def test_a_job_has_ended_when_its_enqueue_returns(app, ran):
    seen = []

    @app.job(name="note", record=True)
    async def note(at: datetime, who: UUID) -> tuple[str, int]:
        seen.append((at, who, rj.current_job().attempt))
        return "noted", 1

    at, who = datetime(2026, 12, 1, tzinfo=UTC), UUID(int=7)
    enqueued = await note.enqueue(at=at, who=who)
    assert seen == [(at, who, 1)]
    assert (enqueued.id, enqueued.state) == (1, "completed")
    assert ran.outcomes(note) == ran.outcomes("note") == [rj.Complete(("noted", 1))]
    assert await enqueued.result() == ("noted", 1)  # typed, after its trip through JSON
    assert await app.perform(note.new(at=at, who=who)) == ("noted", 1)
    rows = await app.enqueue_many(note.new(at=at, who=who) for _ in range(3))
    assert [row.id for row in rows] == [3, 4, 5]


async def test_arguments_go_through_json(app, ran):
    seen = []

    @app.job
    async def take(values: list, more: dict) -> None:
        seen.append((values, more))

    values, more = [1, (2, 3)], {"a": 1.5}
    await take.enqueue(values=values, more=more)
    ((got_values, got_more),) = seen
    assert got_values == [1, [2, 3]]  # a tuple arrives as a list
    assert got_more == more
    assert got_more is not more
    with pytest.raises(rj.InvalidArguments):
        await take.enqueue(values=[object()], more={})


async def test_how_it_failed_is_seen_and_raises_nothing_where_it_was_enqueued(app, ran, caplog):
    @app.job(name="flaky")
    async def flaky() -> None:
        raise KeyError("gone")

    @app.job(name="last", max_attempts=1)
    def last() -> None:
        raise ValueError("no")

    @app.job(name="later")
    async def later() -> None:
        raise rj.Snooze(60)

    @app.job(name="never")
    async def never() -> None:
        raise rj.Cancel("not wanted")

    rows = [await one.enqueue() for one in (flaky, last, later, never)]
    assert [row.state for row in rows] == ["retryable", "discarded", "scheduled", "cancelled"]
    (outcome,) = ran.outcomes(flaky)
    assert (type(outcome), type(outcome.exception)) == (rj.Retry, KeyError)
    assert "KeyError: 'gone'" in caplog.text  # whoever looks for why an effect is missing finds it
    with pytest.raises(TimeoutError, match="inline runs it only once: 'gone'"):
        await rows[0].result()
    with pytest.raises(rj.JobFailed, match=r"job 2 \(last\) was discarded: ValueError: no"):
        await rows[1].result()


async def test_its_exception_comes_out_where_that_is_asked_for(app):
    @app.job
    async def broken() -> None:
        raise KeyError("gone")

    with inline(app, raises=True), pytest.raises(KeyError, match="gone"):
        await broken.enqueue()


async def test_jobs_that_jobs_enqueue_run_too_and_one_that_never_ends_is_told(app, ran):
    order = []

    @app.job(name="down")
    async def down(n: int) -> None:
        order.append(n)
        if n:
            await down.enqueue(n=n - 1)

    await down.enqueue(n=3)
    assert order == [3, 2, 1, 0]
    await down.enqueue(n=10**6)
    assert any("50 jobs run" in str(getattr(one, "exception", "")) for one in ran.outcomes(down))


async def test_middleware_timeout_events_and_a_stream_of_new_jobs_are_as_for_real(app, ran):
    wrapped, heard = [], []

    class Noting(rj.Middleware):
        async def run(self, job, call_next):
            wrapped.append("run")
            return await call_next(job)

        async def enqueue(self, news, call_next):
            wrapped.append("enqueue")
            return await call_next(news)

    app.use(Noting())
    app.events.listen(lambda event: heard.append(event.name))

    @app.job(name="slow", timeout=0.02)
    async def slow() -> None:
        await asyncio.sleep(30)

    with inline(rj.App(NOWHERE)):  # another app's is its own
        pass
    rows = await rx.of(slow.new()).pipe(rj.enqueue(app))
    assert rows.state == "retryable"
    assert heard == ["job.enqueue", "job.start", "job.exception"]
    assert wrapped == ["run"]  # what wraps inserts is what the app had when inline began


async def test_a_job_may_say_how_far_it_has_come(app, ran):
    @app.job
    async def long() -> None:
        await rj.current_job().progress(0.5, "half")

    assert (await long.enqueue()).state == "completed"


def test_without_an_event_loop_plain_functions_run_in_the_calling_thread(app, ran):
    """Where a web framework's connection to its database is, which belongs to a thread."""
    where = []

    @app.job(name="plain", record=True)
    def plain(n: int) -> int:
        where.append(threading.current_thread())
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        if n:
            app.sync.enqueue(plain.new(n=n - 1))
        return n

    @app.job(name="awaited")
    async def awaited() -> None:
        await asyncio.sleep(0)
        where.append(threading.current_thread())
        await plain.enqueue(n=0)

    assert app.sync.enqueue(plain.new(n=1), connection=object()).state == "completed"
    assert app.sync.perform(plain.new(n=0)) == 0
    assert where == [threading.main_thread()] * 3
    app.sync.enqueue(awaited.new())
    assert where[3] is not threading.main_thread()
    assert where[4] is threading.main_thread()
    assert [row.state for row in app.sync.enqueue_many([plain.new(n=0), plain.new(n=0)])] == ["completed"] * 2


def test_there_is_no_database_and_that_is_said(app, ran):
    with pytest.raises(rj.NotOpen, match="no database while jobs run inline"):
        app.sync.jobs.list()


async def test_afterwards_the_app_is_as_it_was(app):
    @app.job(name="bad")
    async def bad() -> None:
        raise ValueError("no")

    with inline(app):
        for _ in range(12):
            await bad.enqueue()
        assert app.circuits.states() == {"bad": "open"}  # as it would be
    assert app.circuits.states() == {"bad": "closed"}
    with pytest.raises(rj.NotOpen, match="not open"):
        await bad.enqueue()


async def test_an_app_that_is_open_is_refused(ground):
    async with rj.App(ground) as app:
        with pytest.raises(rj.InvalidOption, match="inline is for an app that is not open"), inline(app):
            pass
