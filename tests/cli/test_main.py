from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys

import asyncpg

from rxjobs.testing import fill


def test_ctrl_c_ends_a_command_silently(rxjobs):
    with socket.create_server(("127.0.0.1", 0)) as mute:
        mute.settimeout(60)
        process = rxjobs.start("jobs", "list", "--dsn", f"postgresql://x@127.0.0.1:{mute.getsockname()[1]}/x")
        talking, _ = mute.accept()
        with talking:
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=60)
    assert (process.returncode, out, rxjobs.read("stderr")) == (130, "", "")


def test_a_reader_that_has_seen_enough_is_no_error(rxjobs):
    async def insert():
        connection = await asyncpg.connect(rxjobs.dsn)
        # more than a pipe holds
        await fill(connection, "send", 1000, args={"text": "x" * 40})
        await connection.close()

    asyncio.run(insert())
    for options in ("", "--json"):
        ran = subprocess.run(
            ["bash", "-c", f"{sys.executable} -m rxjobs jobs list --limit 1000 {options} | head -1; echo ${{PIPESTATUS[0]}} >&2"],
            env=rxjobs.environment, cwd=rxjobs.folder, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert ran.stdout.count("\n") == 1
        assert ran.stderr == "0\n"


CHANGES = [
    'cron add sums @hourly add --app shop:app --args {"first":1}',
    "cron pause sums",
    "cron resume sums",
    "cron remove sums",
    "queues scale mail 50 --app shop:app",
    "queues limit mail 10 --app shop:app",
    "queues rate mail 60 --per 60 --app shop:app",
    "queues share mail --by args.user_id --app shop:app",
    "queues pause mail --app shop:app",
    "queues resume mail --app shop:app",
]


def test_every_change_is_told_as_one_document_for_programs(rxjobs):
    for change in CHANGES:
        ran = rxjobs(*change.split(), "--json")
        assert (ran.code, ran.err) == (0, ""), change
        document = ran.document
        assert document.get("changed", True) is True, document
        assert {"mail", "sums"} & {*document.values()}, document
