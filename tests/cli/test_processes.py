from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import psutil
import pytest

from rxjobs.serving import ONE_WISH
from tests.cli.conftest import until
from tests.cli.test_run import enqueue

DEPLOYED = """
import asyncio
import os

from shop import app, note, wait

VERSION = "{version}"


@app.job(name="flow", queue="flow")
async def flow(n: int):
    note("ran", n, VERSION, os.getpid())
    await asyncio.sleep(0.02)
"""
BREAKS = """
import reactivex as rx
import shop

shop.app = shop.rj.App(max_restarts=0)
shop.app.pipeline(rx.throw(OSError("gone")), "pipe")
"""
LATE = """
import time
from pathlib import Path
from shop import note

note("importing")
while not Path("arrived").exists():
    time.sleep(0.02)
"""


def is_gone(pid):
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def deploy(rxjobs, version, before=""):
    rxjobs.write("deployed.py", before + DEPLOYED.format(version=version))


def flow(rxjobs, count=1):
    """Enqueue so many jobs more, by a number each."""
    rxjobs.sql(
        "SELECT rxjobs.enqueue('flow', jsonb_build_object('n', n), 'flow') "
        "FROM (SELECT count(*) AS before FROM rxjobs.jobs) AS _, generate_series(before + 1, before + $1) AS n",
        count,
    )  # fmt: skip


def ran(rxjobs):
    """Which jobs ran, by which version and in which process, in order."""
    return [line.split()[1:] for line in rxjobs.lines("notes") if line.startswith("ran")]


def children(process):
    return [child.pid for child in psutil.Process(process.pid).children()]


def said(rxjobs, words):
    until(lambda: words in rxjobs.read("stderr"))


def end(rxjobs, process):
    process.terminate()
    assert process.wait(60) == 0
    assert all(map(is_gone, {int(pid) for _, _, pid in ran(rxjobs)}))


def test_two_processes_share_the_work_and_drain_together(rxjobs):
    enqueue(rxjobs, 4)
    process = rxjobs.start("run", "shop:app", "--queue", "slow=1", "--processes", "2")
    until(lambda: len(rxjobs.pids()) == 2)
    assert process.pid not in rxjobs.pids()
    process.send_signal(signal.SIGINT)
    until(lambda: rxjobs.read("stderr").count("SIGINT: stopping") == 2)
    rxjobs.write("go", "")
    assert process.wait(60) == 0
    assert list(rxjobs.states().values()).count("completed") >= 2
    assert set(rxjobs.states().values()) <= {"completed", "available"}
    assert all(map(is_gone, rxjobs.pids()))


def test_a_process_that_is_killed_is_replaced_and_a_second_signal_ends_them_all_at_once(rxjobs):
    enqueue(rxjobs, 6)
    process = rxjobs.start("run", "shop:app", "--queue", "slow=1", "--processes", "2")
    until(lambda: len(rxjobs.pids()) == 2)
    os.kill(rxjobs.pids()[0], signal.SIGKILL)
    until(lambda: len(rxjobs.pids()) == 3)
    assert "a process ended with SIGKILL, and is started again in 0.5 s" in rxjobs.read("stderr")
    process.send_signal(signal.SIGTERM)
    until(lambda: rxjobs.read("stderr").count("SIGTERM: stopping") == 2)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 128 + signal.SIGTERM
    assert all(map(is_gone, rxjobs.pids()))


def test_processes_drain_when_their_supervisor_is_killed(rxjobs):
    enqueue(rxjobs, 4)
    process = rxjobs.start("run", "shop:app", "--queue", "slow=1", "--processes", "2")
    until(lambda: len(rxjobs.pids()) == 2)
    process.kill()
    until(lambda: rxjobs.read("stderr").count("SIGTERM: stopping") == 2)
    rxjobs.write("go", "")
    until(lambda: all(map(is_gone, rxjobs.pids())))
    assert "executing" not in rxjobs.states().values()


def test_a_process_that_breaks_again_and_again_is_given_up(rxjobs):
    rxjobs.write("breaks.py", "import os\nos._exit(1)\n")
    process = rxjobs.start("run", "breaks:app", "--processes", "2")
    assert process.wait(60) == 1
    assert rxjobs.read("stderr").count("is started again") == 2
    assert rxjobs.read("stderr").count("is not started again") == 1


def test_processes_that_end_by_themselves_end_it_all_whatever_lies_in_the_folder(rxjobs):
    rxjobs.write("queue.py", "raise ValueError('a module of Python itself was hidden')\n")
    rxjobs.write("short.py", "import reactivex as rx\nimport rxjobs as rj\napp = rj.App()\napp.pipeline(rx.empty())\n")
    process = rxjobs.start("run", "short:app", "--processes", "2")
    assert process.wait(60) == 0
    assert rxjobs.read("stderr").count("stopped") == 2


def test_a_process_that_ends_for_a_fresh_start_is_started_again_at_once_and_as_often_as_it_takes(rxjobs):
    rxjobs.write(
        "worn.py",
        "import os\nwith open('starts', 'a') as starts:\n    starts.write('x')\n"
        "if len(open('starts').read()) < 8:\n    os._exit(75)\n"
        "import reactivex as rx\nimport rxjobs as rj\napp = rj.App()\napp.pipeline(rx.empty())\n",
    )  # fmt: skip
    process = rxjobs.start("run", "worn:app", "--processes", "2")
    assert process.wait(60) == 0
    assert rxjobs.read("stderr").count("a process ended for a fresh start, and is started again") == 7
    assert "is started again in" not in rxjobs.read("stderr")


# it starts four processes, two of them one after the other
def test_on_sighup_new_code_takes_over_while_jobs_flow_and_each_runs_once(rxjobs):
    deploy(rxjobs, "old")
    process = rxjobs.start("run", "deployed:app", "--queue", "flow=2", "--processes", "2")

    def flows(words):
        flow(rxjobs, 5)
        return words()

    until(lambda: flows(lambda: len({pid for *_, pid in ran(rxjobs)}) == 2))
    before = children(process)
    deploy(rxjobs, "new")
    process.send_signal(signal.SIGHUP)
    until(lambda: flows(lambda: "replaced: " in rxjobs.read("stderr")))
    assert "replaced: 2 of 2" in rxjobs.read("stderr")
    assert all(map(is_gone, before))
    assert not set(children(process)) & set(before)
    assert len(children(process)) == 2
    begun = len(ran(rxjobs))
    until(lambda: flows(lambda: len({pid for *_, pid in ran(rxjobs)[begun:]}) == 2))
    until(lambda: set(rxjobs.states().values()) == {"completed"})
    numbers, versions, _ = zip(*ran(rxjobs), strict=True)
    assert sorted(map(int, numbers)) == list(rxjobs.states())
    assert [versions[0], *versions[begun:]] == ["old"] + ["new"] * (len(versions) - begun)
    log = rxjobs.read("stderr")
    for new, old in re.findall(r"process (\d+) takes the place of (\d+)", log):
        assert int(old) in before
        # who is replaced fetches until the other does
        assert re.search(rf"\[{new}\] rxjobs.run: node .* runs", log).start() < log.index(f"[{old}] rxjobs: SIGTERM: stopping")
    end(rxjobs, process)


@pytest.mark.parametrize("fault", ["does not compile", "breaks as soon as it runs"])
def test_new_code_that_does_not_run_leaves_the_old_one_running(rxjobs, fault):
    deploy(rxjobs, "old")
    process = rxjobs.start("run", "deployed:app", "--processes", "1")
    said(rxjobs, "runs")
    before = children(process)
    deploy(rxjobs, "new", "def broken(:\n" if fault == "does not compile" else BREAKS)
    process.send_signal(signal.SIGHUP)
    said(rxjobs, "a new process did not come to run: the old one goes on, and no more are replaced; replaced: 0 of 1")
    assert ("SyntaxError" if fault == "does not compile" else "OSError: gone") in rxjobs.read("stderr")
    assert children(process) == before
    flow(rxjobs)
    until(lambda: [version for _, version, _ in ran(rxjobs)] == ["old"])
    end(rxjobs, process)


def test_what_is_mended_while_it_fails_is_taken_up_by_one_more_round_however_often_that_was_asked_for(rxjobs):
    deploy(rxjobs, "old")
    process = rxjobs.start("run", "deployed:app", "--processes", "1")
    said(rxjobs, "runs")
    deploy(rxjobs, "broken", LATE + "raise OSError('gone')\n")
    process.send_signal(signal.SIGHUP)
    until(lambda: "importing" in rxjobs.read("notes"))
    deploy(rxjobs, "mended")
    for _ in range(3):
        process.send_signal(signal.SIGHUP)
    rxjobs.write("arrived", "")
    said(rxjobs, "replaced: 1 of 1")
    flow(rxjobs)
    until(lambda: [version for _, version, _ in ran(rxjobs)] == ["mended"])
    end(rxjobs, process)
    assert rxjobs.read("stderr").count("a new process did not come to run") == 1
    assert rxjobs.read("stderr").count("takes the place of") == 1


def test_sigterm_while_one_drains_for_its_successor_ends_all_in_order(rxjobs):
    deploy(rxjobs, "old")
    enqueue(rxjobs, 4)
    process = rxjobs.start("run", "deployed:app", "--queue", "slow=1", "--processes", "2")
    until(lambda: len(rxjobs.pids()) == 2)
    process.send_signal(signal.SIGHUP)
    said(rxjobs, "SIGTERM: stopping")
    # from then on one more signal would be for haste to whoever drains
    time.sleep(2 * ONE_WISH)
    process.terminate()
    until(lambda: rxjobs.read("stderr").count("SIGTERM: stopping") == 3)
    rxjobs.write("go", "")
    assert process.wait(60) == 0
    assert set(rxjobs.states().values()) <= {"completed", "available"}
    assert rxjobs.read("notes").count("began") == rxjobs.read("notes").count("ended") >= 2
    assert all(map(is_gone, rxjobs.pids()))


def test_sigterm_while_a_successor_starts_ends_both_in_order(rxjobs):
    deploy(rxjobs, "old")
    enqueue(rxjobs)
    process = rxjobs.start("run", "deployed:app", "--processes", "1")
    until(rxjobs.pids)
    deploy(rxjobs, "late", LATE)
    process.send_signal(signal.SIGHUP)
    until(lambda: "importing" in rxjobs.read("notes"))
    both = children(process)
    process.terminate()
    said(rxjobs, "SIGTERM: stopping")
    rxjobs.write("go", "")
    assert process.wait(60) == 0
    assert rxjobs.states() == {1: "completed"}
    assert len(both) == 2
    assert all(map(is_gone, both))


def test_a_process_that_is_killed_while_its_successor_starts_has_one_successor(rxjobs):
    deploy(rxjobs, "old")
    process = rxjobs.start("run", "deployed:app", "--processes", "1")
    said(rxjobs, "runs")
    deploy(rxjobs, "new", LATE)
    old = children(process)
    process.send_signal(signal.SIGHUP)
    until(lambda: "importing" in rxjobs.read("notes"))
    os.kill(old[0], signal.SIGKILL)
    said(rxjobs, "a process ended with SIGKILL")
    rxjobs.write("arrived", "")
    said(rxjobs, "replaced: 1 of 1")
    flow(rxjobs)
    until(lambda: ran(rxjobs))
    assert rxjobs.read("notes").count("importing") == len(children(process)) == 1
    end(rxjobs, process)


def test_the_folder_is_that_which_a_link_leads_to_by_then(rxjobs):
    current, releases = rxjobs.folder / "current", [rxjobs.folder / "first", rxjobs.folder / "second"]
    rxjobs.folder = current
    shop = (current.parent / "shop.py").read_text()
    for release in releases:
        release.mkdir()
        current.unlink(missing_ok=True)
        current.symlink_to(release)
        rxjobs.write("shop.py", shop)
        deploy(rxjobs, release.name)
    lead_to(current, releases[0])
    process = rxjobs.start("run", "deployed:app", "--processes", "1", environment={"PWD": str(current)})
    said(rxjobs, "runs")
    lead_to(current, releases[1])
    process.send_signal(signal.SIGHUP)
    until(lambda: "replaced: 1 of 1" in (releases[0] / "stderr").read_text())
    flow(rxjobs)
    until(lambda: [version for _, version, _ in ran(rxjobs)] == ["second"])
    end(rxjobs, process)


def lead_to(link: Path, folder: Path):
    link.unlink()
    link.symlink_to(folder)
