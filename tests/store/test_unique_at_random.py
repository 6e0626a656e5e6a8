"""Unique jobs through random lives: never two that stand for one key, and no key that stays behind."""

from __future__ import annotations

import os
from random import Random
from uuid import uuid4

import asyncpg
import pytest

import rxjobs as rj
from rxjobs.decide import raised
from rxjobs.outcome import Cancel, Complete, Discard, Finished, Release, Snooze
from rxjobs.store.encoding import instant
from rxjobs.store.twins import give_way
from rxjobs.unique import LIVE
from tests.store.ground import a_shared_database, emptied

SEQUENCES = int(os.environ.get("UNIQUE_SEQUENCES", "30"))
STEPS = 25
USERS = 3
KINDS = {
    "live": rj.Unique(),
    "waiting": rj.Unique(states=("scheduled", "available")),
    "ended": rj.Unique(states=(*LIVE, "completed")),
    "replacing": rj.Unique(on_conflict="replace"),
}


@pytest.fixture(scope="module")
def ground(databases):
    yield from a_shared_database(databases)


@pytest.fixture
async def world(ground):
    dsn = await emptied(ground)
    connection = await asyncpg.connect(dsn)
    async with rj.App(dsn) as app:
        yield World(app, connection)
    await connection.close()


class World:
    """What may happen to jobs, one thing at a time."""

    def __init__(self, app, connection):
        self.app, self.connection, self.store = app, connection, app.store
        self.types = {}
        for name, unique in KINDS.items():

            @app.job(name=name, unique=unique)
            async def work(user: int) -> None: ...

            self.types[name] = work

    async def begin(self):
        for table in ("live_jobs", "finished_jobs", "nodes", "leaders"):
            await self.connection.execute(f"DELETE FROM rxjobs.{table}")
        self.node, self.leader = uuid4(), uuid4()
        await self.store.take_lease(self.node, "", 1, 3600)
        await self.store.take_lease(self.leader, "", 1, 3600)
        self.term = await self.store.lead(self.leader, 3600)
        self.held = {}

    async def enqueue(self, random):
        work = self.types[random.choice(list(KINDS))]
        await work.options(delay=random.choice([0, 0, 3600])).enqueue(user=random.randrange(USERS))

    async def claim(self, random):
        rows = await self.store.fetch_jobs("default", random.randint(1, 4), list(KINDS), self.node)
        for row in rows:
            self.held[row["id"]] = rj.Job(
                **{name: row[name] for name in ("id", "type", "attempt", "max_attempts")},
                attempted_at=instant(row["attempted_at"]),
                node=self.node,
            )

    async def end(self, random):
        """Through the source's own way of writing down, since that is what meets twins."""
        taken = random.sample(sorted(self.held), min(len(self.held), random.randint(1, 3)))
        finished = [Finished(job, self.outcome(job, random)) for job in map(self.held.pop, taken)]
        if finished:
            source = rj.PostgresSource(AsNode(self), "default")
            await source.settle(finished)

    def outcome(self, job, random):
        failure = raised(job, ValueError("broken"))
        return random.choice([Complete(), Complete(), failure, Snooze(0), Snooze(60), Release(), Cancel("so"), Discard("so")])

    async def crash(self, random):
        await self.connection.execute("UPDATE rxjobs.nodes SET expires_at = now() - interval '1 second' WHERE id = $1", self.node)
        ids = sorted(self.held)
        attempts, delays = [self.held[id_].attempt for id_ in ids], [0.0] * len(ids)

        async def rescued():
            return await self.store.rescue_jobs(self.node, ids, attempts, delays, self.leader, self.term)

        if ids:
            await give_way(self.store, rescued, ids, self.node)
        self.held, self.node = {}, uuid4()
        await self.store.take_lease(self.node, "", 1, 3600)

    async def stage(self, random):
        await self.connection.execute("UPDATE rxjobs.live_jobs SET scheduled_at = now() WHERE state IN ('retryable', 'scheduled')")
        await give_way(self.store, lambda: self.store.stage_jobs(100, self.leader, self.term))

    async def cancel(self, random):
        await self.app.jobs.cancel(await self.some(random))

    async def retry(self, random):
        await self.app.jobs.retry(await self.some(random))

    async def prune(self, random):
        await self.app.jobs.delete(state=["completed", "cancelled", "discarded"])

    async def some(self, random):
        ids = [row["id"] for row in await self.connection.fetch("SELECT id FROM rxjobs.jobs ORDER BY id")]
        return random.sample(ids, min(len(ids), 3))

    async def twins(self):
        return await self.connection.fetch(
            """SELECT unique_key, array_agg(id)
               FROM (SELECT id, unique_key FROM rxjobs.live_jobs WHERE state = ANY (unique_states)
                     UNION ALL
                     SELECT id, unique_key FROM rxjobs.finished_jobs WHERE state = ANY (unique_states)) AS standing
               GROUP BY unique_key HAVING count(*) > 1"""
        )

    async def stuck(self):
        """Keys that an insert does not get, though no job stands for them."""
        found = []
        for name, work in self.types.items():
            for user in range(USERS):
                stands = await self.connection.fetchval(
                    """SELECT count(*)
                       FROM (SELECT type, args, state, unique_states FROM rxjobs.live_jobs
                             UNION ALL
                             SELECT type, args, state, unique_states FROM rxjobs.finished_jobs) AS job
                       WHERE type = $1 AND args::text = $2 AND state = ANY (unique_states)""",
                    name,
                    work.new(user=user).payload,
                )
                enqueued = await work.enqueue(user=user)
                if enqueued.duplicate != bool(stands):
                    found.append((name, user))
        return found


class AsNode:
    """As much of a node as writing outcomes down takes."""

    label = "world"

    def __init__(self, world):
        self.id, self.store = world.node, world.store
        self.controls = self.looks = self.circuits = self.dead_letters = self
        self.limited = {}

    def emit(self, event): ...

    def hold(self, queue, count): ...

    def buried(self, finished): ...

    def settled(self, ids):
        list(ids)

    async def examined(self, finished):
        return finished


async def test_no_life_of_unique_jobs_leaves_two_or_a_key_that_is_stuck(world):
    seed = int(os.environ.get("UNIQUE_SEED", "1"))
    steps = [world.enqueue] * 4 + [world.claim] * 3 + [world.end] * 3
    steps += [world.crash, world.stage, world.cancel, world.retry, world.prune]
    for sequence in range(seed, seed + SEQUENCES):
        random = Random(sequence)
        await world.begin()
        for _ in range(STEPS):
            await random.choice(steps)(random)
            assert not await world.twins(), f"UNIQUE_SEED={sequence}"
        assert await world.stuck() == [], f"UNIQUE_SEED={sequence}"
