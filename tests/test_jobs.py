from datetime import datetime

import asyncpg
import pytest

import rxjobs as rj
from rxjobs.store.encoding import Filters
from rxjobs.store.store import READ_AT_ONCE
from rxjobs.testing import fill
from tests.store.ground import a_shared_database, emptied


@pytest.fixture(scope="module")
def ground(databases):
    yield from a_shared_database(databases)


@pytest.fixture
async def dsn(ground):
    return await emptied(ground)


@pytest.fixture
async def app(dsn):
    app = rj.App(dsn, migrate=True)

    @app.job(name="send", queue="mail")
    async def send(user: int, at: datetime | None = None) -> None: ...

    async with app:
        yield app


@pytest.fixture
def send(app):
    return app.definitions["send"]


@pytest.fixture
async def connection(app):
    connection = await asyncpg.connect(app.dsn)
    yield connection
    await connection.close()


async def test_get_gives_the_job_with_its_arguments_typed(app, send):
    at = datetime.fromisoformat("2026-01-02T03:04:05+01:00")
    id_ = (await send.options(tags=["a"], priority=2).enqueue(user=2**70, at=at)).id
    job = await app.jobs.get(id_)
    assert (job.id, job.type, job.queue, job.state, job.priority, job.tags) == (id_, "send", "mail", "available", 2, ["a"])
    assert job.args == {"user": 2**70, "at": at}
    assert (job.attempt, job.errors, job.node, job.finished_at) == (0, (), None, None)


async def test_get_of_no_job_is_none(app):
    assert await app.jobs.get(10**15) is None


async def test_rows_that_no_job_type_here_can_read_are_still_shown(app, connection):
    await fill(connection, "unknown", 1, args={"x": [1]})
    await fill(connection, "send", 1, args={"user": "no number"})
    await fill(connection, "send", 1, args_sql="'[1, 2]'::json")
    for job in await app.jobs.list():
        assert await app.jobs.get(job.id) == job
    assert [job.type for job in await app.jobs.list()] == ["send", "send", "unknown"]


async def test_list_pages_through_live_and_finished_rows_the_newest_first(app, connection):
    await fill(connection, "send", 3, state="completed", args={"user": 1})
    await fill(connection, "send", 4, args={"user": 1})
    seen, after = [], None
    while page := await app.jobs.list(limit=3, after=after):
        seen += [job.id for job in page]
        after = page[-1].id
    assert seen == sorted(seen, reverse=True)
    assert len(seen) == 7


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, {"available": 4, "completed": 3, "discarded": 2}),
        ({"state": "completed"}, {"completed": 3}),
        ({"state": ["completed", "discarded"]}, {"completed": 3, "discarded": 2}),
        ({"queue": "mail"}, {"available": 4}),
        ({"queue": ("mail", "other"), "type": "send"}, {"available": 4, "completed": 3}),
        ({"tags": "a"}, {"available": 1}),
        ({"tags": ["a", "b"]}, {}),
        ({"queue": "nowhere"}, {}),
    ],
    ids=str,
)
async def test_filters_narrow_counts_and_lists_alike(app, send, connection, filters, expected):
    await fill(connection, "send", 3, args={"user": 1}, queue="mail")
    await send.options(tags=["a"]).enqueue(user=1)
    await fill(connection, "send", 3, state="completed", queue="other")
    await fill(connection, "else", 2, state="discarded", queue="other")
    assert await app.jobs.count(**filters) == expected
    listed = [job.state for job in await app.jobs.list(**filters)]
    assert {state: listed.count(state) for state in set(listed)} == expected


async def test_what_waits_is_cancelled_and_what_runs_is_marked_and_nothing_else(app, connection):
    for state in ("available", "scheduled", "retryable", "held", "executing", "completed", "discarded"):
        await fill(connection, "send", 1, state=state)
    assert await app.jobs.cancel([job.id for job in await app.jobs.list()]) == 5
    assert await app.jobs.count() == {"cancelled": 4, "completed": 1, "discarded": 1, "executing": 1}
    assert await connection.fetchval("SELECT cancel_at IS NOT NULL FROM rxjobs.live_jobs")
    assert all(job.finished_at for job in await app.jobs.list(state="cancelled"))


async def test_a_retry_makes_a_job_available_at_once_with_an_attempt_more_where_they_are_used_up(app, connection):
    for state in ("scheduled", "retryable", "discarded", "cancelled", "completed", "executing", "available"):
        await fill(connection, "send", 1, state=state)
    await connection.execute(
        """UPDATE rxjobs.finished_jobs SET attempt = 20, errors = '[{"attempt": 20, "type": "E"}]' WHERE state = 'discarded'"""
    )
    before = {job.state: job.id for job in await app.jobs.list()}
    assert await app.jobs.retry([job.id for job in await app.jobs.list()]) == 4
    assert await app.jobs.count() == {"available": 5, "completed": 1, "executing": 1}
    dead = await app.jobs.get(before["discarded"])
    assert (dead.attempt, dead.max_attempts, dead.finished_at) == (20, 21, None)
    assert [error["type"] for error in dead.errors] == ["E"]
    assert (await app.jobs.get(before["retryable"])).max_attempts == 20
    late = await connection.fetchval("SELECT count(*) FROM rxjobs.live_jobs WHERE state = 'available' AND scheduled_at > now()")
    assert late == 0


async def test_a_retry_gives_as_many_attempts_as_asked_for(app, connection):
    await fill(connection, "send", 1, state="discarded")
    await connection.execute("UPDATE rxjobs.finished_jobs SET attempt = 20")
    (job,) = await app.jobs.list()
    assert await app.jobs.retry(job.id, attempts=5) == 1
    assert (await app.jobs.get(job.id)).max_attempts == 25


async def test_a_retry_wakes_the_queue(app, connection):
    heard = []
    await connection.add_listener("rxjobs", lambda *notified: heard.append(notified[3]))
    await fill(connection, "send", 2, state="discarded", queue="dead")
    await app.jobs.retry(state="discarded")
    await connection.execute("SELECT pg_notify('rxjobs', 'end')")
    assert heard == ["dead", "end"]


async def test_what_is_not_executing_is_deleted(app, connection):
    for state in ("available", "executing", "completed"):
        await fill(connection, "send", 2, state=state)
    assert await app.jobs.delete([job.id for job in await app.jobs.list()]) == 4
    assert await app.jobs.count() == {"executing": 2}
    assert await app.jobs.delete(10**15) == 0


async def test_filters_reach_more_rows_than_one_batch_holds(app, connection):
    await fill(connection, "send", 2_500, queue="mail")
    await fill(connection, "send", 10, queue="other")
    assert await app.jobs.cancel(queue="mail") == 2_500
    assert await app.jobs.retry(state="cancelled", type="send") == 2_500
    assert await app.jobs.delete(queue="mail", state=["available", "cancelled"]) == 2_500
    assert await app.jobs.count() == {"available": 10}


async def test_filters_reach_what_lies_behind_more_rows_than_one_statement_reads(app, connection):
    """F15: no statement reads a table to its end since it finds nothing."""
    await fill(connection, "other", READ_AT_ONCE)
    await fill(connection, "send", 2)
    assert await app.store.find_jobs(Filters(types=("send",)), 0, 10) == ([], READ_AT_ONCE)
    assert await app.jobs.cancel(type="send") == 2
    assert await app.jobs.count() == {"available": READ_AT_ONCE, "cancelled": 2}


async def test_a_change_of_everything_must_be_said(app, connection):
    await fill(connection, "send", 1)
    for change in (app.jobs.cancel, app.jobs.retry, app.jobs.delete):
        for wrong in ({}, {"ids": 1, "queue": "mail"}, {"color": "red"}, {"state": "nonsense"}):
            with pytest.raises(rj.InvalidOption):
                await change(**wrong)
        with pytest.raises(rj.InvalidOption):  # a filter that was computed to nothing must not mean everything
            await change(queue=None)
    assert await app.jobs.count() == {"available": 1}


@pytest.mark.parametrize("id", ["7", None, True, 7.0])
async def test_what_is_no_id_is_refused(app, id):
    with pytest.raises(rj.InvalidOption, match=f"jobs.get: a job's id is a whole number, such as `enqueued.id`, not {id!r}"):
        await app.jobs.get(id)
    with pytest.raises(rj.InvalidOption, match="a job's id is a whole number"):
        await app.jobs.cancel([1, id])


async def test_no_ids_are_no_jobs(app, connection):
    await fill(connection, "send", 1)
    assert await app.jobs.delete([]) == 0
    assert await app.jobs.cancel(id_ for id_ in ()) == 0


async def test_queues_are_those_that_a_type_names_or_that_hold_jobs(app, connection):
    await fill(connection, "send", 3, queue="mail")
    await fill(connection, "send", 1, queue="mail", state="executing")
    await fill(connection, "else", 1, queue="left over")
    await fill(connection, "else", 1, queue="done", state="completed")
    assert [(queue.name, queue.jobs, queue.types) for queue in await app.queues.list()] == [
        ("left over", {"available": 1}, ()),
        ("mail", {"available": 3, "executing": 1}, ("send",)),
    ]
