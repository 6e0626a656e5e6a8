import asyncio
from collections import Counter

import asyncpg
import msgspec
import pytest
from reactivex.subject import Subject

import rxjobs as rj
from rxjobs.awaiting import LoopScheduler
from rxjobs.events import JobDiscarded, JobStale
from rxjobs.failure import Failure
from rxjobs.outcome import Finished
from rxjobs.source import Control
from rxjobs.testing import fill
from tests.store.ground import a_shared_database, emptied
from tests.waiting import until


@pytest.fixture(scope="module")
def ground(databases):
    yield from a_shared_database(databases)


@pytest.fixture
async def dsn(ground):
    return await emptied(ground)


@pytest.fixture
async def connection(dsn):
    connection = await asyncpg.connect(dsn)
    yield connection
    await connection.close()


@pytest.fixture
async def app(dsn, connection):
    """An app that is open and whose node has a lease, with nothing running beside what the test does."""
    app = rj.App(dsn, node="node-a")
    app.job(name="work", queue="mail")(work)
    app.job(name="other", queue="mail")(work)
    async with app:
        await app.store.take_lease(app.id, "node-a", 1, 600.0)
        yield app


async def work(n: int = 0) -> None: ...


@pytest.fixture
def events(app):
    heard = []
    app.events.subscribe(heard.append)
    return heard


@pytest.fixture
def source(app):
    return rj.PostgresSource(app, "mail")


async def states(connection):
    rows = await connection.fetch("SELECT state, attempt FROM rxjobs.jobs ORDER BY id")
    return [(row["state"], row["attempt"]) for row in rows]


async def test_fetched_jobs_are_complete_and_in_order(app, connection, source):
    await app.enqueue(app.definitions["work"].options(priority=5, tags=["late"]).new(1))
    await app.enqueue(app.definitions["other"].options(priority=0, meta={"m": 1}).new(2))
    await fill(connection, "work", 1, queue="elsewhere")
    first, second = await source.fetch(10)
    assert (first.type, first.args, first.meta, first.priority, first.queue) == ("other", {"n": 2}, {"m": 1}, 0, "mail")
    assert (second.type, second.args, second.tags, second.priority) == ("work", {"n": 1}, ["late"], 5)
    assert {job.node for job in (first, second)} == {app.id}
    assert {(job.attempt, job.max_attempts, job.state) for job in (first, second)} == {(1, 20, "executing")}
    assert first.definition is app.definitions["other"]
    assert first.attempted_at >= first.scheduled_at
    assert await source.fetch(10) == []


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ({"types": ["work"]}, {"work": 4}),
        ({"types": ["work", "unknown"]}, {"work": 4}),
        ({"types": ["unknown"]}, {}),
        ({"types": []}, {}),
        ({"tags": ["a"]}, {"work": 2, "other": 1}),
        ({"tags": ["a", "b"]}, {"work": 1}),
        ({"args": {"n": 2}}, {"work": 1, "other": 1}),
        ({"types": ["work"], "tags": ["a"], "args": {"n": 2}}, {"work": 1}),
        ({}, {"work": 4, "other": 2}),
        (None, {"work": 4, "other": 2}),
    ],
    ids=str,
)
async def test_where_narrows_what_is_asked_for(app, where, expected):
    news = [("work", 1, ["a", "b"]), ("work", 2, ["a"]), ("work", 3, ["b"]), ("work", 4, []), ("other", 2, ["a"]), ("other", 5, [])]
    for name, n, tags in news:
        await app.enqueue(app.definitions[name].options(tags=tags).new(n))
    jobs = await rj.PostgresSource(app, "mail", where).fetch(10)
    assert Counter(job.type for job in jobs) == expected


@pytest.mark.parametrize(
    "where", [{"color": 1}, {"types": "work"}, {"tags": [1]}, {"args": [1]}, ["types"], {"args": {"n": object}}], ids=str
)
def test_a_where_that_is_none_is_refused(where):
    with pytest.raises((rj.InvalidOption, rj.InvalidArguments)):
        rj.PostgresSource(rj.App("postgresql://nowhere"), "mail", where)


async def test_outcomes_are_written_down(connection, source):
    await fill(connection, "work", 4, queue="mail")
    jobs = await source.fetch(10)
    outcomes = [rj.Complete(), rj.Snooze(60), rj.Retry(60.0, failure=Failure("E", "m")), rj.Discard("no")]
    await source.settle([Finished(job, outcome) for job, outcome in zip(jobs, outcomes, strict=True)])
    assert await states(connection) == [("completed", 1), ("scheduled", 0), ("retryable", 1), ("discarded", 1)]


async def test_completed_jobs_of_different_attempts_are_written_down_together(connection, source):
    await fill(connection, "work", 3, queue="mail")
    await connection.execute("UPDATE rxjobs.live_jobs SET attempt = id % 2")
    jobs = await source.fetch(10)
    await source.settle([Finished(job, rj.Complete()) for job in jobs])
    assert [state for state, _ in await states(connection)] == ["completed"] * 3


async def test_an_outcome_that_is_not_of_the_current_claim_is_told_and_changes_nothing(connection, source, events, caplog):
    await fill(connection, "work", 4, queue="mail")
    jobs = await source.fetch(10)
    stale = jobs[:3]
    await connection.execute("UPDATE rxjobs.live_jobs SET node = gen_random_uuid() WHERE id = $1", stale[0].id)
    await connection.execute("UPDATE rxjobs.live_jobs SET attempt = 2 WHERE id = $1", stale[1].id)
    await connection.execute("DELETE FROM rxjobs.live_jobs WHERE id = $1", stale[2].id)
    before = await connection.fetch("SELECT * FROM rxjobs.jobs WHERE id <> $1 ORDER BY id", jobs[3].id)
    outcomes = [rj.Complete(), rj.Discard(), rj.Retry(0.0), rj.Complete()]
    await source.settle([Finished(job, outcome) for job, outcome in zip(jobs, outcomes, strict=True)])
    assert [event.job.id for event in events if isinstance(event, JobStale)] == [job.id for job in stale]
    assert await connection.fetch("SELECT * FROM rxjobs.jobs WHERE id <> $1 ORDER BY id", jobs[3].id) == before
    assert caplog.text.count("its outcome") == 3


async def test_an_ack_whose_answer_was_lost_is_no_stale_one(connection, source, events):
    await fill(connection, "work", 4, queue="mail")
    jobs = await source.fetch(10)
    outcomes = [rj.Complete(), rj.Snooze(60), rj.Retry(0.0), rj.Release()]
    finished = [Finished(job, outcome) for job, outcome in zip(jobs, outcomes, strict=True)]
    await source.settle(finished)
    after = await states(connection)
    await source.settle(finished)
    await source.settle(finished[:1])
    assert [event for event in events if isinstance(event, JobStale)] == []
    assert await states(connection) == after


async def test_in_an_exchange_too_an_outcome_that_is_not_this_nodes_changes_nothing_and_is_told(connection, source, events, caplog):
    await fill(connection, "work", 4, queue="mail")
    jobs = await source.fetch(3)
    await connection.execute("UPDATE rxjobs.live_jobs SET node = gen_random_uuid() WHERE id = $1", jobs[0].id)
    finished = [Finished(job, rj.Complete()) for job in jobs]
    assert source.may_exchange(finished)
    (after,) = await source.exchange(finished, 2)
    assert after.id not in {job.id for job in jobs}
    assert await states(connection) == [("executing", 1)] + [("completed", 1)] * 2 + [("executing", 1)]
    assert [event.job.id for event in events if isinstance(event, JobStale)] == [jobs[0].id]
    assert caplog.text.count("its outcome") == 1


async def test_an_exchange_whose_answer_was_lost_is_settled_again_without_a_change(app, connection, source, events):
    await fill(connection, "work", 4, queue="mail")
    finished = [Finished(job, rj.Complete()) for job in await source.fetch(3)]
    await source.exchange(finished, 2)
    assert app.dead_letters.witness.completed == 3
    await source.settle(finished)
    await source.exchange(finished, 2)
    assert [event for event in events if isinstance(event, JobStale)] == []
    assert await states(connection) == [("completed", 1)] * 3 + [("executing", 1)]


async def test_outcomes_that_need_more_than_a_row_moved_are_written_by_themselves(app, connection, source):
    app.job(name="keeps", queue="mail", record=True)(work)
    await fill(connection, "work", 4, queue="mail")
    first, second, third, fourth = [Finished(job, rj.Complete()) for job in await source.fetch(4)]
    assert source.may_exchange([first, second])
    assert not source.may_exchange([first, Finished(second.job, rj.Retry(1.0))])
    assert not source.may_exchange([third, Finished(msgspec.structs.replace(fourth.job, attempt=2), rj.Complete())])
    assert not source.may_exchange(
        [Finished(msgspec.structs.replace(first.job, definition=app.definition("keeps")), rj.Complete())]
    )


async def test_connections_that_are_ended_while_jobs_are_exchanged_lose_and_double_none(app, connection, source, monkeypatch):
    """One that is ended after its commit has acked jobs, and claimed some, without anybody knowing."""
    monkeypatch.setattr("rxjobs.ledger.REST_SECONDS", 0.0)
    ran, counts = Counter[int](), Counter[str]()

    @app.job(name="counted", queue="mail")
    async def counted(n: int) -> None:
        ran[n] += 1

    exchange = app.store.exchange_jobs

    async def counting(*args):
        counts["exchanges"] += 1
        return await exchange(*args)

    app.store.exchange_jobs = counting
    await fill(connection, "counted", 3_000, queue="mail", args_sql="json_build_object('n', n)")
    pipeline = rj.pull(source, max_demand=20).pipe(rj.execute(concurrency=20), rj.ack())
    end = """
        SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid() AND query LIKE '%and claim up to%' AND state = 'active'
    """
    async with app.running(pipeline):
        ended = 0
        while not await connection.fetchval("SELECT count(*) = 3000 FROM rxjobs.finished_jobs WHERE state = 'completed'"):
            ended += 0 if ended > 20 else await connection.fetchval(end)
    assert ended
    assert counts["exchanges"] > 20
    assert ran == dict.fromkeys(range(3_000), 1)


async def test_a_row_that_cannot_be_read_is_a_dead_letter_and_the_rest_is_fetched(connection, source, events):
    await fill(connection, "work", 2, queue="mail", args={"n": "no number"})
    await fill(connection, "work", 2, queue="mail", args={"n": 1})
    jobs = await source.fetch(10)
    assert [job.args for job in jobs] == [{"n": 1}] * 2
    assert await states(connection) == [("discarded", 1)] * 2 + [("executing", 1)] * 2
    assert len([event for event in events if isinstance(event, JobDiscarded)]) == 2


class Wordless:
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Own(rj.Outcome):
    """An outcome of a user's making, which says nothing of what to do."""


@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        (rj.Retry(60.0, failure=Failure("E", "a\x00b")), "retryable"),
        (rj.Discard("a", Failure("E", "m", "trace\ud800back")), "discarded"),
        (rj.Discard("a", Failure("E", "m", duration=float("nan"))), "discarded"),
        (rj.Cancel(Wordless()), "cancelled"),
        (rj.Discard(Wordless()), "discarded"),
        (rj.Retry(60.0, reason=Wordless()), "retryable"),
        (rj.Outcome(), "retryable"),
        (Own(), "retryable"),
    ],
    ids=["NUL", "surrogate", "NaN", "cancel", "discard", "retry", "bare", "own"],
)
async def test_a_text_that_nobody_can_write_down_costs_the_text_and_not_the_outcome_nor_any_other(
    connection, source, outcome, state
):
    await fill(connection, "work", 3, queue="mail")
    first, second, third = await source.fetch(10)
    await asyncio.wait_for(
        source.settle([Finished(first, rj.Complete()), Finished(second, outcome), Finished(third, rj.Snooze(5))]), 10
    )
    assert [one for one, _ in await states(connection)] == ["completed", state, "scheduled"]


async def test_a_wake_is_for_its_queue_or_for_all(app, source):
    heard = []
    app.woken = Subject()
    app.settings = rj.App("x", poll_seconds=600).settings
    watching = source.wakes.subscribe(heard.append)
    for queue in ("mail", "other", None, "mail"):
        app.woken.on_next(queue)
    watching.dispose()
    assert heard == ["mail", None, "mail"]


async def test_without_any_wake_a_job_that_is_ready_is_found_by_a_slow_poll_and_told_of_until_it_is_taken(app, connection, source):
    app.settings = rj.App("x", poll_seconds=0.05).settings
    await fill(connection, "unknown", 1, queue="mail")
    await fill(connection, "work", 1, queue="other")
    polls = asyncio.Queue()
    loop = asyncio.get_running_loop()

    watching = source.wakes.subscribe(polls.put_nowait, scheduler=LoopScheduler(loop))
    seen = []
    looking = app.looks.pending(lambda: None).subscribe(seen.append)
    await until(lambda: len(seen) > 3)
    assert polls.empty()
    began = loop.time()
    await fill(connection, "work", 1, queue="mail")
    for _ in range(5):
        await asyncio.wait_for(polls.get(), 5)
    assert loop.time() - began > 0.2
    await source.fetch(1)
    seen.clear()
    await until(lambda: len(seen) > 1)  # one may have been on its way
    while not polls.empty():
        polls.get_nowait()
    await until(lambda: len(seen) > 4)
    assert polls.empty()
    watching.dispose()
    looking.dispose()


@pytest.mark.parametrize("error", [TimeoutError("away"), asyncpg.UndefinedTableError("renamed")])
async def test_where_its_node_cannot_look_a_source_is_woken_so_that_it_asks_by_itself(app, source, error, caplog):
    app.settings = rj.App("x", poll_seconds=0.05).settings

    async def fails(*_):
        raise error

    app.store.look = fails
    polls = asyncio.Queue()
    watching = source.wakes.subscribe(polls.put_nowait, scheduler=LoopScheduler(asyncio.get_running_loop()))
    for _ in range(3):
        await asyncio.wait_for(polls.get(), 5)
    watching.dispose()
    told = [record for record in caplog.records if "cannot look" in record.message]
    assert len(told) == isinstance(error, asyncpg.PostgresError), "what passes is told of by those who ask, the rest once"


async def test_a_database_that_is_away_is_waited_for(app, connection, source):
    await fill(connection, "work", 1, queue="mail")
    name = await connection.fetchval("SELECT current_database()")
    ours = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1 AND application_name = 'rxjobs'"
    await connection.execute(ours, name)
    (job,) = await source.fetch(1)
    await connection.execute(ours, name)
    await source.settle([Finished(job, rj.Complete())])
    assert await states(connection) == [("completed", 1)]


async def test_a_queue_that_is_paused_gives_nothing_and_none_of_its_jobs_has_waited(app, connection, source):
    await fill(connection, "work", 3, queue="mail")
    await connection.execute("INSERT INTO rxjobs.queues (queue, paused_at) VALUES ('mail', now())")
    assert await source.fetch(10) == []
    assert await source.has_waited(0.0) is False
    assert await states(connection) == [("available", 0)] * 3
    await app.queues.resume("mail")
    assert await source.has_waited(0.0) is True
    assert len(await source.fetch(10)) == 3


@pytest.mark.parametrize("name", ["", "node-a", "its id", "another node"])
@pytest.mark.parametrize("where", [None, {"args": {}, "tags": []}, {"tags": ["a"]}])
async def test_nothing_is_claimed_once_a_pause_is_committed_whatever_is_known_of_it(app, connection, name, where):
    """F39: the claim itself looks."""
    source = rj.PostgresSource(app, "mail", where)
    for n in range(3):
        await app.enqueue(app.definitions["work"].options(tags=["a"]).new(n))
    assert len(await source.fetch(1)) == 1
    name = str(app.id) if name == "its id" else name
    await connection.execute("INSERT INTO rxjobs.queues (queue, node, paused_at) VALUES ('mail', $1, now())", name)
    assert len(await source.fetch(10)) == (2 if name == "another node" else 0)


@pytest.mark.parametrize("name", ["", "node-a", "its id"])
async def test_what_is_asked_of_its_queue_is_told_when_it_is_new(app, connection, source, name):
    name = str(app.id) if name == "its id" else name
    app.settings = rj.App("x", node="node-a", poll_seconds=0.05).settings
    told = asyncio.Queue()

    watching = source.controls.subscribe(told.put_nowait, scheduler=LoopScheduler(asyncio.get_running_loop()))
    assert await asyncio.wait_for(told.get(), 10) == Control()
    for column, value, control in (
        ("paused_at", "now()", Control(is_paused=True)),
        ("max_demand", "7", Control(is_paused=True, max_demand=7)),
        ("paused_at", "NULL", Control(max_demand=7)),
    ):
        await connection.execute(
            f"INSERT INTO rxjobs.queues (queue, node, {column}) VALUES ('mail', $1, {value}), ('other', $1, NULL), "
            f"('mail', 'another node', NULL) ON CONFLICT (queue, node) DO UPDATE SET {column} = excluded.{column}",
            name,
        )
        assert await asyncio.wait_for(told.get(), 10) == control
    watching.dispose()
    assert told.empty()


async def test_two_pulls_of_a_node_look_once_and_both_are_told(app, connection, source):
    app.settings = rj.App("x", poll_seconds=0.4).settings
    looks, told = [], []
    look = app.store.look

    async def counted(queues, *others):
        looks.append(queues)
        return await look(queues, *others)

    app.store.look = counted
    scheduler = LoopScheduler(asyncio.get_running_loop())
    sources = [source, rj.PostgresSource(app, "mail"), rj.PostgresSource(app, "other")]
    watching = [
        one.controls.subscribe(lambda control, one=one: told.append((one, control)), scheduler=scheduler) for one in sources
    ]
    await connection.execute("INSERT INTO rxjobs.queues (queue, paused_at) VALUES ('mail', now())")
    app.woken.on_next("!")
    await until(lambda: {one for one, control in told if control.is_paused} == set(sources[:2]))
    began, looks[:] = asyncio.get_running_loop().time(), []
    await asyncio.sleep(1)  # how often is a question of time
    took = asyncio.get_running_loop().time() - began
    assert 1 <= len(looks) <= took / 0.2 + 1
    assert set(map(tuple, looks)) == {("mail", "other")}
    for one in watching:
        one.dispose()


async def test_a_limited_queue_gives_what_may_run_and_more_when_a_job_has_ended(app, connection, source):
    await fill(connection, "work", 9, queue="mail")
    await app.queues.limit("mail", concurrency=2)
    first = await source.fetch(10)
    assert len(first) == 2
    assert await source.fetch(10) == []
    assert await source.has_waited(0.0) is False  # it may be that none could be given
    await source.settle([Finished(first[0], rj.Complete())])
    assert len(await source.fetch(10)) == 1
    await app.queues.limit("mail", concurrency=None)
    assert len(await source.fetch(10)) == 6
    assert Counter(await states(connection)) == {("executing", 1): 8, ("completed", 1): 1}


async def test_a_place_that_a_node_frees_is_taken_by_it_at_once(dsn):
    """Neither a notification nor a poll says so."""
    app = rj.App(dsn, poll_seconds=600, notify=False)
    app.job(name="work", queue="mail")(work)
    async with app:
        await app.queues.limit("mail", concurrency=2)
        await app.enqueue_many([app.definitions["work"].new(n) for n in range(20)])
    async with app.running(app.source("mail", max_demand=50).pipe(rj.execute(), rj.ack())):
        await until(lambda: _are_completed(app, 20))


async def _are_completed(app, count):
    return (await app.jobs.count()).get("completed") == count


@pytest.mark.parametrize("limit", [{"concurrency": 1}, {"rate": 1}], ids=["concurrency", "rate"])
async def test_a_node_that_may_take_no_more_asks_now_and_then(dsn, limit):
    """By its poll, or the pace of a rate: a job that waits at a limit must not make it spin."""
    app = rj.App(dsn, poll_seconds=0.2, notify=False)
    claims, may_end = 0, asyncio.Event()

    @app.job(name="work", queue="mail")
    async def work() -> None:
        await may_end.wait()

    async with app:
        if "rate" in limit:
            await app.queues.rate("mail", limit["rate"], per=86400 * 30)
        else:
            await app.queues.limit("mail", **limit)
        await app.enqueue_many([work.new() for _ in range(20)])
    async with app.running(app.source("mail", max_demand=10).pipe(rj.execute(), rj.ack())):
        store, fetch = app.store, app.store.fetch_limited

        async def counting(*args, **known):
            nonlocal claims
            claims += 1
            return await fetch(*args, **known)

        store.fetch_limited = counting
        await until(lambda: claims)
        await asyncio.sleep(1.0)  # how often is a question of time
        assert claims < 30
        may_end.set()
