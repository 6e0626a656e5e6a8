"""`rxjobs jobs retry`, of dead letters at a rate."""

from __future__ import annotations

import asyncio
import json

import asyncpg
import pytest

from rxjobs.testing import fill


@pytest.fixture
def dead(rxjobs):
    """Ten dead letters: nine of a ValueError, the last of another error."""

    async def insert():
        connection = await asyncpg.connect(rxjobs.dsn)
        await fill(connection, "send", 10, queue="mail", state="discarded")
        await connection.execute(
            "UPDATE rxjobs.finished_jobs SET errors = jsonb_build_array(jsonb_build_object("
            "'attempt', 1, 'type', CASE WHEN id = 10 THEN 'shop.NoStock' ELSE 'ValueError' END))"
        )
        await connection.close()

    asyncio.run(insert())
    return rxjobs


def test_dead_letters_of_an_error_come_back_at_a_rate(dead):
    ran = dead("jobs", "retry", "--state", "discarded", "--error", "ValueError", "--rate", "0.5")
    assert (ran.code, ran.err, ran.out) == (0, "", "9 jobs retried, the last in 18 s\n")
    states = [job["state"] for job in json.loads(dead("jobs", "list", "--json").out)]
    assert sorted(states) == ["available", "discarded"] + ["scheduled"] * 8
    ran = dead("jobs", "retry", "--state", "discarded", "--rate", "5", "--json")
    assert json.loads(ran.out) == {"retried": 1}


@pytest.mark.parametrize("since", ["2020-05-01T08:00Z", "2020-05-01T08:00+02:00", "3600"])
def test_dead_letters_since_then_come_back(dead, since):
    assert dead("jobs", "retry", "--state", "discarded", "--since", since).out == "10 jobs retried\n"


def test_ids_come_back_at_a_rate(dead):
    assert dead("jobs", "retry", "1", "2", "--rate", "50").out.startswith("2 jobs retried")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--rate", "5"], "say --state discarded"),
        (["--state", "retryable", "--rate", "5"], "say --state discarded"),
        (["--state", "discarded", "--rate", "0"], "rate is a number from 0.001"),
        (["--state", "discarded", "--rate", "fast"], "--rate"),
        (["--state", "discarded", "--since", "yesterday"], "--since is an instant with its zone"),
        (["--state", "discarded", "--since", "2020-05-01"], "--since is an instant with its zone"),
        (["--state", "discarded", "--since", "nan"], "--since is an instant with its zone"),
        (["--state", "discarded", "--since", "-5"], "since is a datetime with a time zone, or a timedelta above 0"),
        (["1", "--rate", "5", "--queue", "mail"], "not both"),
    ],
)
def test_a_mistake_is_told_in_one_line(dead, arguments, told):
    ran = dead("jobs", "retry", *arguments)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert told in ran.err
