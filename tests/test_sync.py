"""The client side for code without an event loop."""

from __future__ import annotations

import asyncio
import inspect
import multiprocessing
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property

import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

import rxjobs as rj
from rxjobs.facets import Facets
from tests.store.ground import a_shared_database, emptied


@pytest.fixture(scope="module")
def ground(databases):
    yield from a_shared_database(databases)


def with_a_loop():
    """The threads in which apps have their loops, of earlier tests too."""
    return {thread for thread in threading.enumerate() if thread.name == "rxjobs-sync"}


@pytest.fixture
def before():
    return with_a_loop()


@pytest.fixture
def app(ground, before):
    app = rj.App(asyncio.run(emptied(ground)))

    @app.job(name="work", queue="mail")
    async def work(n: int = 0) -> None: ...

    yield app
    app.sync.close()


@pytest.fixture
def work(app):
    return app.definitions["work"]


def test_jobs_are_enqueued_and_looked_after_without_a_loop(app, work):
    first = app.sync.enqueue(work.new(n=1))
    assert (first.state, first.duplicate) == ("available", False)
    rows = app.sync.enqueue_many(work.new(n=n) for n in range(2, 5))
    assert [app.sync.jobs.get(row.id).args["n"] for row in (first, *rows)] == [1, 2, 3, 4]
    assert app.sync.jobs.count() == {"available": 4}
    assert app.sync.jobs.cancel(queue="mail") == 4
    assert app.sync.queues.pause("mail")
    assert [queue.name for queue in app.sync.queues.list()] == ["mail"]
    assert app.sync.cron.add("sums", "@hourly", work.new(n=9))
    assert [entry.name for entry in app.sync.cron.list()] == ["sums"]
    app.sync.cron.remove("sums")
    app.sync.queues.resume("mail")


def test_a_million_could_be_streamed(app, work):
    """A batch at a time: nothing is taken from the generator before it is needed."""
    taken = []
    rows = app.sync.stream_many(taken.append(n) or work.new(n=n) for n in range(2500))
    next(rows)
    assert len(taken) == 1000
    assert len(list(rows)) == 2499


PARTS = "jobs", "queues", "cron", "breakers", "nodes", "history"


def test_it_has_whatever_the_app_has(app):
    """The coroutine methods of the app, and its parts with theirs."""
    assert [name for name, _ in inspect.getmembers(rj.App, is_asked) if not hasattr(app.sync, name)] == []
    named = {name: getattr(app, name) for name, kind in vars(Facets).items() if isinstance(kind, cached_property)}
    held = {**vars(app), **named}.items()
    parts = {name for name, part in held if inspect.getmembers(type(part), inspect.iscoroutinefunction)}
    public = {name for name in parts if not name.startswith("_")}
    assert public - {"circuits", "looks", "dead_letters", "sync"} == set(PARTS)
    assert all(hasattr(app.sync, part) for part in PARTS)


def is_asked(member):
    asks = inspect.iscoroutinefunction(member) or inspect.isasyncgenfunction(member)
    return asks and not member.__name__.startswith("_")


def test_nodes_breakers_and_limits_are_looked_after_too(app, work):
    app.sync.enqueue(work.new())
    assert app.sync.nodes.list() == []
    assert [(one.type, one.state) for one in app.sync.breakers.list()] == [("work", "closed")]
    app.sync.breakers.open("work")
    assert [(one.type, one.state) for one in app.sync.breakers.list()] == [("work", "open")]
    app.sync.breakers.close("work")
    assert app.sync.queues.limit("mail", concurrency=3)
    assert app.sync.queues.rate("mail", 60, per=60)
    assert app.sync.migrate() == []


def test_a_call_that_the_app_allows_is_enqueued(ground):
    app = rj.App(asyncio.run(emptied(ground)), callables=["inspect.*"])
    enqueued = app.sync.enqueue(rj.call(inspect.cleandoc, "a"))
    assert app.sync.jobs.get(enqueued.id).args["function"] == "inspect.cleandoc"
    app.sync.close()


def test_the_apps_middleware_and_events_are_about_it_too(app, work):
    seen, heard = [], []

    class Noting(rj.Middleware):
        async def enqueue(self, news, call_next):
            seen.extend(new.type for new in news)
            return await call_next(news)

    app.use(Noting())
    app.events.listen(lambda event: heard.append(event.name))
    app.sync.enqueue(work.new(n=1))
    assert seen == ["work"]
    assert heard.count("job.enqueue") == 1


async def test_middleware_that_awaits_is_told_of_where_nothing_can_be_awaited(app, work):
    """It would be waited for without an end: the loop stands still meanwhile."""

    class Asking(rj.Middleware):
        async def enqueue(self, news, call_next):
            await asyncio.sleep(0.01)
            return await call_next(news)

    app.use(Asking())
    with psycopg.connect(app.settings.dsn) as connection, pytest.raises(rj.NotOpen, match="nothing else can be awaited"):
        app.sync.enqueue(work.new(n=1), connection)


def test_rows_are_streamed_over_a_callers_connection(app, work):
    with psycopg.connect(app.settings.dsn) as connection:
        rows = app.sync.stream_many((work.new(n=n) for n in range(1500)), connection)
        assert len(list(rows)) == 1500
        connection.rollback()
    assert app.sync.jobs.count() == {}


def test_threads_share_one_loop(app, work, before):
    with ThreadPoolExecutor(20) as threads:
        rows = list(threads.map(lambda n: app.sync.enqueue(work.new(n=n)), range(200)))
    assert len({row.id for row in rows}) == 200
    assert len(with_a_loop() - before) == 1


def test_whoever_is_closed_opens_again(app, work, before):
    app.sync.enqueue(work.new())
    app.sync.close()
    assert with_a_loop() <= before
    app.sync.enqueue(work.new())
    assert app.sync.jobs.count() == {"available": 2}


def test_a_process_that_is_forked_has_its_own(app, work):
    """As a web server does that loads an application, and forks its workers."""
    app.sync.enqueue(work.new(n=1))
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    children = [context.Process(target=lambda n=n: answers.put(app.sync.enqueue(work.new(n=n)).id)) for n in (2, 3)]
    for child in children:
        child.start()
    ids = {answers.get(timeout=30) for _ in children}
    for child in children:
        child.join(30)
        assert child.exitcode == 0
    app.sync.enqueue(work.new(n=4))
    assert len(ids) == 2
    assert sorted(job.args["n"] for job in app.sync.jobs.list()) == [1, 2, 3, 4]


def test_it_is_part_of_a_callers_transaction(app, work):
    with psycopg.connect(app.settings.dsn) as connection:
        app.sync.enqueue(work.new(n=1), connection)
        connection.rollback()
        app.sync.enqueue(work.new(n=2), connection)
        app.sync.enqueue_many([work.new(n=3), work.new(n=4)], connection)
        assert app.sync.jobs.count() == {}
        connection.commit()
    engine = create_engine(app.settings.dsn.replace("postgresql:", "postgresql+psycopg:"))
    with Session(engine) as session:
        app.sync.enqueue(work.new(n=5), session)
        session.commit()
    engine.dispose()
    assert sorted(job.args["n"] for job in app.sync.jobs.list()) == [2, 3, 4, 5]


def test_a_callers_transaction_needs_no_thread(ground, app, work, before):
    with psycopg.connect(app.settings.dsn) as connection:
        app.sync.enqueue(work.new(n=1), connection)
    assert with_a_loop() <= before


async def test_an_asynchronous_connection_is_refused(app, work):
    async with await psycopg.AsyncConnection.connect(app.settings.dsn) as connection:
        with pytest.raises(rj.NotOpen, match="takes a synchronous connection"):
            app.sync.enqueue(work.new(), connection)


async def test_in_an_event_loop_it_says_what_to_do_instead(app, work):
    with pytest.raises(rj.NotOpen, match=r"would stop the event loop .* await app\.enqueue"):
        app.sync.enqueue(work.new())
    assert (await asyncio.to_thread(app.sync.enqueue, work.new())).state == "available"  # in a thread it may


def test_what_cannot_be_opened_is_told_each_time(work):
    app = rj.App("postgresql://nobody@127.0.0.1:1/nothing")
    for _ in range(2):
        with pytest.raises(rj.NoDatabase):
            app.sync.enqueue(work.new())


async def test_it_works_beside_a_loop_in_which_the_app_runs(app, work):
    async with app, app.running():
        enqueued = await asyncio.to_thread(app.sync.enqueue, work.new())
        async with asyncio.timeout(60):
            while (await app.jobs.get(enqueued.id)).state != "completed":  # noqa: ASYNC110 - the fact is in the database
                await asyncio.sleep(0.02)
