from __future__ import annotations

import asyncio
import json

import asyncpg
import pytest

import rxjobs as rj


def test_no_node_is_told_with_what_to_do(rxjobs):
    ran = rxjobs("nodes")
    assert (ran.code, ran.out) == (0, "no node runs, and none did of late: rxjobs run starts one\n")
    assert json.loads(rxjobs("nodes", "--json").out) == []


@pytest.fixture
def left(rxjobs):
    """A node that has run a job and left, and one that lives."""

    async def run():
        app = rj.App(rxjobs.dsn, node="here\x20there")

        @app.job(name="work")
        async def work() -> None: ...

        async with app.running():
            enqueued = await work.enqueue()
            await enqueued.result(30)
        connection = await asyncpg.connect(rxjobs.dsn)
        await connection.execute(
            "INSERT INTO rxjobs.nodes (id, label, pid, expires_at, serves) "
            "VALUES (gen_random_uuid(), 'long', 77, now() + interval '1 hour', '{\"mail\": []}')"
        )
        await connection.close()

    asyncio.run(run())
    return rxjobs


def test_nodes_are_listed_with_what_they_did(left):
    ran = left("nodes")
    assert (ran.code, ran.err) == (0, "")
    head, _, long, here = ran.out.splitlines()
    assert head.split()[:4] == ["node", "state", "host", "pid"]
    assert long.split()[:2] == ["long", "lives,"]
    assert "mail" in long
    assert here.startswith("here there")
    assert "left at" in here
    assert "work at" in here
    [shown] = json.loads(left("nodes", "--gone", "0", "--json").out)
    assert (shown["label"], shown["pid"], shown["queues"], shown["state"]) == ("long", 77, ["mail"], "living")
    both = json.loads(left("nodes", "--json").out)
    assert [(one["label"], one["completed"]) for one in both] == [("long", 0), ("here there", 1)]


def test_a_slip_of_the_pen_is_told_in_one_line(rxjobs):
    ran = rxjobs("nodes", "--gone", "100000")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "--gone" in ran.err
