"""`rxjobs top`: one picture, and many on a terminal with keys."""

from __future__ import annotations

import asyncio
import json
import signal

import asyncpg
import pytest

import rxjobs as rj
from rxjobs.cli.keys import named
from tests.cli.terminal import Terminal
from tests.waiting import until

EVIL = "evil\x1b]0;owned\x07\n\u202ename"


@pytest.fixture
def busy(rxjobs):
    """A database in which a node has run jobs and holds others, which other machines see by its heartbeats alone."""
    told = {
        "lease_seconds": 3600.0, "running": 7, "completed": 1234, "failed": 5, "load": [0.5, 0.4, 0.3], "memory": 52000000,
        "pipelines": [
            {
                "name": "letters", "queues": ["mail"], "held": 42, "running": 7, "max_demand": 200, "demand": 158, "pending": 3,
                "failed": 5, "rate": 97.25, "rates": {"mail": 97.25},
                "stages": [
                    {"name": "look up", "rate": 98.5, "running": 12, "waiting": 4, "limit": 20, "errors": 6},
                    {"name": "execute", "rate": 97.25, "running": 7, "limit": 50},
                ],
            }
        ],
    }  # fmt: skip
    for label in ("one", "two"):
        rxjobs.sql(
            "INSERT INTO rxjobs.nodes (id, label, pid, expires_at, serves, status) "
            "VALUES (gen_random_uuid(), $1, 77, now() + interval '59 minutes', '{\"mail\": [\"send\"]}', $2)",
            label, json.dumps(told),
        )  # fmt: skip
    rxjobs.sql("INSERT INTO rxjobs.live_jobs (type, queue) SELECT 'send', 'mail' FROM generate_series(1, 31)")
    rxjobs.sql("INSERT INTO rxjobs.live_jobs (type, queue) VALUES ('render', 'media')")
    rxjobs.sql("INSERT INTO rxjobs.job_types (name, queue, priority, max_attempts) VALUES ('send', 'mail', 0, 20)")
    rxjobs.sql(
        "INSERT INTO rxjobs.breakers (type, state, is_by_hand, moved_at, opened_at, reset_timeout) "
        "VALUES ('send', 'open', true, now(), now(), 30)"
    )
    rxjobs.sql(
        "INSERT INTO rxjobs.finished_jobs (id, inserted_at, scheduled_at, attempted_at, state, attempt, max_attempts, priority, "
        "type, queue, args) SELECT -n, now(), now(), now() - n * interval '10 milliseconds', "
        "CASE WHEN n % 10 = 0 THEN 'discarded' ELSE 'completed' END::rxjobs.job_state, 1, 20, 0, 'slow', 'mail', '{}' "
        "FROM generate_series(1, 100) AS n"
    )
    return rxjobs


def test_one_picture_shows_pipelines_queues_nodes_and_the_slowest_types(busy):
    ran = busy("top", "--once")
    assert (ran.code, ran.err) == (0, "")
    assert "\x1b" not in ran.out
    rows = {words[0]: words for words in map(str.split, ran.out.splitlines()) if words}
    assert rows["rxjobs"][4:8] == ["2", "nodes", "as", "of"]
    assert "194 jobs/s" in ran.out
    assert " ".join(rows["letters"][1:]) == "mail 2 84/400 6 to be written 316 194 10 send open by hand"
    lines = [line.split() for line in ran.out.splitlines()]
    assert ["├", "look", "up", "24/40", "8", "197", "12"] in lines
    assert ["└", "execute", "14/100", "0", "194"] in lines or ["└", "execute", "14/100", "194"] in lines
    assert rows["mail"][1:6] == ["31", "0", "0", "0", "0"]
    assert rows["media"][1:6] == ["1", "0", "0", "0", "0"]
    assert rows["one"][1] == "lives"
    assert rows["slow"][1:] == ["100", "10", "500", "ms", "950", "ms", "1.0", "s"]


def test_it_is_one_json_document_for_programs(busy):
    ran = busy("top", "--json", "--window", "3600")
    assert (ran.code, ran.err) == (0, "")
    told = ran.document
    [flow] = told["flows"]
    assert (flow["name"], flow["nodes"], flow["held"], flow["max_demand"], flow["demand"]) == ("letters", 2, 84, 400, 316)
    assert [(stage["name"], stage["running"], stage["waiting"], stage["rate"]) for stage in flow["stages"]] == [
        ("look up", 24, 8, 197.0),
        ("execute", 14, 0, 194.5),
    ]
    assert [one["type"] for one in flow["breakers"]] == ["send"]
    assert told["rates"] == {"mail": 194.5}
    [slow] = told["types"]
    assert (slow["type"], slow["jobs"], slow["failed"]) == ("slow", 100, 10)
    assert slow["p50"] == pytest.approx(0.5)
    assert slow["p95"] == pytest.approx(0.95)
    assert [node["label"] for node in told["nodes"]] == ["one", "two"]
    assert all(30 < node["age"] < 600 for node in told["nodes"])


def test_queues_are_sorted_as_asked(busy):
    def order(sort):
        lines = busy("top", "--once", "--sort", sort).out.splitlines()
        return [line.split()[0] for line in lines if line.split()[:1] in (["mail"], ["media"], ["apart"])]

    busy.sql(
        "INSERT INTO rxjobs.live_jobs (type, queue, scheduled_at) "
        "VALUES ('a', 'apart', now() - interval '1 hour'), ('a', 'apart', now())"
    )
    assert order("name") == ["apart", "mail", "media"]
    assert order("depth") == ["mail", "apart", "media"]
    assert order("rate")[0] == "mail"
    assert order("oldest")[0] == "apart"


def test_a_database_without_anything_is_an_empty_picture(rxjobs):
    ran = rxjobs("top")  # no terminal: one picture
    assert (ran.code, ran.err) == (0, "")
    assert "0 nodes" in ran.out
    assert "rxjobs run starts a node" in ran.out


def test_names_move_no_cursor(busy):
    busy.sql("UPDATE rxjobs.nodes SET label = $1, status = jsonb_set(status, '{pipelines,0,name}', to_jsonb($1::text))", EVIL)
    busy.sql("UPDATE rxjobs.nodes SET status = jsonb_set(status, '{pipelines,0,stages,0,name}', to_jsonb($1::text))", EVIL)
    busy.sql("INSERT INTO rxjobs.live_jobs (type, queue) VALUES ($1, $1)", EVIL)
    busy.sql("UPDATE rxjobs.finished_jobs SET type = $1", EVIL)
    for arguments in (["--once"], ["--json"]):
        out = busy("top", *arguments).out
        assert "owned" in out
        assert not {"\x1b", "\x07", "\u202e"} & set(out)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--interval", "0"], ["--interval", ">= 0.1"]),
        (["--sort", "colour"], ["colour", "depth"]),
        (["--window", "0"], ["--window"]),
        (["--dsn", "postgresql://me:secret@127.0.0.1:1/x"], ["me:***@", "--dsn"]),
        (["--schema", "absent"], ["absent", "rxjobs migrate"]),
    ],
)
def test_a_mistake_is_told_in_one_line(rxjobs, arguments, named):
    ran = rxjobs("top", *arguments)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert all(word in ran.err for word in named)
    assert "secret" not in ran.err


@pytest.fixture
def terminal(busy):
    opened = list[Terminal]()

    def on_terminal(*arguments, **size):
        opened.append(Terminal(["top", *arguments], busy.folder, busy.environment, **size))
        return opened[-1]

    yield on_terminal
    for one in opened:
        one.close()


def is_paused(busy, queue):
    return bool(busy.sql("SELECT FROM rxjobs.queues WHERE queue = $1 AND paused_at IS NOT NULL", queue))


def test_on_a_terminal_it_goes_on_and_keys_pause_and_resume_the_chosen_queue(busy, terminal):
    top = terminal("--interval", "0.2")
    top.shows("letters", "▶ mail", "└ execute", "slowest job types", "q quit")
    busy.sql("INSERT INTO rxjobs.live_jobs (type, queue) SELECT 'send', 'mail' FROM generate_series(1, 4000)")
    top.shows("4,031")
    top.press("\x1b[B")
    top.shows("▶ media")
    top.press("p")
    top.shows("queue media paused on all nodes")
    assert is_paused(busy, "media")
    assert not is_paused(busy, "mail")
    top.press("r")
    top.shows("queue media resumed on all nodes")
    assert not is_paused(busy, "media")
    top.press("kp")
    top.shows("▶ mail", "queue mail paused on all nodes")
    top.press("s")
    top.shows("queues by depth")
    top.press("q")
    assert top.ended() == 0
    assert top.is_as_before


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_leaves_the_terminal_as_it_was(terminal, number, code):
    top = terminal()
    top.shows("letters")
    top.process.send_signal(number)
    assert top.ended() == code
    assert top.is_as_before


def test_it_fits_a_small_terminal_and_keeps_the_chosen_queue_in_sight(busy, terminal):
    busy.sql("INSERT INTO rxjobs.live_jobs (type, queue) SELECT 'send', format('queue-%s', n) FROM generate_series(10, 60) AS n")
    top = terminal(columns=100, rows=20)
    top.shows("letters", "▶ mail", "of 53)", "node", "slow", "q quit")
    top.press("j" * 52)
    top.shows("▶ queue-60", "q quit")


def test_a_database_that_goes_away_is_told_on_the_screen_until_it_is_back(busy, terminal):
    top = terminal("--interval", "0.1")
    top.shows("▶ mail")
    busy.sql("ALTER TABLE rxjobs.live_jobs RENAME TO gone")
    try:
        top.shows("the database refuses", "▶ mail")
    finally:
        busy.sql("ALTER TABLE rxjobs.gone RENAME TO live_jobs")
    busy.sql("INSERT INTO rxjobs.live_jobs (type, queue) SELECT 'send', 'mail' FROM generate_series(1, 5000)")
    top.shows("5,031")
    top.press("q")
    assert top.ended() == 0


def test_who_watches_has_nodes_tell_of_themselves_at_once(rxjobs):
    """Though their heartbeat is far away: what goes through the stages of a pipeline is seen from another process."""

    async def run():
        app = rj.App(rxjobs.dsn, node="here", heartbeat_seconds=1000, lease_seconds=3000)

        @app.job(name="work", queue="mail")
        async def work() -> None: ...

        app.pipeline(app.source("mail").pipe(rj.enrich(lambda job: {}, name="look up"), rj.execute(), rj.ack()), name="letters")
        connection = await asyncpg.connect(rxjobs.dsn)
        async with app.running():
            top = Terminal(["top", "--interval", "0.2"], rxjobs.folder, rxjobs.environment)
            try:
                await asyncio.to_thread(top.shows, "letters", "├ look up", "└ execute")
                await app.enqueue_many([work.new() for _ in range(50)])
                count = "SELECT (status ->> 'completed')::integer = 50 FROM rxjobs.nodes"
                await until(lambda: connection.fetchval(count))
                top.press("q")
                assert await asyncio.to_thread(top.ended) == 0
            finally:
                top.close()
                await connection.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("sent", "keys"),
    [
        ("q", ["q"]),
        ("\x1b[A\x1b[Bpr", ["up", "down", "p", "r"]),
        ("\x1b[C\x1bOBx", ["down"]),
        ("\x1b", ["q"]),
        ("ééé", []),
        ("", []),
    ],
)
def test_keys_have_names_and_others_mean_nothing(sent, keys):
    assert named(sent) == keys
