from __future__ import annotations

import asyncio
import json
from datetime import datetime

import asyncpg
import pytest
from reactivex import operators as ops

import rxjobs as rj
from rxjobs.testing import fill

EVIL = "cannot\x1b]0;owned\x07 [red]it[/red]\nsecond \u202eline"


@pytest.fixture
def filled(rxjobs):
    """Jobs 1 to 3 wait in mail, 4 is scheduled, 5 executes, 6 is completed, 7 is discarded."""

    async def insert():
        connection = await asyncpg.connect(rxjobs.dsn)
        await fill(connection, "send", 3, queue="mail", args_sql="json_build_object('user_id', n)")
        await fill(connection, "send", 1, queue="mail", state="scheduled")
        await fill(connection, "other", 1, state="executing")
        await fill(connection, "other", 1, state="completed")
        await fill(connection, "other", 1, state="discarded")
        await connection.close()

    asyncio.run(insert())
    return rxjobs


@pytest.fixture
def discarded(rxjobs):
    """Job 1 was run, and failed in an evil way."""

    async def run():
        app = rj.App(rxjobs.dsn)

        @app.job(name="evil", max_attempts=1, tags=["x\x1b"], meta={"by": "us"})
        def evil(text: str, number: int):
            raise RuntimeError(text)

        async with app:
            await evil.enqueue(EVIL, number=2**70)
            async with app.running(app.source("default").pipe(rj.execute(), rj.ack(), ops.take(1))) as running:
                await running.wait()

    asyncio.run(run())
    return rxjobs


def ids(table):
    return [int(row.split()[0]) for row in table.splitlines()[2:] if row.split()[0].isdecimal()]


def test_jobs_are_listed_the_newest_first(filled):
    ran = filled("jobs", "list")
    assert (ran.code, ran.err) == (0, "")
    assert ids(ran.out) == [7, 6, 5, 4, 3, 2, 1]
    assert ran.out.splitlines()[0].split()[:5] == ["id", "state", "type", "queue", "attempt"]
    assert ran.out.splitlines()[-1].split()[:5] == ["1", "available", "send", "mail", "0/20"]
    assert '{"user_id":0}' in ran.out.splitlines()[-1].replace(" ", "")


def test_a_list_is_filtered_and_says_how_to_go_on(filled):
    assert ids(filled("jobs", "list", "--queue", "mail", "--state", "available", "--state", "executing").out) == [3, 2, 1]
    assert ids(filled("jobs", "list", "--type", "other").out) == [7, 6, 5]
    page = filled("jobs", "list", "--limit", "3")
    assert ids(page.out) == [7, 6, 5]
    assert page.out.endswith("older ones: --after 5\n")
    assert ids(filled("jobs", "list", "--limit", "50", "--after", "5").out) == [4, 3, 2, 1]
    assert filled("jobs", "list", "--tag", "absent").out == "no job matches\n"


def test_a_list_in_json_is_one_document_with_iso_instants(filled):
    found = filled("jobs", "list", "--queue", "mail", "--json").document
    assert [(job["id"], job["state"], job["args"]) for job in found][-1] == (1, "available", {"user_id": 0})
    assert all(datetime.fromisoformat(job["scheduled_at"]).tzinfo is not None for job in found)
    assert filled("jobs", "list", "--queue", "absent", "--json").document == []


def test_nothing_in_a_jobs_data_reaches_the_terminal(discarded):
    for arguments in (["list"], ["list", "--json"], ["show", "1"], ["show", "1", "--json"]):
        ran = discarded("jobs", *arguments)
        assert ran.code == 0
        assert "[red]it[/red]" in ran.out
        assert all(line.isprintable() for line in ran.out.splitlines())
        assert "\x1b" not in ran.out


def test_a_job_is_shown_with_its_errors_and_tracebacks(discarded):
    lines = discarded("jobs", "show", "1").out.splitlines()
    assert lines[0] == "job 1 of evil: discarded"
    assert "  attempt    1 of 1" in lines
    assert "    Traceback (most recent call last):" in lines
    assert "        raise RuntimeError(text)" in lines
    assert any(line.startswith("  attempt 1 at 20") and r"RuntimeError: cannot\x1b]0;owned\x07" in line for line in lines)


def test_a_job_in_json_has_the_fields_of_job_and_exact_numbers(discarded):
    ran = discarded("jobs", "show", "1", "--json")
    job = ran.document
    assert set(job) == {
        "id", "type", "queue", "state", "args", "attempt", "max_attempts", "priority", "inserted_at", "scheduled_at",
        "attempted_at", "finished_at", "errors", "forensics", "result", "progress", "meta", "tags", "node",
    }  # fmt: skip
    assert job["args"] == {"text": EVIL, "number": 2**70}
    assert (job["meta"], job["tags"]) == ({"by": "us"}, ["x\x1b"])
    (error,) = job["errors"]
    assert (error["type"], error["message"]) == ("RuntimeError", EVIL)
    assert datetime.fromisoformat(error["at"]).tzinfo is not None


def test_a_job_is_shown_with_how_far_it_has_come_and_what_it_returned(filled):
    async def write():
        connection = await asyncpg.connect(filled.dsn)
        await connection.execute(
            """UPDATE rxjobs.live_jobs SET progress = '{"fraction": 0.4, "message": "rendering\\u001b"}' WHERE id = 5;"""
            """UPDATE rxjobs.finished_jobs SET progress = '[1]', result = '{"pages": [1, 2]}' WHERE id = 6"""
        )
        await connection.close()

    asyncio.run(write())
    assert r"  progress   40% rendering\x1b" in filled("jobs", "show", "5").out.splitlines()
    assert filled("jobs", "show", "5", "--json").document["progress"] == {"fraction": 0.4, "message": "rendering\x1b"}
    lines = filled("jobs", "show", "6").out.splitlines()
    assert "  progress   [1]" in lines
    assert '  result     {"pages":[1,2]}' in lines


def test_jobs_are_cancelled_by_id_and_by_filters(filled):
    """One that runs is when its node has stopped it."""
    assert filled("jobs", "cancel", "1", "5", "6").out == "2 jobs cancelled, 1 not: their state does not allow it\n"
    assert filled("jobs", "cancel", "--queue", "mail", "--json").document == {"cancelled": 3}
    assert filled.states() == {
        **dict.fromkeys([1, 2, 3, 4], "cancelled"), 5: "executing", 6: "completed", 7: "discarded",
    }  # fmt: skip


def test_jobs_are_retried_by_id_and_by_filters(filled):
    assert filled("jobs", "retry", "4", "4").out == "1 job retried\n"
    assert filled("jobs", "retry", "--state", "discarded", "--attempts", "40", "--json").document == {"retried": 1}
    assert filled.states()[4] == filled.states()[7] == "available"
    assert json.loads(filled("jobs", "show", "7", "--json").out)["max_attempts"] == 41


def test_jobs_are_deleted_by_id_and_by_filters(filled):
    assert filled("jobs", "delete", "1", "6").out == "2 jobs deleted\n"
    assert filled("jobs", "delete", "--type", "send", "--state", "available", "--json").document == {"deleted": 2}
    assert sorted(filled.states()) == [4, 5, 7]


def test_one_unknown_id_keeps_the_others_as_they_are(filled):
    ran = filled("jobs", "delete", "1", "99")
    assert ran.code == 2
    assert "99" in ran.err
    assert len(filled.states()) == 7
