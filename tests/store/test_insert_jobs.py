from datetime import UTC, datetime, timedelta

import asyncpg
import msgspec
import pytest

from rxjobs.definition import NewJob
from rxjobs.store.store import Store
from tests.store.ground import the_row


def a_new_job(**fields):
    return NewJob(**{"type": "work", "queue": "default", "payload": "{}", **fields})


async def test_rows_come_back_in_the_order_they_were_given(store, connection):
    jobs = [a_new_job(payload=f'{{"n": {n}}}', priority=n % 10) for n in range(2_000)]
    rows = await store.insert_jobs(jobs)
    ids = [row.id for row in rows]
    assert ids == sorted(ids)
    stored = await connection.fetch("SELECT args::text FROM rxjobs.live_jobs ORDER BY id")
    assert [row[0] for row in stored] == [job.payload for job in jobs]


@pytest.mark.parametrize("beside", [[], [{}], [{"queue": "another"}]], ids=["alone", "beside one alike", "beside another"])
async def test_a_job_keeps_all_that_it_was_given(store, connection, beside):
    new = a_new_job(
        type="a.b:c", queue="q/1", payload='{"b": 1e2, "a": -0.0}', priority=9, max_attempts=3,
        tags=('say "hi"', "back\\slash", "{a,b}", "NULL", ""), meta={"who": "ünï", "deep": [1, {"x": None}]},
    )  # fmt: skip
    row, *_ = await store.insert_jobs([new, *(msgspec.structs.replace(new, **fields) for fields in beside)])
    stored = await the_row(connection, row.id)
    assert (stored["type"], stored["queue"], stored["priority"], stored["max_attempts"]) == ("a.b:c", "q/1", 9, 3)
    assert stored["args"] == new.payload  # to the letter: a signature over it still holds
    assert stored["tags"] == list(new.tags)
    assert stored["meta"] == '{"who": "ünï", "deep": [1, {"x": null}]}'
    assert (stored["state"], stored["attempt"], stored["attempted_at"]) == ("available", 0, None)
    assert stored["scheduled_at"] == stored["inserted_at"]


async def test_a_delay_makes_a_job_scheduled_by_the_servers_clock(store, connection):
    (row,) = await store.insert_jobs([a_new_job(delay=60.0)])
    assert row.state == "scheduled"
    wait = await connection.fetchval("SELECT scheduled_at - inserted_at FROM rxjobs.live_jobs WHERE id = $1", row.id)
    assert wait == timedelta(seconds=60)


@pytest.mark.parametrize(
    ("instant", "state"), [(datetime(2000, 1, 1, tzinfo=UTC), "available"), (datetime(2999, 1, 1, tzinfo=UTC), "scheduled")]
)
async def test_an_instant_is_kept_and_decides_the_state(store, connection, instant, state):
    (row,) = await store.insert_jobs([a_new_job(scheduled_at=instant)])
    assert row.state == state
    assert (await the_row(connection, row.id))["scheduled_at"] == instant


async def test_one_refused_row_refuses_its_whole_statement(store, connection):
    with pytest.raises(asyncpg.CheckViolationError):
        await store.insert_jobs([a_new_job(), a_new_job(max_attempts=0), a_new_job()])
    assert await connection.fetchval("SELECT count(*) FROM rxjobs.live_jobs") == 0


async def test_nothing_inserts_nothing(store):
    assert await store.insert_jobs([]) == []


async def test_ids_go_on_beyond_what_a_javascript_number_holds(store, connection):
    await connection.execute("SELECT setval(pg_get_serial_sequence('rxjobs.live_jobs', 'id'), 9007199254740993)")
    (row,) = await store.insert_jobs([a_new_job()])
    assert row.id == 9007199254740994


async def test_without_notify_nobody_is_woken(connection, database):
    heard = []
    await connection.add_listener("rxjobs", lambda *notified: heard.append(notified[3]))
    for count in (1, 2):
        await Store(database, "rxjobs", notify=False).insert_jobs([a_new_job(queue="quiet")] * count)
        await Store(database, "rxjobs").insert_jobs([a_new_job(queue="loud")] * count)
        await Store(database, "rxjobs").insert_jobs([a_new_job(queue="loud")] * count, notify=False)
        await Store(database, "rxjobs").insert_jobs([a_new_job(queue="later", delay=5)] * count)
    await connection.execute("SELECT pg_notify('rxjobs', 'end')")
    assert heard == ["loud", "loud", "end"]
