"""Each mistake: exit code 2, and one line on stderr that names what was given and says what to do."""

from __future__ import annotations

import pytest

NOWHERE = "postgresql://me:secret@127.0.0.1:1/x"
APP = "--app=shop:app"

MISTAKES = [
    # commands and options
    (["nonsense"], ["nonsense", "migrate", "rxjobs --help"]),
    (["--nonsense"], ["--nonsense", "rxjobs --help"]),
    (["jobs", "nonsense"], ["nonsense", "cancel", "rxjobs jobs --help"]),
    (["jobs", "list", "--nonsense"], ["--nonsense", "rxjobs jobs list --help"]),
    (["jobs", "list", "--limit", "many"], ["many", "--limit"]),
    (["jobs", "list", "--limit", "0"], ["0", "--limit", ">= 1"]),
    (["jobs", "list", "--after", "0"], ["0", "--after"]),
    (["jobs", "list", "--state", "broken"], ["broken", "--state", "discarded"]),
    (["jobs", "list", "--dsn"], ["--dsn needs a value", "RXJOBS_DSN"]),
    (["run"], ["APP", "rxjobs run --help"]),
    (["run", "shop:app", "--processes", "0"], ["--processes", ">= 1"]),
    (["run", "shop:app", "--log-level", "loud"], ["loud", "warning"]),
    # the database
    (["jobs", "list", "--dsn", NOWHERE], ["127.0.0.1:1", "me:***@", "--dsn"]),
    (["migrate", "--dsn", NOWHERE], ["127.0.0.1", "--dsn"]),
    (["run", "shop:app", "--dsn", NOWHERE], ["127.0.0.1:1", "--dsn"]),
    (["queues", "list", "--dsn", "mysql://x"], ["mysql", "--dsn"]),
    (["jobs", "list", "--schema", "absent"], ["absent", "rxjobs migrate"]),
    (["run", "shop:app", "--schema", "absent"], ["absent", "rxjobs migrate"]),
    (["enqueue", "send", APP, "user_id=1", "--schema", "absent"], ["absent", "rxjobs migrate"]),
    (["migrate", "--schema", "No Name"], ["No Name", "lower-case"]),
    # the user's app
    (["run", "shop"], ["'shop'", "MODULE:APP"]),
    (["run", "shop.py:app"], ["'shop.py:app'", "MODULE:APP"]),
    (["run", "nowhere:app"], ["'nowhere'", "folder"]),
    (["run", "shop.deep:app"], ["'shop.deep'", "folder"]),
    (["run", "shop:missing"], ["'shop'", "'missing'", "app"]),
    (["run", "shop:number"], ["shop:number", "int", "app"]),
    (["run", "raises:app"], ["raises.py:3", "KeyError", "nope"]),
    (["run", "lacks:app"], ["lacks.py:1", "ModuleNotFoundError", "not_installed"]),
    (["run", "syntax:app"], ["syntax.py:2", "SyntaxError"]),
    (["run", "option:app"], ["option.py:2", "lease", "lease_seconds"]),
    (["run", "leaves:app"], ["leaves.py:2", "SystemExit"]),
    (["run", "empty:app"], ["@app.job"]),
    (["run", "nowhere:app", "--processes", "2"], ["'nowhere'"]),
    (["queues", "list", "--app", "nowhere:app"], ["'nowhere'"]),
    (["run", "shop:app", "--queue", "nobody=3"], ["'nobody'", "mail"]),
    (["run", "shop:app", "--queue", "mail"], ["'mail'", "mail=50"]),
    (["run", "shop:app", "--queue", "mail=0"], ["'mail=0'", "mail=50"]),
    (["run", "shop:app", "--queue", "mail=1", "--queue", "mail=2"], ["'mail'", "twice"]),
    # new jobs
    (["enqueue"], ["NAME is missing: The name of the job type."]),
    (["enqueue", "send"], ["--app is missing", "as MODULE:APP", "rxjobs enqueue --help"]),
    (["enqueue", "unheard_of", APP], ["'unheard_of'", "send"]),
    (["enqueue", "send", APP], ["user_id", "int"]),
    (["enqueue", "send", APP, "user_id=x"], ["user_id", "int", "x"]),
    (["enqueue", "send", APP, "user_id=1", "colour=red"], ["colour", "locale"]),
    (["enqueue", "send", APP, "user_id=1", "self=2"], ["self", "locale"]),
    (["enqueue", "send", APP, "user_id"], ["'user_id'", "KEY=VALUE"]),
    (["enqueue", "send", APP, "user_id=1", "user_id=2"], ["'user_id'", "twice"]),
    (["enqueue", "send", APP, "--args", "{user_id"], ["{user_id", "JSON object"]),
    (["enqueue", "send", APP, "--args", "[1]"], ["[1]", "JSON object"]),
    (["enqueue", "send", APP, "--args", "{}", "user_id=1"], ["--args", "not both"]),
    (["enqueue", "send", APP, "user_id=1", "--delay", "soon"], ["soon", "--delay"]),
    (["enqueue", "send", APP, "user_id=1", "--delay", "-5"], ["-5", "delay"]),
    (["enqueue", "send", APP, "user_id=1", "--priority", "10"], ["10", "priority", "9"]),
    (["enqueue", "send", APP, "user_id=1", "--queue", "not a name"], ["not a name", "queue"]),
    (["enqueue", "send", APP, "user_id=1", "evil\x1b[2J\n=1"], [r"evil\x1b[2J"]),
    (["enqueue", "add", APP, "first=1", "more=2"], ["more"]),
    # jobs
    (["jobs", "show"], ["ID"]),
    (["jobs", "show", "first"], ["first", "ID"]),
    (["jobs", "show", "4711"], ["4711", "jobs list"]),
    (["jobs", "show", "9223372036854775808"], ["9223372036854775808"]),
    (["jobs", "cancel"], ["ids", "--state"]),
    (["jobs", "retry", "--attempts", "3"], ["ids", "--state"]),
    (["jobs", "delete"], ["ids", "--state"]),
    (["jobs", "delete", "1", "--queue", "mail"], ["ids", "--queue", "not both"]),
    (["jobs", "cancel", "4711", "4712"], ["4711, 4712", "jobs list"]),
]  # fmt: skip

MODULES = {
    "raises.py": "x = {}\n\nx['nope']\n",
    "lacks.py": "import not_installed\n",
    "syntax.py": "\ndef f(:\n",
    "option.py": "import rxjobs as rj\napp = rj.App(lease=3)\n",
    "leaves.py": "import sys\nsys.exit(0)\n",
    "empty.py": "import rxjobs as rj\napp = rj.App()\n",
}


@pytest.fixture
def beside_bad_modules(rxjobs):
    for name, text in MODULES.items():
        rxjobs.write(name, text)
    return rxjobs


@pytest.mark.parametrize(("arguments", "named"), MISTAKES, ids=lambda value: " ".join(value) if isinstance(value, list) else None)
def test_a_mistake_is_told_in_one_line(beside_bad_modules, arguments, named):
    ran = beside_bad_modules(*arguments)
    assert ran.code == 2, ran
    assert ran.out == ""
    assert ran.err.startswith("rxjobs: ")
    assert ran.err.count("\n") == 1
    assert ran.err[:-1].isprintable()
    assert "secret" not in ran.err
    assert all(word in ran.err for word in named), ran.err


def test_a_setting_that_cannot_be_is_a_mistake(rxjobs):
    ran = rxjobs("jobs", "list", environment={"RXJOBS_LEASE_SECONDS": "long"})
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "RXJOBS_LEASE_SECONDS" in ran.err


def test_an_exporter_that_is_not_there_is_a_mistake(rxjobs):
    ran = rxjobs("run", "shop:app", environment={"OTEL_TRACES_EXPORTER": "nonsense"})
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "nonsense" in ran.err


def test_a_database_that_refuses_is_a_mistake(rxjobs):
    rxjobs.sql("CREATE ROLE rxjobs_test_nobody LOGIN")
    try:
        ran = rxjobs("jobs", "list", "--dsn", rxjobs.dsn.replace("postgres@", "rxjobs_test_nobody@"))
    finally:
        rxjobs.sql("DROP ROLE rxjobs_test_nobody")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "permission denied" in ran.err
