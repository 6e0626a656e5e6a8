"""Limits across all nodes, as claims heed them: whatever ends a job's run gives its place back, and nobody has to remember to."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime

import msgspec
import pytest

from rxjobs.failure import Failure
from rxjobs.job import Job
from rxjobs.outcome import Cancel, Complete, Discard, Finished, Release, Retry, Snooze
from rxjobs.store.encoding import Written, instant
from rxjobs.store.limit_statements import NONE, Limits, Rate
from rxjobs.testing import fill
from tests.store.ground import a_leader, a_node, a_row, rescue_some
from tests.waiting import until

NOWHERE = [datetime(1, 1, 1, tzinfo=UTC)] * 10, [0] * 10
"""The marks of a claim that begins at the start."""
CLAIM = "SELECT id FROM rxjobs.claim_limited('mail', $2, '{work}', $1, '{}', '{}', $3, $4)"
TENANTS = "json_build_object('tenant', 't' || n % 5)"


async def limit(store, **limits):
    await store.change_limits("mail", lambda _: Limits(**limits))


async def claim(store, node, n=100, types=("work",), tags=(), args="{}"):
    by_keys = (await store.read_limits("mail")).get("mail", NONE).by is not None
    return await store.fetch_limited("mail", n, list(types), node, list(tags), args, by_keys=by_keys)


def tenants(rows):
    return Counter(msgspec.json.decode(row["args"])["tenant"] for row in rows)


def ids(rows):
    return [row["id"] for row in rows]


async def in_a_window(connection, per):
    """Wait until a window has just begun, so that what follows is in it."""
    begun = "SELECT extract(epoch FROM clock_timestamp())::float8::numeric % $1::numeric < $1::numeric / 4"
    await until(lambda: connection.fetchval(begun, per))


async def test_no_more_run_at_once_than_the_limit_and_an_end_gives_its_place_back(connection, store, node):
    await fill(connection, "work", 20, queue="mail")
    await limit(store, concurrency=5)
    first = await claim(store, node)
    assert len(first) == 5
    assert all(row["attempt"] == 1 for row in first)
    assert await claim(store, node) == []
    await store.ack_completed(ids(first)[:2], node, 1)
    assert len(await claim(store, node, 1)) == 1
    assert len(await claim(store, node)) == 1


async def test_a_queue_that_is_limited_is_not_claimed_from_in_any_other_way(connection, store, node):
    await fill(connection, "work", 2, queue="mail")
    await fill(connection, "work", 2, queue="other")
    await limit(store, concurrency=1)
    assert await store.fetch_jobs("mail", 10, ["work"], node) == []
    assert await store.fetch_jobs_where("mail", 10, ["work"], node, [], "{}") == []
    assert len(await store.fetch_jobs("other", 10, ["work"], node)) == 2
    await limit(store)
    assert await claim(store, node) == []
    assert len(await store.fetch_jobs("mail", 10, ["work"], node)) == 2


OUTCOMES = [
    Complete(), Cancel("why"), Discard("why", Failure("Boom", "it burst")), Retry(0.0, "why", Failure("Boom", "it burst")),
    Snooze(60.0), Release(),
]  # fmt: skip


@pytest.mark.parametrize("by", [None, "args.tenant"], ids=["of the queue", "of a key"])
@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda outcome: type(outcome).__name__)
async def test_every_outcome_gives_the_place_back(connection, store, node, outcome, by):
    await fill(connection, "work", 2, queue="mail", args={"tenant": "t"})
    await limit(store, **({"concurrency": 1} if by is None else {"each_concurrency": 1, "by": by}))
    (row,) = await claim(store, node)
    job = Job(id=row["id"], type="work", attempt=1, attempted_at=instant(row["attempted_at"]))
    assert await store.ack_jobs(node, Written.of([Finished(job, outcome)], "")) == {row["id"]}
    assert len(await claim(store, node)) == 1


async def test_a_job_that_is_claimed_anew_has_one_place(connection, store, node):
    await fill(connection, "work", 1, queue="mail")
    await limit(store, concurrency=2)
    for _ in range(3):
        (row,) = await claim(store, node)
        job = Job(id=row["id"], type="work", attempt=1, attempted_at=instant(row["attempted_at"]))
        await store.ack_jobs(node, Written.of([Finished(job, Release())], ""))
    await fill(connection, "work", 5, queue="mail")
    assert len(await claim(store, node)) == 2


async def test_a_dead_node_keeps_its_places_until_it_is_rescued(connection, store, node):
    dead, (leader, term) = await a_node(connection), await a_leader(connection)
    await fill(connection, "work", 9, queue="mail")
    await limit(store, concurrency=3)
    assert len(await claim(store, dead)) == 3
    await connection.execute("UPDATE rxjobs.nodes SET expires_at = now() - interval '1 s' WHERE id = $1", dead)
    assert await claim(store, node) == []
    assert len(await rescue_some(store, dead, 2, leader, term)) == 2
    assert len(await claim(store, node)) == 2


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM rxjobs.live_jobs WHERE state = 'executing'",
        "UPDATE rxjobs.live_jobs SET state = 'available' WHERE state = 'executing'",
        "TRUNCATE rxjobs.live_jobs",
    ],
)
async def test_whatever_else_ends_a_run_gives_its_place_back_too(connection, store, node, statement):
    await fill(connection, "work", 3, queue="mail")
    await limit(store, concurrency=3)
    await claim(store, node)
    await connection.execute(statement)
    await fill(connection, "work", 9, queue="mail")
    assert len(await claim(store, node)) == 3


async def test_a_claim_that_was_lost_and_given_back_has_its_place_no_more(connection, store, node):
    await fill(connection, "work", 3, queue="mail")
    await limit(store, concurrency=2)
    await claim(store, node)
    lost, _ = await store.lost_claims(node, [], datetime(2900, 1, 1, tzinfo=UTC))
    assert len(lost) == 2
    assert len(await claim(store, node)) == 2


async def test_claims_at_the_same_moment_take_no_place_twice(connection, store, node):
    nodes = [await a_node(connection) for _ in range(4)]
    await fill(connection, "work", 400, queue="mail", args_sql=TENANTS)
    for limits in (
        {"concurrency": 7},
        {"each_concurrency": 2, "by": "args.tenant"},
        {"concurrency": 7, "is_shared": True, "by": "args.tenant"},
    ):
        await limit(store, **limits)
        most = limits.get("concurrency", 10)
        for _ in range(5):
            claims = await asyncio.gather(*(claim(store, one, n) for one in nodes for n in (1, 3)))
            assert sum(map(len, claims)) == most
            await connection.execute("UPDATE rxjobs.live_jobs SET state = 'available', attempt = 0 WHERE state = 'executing'")


async def test_a_place_that_was_taken_since_a_claim_began_is_seen_by_it(connection, store, node):
    """It waited for another claim: what that took was not committed when it began."""
    await fill(connection, "work", 9, queue="mail")
    await limit(store, concurrency=3)
    async with store.database.transaction() as other:
        taken = await other.fetch(CLAIM, node, 2, *NOWHERE)
        assert len(taken) == 2
        waiting = asyncio.ensure_future(claim(store, node))
        blocked = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        await until(lambda: connection.fetchval(blocked))
    assert len(await waiting) == 1


async def test_what_ran_before_a_limit_was_asked_counts_and_so_it_does_when_one_is_lowered(connection, store, node):
    await fill(connection, "work", 20, queue="mail", args_sql=TENANTS)
    running = await store.fetch_jobs("mail", 4, ["work"], node)
    await limit(store, concurrency=5)
    assert len(await claim(store, node)) == 1
    await limit(store, concurrency=3)
    await store.ack_completed(ids(running)[:2], node, 1)
    assert await claim(store, node) == []
    await store.ack_completed(ids(running)[2:], node, 1)
    assert len(await claim(store, node)) == 2
    await limit(store, each_concurrency=1, by="args.tenant")
    assert len(await claim(store, node)) <= 2  # three run, of two keys at least


async def test_a_limit_for_each_key_holds_for_each_and_hides_no_other(connection, store, node):
    """Ten thousand ready jobs of a key that is at its limit stand before those of others."""
    await fill(connection, "work", 10_000, queue="mail", args={"tenant": "big"})
    await fill(connection, "work", 10, queue="mail", args_sql="json_build_object('tenant', 'small' || n % 2)")
    await limit(store, each_concurrency=3, by="args.tenant")
    assert tenants(await claim(store, node)) == {"big": 3, "small0": 3, "small1": 3}
    assert await claim(store, node) == []


async def test_more_keys_than_a_claim_looks_at_all_have_their_turn(connection, store, node):
    await fill(connection, "work", 1_500, queue="mail", args_sql="json_build_object('tenant', 't' || n % 500)")
    await limit(store, each_concurrency=1, by="args.tenant")
    claimed = Counter()
    for _ in range(20):
        claimed += tenants(await claim(store, node, 50))
    assert len(claimed) == 500
    assert set(claimed.values()) == {1}


async def test_a_job_without_the_argument_and_one_whose_key_is_odd_have_keys_too(connection, store, node):
    for args in ("{}", '{"tenant": null}', '{"tenant": ""}', "[1]", '{"tenant": "\\u0000"}'):
        await a_row(connection, queue="mail", args=args)
    odd = ['"', "it's", "$1", "%L", "{a,b}", "ü" * 3_000, "\\"]
    for key in odd:
        await a_row(connection, queue="mail", args=msgspec.json.encode({"tenant": key}).decode())
    await limit(store, each_concurrency=1, by="args.tenant")
    rows = await claim(store, node)
    assert len(rows) == 1 + len(odd)
    await a_row(connection, queue="mail", args='{"tenant": "\\u0000"}')  # an index must not refuse it


async def test_keys_share_a_queue_however_many_jobs_one_has(connection, store, node):
    await fill(connection, "work", 10_000, queue="mail", args={"tenant": "big"})
    await fill(connection, "work", 10, queue="mail", args={"tenant": "small"})
    await limit(store, is_shared=True, by="args.tenant")
    assert tenants(await claim(store, node, 20)) == {"big": 10, "small": 10}
    assert tenants(await claim(store, node, 20)) == {"big": 20}  # nobody waits for who has none


async def test_keys_share_a_queue_also_where_single_jobs_are_claimed(connection, store, node):
    await fill(connection, "work", 100, queue="mail", args={"tenant": "big"})
    await limit(store, concurrency=1, is_shared=True, by="args.tenant")
    order = []
    for turn in range(30):
        if turn == 10:
            await fill(connection, "work", 10, queue="mail", args={"tenant": "small"})
        (row,) = await claim(store, node, 1)
        order += tenants([row])
        await store.ack_completed([row["id"]], node, 1)
    assert set(order[:10]) == {"big"}
    assert all(set(order[turn : turn + 2]) == {"big", "small"} for turn in range(11, 28, 2))


async def test_a_key_of_more_weight_gets_more(connection, store, node):
    await fill(
        connection, "work", 2_000, queue="mail", args_sql="json_build_object('tenant', CASE n % 2 WHEN 0 THEN 'a' ELSE 'b' END)"
    )
    await limit(store, is_shared=True, by="args.tenant", weights={"a": 3.0})
    claimed = Counter()
    for n in (40, 7, 13, 100, 40, 1, 1, 1, 1, 196):
        claimed += tenants(await claim(store, node, n))
    assert claimed == {"a": 300, "b": 100}


async def test_the_more_urgent_go_first_whatever_their_key(connection, store, node):
    await fill(connection, "work", 10, queue="mail", args={"tenant": "a"})
    await connection.execute("UPDATE rxjobs.live_jobs SET priority = 5")
    await fill(connection, "work", 10, queue="mail", args={"tenant": "b"})
    await limit(store, is_shared=True, by="args.tenant")
    assert tenants(await claim(store, node, 10)) == {"b": 10}


async def test_the_more_urgent_go_first_also_where_they_are_more_than_their_keys_part(connection, store, node):
    await fill(connection, "work", 400, queue="mail", args_sql="json_build_object('tenant', 't' || n % 20)")
    await connection.execute("UPDATE rxjobs.live_jobs SET priority = 5")
    await fill(connection, "work", 90, queue="mail", args={"tenant": "urgent"})
    await limit(store, is_shared=True, by="args.tenant")
    assert tenants(await claim(store, node, 80)) == {"urgent": 80}
    assert tenants(await claim(store, node, 30))["urgent"] == 10


async def test_who_ended_gives_the_place_back_however_many_are_noted(connection, store, node):
    """They are looked up only where places run short, or the list grows long."""
    await fill(connection, "work", 3_000, queue="mail", args_sql="json_build_object('tenant', 't')")
    await limit(store, each_concurrency=500, by="args.tenant")
    for _ in range(30):
        claimed = await claim(store, node, 30)
        assert len(claimed) == 30
        await store.ack_completed(ids(claimed), node, 1)
    assert 0 < await connection.fetchval("SELECT max(cardinality(jobs)) FROM rxjobs.limit_keys") <= 130
    assert len(await claim(store, node, 1_000)) == 500
    assert await claim(store, node) == []


async def test_no_more_start_in_a_window_than_the_rate(connection, store, node):
    await fill(connection, "work", 100, queue="mail")
    await limit(store, rate=Rate(10, 1.0))
    await in_a_window(connection, 1.0)
    assert [len(await claim(store, node, 6)) for _ in range(3)] == [6, 4, 0]
    assert len(await until(lambda: claim(store, node))) == 10
    windows = await connection.fetch(
        "SELECT count(*), count(DISTINCT rxjobs.window_of(attempted_at, 1.0)) AS windows FROM rxjobs.live_jobs "
        "WHERE attempted_at IS NOT NULL GROUP BY rxjobs.window_of(attempted_at, 1.0)"
    )
    assert [row["count"] for row in windows] == [10, 10]


async def test_a_rate_for_each_key_holds_for_each(connection, store, node):
    await fill(connection, "work", 100, queue="mail", args_sql=TENANTS)
    await limit(store, each_rate=Rate(3, 4.0), by="args.tenant")
    await in_a_window(connection, 4.0)
    assert tenants(await claim(store, node)) == {f"t{n}": 3 for n in range(5)}
    assert await claim(store, node) == []


async def test_a_bucket_gives_what_it_holds_at_once_and_then_fills_again(connection, store, node):
    await fill(connection, "work", 100, queue="mail")
    await limit(store, rate=Rate(1, 600.0, burst=8))
    assert [len(await claim(store, node, 5)) for _ in range(3)] == [5, 3, 0]
    await connection.execute("UPDATE rxjobs.limits SET level_at = level_at - interval '1300 s'")
    assert len(await claim(store, node)) == 2
    await connection.execute("UPDATE rxjobs.limits SET level_at = level_at - interval '1 day'")
    assert len(await claim(store, node)) == 8


async def test_to_ask_for_the_same_rate_again_gives_no_more(connection, store, node):
    await fill(connection, "work", 100, queue="mail")
    await limit(store, rate=Rate(1, 600.0, burst=5))
    assert len(await claim(store, node)) == 5
    await limit(store, rate=Rate(1, 600.0, burst=5), concurrency=50)
    assert await claim(store, node) == []


async def test_a_narrowed_source_takes_places_only_for_what_it_claims(connection, store, node):
    await fill(connection, "work", 10, queue="mail", args_sql="json_build_object('tenant', 't' || n % 2, 'n', n)")
    await connection.execute("UPDATE rxjobs.live_jobs SET tags = '{hot}' WHERE id % 2 = 0")
    for limits in ({}, {"by": "args.tenant", "is_shared": True}):
        await limit(store, concurrency=4, **limits)
        assert await claim(store, node, types=["other"]) == []
        assert await claim(store, node, tags=["cold"]) == []
        assert len(await claim(store, node, args='{"n": 3}')) == 1
        assert len(await claim(store, node, 2, tags=["hot"])) == 2
        assert len(await claim(store, node)) == 1
        await connection.execute("UPDATE rxjobs.live_jobs SET state = 'available', attempt = 0")


async def test_nothing_is_claimed_by_a_dead_node_or_from_a_paused_queue(connection, store, node):
    await fill(connection, "work", 10, queue="mail")
    await limit(store, concurrency=4)
    assert await claim(store, await a_node(connection, seconds=-1)) == []
    await store.pause_queue("mail")
    assert await claim(store, node) == []
    await store.resume_queue("mail")
    assert len(await claim(store, node)) == 4


async def test_a_job_that_a_transaction_holds_does_not_hold_up_the_others(connection, store, node):
    (locked, *_) = [await a_row(connection, queue="mail", args='{"tenant": "t"}') for _ in range(3)]
    for limits in ({}, {"by": "args.tenant", "is_shared": True}):
        await limit(store, concurrency=3, **limits)
        async with store.database.transaction() as other:
            await other.fetch("SELECT FROM rxjobs.live_jobs WHERE id = $1 FOR UPDATE", locked)
            assert locked not in ids(rows := await asyncio.wait_for(claim(store, node), 10))
            assert len(rows) == 2
        await connection.execute("UPDATE rxjobs.live_jobs SET state = 'available', attempt = 0")


async def test_what_is_lifted_leaves_nothing(connection, store, node):
    await fill(connection, "work", 10, queue="mail", args_sql=TENANTS)
    await limit(store, concurrency=4, each_concurrency=1, by="args.tenant")
    await claim(store, node)
    assert (await store.look(["mail"], [])).limited == {"mail": 1.0}
    await limit(store)
    assert await store.read_limits() == {}
    assert (await store.look(["mail"], [])).limited == {}
    left = "SELECT (SELECT count(*) FROM rxjobs.limits) + (SELECT count(*) FROM rxjobs.limit_keys)"
    assert await connection.fetchval(left) == 0
    assert not await connection.fetchval("SELECT EXISTS (SELECT FROM pg_class WHERE relname LIKE 'live_jobs_keys%')")
    assert not await connection.fetchval("SELECT EXISTS (SELECT FROM pg_proc WHERE proname LIKE 'claim_of%')")


async def test_limits_are_read_as_they_were_saved(store):
    limits = Limits(5, Rate(60, 30.0), "args.user.id", 2, Rate(7, 1.5, burst=3), {"acme": 3.0}, is_shared=True)
    assert await store.change_limits("mail", lambda before: limits if before == NONE else before) is True
    assert await store.change_limits("mail", lambda before: before) is False
    assert await store.read_limits() == {"mail": limits}
    assert await store.read_limits("other") == {}


async def test_a_role_that_owns_no_table_can_limit_a_queue(connection, store, node):
    await connection.execute(
        "DO $$ BEGIN CREATE ROLE rxjobs_limits_only; EXCEPTION WHEN duplicate_object THEN NULL; END $$;"
        "GRANT USAGE ON SCHEMA rxjobs TO rxjobs_limits_only;"
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA rxjobs TO rxjobs_limits_only;"
    )
    await fill(connection, "work", 10, queue="mail", args_sql=TENANTS)
    async with store.database.transaction() as other:
        await other.execute("SET LOCAL ROLE rxjobs_limits_only")
        await store.index_keys("mail", ["tenant"], other)
        await store.save_limits("mail", Limits(each_concurrency=1, by="args.tenant"), other)
        claimed = await other.fetch(CLAIM, node, 9, *NOWHERE)
    assert len(claimed) == 5
    await connection.execute("DROP OWNED BY rxjobs_limits_only; DROP ROLE rxjobs_limits_only")


async def test_keys_that_nobody_has_used_for_long_are_forgotten(connection, store, node):
    await fill(connection, "work", 3, queue="mail", args_sql=TENANTS)
    await limit(store, each_concurrency=1, by="args.tenant")
    await claim(store, node)
    await connection.execute("DELETE FROM rxjobs.live_jobs WHERE args ->> 'tenant' = 't0'")
    await connection.execute("UPDATE rxjobs.limit_keys SET used_at = now() - interval '2 h'")
    await claim(store, node)
    assert await connection.fetchval("SELECT count(*) FROM rxjobs.limit_keys") == 3
    await connection.execute("UPDATE rxjobs.limits SET swept_at = now() - interval '2 h'")
    await claim(store, node)
    kept = await connection.fetch("SELECT key FROM rxjobs.limit_keys ORDER BY key")
    assert [row["key"] for row in kept] == ["t1", "t2"]  # whose jobs run


async def test_limits_are_changed_while_jobs_are_claimed_and_enqueued_and_nobody_waits_in_a_circle(connection, store, node):
    await fill(connection, "work", 5_000, queue="mail", args_sql=TENANTS)
    changing = True

    async def work():
        while changing:
            claimed = await claim(store, node, 5) or await store.fetch_jobs("mail", 5, ["work"], node)
            await store.ack_completed(ids(claimed), node, 1)

    async def enqueue():
        while changing:
            await fill(connection, "work", 5, queue="mail", args_sql=TENANTS)

    working = [asyncio.ensure_future(one()) for one in (work, work, work, enqueue)]
    for number in range(20):
        await limit(store, concurrency=5, is_shared=number % 2 == 0, by="args.tenant" if number % 2 == 0 else None)
    await limit(store)
    changing = False
    await asyncio.gather(*working)


async def test_a_table_that_a_dump_holds_is_not_waited_for_with_all_the_others_behind(connection, store, node):
    async with store.database.transaction() as dump:
        await dump.execute("LOCK TABLE rxjobs.live_jobs IN SHARE UPDATE EXCLUSIVE MODE")
        with pytest.raises(TimeoutError, match=r"queue mail: the keys of its jobs could not be indexed.*try again"):
            await limit(store, is_shared=True, by="args.tenant")
    assert await store.read_limits() == {}
    assert (await store.look(["mail"], [])).limited == {}
