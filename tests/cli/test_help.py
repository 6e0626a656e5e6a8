from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.cli.conftest import SCRIPT

COMMANDS = [
    "run",
    "migrate",
    "doctor",
    "enqueue",
    "demo",
    "jobs list",
    "jobs show",
    "jobs cancel",
    "jobs retry",
    "jobs delete",
    "cron list",
    "cron add",
    "cron pause",
    "cron resume",
    "cron run",
    "cron remove",
    "breakers list",
    "breakers open",
    "breakers close",
    "queues list",
    "queues pause",
    "queues resume",
    "queues scale",
    "queues limit",
    "queues rate",
    "queues share",
    "history list",
    "history partition",
    "nodes",
    "top",
    "web",
    "bench",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_has_an_example_and_the_options_of_all(rxjobs, command):
    ran = rxjobs(*command.split(), "--help")
    assert ran.code == 0
    assert f"Example: rxjobs {command} " in ran.out
    assert all(option in ran.out for option in ("--dsn", "--schema", "--json"))


def test_the_list_of_commands_says_what_each_is_for(rxjobs):
    for arguments, names in (
        ([], ["run", "migrate", "doctor", "enqueue", "demo", "bench", "nodes", "top", "web", "jobs", "queues", "cron", "breakers"]),
        (["jobs"], ["list", "show", "cancel", "retry", "delete"]),
        (["cron", "--help"], ["list", "add", "pause", "resume", "run", "remove"]),
        (["breakers"], ["list", "open", "close"]),
        (["history"], ["list", "partition"]),
        (["queues", "--help"], ["list", "pause", "resume", "scale", "limit", "rate", "share"]),
    ):
        ran = rxjobs(*arguments)
        assert ran.code == 0
        listed = {words[1]: words[2:-1] for words in map(str.split, ran.out.splitlines()) if len(words) > 2}
        assert all(len(listed[name]) > 1 for name in names), ran.out


def test_every_command_is_on_the_page_about_operating():
    page = (Path(__file__).parents[2] / "docs" / "operating.md").read_text("utf-8")
    rows = {row.split("`")[1]: set(re.findall(r"`([a-z]+)`", row)) for row in page.splitlines() if row.startswith("| `rxjobs ")}
    for command in COMMANDS:
        group, _, name = command.partition(" ")
        first = [row for row in rows if row.split()[1] == group]
        assert first, command
        assert not name or any(name in (row.split()[-1], *rows[row]) for row in first), command


def test_the_script_and_the_module_are_the_command():
    for command in ([SCRIPT], [sys.executable, "-m", "rxjobs"]):
        ran = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
        assert ran.stdout.strip() == version("rxjobs")
