import asyncio
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import asyncpg
import psutil
import pytest

import rxjobs as rj
from rxjobs.definition import NewJob
from rxjobs.events import JobsEnqueued
from tests.store.ground import a_shared_database, emptied


@pytest.fixture(scope="module")
def ground(databases):
    yield from a_shared_database(databases)


@pytest.fixture
async def dsn(ground):
    return await emptied(ground)


@pytest.fixture
async def app(dsn):
    app = rj.App(dsn, migrate=True, notify=True)

    @app.job(queue="mail", tags=("a",), meta={"by": "test"})
    async def send(user: int = 0) -> None: ...

    async with app:
        yield app


@pytest.fixture
def send(app):
    (definition,) = app.definitions.values()
    return definition


@pytest.fixture
async def connection(app):
    connection = await asyncpg.connect(app.dsn)
    yield connection
    await connection.close()


async def count(connection):
    return await connection.fetchval("SELECT count(*) FROM rxjobs.jobs")


async def test_enqueue_gives_the_id_and_the_state_of_a_committed_row(send, connection):
    enqueued = await send.enqueue(user=7)
    row = await connection.fetchrow("SELECT * FROM rxjobs.jobs WHERE id = $1", enqueued.id)
    assert (enqueued.state, enqueued.duplicate) == ("available", False)
    assert (row["type"], row["queue"], row["state"], row["args"]) == (send.name, "mail", "available", '{"user":7}')
    assert (row["tags"], row["meta"]) == (["a"], '{"by": "test"}')


async def test_a_delayed_job_is_scheduled(send, connection):
    enqueued = await send.options(delay=60).enqueue()
    assert enqueued.state == "scheduled"
    wait = await connection.fetchval("SELECT scheduled_at - inserted_at FROM rxjobs.jobs WHERE id = $1", enqueued.id)
    assert wait == timedelta(seconds=60)


async def test_a_job_may_be_given_its_instant(app, send):
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    enqueued = await send.options(scheduled_at=tomorrow).enqueue()
    job = await app.jobs.get(enqueued.id)
    assert (enqueued.state, job.scheduled_at) == ("scheduled", tomorrow)
    past = await send.options(scheduled_at=tomorrow - timedelta(days=2)).enqueue()
    assert past.state == "available"


async def test_options_make_a_job_differ_from_its_type(app, send):
    optioned = send.options(priority=3, queue="other", max_attempts=2, tags=["b"], meta={"more": 1})
    job = await app.jobs.get((await optioned.enqueue(user=1)).id)
    assert (job.priority, job.queue, job.max_attempts, job.tags, job.meta) == (3, "other", 2, ["b"], {"by": "test", "more": 1})
    plain = await app.jobs.get((await send.enqueue(user=1)).id)
    assert (plain.priority, plain.queue, plain.max_attempts, plain.tags) == (0, "mail", 20, ["a"])


async def test_many_keep_their_order(app, send):
    rows = await app.enqueue_many([send.new(user=n) for n in range(2_500)])
    assert len(rows) == 2_500
    for place in (0, 999, 1_000, 1_999, 2_000, 2_499):
        assert (await app.jobs.get(rows[place].id)).args == {"user": place}
    assert [row.id for row in rows] == sorted(row.id for row in rows)


async def test_a_generator_of_any_length_takes_the_memory_of_two_batches(app, send, connection):
    made = got = 0

    def news():
        nonlocal made
        for made in range(1, 50_001):
            yield send.new(user=made)

    process = psutil.Process()
    before = peak = process.memory_info().rss
    async for _ in app.stream_many(news()):
        got += 1
        assert made - got <= 2_000  # it is asked for a batch at a time as rows are taken, and one ahead
        if got % 1_000 == 0:
            peak = max(peak, process.memory_info().rss)
    assert got == made == await count(connection) == 50_000
    assert peak - before < 16 * 2**20


async def test_a_generator_that_fails_leaves_the_rows_before_it_committed_and_told(app, send, connection):
    def news():
        yield from (send.new(user=user) for user in range(1_500))
        raise KeyError("no more")

    rows = []

    async def take():
        async for row in app.stream_many(news()):
            rows.append(row)

    with pytest.raises(KeyError, match="no more"):
        await take()
    assert len(rows) == await count(connection) == 1_000


async def test_what_was_begun_is_committed_when_nobody_wants_the_rest(app, send, connection):
    stream = app.stream_many(send.new(user=user) for user in range(5_000))
    first = await anext(stream)
    await stream.aclose()
    assert (await app.jobs.get(first.id)).args == {"user": 0}
    assert await count(connection) == 2_000
    await app.enqueue(send.new(user=1))


async def test_async_iterables_are_taken_too(app, send, connection):
    async def news():
        for user in range(5):
            await asyncio.sleep(0)
            yield send.new(user=user)

    assert len(await app.enqueue_many(news())) == 5
    assert await count(connection) == 5


async def test_an_iterable_that_raises_leaves_the_batches_before_it(app, send, connection):
    def news():
        for user in range(1_500):
            yield send.new(user=user)
        raise LookupError("no more users")

    with pytest.raises(LookupError, match="no more users"):
        await app.enqueue_many(news())
    assert await count(connection) == 1_000


async def test_with_a_connection_the_job_is_there_if_and_only_if_the_transaction_commits(app, send, connection):
    transaction = connection.transaction()
    await transaction.start()
    await app.enqueue(send.new(user=1), connection)
    await app.enqueue_many([send.new(user=2), send.new(user=3)], connection=connection)
    assert await app.jobs.count() == {}
    await transaction.rollback()
    assert await app.jobs.count() == {}
    async with connection.transaction():
        enqueued = await app.enqueue(send.new(user=4), connection)
        assert await app.jobs.get(enqueued.id) is None
    assert (await app.jobs.get(enqueued.id)).args == {"user": 4}


async def test_a_connection_of_a_pool_does_as_well(app, send):
    async with asyncpg.create_pool(app.dsn, min_size=1) as pool, pool.acquire() as connection, connection.transaction():
        await app.enqueue(send.new(user=1), connection)
    assert await app.jobs.count() == {"available": 1}


async def test_nobody_is_woken_before_the_commit_and_then_once_a_queue(app, send, connection, dsn):
    heard = []
    listening = await asyncpg.connect(dsn)
    await listening.add_listener("rxjobs", lambda *notified: heard.append(notified[3]))
    async with connection.transaction():
        for user in range(500):
            await app.enqueue(send.new(user=user), connection)
            await app.enqueue(send.options(queue="other").new(user=user), connection)
        await listening.execute("SELECT pg_notify('rxjobs', 'before the commit')")
    await listening.execute("SELECT pg_notify('rxjobs', 'end')")
    assert heard[0] == "before the commit"
    assert sorted(heard[1:]) == ["end", "mail", "other"]
    heard.clear()
    transaction = connection.transaction()
    await transaction.start()
    await app.enqueue(send.new(user=1), connection)
    await transaction.rollback()
    await listening.execute("SELECT pg_notify('rxjobs', 'end')")
    assert heard == ["end"]
    await listening.close()


async def test_calls_that_come_while_an_insert_runs_share_the_next(app, send, connection):
    rows = await asyncio.gather(*(send.enqueue(user=n) for n in range(200)))
    assert len({row.id for row in rows}) == 200
    transactions = await connection.fetchval("SELECT count(DISTINCT xmin::text) FROM rxjobs.live_jobs")
    assert transactions < 60
    stored = {row["id"]: row["args"] for row in await connection.fetch("SELECT id, args FROM rxjobs.live_jobs")}
    assert [stored[row.id] for row in rows] == [f'{{"user":{n}}}' for n in range(200)]


@pytest.mark.parametrize(
    "bad",
    [
        {"max_attempts": 0},
        {"priority": 70_000},
        {"meta": {"nul": "\x00"}},
        {"meta": {"object": object}},
        {"meta": {"surrogate": "\ud800"}},
        {"tags": ("nul\x00",)},
        {"tags": ("surrogate\ud800",)},
        {"payload": "no json"},
        {"delay": float("nan")},
    ],
    ids=str,
)
async def test_what_is_refused_fails_its_own_caller_only(app, send, connection, bad):
    """A NewJob can be made by hand, and meta holds what it is given."""
    fields = {"type": send.name, "queue": "mail", "payload": "{}", **bad}
    calls = [send.enqueue(user=n) for n in range(5)]
    calls.insert(2, app.enqueue(NewJob(**fields)))
    results = await asyncio.gather(*calls, return_exceptions=True)
    refused = results.pop(2)
    assert isinstance(refused, Exception)
    assert [type(result) for result in results] == [rj.Enqueued] * 5
    assert await count(connection) == 5


async def test_a_caller_that_gives_up_harms_no_other(app, send, connection):
    calls = [asyncio.ensure_future(send.enqueue(user=n)) for n in range(20)]
    await asyncio.sleep(0)
    for call in calls[::2]:
        call.cancel()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(result, rj.Enqueued) for result in results[1::2])
    assert (await send.enqueue(user=99)).id
    assert await count(connection) >= 11


async def test_a_database_that_goes_away_fails_the_call_and_the_next_one_works(app, send, connection):
    await connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'rxjobs' AND datname = current_database()"
    )
    results = await asyncio.gather(*(send.enqueue(user=n) for n in range(3)), return_exceptions=True)
    failed = [result for result in results if not isinstance(result, rj.Enqueued)]
    while True:
        try:
            await send.enqueue(user=10)
            break
        except Exception:
            await asyncio.sleep(0.01)
    assert await count(connection) >= 4 - len(failed)


async def test_what_was_enqueued_is_told(app, send):
    heard = []
    app.events.subscribe(lambda event: heard.append(event) if isinstance(event, JobsEnqueued) else None)
    await send.enqueue(user=1)
    await app.enqueue_many([send.new(user=1), send.new(user=2), send.options(queue="other").new(user=3)])
    assert [(event.queue, event.count) for event in heard] == [("mail", 1), ("mail", 2), ("other", 1)]


@pytest.mark.parametrize("connection", [object(), SimpleNamespace(fetch=None), "postgresql://"], ids=["object", "alike", "text"])
async def test_connections_of_other_kinds_are_refused_by_name(app, send, connection):
    with pytest.raises(
        rj.InvalidOption, match=f"not {'types.SimpleNamespace' if hasattr(connection, 'fetch') else type(connection).__name__}"
    ):
        await app.enqueue(send.new(), connection)


@pytest.mark.parametrize("new", [None, "send", {"type": "send"}], ids=str)
async def test_what_is_no_new_job_is_refused(app, new):
    with pytest.raises(rj.InvalidOption, match="new"):
        await app.enqueue(new)
    with pytest.raises(rj.InvalidOption, match="new"):
        await app.enqueue_many([new])


def test_an_app_that_is_not_open_says_so(postgres):
    app = rj.App(postgres)

    @app.job
    async def work() -> None: ...

    with pytest.raises(rj.NotOpen, match="async with app"):
        asyncio.run(work.enqueue())
    with pytest.raises(rj.NotOpen, match="async with app"):
        _ = app.store
    with pytest.raises(rj.NotOpen, match="async with app"):
        _ = app.dsn


async def test_a_closed_app_says_so(app, send):
    await app.__aexit__(None, None, None)
    with pytest.raises(rj.NotOpen, match="async with app"):
        await send.enqueue()
    await app.__aenter__()
    assert await send.enqueue()


async def test_another_event_loop_than_its_own_is_told_so(app, send):
    def elsewhere():
        asyncio.run(send.enqueue())

    with pytest.raises(rj.NotOpen, match="another event loop"):
        await asyncio.to_thread(elsewhere)

    async def open_elsewhere():
        async with app:
            pass

    with pytest.raises(rj.NotOpen, match="another event loop"):
        await asyncio.to_thread(lambda: asyncio.run(open_elsewhere()))
    assert await send.enqueue()
