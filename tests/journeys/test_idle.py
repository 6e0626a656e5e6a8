"""What a node asks PostgreSQL while it has nothing to do, counted and not timed: it may fall, and grows only for a reason."""

from __future__ import annotations

from collections import Counter

import asyncpg

import rxjobs as rj
from rxjobs.services import cron
from rxjobs.store.store import Store
from tests.waiting import until

LOOKS = 20


async def test_an_idle_node_asks_one_question_a_poll_for_all_of_its_queues(dsn, monkeypatch):
    """Nothing else is asked but what the lease and the leadership take, whatever the number of queues."""
    monkeypatch.setattr(cron, "LOOK_SECONDS", 0.01)  # where none would say that an entry was changed
    asked, run = Counter[str](), Store._run

    async def counted(store, name, *args, **how):
        asked[name] += 1
        return await run(store, name, *args, **how)

    monkeypatch.setattr(Store, "_run", counted)
    app = rj.App(dsn, migrate=True, poll_seconds=0.05)

    for queue in ("default", "mail", "third"):
        app.job(name=queue, queue=queue)(lambda: None)
    heard = list[str | None]()
    app.woken.subscribe(heard.append)
    async with app.running():
        # it has begun, and done what whoever leads does first
        firsts = {"prune_jobs", "describe_server", "unserved", "read_crons"}
        await until(lambda: heard and asked["look"] > 5 and firsts <= asked.keys())
        assert not asked["lost_claims"]  # which reads the whole table
        assert not asked["prune_slots"]  # there is no entry of cron
        asked.clear()
        await until(lambda: asked["look"] >= LOOKS)
        others = {name: count for name, count in asked.items() if name != "look"}
    assert not others.keys() & {"fetch_jobs", "ready_behind", "stage_jobs", "expired_nodes", "has_waited", "read_crons"}
    assert sum(others.values()) <= LOOKS / 4  # what depends on no poll: the lease, the leadership and the like


async def test_what_is_asked_is_asked_on_the_connection_that_listens(dsn):
    """So that it need not be asked whether it is still there."""
    app = rj.App(dsn, migrate=True, poll_seconds=0.05)
    app.job(name="work")(lambda: None)
    heard, seen = list[str | None](), list[object]()
    app.woken.subscribe(heard.append)
    connection = await asyncpg.connect(dsn)
    async with app.running():
        await until(lambda: heard)
        app.looks.pending(lambda: None).subscribe(seen.append)
        listening = app.store.database.listener
        answers, fetch = list[str](), listening.fetch

        async def counted(sql, *args):
            answers.append(sql)
            return await fetch(sql, *args)

        listening.fetch = counted
        seen.clear()
        await until(lambda: len(seen) > 5)
        assert len(answers) >= 5
        await connection.execute("SELECT pg_notify('rxjobs', 'default')")
        await until(lambda: heard[-1:] == ["default"])
    await connection.close()


async def test_a_job_that_nobody_was_told_of_is_claimed_once_by_the_next_look(dsn, monkeypatch):
    claims, fetch = list[str](), Store.fetch_jobs

    async def counted(store, queue, *args):
        claims.append(queue)
        return await fetch(store, queue, *args)

    monkeypatch.setattr(Store, "fetch_jobs", counted)
    app, ran = rj.App(dsn, migrate=True, notify=False, poll_seconds=0.05), list[int]()

    @app.job(queue="mail")
    async def work(n: int) -> None:
        ran.append(n)

    app.job(name="other", queue="other")(lambda: None)
    async with app.running():
        await until(lambda: set(claims) == {"mail", "other"})  # each is asked on start
        seen = list[object]()
        watching = app.looks.pending(lambda: None).subscribe(seen.append)
        await until(lambda: len(seen) > 3)
        claims.clear()
        await until(lambda: len(seen) > 10)
        assert claims == []
        await work.enqueue(1)
        await until(lambda: ran == [1])
        watching.dispose()
    assert set(claims) == {"mail"}
