from __future__ import annotations

import os
import signal

import pytest

from rxjobs.cli.reload import look
from tests.cli.conftest import until
from tests.cli.test_processes import deploy, flow, is_gone, ran
from tests.cli.test_run import enqueue


def versions(rxjobs):
    return [version for _, version, _ in ran(rxjobs)]


def count(rxjobs, words):
    return rxjobs.read("stderr").count(words)


def test_an_edit_is_picked_up_and_a_job_that_takes_long_begins_again_with_it(rxjobs):
    deploy(rxjobs, "old")
    enqueue(rxjobs)
    process = rxjobs.start("run", "deployed:app", "--reload")
    until(rxjobs.pids)
    flow(rxjobs)
    until(lambda: versions(rxjobs) == ["old"])
    deploy(rxjobs, "new")
    until(lambda: count(rxjobs, "deployed.py changed: starting anew") == 1)
    until(lambda: len(rxjobs.pids()) == 2)
    assert is_gone(rxjobs.pids()[0])
    flow(rxjobs)
    until(lambda: versions(rxjobs) == ["old", "new"])
    rxjobs.write("go", "")
    until(lambda: set(rxjobs.states().values()) == {"completed"})
    assert [row["attempt"] for row in rxjobs.sql("SELECT attempt FROM rxjobs.jobs")] == [1, 1, 1]
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0
    assert all(map(is_gone, rxjobs.pids()))


def test_a_mistake_is_told_once_and_the_change_that_mends_it_starts_all_processes(rxjobs):
    deploy(rxjobs, "old")
    process = rxjobs.start("run", "deployed:app", "--reload", "--processes", "2")
    until(lambda: count(rxjobs, " runs") == 2)
    rxjobs.write("deployed.py", "def broken(:\n")
    until(lambda: "the next change of a file starts it again" in rxjobs.read("stderr"))
    told = [line for line in rxjobs.read("stderr").splitlines() if "SyntaxError" in line]
    assert len(told) == 1
    assert "deployed.py:1" in told[0]
    deploy(rxjobs, "mended")
    until(lambda: count(rxjobs, " runs") == 4)
    flow(rxjobs)
    until(lambda: versions(rxjobs) == ["mended"])
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_wait_for_a_change(rxjobs, number):
    rxjobs.write("broken.py", "raise OSError('no')\n")
    process = rxjobs.start("run", "broken:app", "--reload")
    until(lambda: "the next change of a file starts it again" in rxjobs.read("stderr"))
    process.send_signal(number)
    assert process.wait(60) == 2


def test_only_code_of_ones_own_is_looked_at(tmp_path):
    for name in (
        "a.py",
        "b/c.py",
        "notes.txt",
        ".hidden/d.py",
        "e/__pycache__/f.py",
        "env/pyvenv.cfg",
        "env/lib/g.py",
        "node_modules/h.py",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "nowhere.py").symlink_to(tmp_path / "absent")
    (tmp_path / "round").symlink_to(tmp_path)
    seen = look(tmp_path)
    assert {os.path.relpath(path, tmp_path) for path in seen} == {"a.py", "b/c.py"}
    (tmp_path / "a.py").write_text("x")
    os.replace(tmp_path / "b/c.py", tmp_path / "b/i.py")
    changed = look(tmp_path)
    assert {os.path.relpath(path, tmp_path) for path, _ in seen.items() ^ changed.items()} == {"a.py", "b/c.py", "b/i.py"}
