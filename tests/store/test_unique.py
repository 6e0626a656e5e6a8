"""Unique jobs: one row a key, whoever inserts, and no key that stays behind."""

from __future__ import annotations

import asyncio
import itertools
import os

import asyncpg
import pytest

import rxjobs as rj
from rxjobs.job import State
from rxjobs.unique import LIVE
from tests.store.ground import a_shared_database, emptied

ROUNDS = int(os.environ.get("UNIQUE_ROUNDS", "3"))


@pytest.fixture(scope="module")
def ground(databases):
    yield from a_shared_database(databases)


@pytest.fixture
async def dsn(ground):
    return await emptied(ground)


@pytest.fixture
async def app(dsn):
    async with rj.App(dsn) as app:
        yield app


@pytest.fixture
async def connection(app):
    connection = await asyncpg.connect(app.dsn)
    yield connection
    await connection.close()


def a_type(app, unique, name="work", **options):
    @app.job(name=name, unique=unique, **options)
    async def work(user: int = 0, locale: str = "en") -> None: ...

    return work


async def count(connection, state=None):
    return await connection.fetchval("SELECT count(*) FROM rxjobs.jobs WHERE $1::text IS NULL OR state = $1", state)


async def test_another_of_the_same_arguments_is_the_one_that_is_there(app, connection):
    work = a_type(app, rj.Unique())
    first = await work.enqueue(user=1)
    again = await work.enqueue(user=1, locale="en")  # a default that is given is the same as one that is left out
    assert (first.duplicate, again) == (False, rj.Enqueued(first.id, "available", duplicate=True))
    assert not (await work.enqueue(user=2)).duplicate
    assert not (await a_type(app, rj.Unique(), "other").enqueue(user=1)).duplicate
    assert await count(connection) == 3


async def test_keys_are_made_of_what_is_named(app):
    work = a_type(app, rj.Unique(by=("args.user", "meta.tenant", "queue")))
    first = await work.options(meta={"tenant": 1}).enqueue(user=1, locale="de")
    assert (await work.options(meta={"tenant": 1, "more": 2}).enqueue(user=1, locale="fr")).id == first.id
    for other in (work.options(meta={"tenant": 2}), work.options(meta={"tenant": 1}, queue="slow"), work):
        assert not (await other.enqueue(user=1, locale="de")).duplicate
    assert not (await work.options(meta={"tenant": 1}).enqueue(user=2)).duplicate
    assert not (await work.options(meta={"tenant": 1}, unique=None).enqueue(user=1)).duplicate


async def test_two_hundred_at_once_make_one(app, connection):
    """UNIQUE_ROUNDS=100 does so a hundred times over."""
    work = a_type(app, rj.Unique(by=("args.user",)))
    others = [await asyncpg.connect(app.dsn) for _ in range(10)]
    for round_ in range(ROUNDS):
        shared = asyncio.gather(*(work.enqueue(user=round_) for _ in range(100)))
        apart = await asyncio.gather(*(on_its_own(app, work, round_, other) for other in others))
        enqueued = [*await shared, *itertools.chain(*apart)]
        assert len(enqueued) == 200
        assert len({one.id for one in enqueued}) == 1
        assert sum(not one.duplicate for one in enqueued) == 1
    assert await count(connection) == ROUNDS
    for other in others:
        await other.close()


async def on_its_own(app, work, user, connection):
    """Ten, one after the other, each in a transaction of its own."""
    enqueued = []
    for _ in range(10):
        async with connection.transaction():
            enqueued.append(await app.enqueue(work.new(user=user), connection))
    return enqueued


async def test_one_batch_may_have_it_twice(app, connection):
    work = a_type(app, rj.Unique())
    plain = a_type(app, None, "plain")
    news = [work.new(user=1), plain.new(user=1), work.new(user=2), work.new(user=1), plain.new(user=1)]
    rows = await app.enqueue_many(news)
    assert [row.duplicate for row in rows] == [False, False, False, True, False]
    assert rows[3].id == rows[0].id
    assert len({row.id for row in rows}) == await count(connection) == 4


async def test_batches_that_cross_wait_for_each_other_in_no_circle(app, connection):
    work = a_type(app, rj.Unique())
    news = [work.new(user=user) for user in range(200)]
    other = rj.App(app.dsn)
    async with other:
        for _ in range(5):
            await asyncio.gather(app.enqueue_many(news), other.enqueue_many(reversed(news)))
    assert await count(connection) == 200


async def test_when_it_has_ended_its_key_is_free(app, connection):
    work = a_type(app, rj.Unique())
    for _ in range(2):
        first = await work.enqueue(user=1)
        assert not first.duplicate
        async with app.running():
            await ended(app, first.id)
    assert await count(connection, "completed") == 2


async def ended(app, id_, states=("completed", "cancelled", "discarded")):
    async with asyncio.timeout(60):
        while (await app.jobs.get(id_)).state not in states:  # noqa: ASYNC110 - the fact is in the database
            await asyncio.sleep(0.01)


async def test_a_job_that_has_ended_may_stand_for_its_key(app, connection):
    work = a_type(app, rj.Unique(states=(*LIVE, "completed")))
    first = await work.enqueue(user=1)
    async with app.running():
        await ended(app, first.id)
        again = await work.enqueue(user=1)
        assert again == rj.Enqueued(first.id, "completed", duplicate=True)
    await app.jobs.delete(first.id)
    assert not (await work.enqueue(user=1)).duplicate


async def test_one_that_was_cancelled_is_not_retried_beside_one_that_is_completed(app):
    work = a_type(app, rj.Unique(states=(*LIVE, "completed")))
    first = await work.enqueue(user=1)
    await app.jobs.cancel(first.id)
    second = await work.enqueue(user=1)
    async with app.running():
        await ended(app, second.id)
    assert await app.jobs.retry(first.id) == 0
    assert (await app.jobs.get(first.id)).state == State.CANCELLED


async def test_while_its_job_ends_nobody_else_gets_the_key(app, connection):
    """Its row goes from one table to the other: who waits for that finds it there."""
    work = a_type(app, rj.Unique(states=(*LIVE, "completed", "cancelled")))
    for user in range(20):
        first = await work.enqueue(user=user)
        other = await asyncpg.connect(app.dsn)
        transaction = other.transaction()
        await transaction.start()
        await other.execute(
            """WITH gone AS (DELETE FROM rxjobs.live_jobs WHERE id = $1 RETURNING *)
               INSERT INTO rxjobs.finished_jobs (id, inserted_at, scheduled_at, state, attempt, max_attempts, priority, type, queue,
                                                 args, unique_key, unique_states)
               SELECT id, inserted_at, scheduled_at, 'completed', attempt, max_attempts, priority, type, queue, args, unique_key,
                      unique_states
               FROM gone""",
            first.id,
        )
        waiting = asyncio.ensure_future(work.enqueue(user=user))
        async with asyncio.timeout(60):
            while not await connection.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.005)
        await transaction.commit()
        assert await waiting == rj.Enqueued(first.id, "completed", duplicate=True)
        await other.close()


async def test_after_its_period_a_job_that_waits_is_no_twin_any_more(app, connection):
    work = a_type(app, rj.Unique(period=3600))
    first = await work.options(delay=86400).enqueue(user=1)
    assert (await work.enqueue(user=1)).id == first.id
    await age(connection, first.id, "59 minutes")  # in the hour before, most likely, and not an hour ago
    assert (await work.enqueue(user=1)).id == first.id
    await age(connection, first.id, "61 minutes")
    second = await work.enqueue(user=1)
    assert not second.duplicate
    assert (await work.enqueue(user=1)).id == second.id


async def age(connection, id_, interval):
    """As if it had been inserted then."""
    await connection.execute(
        """UPDATE rxjobs.live_jobs
           SET inserted_at = now() - $2::text::interval,
               unique_key = split_part(unique_key, ':', 1) || ':' || floor(extract(epoch FROM now() - $2::text::interval) / 3600)
           WHERE id = $1""",
        id_,
        interval,
    )


async def test_one_that_waits_may_be_written_over(app, connection):
    work = a_type(app, rj.Unique(by=("args.user",), on_conflict="replace"))
    first = await work.options(delay=3600, tags=["a"], meta={"a": 1}).enqueue(user=1, locale="de")
    again = await work.options(priority=3, max_attempts=2).enqueue(user=1, locale="fr")
    job = await app.jobs.get(first.id)
    assert (again.id, again.duplicate, again.state) == (first.id, True, "available")
    assert (job.args, job.priority, job.max_attempts, job.tags, job.meta) == ({"user": 1, "locale": "fr"}, 3, 2, (), {})
    only_the_time = a_type(app, rj.Unique(by=("args.user",), on_conflict="replace", replace="scheduled_at"), "debounced")
    first = await only_the_time.options(delay=60).enqueue(user=1, locale="de")
    again = await only_the_time.options(delay=120, priority=9).enqueue(user=1, locale="fr")
    job = await app.jobs.get(first.id)
    assert (again.state, job.args["locale"], job.priority) == ("scheduled", "de", 0)
    assert await connection.fetchval("SELECT extract(epoch FROM scheduled_at - now()) FROM rxjobs.jobs WHERE id = $1", job.id) > 100


SLOW_UPDATES = """
CREATE FUNCTION public.take_long() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.3); RETURN NULL; END $$;
CREATE TRIGGER takes_long AFTER UPDATE ON rxjobs.live_jobs FOR EACH ROW EXECUTE FUNCTION public.take_long();
"""


async def test_two_who_replace_the_same_jobs_in_opposite_orders_never_wait_for_each_other_in_a_circle(app, connection):
    work = a_type(app, rj.Unique(by=("args.user",), on_conflict="replace"))
    await app.enqueue_many([work.new(user=user) for user in (1, 2)])
    await connection.execute(SLOW_UPDATES)
    async with rj.App(app.dsn) as other:
        await asyncio.gather(
            app.enqueue_many([work.new(user=user, locale="de") for user in (1, 2)]),
            other.enqueue_many([work.new(user=user, locale="fr") for user in (2, 1)]),
        )
    await connection.execute("DROP FUNCTION public.take_long CASCADE")
    assert await connection.fetchval("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()") == 0


async def test_who_is_to_insert_once_more_holds_no_key_meanwhile(app, connection, monkeypatch):
    """Its twin ended between two of its statements. Held in no order any more, keys would be waited for in a circle."""
    work, insert, rounds, first = a_type(app, rj.Unique(by=("args.user",))), app.store.insert_unique, [], []
    twin = await work.enqueue(user=2)

    async def insert_unique(*given, **how):
        rounds.append(len(rounds))
        if rounds == [0, 1]:
            async with rj.App(app.dsn) as other, asyncio.timeout(60):
                first.append(await other.enqueue(work.new(user=1)))
        rows = await insert(*given, **how)
        if rounds == [0]:
            await connection.execute("DELETE FROM rxjobs.live_jobs WHERE id = $1", twin.id)
        return rows

    monkeypatch.setattr(app.store, "insert_unique", insert_unique)
    one, two = await app.enqueue_many([work.new(user=user) for user in (1, 2)])
    assert one == rj.Enqueued(first[0].id, "available", duplicate=True)
    assert not two.duplicate
    assert await count(connection) == 2


async def test_one_that_has_begun_is_not_written_over(app, connection):
    work = a_type(app, rj.Unique(by=("args.user",), on_conflict="replace"))
    first = await work.enqueue(user=1, locale="de")
    await connection.execute("UPDATE rxjobs.live_jobs SET state = 'executing'")
    assert (await work.enqueue(user=1, locale="fr")) == rj.Enqueued(first.id, "executing", duplicate=True)
    assert (await app.jobs.get(first.id)).args["locale"] == "de"


async def test_it_may_be_an_error(app, connection):
    work = a_type(app, rj.Unique(on_conflict="raise"))
    first = await work.enqueue(user=1)
    results = await asyncio.gather(work.enqueue(user=1), work.enqueue(user=2), work.enqueue(user=1), return_exceptions=True)
    assert [type(one) for one in results] == [rj.DuplicateJob, rj.Enqueued, rj.DuplicateJob]
    assert str(results[0]) == f"work: job {first.id}, which is available, has the same unique key"
    assert results[0].job == rj.Enqueued(first.id, "available", duplicate=True)
    with pytest.raises(rj.DuplicateJob):  # of its batch none is inserted
        await app.enqueue_many([work.new(user=3), work.new(user=1)])
    assert await count(connection) == 2


async def test_a_transaction_in_which_it_is_an_error_goes_on(app, connection):
    work = a_type(app, rj.Unique(on_conflict="raise"))
    await work.enqueue(user=1)
    async with connection.transaction():
        await app.enqueue(work.new(user=2), connection)
        with pytest.raises(rj.DuplicateJob):
            await app.enqueue(work.new(user=1), connection)
        await app.enqueue(work.new(user=3), connection)
    assert await count(connection) == 3


async def test_what_was_rolled_back_leaves_no_key(app, connection):
    work = a_type(app, rj.Unique())
    transaction = connection.transaction()
    await transaction.start()
    await app.enqueue(work.new(user=1), connection)
    waiting = asyncio.ensure_future(work.enqueue(user=1))
    await transaction.rollback()
    assert not (await waiting).duplicate
    assert await count(connection) == 1


WAITING = ("scheduled", "available")


async def test_a_retry_that_meets_a_twin_is_cancelled_and_says_why(app, connection):
    """Where a key is held by those that wait only, another may be inserted while one runs."""

    @app.job(name="work", unique=rj.Unique(states=WAITING), backoff=lambda attempt, error: 0)
    async def work(user: int) -> None:
        if first.id == rj.current_job().id:
            twins.append(await work.options(delay=3600).enqueue(user=user))
            raise ValueError("broken")

    twins = []
    first = await work.enqueue(user=1)
    async with app.running():
        await ended(app, first.id)
    job = await app.jobs.get(first.id)
    assert (job.state, job.errors[-1]["type"]) == (State.CANCELLED, "rxjobs.Cancel")
    assert job.errors[-1]["message"] == f"job {twins[0].id} has its unique key; it had failed with ValueError: broken"
    assert (await app.jobs.get(twins[0].id)).state == State.SCHEDULED


async def test_one_that_is_due_again_and_meets_a_twin_is_cancelled(app, connection):
    @app.job(name="work", unique=rj.Unique(states=WAITING), backoff=lambda attempt, error: 0.3)
    async def work(user: int) -> None:
        if rj.current_job().id == first.id:
            raise ValueError("broken")

    first = await work.enqueue(user=1)
    async with app.running():
        await ended(app, first.id, ["retryable"])
        twin = await work.options(delay=3600).enqueue(user=1)
        assert not twin.duplicate
        await ended(app, first.id)
    job = await app.jobs.get(first.id)
    assert (job.state, job.errors[-1]["message"]) == (State.CANCELLED, f"job {twin.id} has its unique key")


async def test_of_two_that_are_due_at_once_one_goes_on(app, connection):
    @app.job(name="work", unique=rj.Unique(states=WAITING))
    async def work(user: int) -> None: ...

    ids = [(await work.enqueue(user=1)).id]
    await connection.execute("UPDATE rxjobs.live_jobs SET state = 'retryable'")
    ids.append((await work.enqueue(user=1)).id)
    await connection.execute("UPDATE rxjobs.live_jobs SET state = 'retryable', scheduled_at = now()")
    async with app.running():
        for id_ in ids:
            await ended(app, id_)
    assert [(await app.jobs.get(id_)).state for id_ in ids] == [State.COMPLETED, State.CANCELLED]


async def test_to_retry_one_by_hand_whose_key_is_taken_leaves_it_as_it_is(app, connection):
    work = a_type(app, rj.Unique())
    first = await work.enqueue(user=1)
    await app.jobs.cancel(first.id)
    twin = await work.enqueue(user=1)
    other = await work.enqueue(user=2)
    await app.jobs.cancel(other.id)
    assert await app.jobs.retry([first.id, other.id]) == 1
    assert (await app.jobs.get(first.id)).state == State.CANCELLED
    await app.jobs.delete(twin.id)
    assert await app.jobs.retry(first.id) == 1
    assert (await work.enqueue(user=1)).id == first.id  # with its key


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"by": "user"}, "by takes args, args.NAME, meta, meta.NAME, queue and type, not 'user'"),
        ({"states": ("executing",)}, "states lack scheduled and available, which jobs are inserted in"),
        ({"states": ("scheduled", "available", "completed")}, "where completed jobs count, .* lack executing, retryable, held"),
        ({"states": ("scheduled", "available", "done")}, "states are .*completed.*, not 'done'"),
        ({"on_conflict": "ignore"}, "on_conflict is 'skip', 'replace' or 'raise', not 'ignore'"),
        ({"replace": "queue"}, "replace takes args, .* not 'queue'"),
        ({"period": 0}, "period is a number of seconds above 0"),
        ({"period": True}, "period is a number of seconds above 0"),
    ],
)
def test_what_says_nothing_is_refused(options, words):
    with pytest.raises(rj.InvalidOption, match=words):
        rj.Unique(**options)


def test_an_argument_that_is_not_there_is_refused_where_it_is_declared():
    app = rj.App("postgresql://nowhere/nothing")
    with pytest.raises(rj.InvalidOption, match=r"work: unique by args\.id, and its arguments are user, locale"):
        a_type(app, rj.Unique(by="args.id"))
    work = a_type(app, None)
    with pytest.raises(rj.InvalidOption, match=r"work: unique takes rj\.Unique\(\.\.\.\), not True"):
        work.options(unique=True)
