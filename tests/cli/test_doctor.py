from __future__ import annotations

import re

import asyncpg
import pytest

import rxjobs as rj
from rxjobs.doctor import server, vacuum, work
from rxjobs.doctor.examine import examine
from rxjobs.doctor.finding import Health
from rxjobs.settings import Settings
from tests.cli.conftest import until
from tests.reports.pooler import TransactionPooler

NOWHERE = "postgresql://me:secret@127.0.0.1:1/x"
EVERYTHING = [
    "server", "durability", "clock", "tls", "pooler", "notification queue", "notifications", "settings", "schema",
    "nodes", "leader", "queues", "breakers", "unserved", "progress", "horizon", "dead rows", "history",
]  # fmt: skip


def a_node(rxjobs, serves="{}", *, leads=True):
    """A node that lives, since a while."""
    rxjobs.sql(
        "INSERT INTO rxjobs.nodes (id, label, pid, started_at, expires_at, serves) "
        "VALUES ('00000000-0000-0000-0000-000000000001', 'one', 1, now() - interval '1 hour', now() + interval '1 hour', "
        "$1::text::jsonb)",
        serves,
    )
    if leads:
        rxjobs.sql(
            "INSERT INTO rxjobs.leaders (role, node, term, expires_at) SELECT 'maintenance', id, 7, expires_at FROM rxjobs.nodes"
        )


def some_jobs(rxjobs, number=1, *, type="send", queue="mail", state="available", seconds=60, begun=None):
    """Jobs that were ready so many seconds ago, and were begun so many ago, on the node that lives."""
    rxjobs.sql(
        "INSERT INTO rxjobs.live_jobs (type, queue, state, scheduled_at, attempted_at, node) "
        "SELECT $1, $2, $3::text::rxjobs.job_state, now() - $4::float8 * interval '1 second', "
        "now() - $5::float8 * interval '1 second', '00000000-0000-0000-0000-000000000001' FROM generate_series(1, $6)",
        type, queue, state, seconds, begun, number,
    )  # fmt: skip


def found_by(rxjobs, check, *arguments):
    """What one check finds, by the exit code of the whole."""
    ran = rxjobs("doctor", "--json", *arguments)
    return ran.code, [(one["state"], one["found"], one["advice"]) for one in ran.document["findings"] if one["check"] == check]


def test_all_is_well_on_a_database_with_a_node_that_leads(rxjobs):
    a_node(rxjobs)
    ran = rxjobs("doctor")
    assert (ran.code, ran.err) == (0, "")
    header, _, *rows, empty, tally = ran.out.splitlines()
    assert header.split() == ["check", "state", "found", "what", "to", "do"]
    assert [re.split(r" {2,}", row)[:2] for row in rows] == [[name, "ok"] for name in EVERYTHING], ran.out
    assert (empty, tally) == ("", "0 problems, 0 warnings")


def test_a_fresh_database_has_no_problem_and_needs_a_node(rxjobs):
    document = rxjobs("doctor", "--json").document
    assert document["state"] == "warning"
    assert [one["check"] for one in document["findings"] if one["state"] != "ok"] == ["nodes"]
    assert found_by(rxjobs, "nodes") == (
        0, [("warning", "no node lives: nothing runs jobs", "start one: rxjobs run MODULE:APP")],
    )  # fmt: skip


def test_all_is_well_with_a_worker_that_runs(rxjobs):
    worker = rxjobs.start("run", "shop:app", environment={"RXJOBS_NODE": "web-1"})
    until(lambda: rxjobs.sql("SELECT FROM rxjobs.nodes, rxjobs.leaders WHERE serves ? 'mail'"))
    document = rxjobs("doctor", "--app", "shop:app", "--json").document
    assert document["state"] == "ok", document
    told = {one["check"]: one["found"] for one in document["findings"]}
    assert told["nodes"] == "1 live: web-1"
    assert told["leader"] == "web-1 leads, in term 1"
    worker.terminate()
    assert worker.wait(60) == 0


def test_the_json_has_a_state_and_advice_where_it_is_not_well(rxjobs):
    a_node(rxjobs)
    document = rxjobs("doctor", "--json").document
    assert document.keys() == {"state", "findings"}
    assert document["state"] == "ok"
    assert [one["check"] for one in document["findings"]] == EVERYTHING
    assert all(one.keys() == {"check", "state", "found", "advice"} for one in document["findings"])
    assert all(one["advice"] is None for one in document["findings"])


def test_a_schema_that_is_not_there_is_a_problem(bare):
    code, (finding,) = found_by(bare, "schema")
    assert code == 1
    assert finding[:2] == ("problem", "schema 'rxjobs' is not there")
    assert "rxjobs migrate" in finding[2]
    assert rxjobs_tables(bare) == []


def rxjobs_tables(commands):
    return commands.sql("SELECT FROM pg_tables WHERE schemaname = 'rxjobs'")


def test_a_schema_that_an_app_makes_by_itself_is_no_problem(bare):
    bare.environment["RXJOBS_MIGRATE"] = "true"
    assert found_by(bare, "schema")[0] == 0


def test_a_schema_of_a_newer_rxjobs_is_a_problem(bare):
    assert bare("migrate").code == 0
    bare.sql("INSERT INTO rxjobs.migrations (version, name) VALUES (1000000, 'later')")
    code, ((state, found, advice),) = found_by(bare, "schema")
    assert (code, state) == (1, "problem")
    assert "1000000" in found
    assert advice == "upgrade rxjobs on this node"


def test_a_server_that_does_not_answer_is_the_only_finding(rxjobs):
    ran = rxjobs("doctor", "--dsn", NOWHERE, "--json")
    (finding,) = ran.document["findings"]
    assert (ran.code, ran.err) == (1, "")
    assert (finding["check"], finding["state"]) == ("server", "problem")
    assert "me:***@127.0.0.1:1" in finding["found"]
    assert "--dsn" in finding["advice"]
    assert "secret" not in ran.out
    ran = rxjobs("doctor", "--dsn", NOWHERE)
    assert (ran.code, ran.err, ran.out.splitlines()[-1]) == (1, "", "1 problem, 0 warnings")


def test_a_user_without_rights_is_told_what_could_not_be_looked_at(rxjobs):
    rxjobs.sql("CREATE ROLE rxjobs_test_no_doctor LOGIN")
    try:
        code, ((state, found, _),) = found_by(rxjobs, "schema", "--dsn", rxjobs.dsn.replace("postgres@", "rxjobs_test_no_doctor@"))
    finally:
        rxjobs.sql("DROP ROLE rxjobs_test_no_doctor")
    assert (code, state) == (1, "problem")
    assert "permission denied" in found


def test_jobs_of_a_queue_that_no_node_takes_from_are_a_problem(rxjobs):
    a_node(rxjobs, '{"other": ["send"]}')
    some_jobs(rxjobs, 3)
    code, ((state, found, advice),) = found_by(rxjobs, "unserved")
    assert (code, state) == (1, "problem")
    assert found == "ready and taken by nobody: 3 of type send in queue mail; no living node takes from the queue"
    assert "--queue mail=10" in advice


def test_jobs_of_a_type_that_no_node_knows_are_a_problem(rxjobs):
    a_node(rxjobs, '{"mail": ["other"]}')
    some_jobs(rxjobs)
    code, ((state, found, advice),) = found_by(rxjobs, "unserved")
    assert (code, state) == (1, "problem")
    assert found == "ready and taken by nobody: 1 of type send in queue mail; nodes take from the queue, and none knows the type"
    assert "--type send --queue mail" in advice


def test_jobs_that_came_just_now_are_no_problem_yet(rxjobs):
    some_jobs(rxjobs, seconds=0)
    assert found_by(rxjobs, "unserved")[0] == 0
    a_node(rxjobs, '{"mail": ["send"]}')
    assert found_by(rxjobs, "progress") == (0, [("ok", "no job that a node takes waits for longer than 10 s", None)])


def test_a_node_that_lives_and_begins_nothing_is_a_problem(rxjobs):
    """The progress probe, from outside."""
    a_node(rxjobs, '{"mail": ["send"]}')
    some_jobs(rxjobs, 2)
    code, ((state, found, _),) = found_by(rxjobs, "progress")
    assert (code, state) == (1, "problem")
    assert re.fullmatch(
        r"2 of type send in queue mail wait, the oldest for 6\d s; a living node takes them, none runs and none was begun for 10 s",
        found,
    )


def test_jobs_that_wait_behind_long_ones_are_a_warning(rxjobs):
    a_node(rxjobs, '{"mail": ["send"]}')
    some_jobs(rxjobs)
    some_jobs(rxjobs, 5, state="executing", begun=30)
    code, ((state, found, _),) = found_by(rxjobs, "progress")
    assert (code, state) == (0, "warning")
    assert found.endswith("none was begun for 10 s, while 5 of the queue run")


def test_what_a_dead_node_has_begun_does_not_run(rxjobs):
    a_node(rxjobs, '{"mail": ["send"]}')
    some_jobs(rxjobs)
    some_jobs(rxjobs, 5, state="executing", begun=30)
    rxjobs.sql("UPDATE rxjobs.live_jobs SET node = gen_random_uuid() WHERE state = 'executing'")
    assert found_by(rxjobs, "progress")[0] == 1


@pytest.mark.parametrize("state", ["executing", "retryable", "completed"])
def test_a_queue_that_moves_but_does_not_catch_up_is_a_warning(rxjobs, state):
    a_node(rxjobs, '{"mail": ["send"]}')
    some_jobs(rxjobs)
    if state == "completed":
        rxjobs.sql(
            "INSERT INTO rxjobs.finished_jobs (id, type, queue, state, inserted_at, scheduled_at, attempted_at, attempt, "
            "max_attempts, priority, args) VALUES (99, 'send', 'mail', 'completed', now(), now(), now(), 1, 1, 0, '{}')"
        )
    else:
        some_jobs(rxjobs, state=state, begun=1)
    code, ((health, found, _),) = found_by(rxjobs, "progress")
    assert (code, health) == (0, "warning")
    assert found.endswith("the queue moves")


@pytest.mark.parametrize("state", ["open", "half-open"])
def test_what_waits_for_its_breaker_does_not_stand_still(rxjobs, state):
    a_node(rxjobs, '{"mail": ["send"]}')
    some_jobs(rxjobs)
    rxjobs.sql(f"INSERT INTO rxjobs.breakers (type, state, opened_at) VALUES ('send', '{state}', now())")
    assert found_by(rxjobs, "progress") == (0, [("ok", "no job that a node takes waits for longer than 10 s", None)])


def test_a_longer_poll_is_more_patience(rxjobs):
    a_node(rxjobs, '{"mail": ["send"]}')
    some_jobs(rxjobs, seconds=60)
    rxjobs.environment["RXJOBS_POLL_SECONDS"] = "30"
    assert found_by(rxjobs, "progress")[0] == 0


@pytest.mark.parametrize(("node", "where"), [("", "on all nodes"), ("one", "on node one")])
def test_a_paused_queue_is_told_and_does_not_stand_still(rxjobs, node, where):
    a_node(rxjobs, '{"mail": ["send"]}')
    some_jobs(rxjobs)
    rxjobs.sql("INSERT INTO rxjobs.queues (queue, node, paused_at) VALUES ('mail', $1, now())", node)
    code, ((state, found, advice),) = found_by(rxjobs, "queues")
    assert (code, state) == (0, "warning")
    assert found.startswith(f"queue mail is paused {where} since 2")
    assert advice == "rxjobs queues resume mail" + (" --node one" if node else "")


def test_nodes_of_which_none_leads_are_a_problem(rxjobs):
    a_node(rxjobs, leads=False)
    code, ((state, found, _),) = found_by(rxjobs, "leader")
    assert (code, state) == (1, "problem")
    assert re.match(r"no node has led for 36\d\d s: ", found)


def test_a_leader_that_was_just_lost_is_a_warning(rxjobs):
    a_node(rxjobs)
    rxjobs.sql("UPDATE rxjobs.leaders SET expires_at = now() - interval '1 second'")
    code, ((state, _, _),) = found_by(rxjobs, "leader")
    assert (code, state) == (0, "warning")


def test_notify_turned_off_is_a_warning_and_not_tried(rxjobs):
    rxjobs.environment["RXJOBS_NOTIFY"] = "false"
    assert found_by(rxjobs, "settings")[1][0][0] == "warning"
    assert found_by(rxjobs, "notifications")[1] == [("ok", "not tried, notify is off: jobs are found by the poll, every 1 s", None)]


def test_the_settings_of_an_app_are_those_that_are_told(rxjobs):
    rxjobs.write("slow.py", "import rxjobs as rj\napp = rj.App(poll_seconds=7)\n")
    assert "poll_seconds 7.0" in found_by(rxjobs, "settings", "--app", "slow:app")[1][0][1]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--schema", "No Name"], "No Name"),
        (["--nonsense"], "--nonsense"),
        (["--app", "nowhere:app"], "nowhere"),
        (["--dsn", "nonsense"], "nonsense"),
        (["--dsn", "http://db/jobs"], "http://db/jobs"),
        (["--dsn", "postgresql://me:secret/more@db/jobs"], "postgresql://me:***@db/jobs is no DSN"),
        (["--dsn", "postgresql://127.0.0.1:99999/jobs"], "127.0.0.1:99999/jobs is no DSN"),
        (["--dsn", "postgresql://db/jobs?sslmode=maybe"], "sslmode"),
    ],
)
def test_a_mistake_in_the_call_is_no_finding(rxjobs, arguments, named):
    ran = rxjobs("doctor", *arguments)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert named in ran.err
    assert "secret" not in ran.err


@pytest.mark.parametrize(
    ("setting", "word"), [("synchronous_commit", "synchronous_commit off"), ("default_transaction_read_only", "no writes")]
)
def test_a_server_that_does_not_write_what_it_is_told_is_a_problem(bare, setting, word):
    name = bare.dsn.rpartition("/")[2].partition("?")[0]
    bare.sql(f"ALTER DATABASE {name} SET {setting} = {'off' if setting == 'synchronous_commit' else 'on'}")
    code, ((state, found, _),) = found_by(bare, "durability")
    assert (code, state) == (1, "problem")
    assert word in found


async def test_behind_a_pooler_the_poll_is_named(dsn):
    await rj.App(dsn).migrate()
    async with TransactionPooler(dsn) as pooler:
        found = {one.check: one for one in await examine(Settings(dsn=pooler.dsn, poll_seconds=2))}
    assert found["pooler"].state is Health.WARNING
    assert "within about 2 s" in found["pooler"].found
    assert found["notifications"].found == "not tried, behind a pooler in transaction mode: jobs are found by the poll, every 2 s"
    assert Health.PROBLEM not in {one.state for one in found.values()}


async def test_whoever_pins_the_horizon_is_named(dsn, monkeypatch):
    monkeypatch.setattr(vacuum, "LONG_SECONDS", 0.0)
    await rj.App(dsn).migrate()
    forgotten = await asyncpg.connect(dsn, server_settings={"application_name": "left open"})
    async with forgotten.transaction():
        pid = await forgotten.fetchval("SELECT pg_backend_pid() FROM pg_current_xact_id()")
        (pin,) = [one for one in await examine(Settings(dsn=dsn)) if one.check == "horizon"]
    await forgotten.close()
    assert pin.state is Health.WARNING
    assert pin.found.startswith(f"session with pid {pid} (user postgres, application left open, idle in transaction) has for ")
    assert pin.advice == f"end it unless it is needed: SELECT pg_terminate_backend({pid})"


@pytest.mark.parametrize(
    ("row", "is_pin"),
    [
        ({"kind": "slot", "state": "not in use", "age": None}, True),
        ({"kind": "slot", "state": "in use", "age": None}, False),
        ({"kind": "session", "state": None, "age": None}, False),
        ({"kind": "prepared", "state": None, "age": 61.0}, True),
        ({"kind": "session", "state": "active", "age": 59.0}, False),
    ],
)
def test_a_pin_has_held_on_for_long_or_is_a_slot_that_nobody_uses(row, is_pin):
    assert vacuum.is_pin(row) is is_pin


@pytest.mark.parametrize(
    ("server_time", "state"), [(100.5, "ok"), (101.4, "ok"), (98.6, "ok"), (102.2, "warning"), (97.8, "warning")]
)
def test_clocks_disagree_only_as_far_as_the_way_lets_one_know(server_time, state):
    """Asked at 99.5 and answered at 100.5: half a second of what is seen may be the way."""
    finding = server.clock(99.5, server_time, 100.5)
    assert finding.state == state
    assert ("ahead of" in finding.found) is (server_time > 100)


@pytest.mark.parametrize(("major", "state"), [(13, "problem"), (14, "ok"), (18, "ok"), (19, "warning")])
def test_a_version_is_one_that_is_known_to_do(major, state):
    assert server.version(major, "here").state == state


@pytest.mark.parametrize(("usage", "state"), [(0.0, "ok"), (0.1, "ok"), (0.2, "warning"), (0.6, "problem")])
def test_notifications_that_nobody_takes_are_told_before_there_is_no_room(usage, state):
    finding = server.room(usage)
    assert finding.state == state
    assert ("the poll finds them" in (finding.advice or "")) is (usage > 0.5)  # no enqueue fails, and none notifies: see F41


def test_a_server_without_fsync_is_a_problem():
    assert server.durability(False, "on", is_read_only=False).state is Health.PROBLEM


@pytest.mark.parametrize(
    ("living", "dead", "uncleared", "state"),
    [
        (0, 0, None, "ok"),
        (0, 9_999, None, "ok"),
        (0, 10_000, None, "warning"),
        (10_000, 20_000, 301, "warning"),
        (10_000, 20_000, 30, "ok"),
        (90_000, 20_000, 301, "ok"),
    ],
)
def test_dead_rows_are_a_warning_when_they_are_many_and_most_and_stay(living, dead, uncleared, state):
    assert vacuum.cleared(living, dead, uncleared).state == state


def test_patience_is_ten_polls():
    assert work.patience(Settings(poll_seconds=2)) == 20
