"""A history in partitions: nothing is lost on the way there, jobs end as before, and what is over goes whole."""

import asyncio
import logging
from datetime import timedelta

import asyncpg
import pytest

import rxjobs.store.history as history
from rxjobs.errors import InvalidOption
from rxjobs.store.database import Database
from rxjobs.store.history import partition_history
from rxjobs.store.store import Store
from rxjobs.store.tending import Tending
from rxjobs.testing import fill
from tests.store.ground import SCHEMA, a_claimed_row, a_leader, a_node, migrated
from tests.store.test_plans import plan, tables_read_in_full

DAY = 86400.0
A_DAY = timedelta(days=1)


@pytest.fixture
async def connection(dsn):
    connection = await migrated(dsn)
    yield connection
    await connection.close()


@pytest.fixture
async def store(connection, dsn):
    database = Database(dsn)
    await database.open()
    yield Store(database, SCHEMA)
    await database.close()


@pytest.fixture
async def today(connection):
    """There are periods of a day, since ten days ago; of those that are over only that of five days ago. Gives when today began."""
    await connection.execute("SELECT rxjobs.partition_history('day', now() - interval '10 days')")
    today = await connection.fetchval("SELECT date_trunc('day', now(), 'UTC')")
    await connection.execute(
        f"CREATE TABLE rxjobs.finished_jobs_old PARTITION OF rxjobs.finished_jobs_ended (PRIMARY KEY (id)) "
        f"FOR VALUES FROM ('{today - timedelta(days=5)}') TO ('{today - timedelta(days=4)}')"
    )
    return today


async def finished(connection, state, number, at):
    """Put jobs there that finished at noon of a day; gives their ids."""
    rows = await connection.fetch(
        "INSERT INTO rxjobs.finished_jobs "
        "(id, inserted_at, scheduled_at, finished_at, state, attempt, max_attempts, priority, type, queue, args) "
        "SELECT nextval('rxjobs.live_jobs_id_seq'), now(), now(), $3, $1::text::rxjobs.job_state, 1, 20, 0, "
        "'work', 'default', '{}' FROM generate_series(1, $2) RETURNING id",
        state, number, at + timedelta(hours=12),
    )  # fmt: skip
    return {row["id"] for row in rows}


async def where(connection):
    """In which tables finished jobs are, and how many."""
    rows = await connection.fetch("SELECT tableoid::regclass::text AS part, count(*) FROM rxjobs.finished_jobs GROUP BY 1")
    return {row["part"].removeprefix("rxjobs.finished_jobs_"): row["count"] for row in rows}


async def ids(connection):
    return {row["id"] for row in await connection.fetch("SELECT id FROM rxjobs.jobs")}


async def tended(store, leader, keep, keep_discarded=None):
    """All that there is to do, one thing after another."""
    done = []
    while some := await store.tend_history(keep, *leader, keep_discarded):
        done += some
    return done


async def test_a_period_that_is_over_is_dropped_whole_and_dead_letters_stay_for_their_own_time(connection, store, today):
    leader = await a_leader(connection)
    await finished(connection, "completed", 3, today - 5 * A_DAY)
    await finished(connection, "cancelled", 2, today - 5 * A_DAY)
    dead, young = await finished(connection, "discarded", 2, today - 5 * A_DAY), await finished(connection, "completed", 4, today)
    assert await where(connection) == {"old": 5, "discarded": 2, f"{today:%Y%m%d}": 4}
    assert await store.tend_history(6 * DAY, *leader) == []
    assert sorted(await store.tend_history(2 * DAY, *leader, 7 * DAY)) == [
        ("dropped", "finished_jobs_old", "cancelled", 2), ("dropped", "finished_jobs_old", "completed", 3),
    ]  # fmt: skip
    assert await connection.fetchval("SELECT to_regclass('rxjobs.finished_jobs_old')") is None
    assert await ids(connection) == dead | young
    assert await store.tend_history(2 * DAY, *leader, 7 * DAY) == []
    assert await store.tend_history(2 * DAY, *leader, 3 * DAY) == [("pruned", "finished_jobs_discarded", "discarded", 2)]
    assert await ids(connection) == young


async def test_only_what_no_period_holds_is_pruned_row_by_row(connection, store, today):
    """Rows of several tables stand at the same places in them: a place alone says nothing."""
    leader = await a_leader(connection)
    kept = await finished(connection, "discarded", 4, today - 12 * A_DAY) | await finished(
        connection, "discarded", 4, today - 5 * A_DAY
    )
    kept |= await finished(connection, "completed", 4, today - 5 * A_DAY) | await finished(connection, "cancelled", 4, today)
    old, landed = (
        await finished(connection, "completed", 4, today - 12 * A_DAY),
        await finished(connection, "completed", 4, today - 7 * A_DAY),
    )
    assert await store.tend_history(6 * DAY, *leader, 20 * DAY) == [("pruned", "finished_jobs_other", "completed", 4)]
    assert await ids(connection) == kept | old
    assert (await store.prune_jobs(0.0, 3, *leader, 20 * DAY)).states == {"completed": 3}
    assert (await store.prune_jobs(0.0, 100, *leader, 20 * DAY)).states == {"completed": 1}
    assert not landed & await ids(connection)
    assert await ids(connection) == kept


async def test_what_was_before_is_emptied_at_once_when_nothing_of_it_is_kept_any_more(connection, store, today):
    leader = await a_leader(connection)
    await finished(connection, "discarded", 4, today - 12 * A_DAY)
    await finished(connection, "completed", 2, today - 12 * A_DAY)
    assert await store.tend_history(7 * DAY, *leader, 11 * DAY) == []
    assert sorted(await store.tend_history(7 * DAY, *leader, 9 * DAY)) == [
        ("emptied", "finished_jobs_before", "completed", 2), ("emptied", "finished_jobs_before", "discarded", 4),
    ]  # fmt: skip
    assert await tended(store, leader, 7 * DAY, 9 * DAY) == []
    (late,) = await finished(connection, "completed", 1, today - 12 * A_DAY)  # by a clock that was set back
    assert await where(connection) == {"before": 1}
    assert late in await ids(connection)


async def test_a_job_whose_period_has_no_table_ends_all_the_same_and_its_row_is_moved_there_once_it_has(connection, store):
    leader = await a_leader(connection)
    await connection.execute("SELECT rxjobs.partition_history('month', now() - interval '1 hour')")
    made = [part["name"] for part in await store.read_history() if part["kind"] == "period"]
    await connection.execute(f"DROP TABLE rxjobs.{', rxjobs.'.join(made)}")
    node = await a_node(connection)
    id_ = await a_claimed_row(connection, node)
    assert await store.ack_completed([id_], node, 1) == {id_}
    assert await where(connection) == {"other": 1}
    assert [one.done for one in await tended(store, leader, DAY)] == ["made"] * len(made)
    (part,) = await where(connection)
    assert part in {name.removeprefix("finished_jobs_") for name in made}
    assert (await store.get_jobs([id_]))[0]["state"] == "completed"


async def test_only_who_leads_in_this_term_drops_or_makes(connection, store, today):
    node, term = await a_leader(connection, term=7)
    await finished(connection, "completed", 3, today - 5 * A_DAY)
    assert await store.tend_history(DAY, node, 6) == []
    assert await store.tend_history(DAY, await a_node(connection), 7) == []
    assert await where(connection) == {"old": 3}
    assert [one.jobs for one in await store.tend_history(DAY, node, term)] == [3]


async def test_a_reader_who_does_not_end_keeps_a_period_and_holds_nobody_up(connection, store, today, dsn, caplog):
    leader = await a_leader(connection)
    await finished(connection, "completed", 3, today - 5 * A_DAY)
    node = await a_node(connection)
    id_ = await a_claimed_row(connection, node)
    tending = Tending(store, 2 * DAY, None)
    reader = await asyncpg.connect(dsn)
    with caplog.at_level(logging.INFO, "rxjobs.history"):
        async with reader.transaction():
            await reader.fetch("SELECT FROM rxjobs.finished_jobs")
            assert await tending.once(*leader) == {}
            assert await tending.once(*leader) == {}
            assert await store.ack_completed([id_], node, 1) == {id_}
        assert await tending.once(*leader) == {"completed": 3}
    await reader.close()
    first, *others = [record.getMessage() for record in caplog.records]
    assert "could not be looked after, which is tried again each minute: somebody keeps a lock on one" in first
    assert others == [
        "the partitions of the history are looked after again",
        "partition finished_jobs_old of the history was dropped",
    ]


@pytest.mark.parametrize("small", [history.SMALL, -1], ids=["small", "large"])
async def test_no_job_is_lost_that_ends_while_the_history_is_partitioned(connection, store, dsn, monkeypatch, small):
    """A large one is read beforehand, and partitioned from an instant on that is to come."""
    monkeypatch.setattr(history, "SMALL", small)
    await fill(connection, "work", 3, state="discarded")
    node, ended, is_partitioned = await a_node(connection), set(), asyncio.Event()

    async def work():
        more = 20
        while not is_partitioned.is_set() or (more := more - 1):
            id_ = await a_claimed_row(connection, node)
            assert await store.ack_completed([id_], node, 1) == {id_}
            ended.add(id_)

    working = asyncio.create_task(work())
    other = await asyncpg.connect(dsn)
    since = await partition_history(other, SCHEMA, "day")
    now = await other.fetchval("SELECT clock_timestamp()")
    assert since - now > timedelta(days=2) if small < 0 else abs(since - now) < timedelta(minutes=10)
    is_partitioned.set()
    await working
    assert await partition_history(other, SCHEMA, "day") == since
    await other.close()
    assert ended <= await ids(connection)
    assert await connection.fetchval("SELECT count(*) FROM rxjobs.finished_jobs") == len(ended) + 3
    assert not await connection.fetch("SELECT FROM pg_constraint WHERE conname = 'finished_jobs_until'")


async def test_who_depends_on_the_table_is_told_of_and_all_is_as_it_was(connection, store, monkeypatch):
    monkeypatch.setattr(history, "SMALL", -1)
    await connection.execute("CREATE VIEW ended AS SELECT id FROM rxjobs.finished_jobs")
    with pytest.raises(InvalidOption, match=r"'rxjobs' cannot be partitioned: .*view public.ended; drop it"):
        await partition_history(connection, SCHEMA, "week")
    assert await store.read_history() == []
    assert not await connection.fetch("SELECT FROM pg_constraint WHERE conname = 'finished_jobs_until'")


async def test_the_leader_takes_away_what_somebody_left_who_was_killed_before_no_job_could_end_any_more(connection, store):
    leader = await a_leader(connection)
    for hours, left in ((48, 1), (23, 0)):
        until = await connection.fetchval("SELECT (now() + $1 * interval '1 hour')::text", hours)
        await connection.execute(
            f"ALTER TABLE rxjobs.finished_jobs ADD CONSTRAINT finished_jobs_until CHECK (finished_at < '{until}') NOT VALID"
        )
        assert await store.tend_history(DAY, *leader) == []
        assert len(await connection.fetch("SELECT FROM pg_constraint WHERE conname = 'finished_jobs_until'")) == left
        await connection.execute("ALTER TABLE rxjobs.finished_jobs DROP CONSTRAINT IF EXISTS finished_jobs_until")


async def test_the_rights_of_others_go_with_the_table(connection):
    await connection.execute("CREATE ROLE rxjobs_reader_of_history")
    try:
        await connection.execute("GRANT SELECT, DELETE ON rxjobs.finished_jobs TO rxjobs_reader_of_history")
        await partition_history(connection, SCHEMA, "week")
        rights = "SELECT, DELETE", "INSERT"
        asked = "SELECT has_table_privilege('rxjobs_reader_of_history', 'rxjobs.finished_jobs', $1)"
        assert [await connection.fetchval(asked, right) for right in rights] == [True, False]
    finally:
        await connection.execute("DROP OWNED BY rxjobs_reader_of_history; DROP ROLE rxjobs_reader_of_history")


async def test_claims_and_acks_have_the_plans_that_they_have_without_partitions(connection, today):
    await connection.execute("SET plan_cache_mode = force_generic_plan")
    await fill(connection, "work", 2000)
    node = await a_node(connection)
    fetching, claimed = await plan(connection, "fetch_jobs", "default", 100, ["work"], node, 4096)
    completing, rows = await plan(connection, "ack_completed", [row["id"] for row in claimed], node, 1)
    assert len(rows) == 100
    relations = [{one["Relation Name"] for one in plan if "Relation Name" in one} for plan in (fetching, completing)]
    assert relations[0] <= {"live_jobs", "nodes", "queues"}
    assert relations[1] == {"live_jobs", "finished_jobs"}  # which is written to, and of which no partition is read
    assert not tables_read_in_full(completing)
    pruning, _ = await plan(connection, "prune_jobs", DAY, 100, *await a_leader(connection), DAY, None)
    read = {one.get("Relation Name", "") for one in pruning if one["Node Type"].endswith("Scan") and one["Actual Loops"]}
    assert {name for name in read if name.startswith("finished_jobs")} <= {"finished_jobs_before"}


async def test_a_unique_key_is_held_by_a_job_that_ended_in_any_period_and_a_dead_letter_comes_back(connection, store, today):
    (old,) = await finished(connection, "completed", 1, today - 5 * A_DAY)
    (dead,) = await finished(connection, "discarded", 1, today - 12 * A_DAY)
    await connection.execute(
        "UPDATE rxjobs.finished_jobs SET unique_key = 'k', unique_states = '{completed,available}' WHERE id = $1", old
    )
    (twin,) = await store.find_twins(["k"], [None], [0], connection)
    assert twin["id"] == old
    assert (await store.redrive_jobs([dead], 1, None, 0.0, 0.0))[0] == [dead]
    assert await connection.fetchval("SELECT state FROM rxjobs.jobs WHERE id = $1", dead) == "available"
    assert await store.delete_jobs([old, dead]) == {old, dead}
    assert await ids(connection) == set()
