from __future__ import annotations

import asyncio

import asyncpg

from rxjobs.testing import fill


def some_jobs(dsn):
    async def insert():
        connection = await asyncpg.connect(dsn)
        await fill(connection, "send", 3, queue="mail")
        await fill(connection, "send", 2, queue="mail", state="retryable")
        await fill(connection, "gone", 1, queue="old\x1b", state="scheduled")
        await fill(connection, "send", 1, queue="mail", state="completed")
        await connection.close()

    asyncio.run(insert())


def test_queues_are_listed_with_what_stands_in_them(rxjobs):
    assert rxjobs("queues", "list").out == "no queue holds unfinished jobs\n"
    some_jobs(rxjobs.dsn)
    header, _, *rows = rxjobs("queues", "list").out.splitlines()
    assert header.split() == ["queue", "available", "executing", "scheduled", "retryable", "held"]
    assert [row.split() for row in rows] == [["mail", "3", "0", "0", "2", "0"], [r"old\x1b", "0", "0", "1", "0", "0"]]


def test_an_apps_queues_and_job_types_are_listed_too(rxjobs):
    some_jobs(rxjobs.dsn)
    header, _, *rows = rxjobs("queues", "list", "--app", "shop:app").out.splitlines()
    assert header.endswith("job types")
    assert [row.split()[0] for row in rows] == ["default", "mail", r"old\x1b", "slow"]
    assert rows[0].endswith("add, fail")


def test_queues_are_answered_in_json(rxjobs):
    some_jobs(rxjobs.dsn)
    assert rxjobs("queues", "list", "--json").document == [
        {"name": "mail", "jobs": {"available": 3, "retryable": 2}, "types": []},
        {"name": "old\x1b", "jobs": {"scheduled": 1}, "types": []},
    ]
