from __future__ import annotations

import asyncio
import re

import asyncpg
import pytest

from rxjobs.testing import fill
from tests.cli.conftest import until


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
    states = ["available", "executing", "scheduled", "retryable", "held"]
    assert header.split() == ["queue", *states, "oldest", "paused", "max", "demand", "limits", "nodes"]
    assert [row.split()[:6] for row in rows] == [["mail", "3", "0", "0", "2", "0"], [r"old\x1b", "0", "0", "1", "0", "0"]]
    assert re.fullmatch(r"\d+ s", " ".join(rows[0].split()[6:]))


def test_an_apps_queues_and_job_types_are_listed_too(rxjobs):
    some_jobs(rxjobs.dsn)
    header, _, *rows = rxjobs("queues", "list", "--app", "shop:app").out.splitlines()
    assert header.endswith("job types")
    assert [row.split()[0] for row in rows] == ["default", "mail", r"old\x1b", "slow"]
    assert rows[0].endswith("add, fail")


def test_queues_are_answered_in_json(rxjobs):
    some_jobs(rxjobs.dsn)
    mail, old = rxjobs("queues", "list", "--json").document
    assert mail.pop("waited") >= 0
    nothing = {"types": [], "nodes": [], "asked": [], "limits": {}}
    assert mail == {"name": "mail", "jobs": {"available": 3, "retryable": 2}, **nothing}
    assert old == {"name": "old\x1b", "jobs": {"scheduled": 1}, "waited": None, **nothing}


def a_node(rxjobs, label, seconds=600):
    rxjobs.sql(
        "INSERT INTO rxjobs.nodes (id, label, pid, expires_at, serves) "
        "VALUES (gen_random_uuid(), $1, 1, now() + $2::float8 * interval '1 second', '{\"mail\": []}')",
        label,
        seconds,
    )


def mail(rxjobs):
    """The row of the queue mail, without its depths."""
    (row,) = [row for row in rxjobs("queues", "list").out.splitlines() if row.startswith("mail ")]
    return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ", "NOW", " ".join(row.split()[6:]))


def test_a_queue_is_paused_and_goes_on(rxjobs):
    a_node(rxjobs, "one")
    ran = rxjobs("queues", "pause", "mail")
    assert (ran.code, ran.out, ran.err) == (0, "queue mail paused on all nodes\n", "")
    assert rxjobs("queues", "pause", "mail").out == "queue mail: nothing to do, it was so already on all nodes\n"
    assert mail(rxjobs) == "since NOW one"
    assert rxjobs("queues", "resume", "mail").out == "queue mail resumed on all nodes\n"
    assert mail(rxjobs) == "one"


def test_one_node_is_paused_or_scaled_by_its_label(rxjobs):
    a_node(rxjobs, "one")
    assert rxjobs("queues", "pause", "mail", "--node", "one").out == "queue mail paused on node one\n"
    assert rxjobs("queues", "scale", "mail", "--max-demand", "50").out == "queue mail scaled on all nodes\n"
    assert rxjobs("queues", "scale", "mail", "10", "--node", "one").out == "queue mail scaled on node one\n"
    assert mail(rxjobs) == "one: since NOW 50, one: 10 one"
    rxjobs.sql("DELETE FROM rxjobs.nodes")
    assert mail(rxjobs) == "one (not running): since NOW 50, one (not running): 10"
    assert rxjobs("queues", "resume", "mail", "--node", "one").code == 0
    assert rxjobs("queues", "scale", "mail", "--reset").code == 0
    assert rxjobs("queues", "list").out == "no queue holds unfinished jobs\n"


def test_limits_are_asked_shown_and_lifted(rxjobs):
    a_node(rxjobs, "one")
    assert rxjobs("queues", "limit", "mail", "--concurrency", "10").out == "queue mail limited on all nodes\n"
    assert rxjobs("queues", "limit", "mail", "10").out == "queue mail: nothing to do, it was so already on all nodes\n"
    assert rxjobs("queues", "rate", "mail", "60", "--per", "30").code == 0
    assert mail(rxjobs) == "10 at once, 60 per 30 s one"
    assert rxjobs("queues", "limit", "mail", "2", "--by", "args.tenant").code == 0
    assert rxjobs("queues", "rate", "mail", "5", "--per", "1", "--burst", "9", "--by", "args.tenant").code == 0
    assert rxjobs("queues", "rate", "mail", "--reset", "--by", "args.tenant").code == 0
    assert mail(rxjobs) == "10 at once, 60 per 30 s, 2 at once for each args.tenant one"
    assert rxjobs("queues", "limit", "mail", "--reset").code == 0
    assert rxjobs("queues", "rate", "mail", "--reset").code == 0
    assert mail(rxjobs) == "one"


def test_keys_are_weighed(rxjobs):
    a_node(rxjobs, "one")
    assert rxjobs("queues", "share", "mail", "--by", "args.tenant", "--weight.acme", "3").out == "queue mail shared on all nodes\n"
    assert mail(rxjobs) == "shared by args.tenant, acme weighs 3 one"
    (queue,) = rxjobs("queues", "list", "--json").document
    assert queue["limits"] == {"by": "args.tenant", "weights": {"acme": 3.0}, "is_shared": True}
    assert rxjobs("queues", "share", "mail", "--reset").code == 0
    assert mail(rxjobs) == "one"


def test_what_is_asked_of_queues_is_answered_in_json(rxjobs):
    assert rxjobs("queues", "pause", "mail", "--app", "shop:app", "--json").document == {
        "queue": "mail", "node": None, "changed": True,
    }  # fmt: skip
    (queue,) = rxjobs("queues", "list", "--json").document
    (asked,) = queue["asked"]
    assert re.match(r"\d{4}-\d\d-\d\dT.*Z$", asked.pop("paused_at"))
    assert asked == {"node": None, "max_demand": None, "is_living": True}


def test_a_queue_that_is_paused_before_its_first_job_waits_for_it(rxjobs):
    """F39: an app's own queue is known, whatever the database holds."""
    assert rxjobs("queues", "pause", "mail", "--app", "shop:app").code == 0
    rxjobs("enqueue", "send", "--app", "shop:app", "user_id=1")
    worker = rxjobs.start("run", "shop:app", environment={"RXJOBS_POLL_SECONDS": "0.2"})
    until(lambda: rxjobs.sql("SELECT FROM rxjobs.nodes WHERE serves ? 'mail'"))
    assert rxjobs.read("notes") == ""
    assert rxjobs("queues", "resume", "mail").code == 0
    until(lambda: rxjobs.read("notes") == "sent 1 en\n")
    worker.terminate()
    assert worker.wait(60) == 0


MISTAKES = [
    (["pause"], ["QUEUE", "rxjobs queues pause --help"]),
    (["pause", "mial"], ["'mial'", "mail"]),
    (["resume", "mial"], ["'mial'", "mail"]),
    (["scale", "mial", "5"], ["'mial'", "mail"]),
    (["pause", "a name"], ["'a name'", "letters"]),
    (["pause", "mail", "--node", "two"], ["'two'", "one"]),
    (["pause", "mail", "--app", "nowhere:app"], ["'nowhere'"]),
    (["scale", "mail"], ["--max-demand 50", "--reset"]),
    (["scale", "mail", "5", "--reset"], ["--max-demand 50", "--reset"]),
    (["scale", "mail", "0"], [">= 1"]),
    (["scale", "mail", "many"], ["many"]),
    (["limit", "mial", "5"], ["'mial'", "mail"]),
    (["limit", "mail"], ["--concurrency 10", "--reset"]),
    (["limit", "mail", "5", "--reset"], ["--concurrency 10", "--reset"]),
    (["limit", "mail", "0"], [">= 1"]),
    (["limit", "mail", "5", "--by", "tenant"], ["args.tenant", "'tenant'"]),
    (["rate", "mail"], ["--per 60", "--reset"]),
    (["rate", "mail", "5", "--per", "0"], [">= 0.1"]),
    (["share", "mail"], ["--by args.tenant", "--reset"]),
    (["share", "mail", "--by", "args.tenant", "--weight.acme", "0"], ["'acme'", "0.001"]),
    (["resume", "paused", "--node", "one"], ["'paused'", "all nodes", "without naming a node"]),
]


@pytest.mark.parametrize(("arguments", "named"), MISTAKES, ids=lambda value: " ".join(value) if isinstance(value, list) else None)
def test_a_mistake_is_told_in_one_line(rxjobs, arguments, named):
    a_node(rxjobs, "one")
    rxjobs.sql("INSERT INTO rxjobs.queues (queue, paused_at) VALUES ('paused', now())")
    ran = rxjobs("queues", *arguments)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1), ran
    assert ran.err.startswith("rxjobs: ")
    assert all(word in ran.err for word in named), ran.err
    assert rxjobs.sql("SELECT FROM rxjobs.queues WHERE queue <> 'paused'") == []


@pytest.mark.parametrize("command", ["pause", "resume", "scale"])
def test_the_help_of_a_command_has_an_example_and_the_options_of_all(rxjobs, command):
    ran = rxjobs("queues", command, "--help")
    assert ran.code == 0
    assert f"Example: rxjobs queues {command} " in ran.out
    assert all(option in ran.out for option in ("--dsn", "--schema", "--json", "--node", "--app"))
