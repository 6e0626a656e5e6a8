import asyncio
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import asyncpg

from rxjobs.store.encoding import instant
from rxjobs.store.statements import statement
from rxjobs.store.store import FROM_THE_START, PRIORITIES
from tests.store.ground import a_claimed_row, a_node, a_row, states, the_row

EARLY = datetime(2020, 1, 1, tzinfo=UTC)


async def fetched(store, node, n=100, types=("work",), queue="default"):
    return [row["id"] for row in await store.fetch_jobs(queue, n, types, node)]


async def test_the_most_urgent_are_claimed_first(store, connection, node):
    late = await a_row(connection, scheduled_at=EARLY + timedelta(hours=1))
    urgent_late = await a_row(connection, priority=0, scheduled_at=EARLY + timedelta(hours=2))
    low = await a_row(connection, priority=9, scheduled_at=EARLY)
    twins = [await a_row(connection, scheduled_at=EARLY) for _ in range(3)]
    claimed = []
    while one := await fetched(store, node, 1):
        claimed += one
    assert claimed == [*twins, late, urgent_late, low]


async def test_a_claim_counts_the_attempt_and_names_the_node(store, connection, node):
    id_ = await a_row(connection, args='{"a": 1}', tags=["t"], meta='{"m": 1}')
    (row,) = await store.fetch_jobs("default", 1, ["work"], node)
    assert (row["id"], row["attempt"], row["args"], row["tags"], row["meta"]) == (id_, 1, '{"a": 1}', ["t"], '{"m": 1}')
    after = await the_row(connection, id_)
    assert (after["state"], after["attempt"], after["node"]) == ("executing", 1, node)
    assert after["attempted_at"] == instant(row["attempted_at"])


async def test_what_is_not_asked_for_is_left_alone(store, connection, node):
    ids = [
        await a_row(connection, type="unknown"),
        await a_row(connection, queue="other"),
        await a_row(connection, state="scheduled"),
        await a_row(connection, state="retryable"),
        await a_row(connection, state="held"),
        await a_claimed_row(connection, node),
    ]
    before = [await the_row(connection, id_) for id_ in ids]
    assert await fetched(store, node) == []
    assert [await the_row(connection, id_) for id_ in ids] == before


async def test_no_more_are_claimed_than_asked_for(store, connection, node):
    ids = [await a_row(connection) for _ in range(5)]
    assert len(await fetched(store, node, 3)) == 3
    assert sorted(await states(connection, ids)) == ["available"] * 2 + ["executing"] * 3


async def test_a_node_without_a_living_lease_claims_nothing(store, connection):
    await a_row(connection)
    assert await fetched(store, uuid4()) == []
    assert await fetched(store, await a_node(connection, seconds=-0.1)) == []
    assert len(await fetched(store, await a_node(connection))) == 1


async def test_where_narrows_by_tags_and_by_contained_arguments(store, connection, node):
    both = await a_row(connection, tags=["a", "b"], args='{"user": {"id": 7, "x": 1}, "n": [1, 2]}')
    await a_row(connection, tags=["a"], args='{"user": {"id": 7}}')
    await a_row(connection, tags=["a", "b"], args='{"user": {"id": 8}}')
    await a_row(connection, args='{"user": {"id": 7}}')
    claim = await store.fetch_jobs_where("default", 10, ["work"], node, ["a", "b"], '{"user": {"id": 7}, "n": [2]}')
    assert [row["id"] for row in claim] == [both]
    rest = await store.fetch_jobs_where("default", 10, ["work"], node, [], '{"user": {"id": 7}}')
    assert len(rest) == 2


def marks_at(*places):
    """Marks of the first priorities; the others are at the start."""
    instants, ids = FROM_THE_START
    return (
        tuple(instant for instant, _ in places) + instants[len(places) :],
        tuple(id_ for _, id_ in places) + ids[len(places) :],
    )


async def test_of_each_priority_the_jobs_from_its_mark_on_are_claimed_in_order(store, connection, node):
    at = [EARLY + timedelta(seconds=n) for n in range(4)]
    urgent = [await a_row(connection, priority=0, scheduled_at=at[n]) for n in (0, 1, 1, 2)]
    low = [await a_row(connection, priority=1, scheduled_at=at[n]) for n in (3, 0, 1)]
    last = await a_row(connection, priority=9, scheduled_at=at[0])
    marks = marks_at((at[1], urgent[2]), (at[1], 0))
    claimed = []
    while rows := await store.fetch_jobs("default", 1, ["work"], node, marks):
        claimed += [row["id"] for row in rows]
    assert claimed == [*urgent[2:], low[2], low[0], last]
    assert await states(connection, [*urgent[:2], low[1]]) == ["available"] * 3


async def test_marks_hold_for_a_claim_that_is_narrowed_as_well(store, connection, node):
    before, after = [await a_row(connection, scheduled_at=EARLY + timedelta(seconds=n), tags=["a"]) for n in (0, 2)]
    marks = marks_at((EARLY + timedelta(seconds=1), 0))
    claimed = await store.fetch_jobs_where("default", 5, ["work"], node, ["a"], "{}", marks)
    assert [row["id"] for row in claimed] == [after]
    claimed = await store.fetch_jobs_where("default", 5, ["work"], node, ["a"], "{}")
    assert [row["id"] for row in claimed] == [before]


async def test_the_number_asked_for_is_that_of_all_priorities_together(store, connection, node):
    for priority in range(PRIORITIES):
        await a_row(connection, priority=priority)
        await a_row(connection, priority=priority)
    claimed = await store.fetch_jobs("default", 7, ["work"], node)
    assert sorted(row["priority"] for row in claimed) == [0, 0, 1, 1, 2, 2, 3]


async def test_a_row_that_another_transaction_has_locked_is_passed_over(store, connection, node, ground):
    locked, free = await a_row(connection), await a_row(connection)
    other = await asyncpg.connect(ground)
    async with other.transaction():
        await other.execute("SELECT FROM rxjobs.live_jobs WHERE id = $1 FOR UPDATE", locked)
        assert await fetched(store, node) == [free]
    await other.close()
    assert await fetched(store, node) == [locked]


async def test_no_two_claimers_ever_get_the_same_row(connection, ground):
    """500 rounds of 4 claimers at once, and 2 that give rows back meanwhile."""
    rounds, claimers = 500, 4
    await connection.execute("INSERT INTO rxjobs.live_jobs (type) SELECT 'work' FROM generate_series(1, 40)")
    nodes = [await a_node(connection) for _ in range(claimers)]
    connections = [await asyncpg.connect(ground) for _ in range(claimers)]
    claim, ack = statement("fetch_jobs", "rxjobs"), statement("ack_jobs", "rxjobs")
    held: set[int] = set()
    claims = 0

    async def work(node, own):
        nonlocal claims
        for _ in range(rounds // claimers):
            rows = await own.fetch(claim, "default", 7, ["work"], node, 4096)
            ids = [row["id"] for row in rows]
            assert held.isdisjoint(ids), "a row was claimed while another held it"
            held.update(ids)
            claims += len(ids)
            await asyncio.sleep(0)
            held.difference_update(ids)
            n = len(ids)
            attempts, instants = [row["attempt"] for row in rows], [instant(row["attempted_at"]) for row in rows]
            outcome = ["available"] * n, [0.0] * n, [1] * n, [None] * n, [None] * n, [None] * n
            written = await own.fetch(ack, node, ids, attempts, instants, *outcome, None)
            assert len(written) == n

    await asyncio.gather(*(work(node, own) for node, own in zip(nodes, connections, strict=True)))
    for own in connections:
        await own.close()
    assert claims > rounds  # else they met nobody
    assert await connection.fetchval("SELECT count(*) FROM rxjobs.live_jobs WHERE state = 'available' AND attempt = 0") == 40


async def test_instants_come_exact_to_the_microsecond(store, connection, node):
    """A retry, a mark and an ack compare them with what the row has."""
    instants = [EARLY + timedelta(microseconds=n * n * 7 + n) for n in range(500)] + [EARLY.replace(year=1900, microsecond=999_999)]
    for at in instants:
        await a_row(connection, scheduled_at=at, inserted_at=at)
    rows = await store.fetch_jobs("default", 1_000, ["work"], node)
    assert {instant(row["scheduled_at"]) for row in rows} == {instant(row["inserted_at"]) for row in rows} == set(instants)


async def test_an_instant_that_no_datetime_can_be_does_not_stop_a_claim(store, connection, node):
    for at in ("infinity", "-infinity", "20000-01-01"):
        await connection.execute("INSERT INTO rxjobs.live_jobs (type, inserted_at) VALUES ('work', $1::text::timestamptz)", at)
    rows = await store.fetch_jobs("default", 10, ["work"], node)
    assert sorted(instant(row["inserted_at"]).year for row in rows) == [1, 9999, 9999]
