"""Completion, as a shell does it: bash itself is asked what it would offer."""

from __future__ import annotations

import shlex
import subprocess

import pytest

BASH = {"SHELL": "/bin/bash"}


@pytest.fixture
def offered(rxjobs):
    """What bash offers for a line that was begun, with completion installed."""
    ran = rxjobs("--install-completion", environment=BASH)
    assert (ran.code, ran.err) == (0, "")

    def offer(*words):
        script = (
            f"source {shlex.quote(str(rxjobs.folder / '.bashrc'))}; "
            f"COMP_WORDS=({shlex.join(('rxjobs', *words))}); COMP_CWORD={len(words)}; "
            # the function that bash itself was told to call for this command
            "$(complete -p rxjobs | sed -E 's/.*-F (\\S+) .*/\\1/'); printf '%s\\n' \"${COMPREPLY[@]}\""
        )
        ran = subprocess.run(
            ["bash", "--norc", "-c", script], capture_output=True, text=True, check=True, env={"PATH": "/usr/bin:/bin"}, timeout=60
        )
        assert ran.stderr == ""
        return set(ran.stdout.split())

    return offer


def test_bash_completes_commands_options_and_values(offered):
    assert {"jobs", "queues", "top", "doctor", "run"} <= offered("")
    assert offered("qu") == {"queues"}
    assert offered("queues", "") == {"list", "pause", "resume", "scale", "limit", "rate", "share"}
    assert offered("jobs", "list", "--st") == {"--state"}
    assert offered("jobs", "list", "--state", "dis") == {"discarded"}
    assert {"--dsn", "--schema", "--json", "--once"} <= offered("top", "--")
    assert offered("top", "--sort", "o") == {"oldest"}


def test_other_shells_are_completed_too(rxjobs):
    ran = rxjobs("--install-completion", "--shell", "fish")
    assert (ran.code, ran.err) == (0, "")
    files = [path for path in rxjobs.folder.rglob("*") if path.is_file() and "rxjobs" in path.name]
    assert any("queues" in path.read_text() for path in files)


def test_a_shell_that_is_not_known_is_a_mistake(rxjobs):
    ran = rxjobs("--install-completion", "--shell", "nosuch")
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert "bash" in ran.err


def test_a_place_that_cannot_be_written_to_is_a_mistake(rxjobs):
    rxjobs.write("file", "")
    ran = rxjobs("--install-completion", "--shell", "bash", environment={"HOME": str(rxjobs.folder / "file")})
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert "HOME" in ran.err
