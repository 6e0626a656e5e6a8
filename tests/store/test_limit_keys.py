"""Limits for each key and shares, whatever is asked for and however many keys there are."""

from __future__ import annotations

import random
from collections import Counter
from hashlib import md5

import msgspec
import pytest

from rxjobs.store.limit_statements import Limits
from rxjobs.testing import fill

LEFT = "SELECT array_agg(DISTINCT args ->> 'tenant') FROM rxjobs.live_jobs WHERE state = 'available'"


async def limit(store, **limits):
    await store.change_limits("mail", lambda _: Limits(by="args.tenant", **limits))


async def claim(store, node, n=100, *, by_keys=True):
    return await store.fetch_limited("mail", n, ["work"], node, [], "{}", by_keys=by_keys)


def tenants(rows):
    return Counter(msgspec.json.decode(row["args"])["tenant"] for row in rows)


@pytest.mark.parametrize("weights", [{}, {"t7": 3.0, "t240": 0.5}], ids=["alike", "weighed"])
async def test_keys_share_a_queue_also_where_there_are_more_than_a_claim_looks_at(connection, store, node, weights):
    """And whatever is asked for: less than there are keys, as many as it looks at, and more."""
    await fill(connection, "work", 250 * 40, queue="mail", args_sql="json_build_object('tenant', 't' || n % 250)")
    await limit(store, is_shared=True, weights=weights)
    claimed = Counter()
    for n in (30, 100, 130, 270) * 6:
        rows = await claim(store, node, n)
        assert len(rows) == n
        claimed += tenants(rows)
    each = claimed.total() / (250 + sum(weight - 1 for weight in weights.values()))
    for key in range(250):
        assert claimed[f"t{key}"] == pytest.approx(each * weights.get(f"t{key}", 1.0), abs=6)


@pytest.mark.parametrize("before", ["executing", "of another queue"])
async def test_claims_go_by_the_index_of_keys_also_where_statistics_say_that_nothing_is_ready(connection, store, node, before):
    """Each index seems as good as another then; by any but that of the keys all of the queue is read for each key."""
    state, queue = ("executing", "mail") if before == "executing" else ("available", "other")
    await fill(connection, "work", 5_000, state=state, queue=queue)
    await connection.execute("ANALYZE rxjobs.live_jobs")
    await connection.execute("TRUNCATE rxjobs.live_jobs")
    await fill(connection, "work", 50 * 40, queue="mail", args_sql="json_build_object('tenant', 't' || n % 50)")
    await limit(store, is_shared=True)
    async with connection.transaction():
        claims = f"SELECT count(*) FROM rxjobs.claim_of_{md5(b'mail').hexdigest()}(30, '{{work}}', $1, '{{}}', '{{}}')"  # noqa: S324
        assert await connection.fetchval(claims, node) == 30
        read = await connection.fetchval("SELECT pg_stat_get_xact_tuples_returned('rxjobs.live_jobs_ready'::regclass)")
    assert read < 100, "of 2,000 that are ready"


@pytest.mark.parametrize("by_keys", [True, False], ids=["known", "not known"])
async def test_claims_are_the_same_whether_or_not_it_is_known_that_a_queue_has_keys(connection, store, node, by_keys):
    """A node learns of limits later than they are, and nodes of an older version know nothing of another way."""
    await fill(connection, "work", 20, queue="mail", args_sql="json_build_object('tenant', 't' || n % 5)")
    await limit(store, each_concurrency=2)
    assert tenants(await claim(store, node, by_keys=by_keys)) == dict.fromkeys((f"t{n}" for n in range(5)), 2)
    await limit(store, concurrency=13)
    assert len(await claim(store, node, by_keys=by_keys)) == 3


@pytest.mark.parametrize("seed", range(3))
async def test_whatever_is_asked_limits_hold_and_what_they_allow_is_claimed(connection, store, node, seed):
    """Random limits, claims and ends: who may start is counted here from nothing but what runs."""
    chance = random.Random(seed)
    running: dict[int, str] = {}
    for _ in range(12):
        limits = Limits(
            chance.choice([None, 7, 40]), None, "args.tenant", chance.choice([None, 1, 5]), None,
            chance.choice([{}, {"t1": 4.0, "t2": 0.3}]), is_shared=True,
        )  # fmt: skip
        await store.change_limits("mail", lambda _, limits=limits: limits)
        keys = chance.choice([1, 4, 30])
        priority = chance.choice(["0", "n % 3"])
        await connection.execute(
            "INSERT INTO rxjobs.live_jobs (type, queue, priority, args) "
            f"SELECT 'work', 'mail', {priority}, json_build_object('tenant', 't' || n % {keys}) FROM generate_series(1, 30) AS n"
        )
        for _ in range(4):
            n = chance.choice([1, 3, 20, 50])
            rows = await claim(store, node, n)
            running |= {row["id"]: msgspec.json.decode(row["args"])["tenant"] for row in rows}
            of_keys = Counter(running.values())
            if rows:
                assert len(running) <= (limits.concurrency or 10**6)
                assert all(of_keys[key] <= (limits.each_concurrency or 10**6) for key in tenants(rows))
            if len(rows) < n and len(running) < (limits.concurrency or 10**6):
                left = await connection.fetchval(LEFT)
                assert all(of_keys[key] >= (limits.each_concurrency or 10**6) for key in left or ())
            ended = chance.sample(sorted(running), len(running) // 2)
            for attempt in (1, 2):
                await store.ack_completed(ended, node, attempt)
            for id_ in ended:
                del running[id_]
