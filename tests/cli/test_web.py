"""The command `rxjobs web`: where it listens, whom it lets in, and how it ends."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--host", "0.0.0.0"], ["0.0.0.0", "RXJOBS_WEB_TOKEN"]),  # noqa: S104 - that is what is refused
        (["--host", "no.such.host.invalid"], ["no.such.host.invalid"]),
        (["--port", "70000"], ["--port", "65535"]),
        (["--trace-url", "http://traces"], ["{trace_id}"]),
        (["--origin", "https://jobs.example.org"], ["RXJOBS_WEB_TOKEN"]),
        (["--port", "0", "--schema", "absent"], ["absent", "rxjobs migrate"]),
        (["--port", "0", "--dsn", "postgresql://me:secret@127.0.0.1:1/x"], ["me:***@"]),
    ],
)
def test_a_mistake_is_told_in_one_line(rxjobs, arguments, named):
    ran = rxjobs("web", *arguments)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert all(word in ran.err for word in named), ran.err
    assert "secret" not in ran.err


def test_a_token_that_is_too_short_is_not_repeated(rxjobs):
    ran = rxjobs("web", environment={"RXJOBS_WEB_TOKEN": "hunter2"})
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "hunter2" not in ran.err


def test_a_port_that_is_taken_is_a_mistake(rxjobs):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ran = rxjobs("web", "--port", str(taken.getsockname()[1]))
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "--port" in ran.err


def start(rxjobs, *arguments, **environment):
    return subprocess.Popen(
        [sys.executable, "-m", "rxjobs", "web", "--port", "0", *arguments], cwd=rxjobs.folder, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, env={**rxjobs.environment, "PYTHONPATH": str(ROOT), **environment},
    )  # fmt: skip


def test_it_says_where_it_is_and_ends_in_order(rxjobs):
    token = "a-token-to-operate-with"
    web = start(rxjobs, "--json", RXJOBS_WEB_TOKEN=token)
    try:
        told = json.loads("".join(iter(web.stdout.readline, "}\n")) + "}")
        assert told["url"].startswith("http://127.0.0.1:")
        assert httpx.get(f"{told['url']}/jobs").status_code == 401
        assert httpx.get(f"{told['url']}/jobs", headers={"authorization": f"Bearer {token}"}).status_code == 200

        web.send_signal(signal.SIGTERM)
        out, err = web.communicate(timeout=60)
    finally:
        web.kill()
        web.communicate()
    assert web.returncode == 0
    assert token not in out + err
    assert "Traceback" not in err


def test_without_the_packages_it_says_which_extra_brings_them(rxjobs):
    rxjobs.write("jinja2.py", "raise ModuleNotFoundError('no', name='jinja2')")
    web = start(rxjobs)
    out, err = web.communicate(timeout=60)
    assert (web.returncode, out, err.count("\n")) == (2, "", 1)
    assert "pip install 'rxjobs[web]'" in err
