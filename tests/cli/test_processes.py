from __future__ import annotations

import os
import signal

import psutil

from tests.cli.conftest import until
from tests.cli.test_run import enqueue


def is_gone(pid):
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_two_processes_share_the_work_and_drain_together(rxjobs):
    enqueue(rxjobs, 4)
    process = rxjobs.start("run", "shop:app", "--queue", "slow=1", "--processes", "2")
    until(lambda: len(rxjobs.pids()) == 2)
    assert process.pid not in rxjobs.pids()
    process.send_signal(signal.SIGINT)
    until(lambda: rxjobs.read("stderr").count("SIGINT: stopping") == 2)
    rxjobs.write("go", "")
    assert process.wait(20) == 0
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
    assert process.wait(5) == 128 + signal.SIGTERM
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
    assert process.wait(20) == 1
    assert rxjobs.read("stderr").count("is started again") == 2
    assert rxjobs.read("stderr").count("is not started again") == 1


def test_processes_that_end_by_themselves_end_it_all_whatever_lies_in_the_folder(rxjobs):
    rxjobs.write("queue.py", "raise ValueError('a module of Python itself was hidden')\n")
    rxjobs.write("short.py", "import reactivex as rx\nimport rxjobs as rj\napp = rj.App()\napp.pipeline(rx.empty())\n")
    process = rxjobs.start("run", "short:app", "--processes", "2")
    assert process.wait(20) == 0
    assert rxjobs.read("stderr").count("stopped") == 2


def test_a_process_that_ends_for_a_fresh_start_is_started_again_at_once_and_as_often_as_it_takes(rxjobs):
    rxjobs.write(
        "worn.py",
        "import os\nwith open('starts', 'a') as starts:\n    starts.write('x')\n"
        "if len(open('starts').read()) < 8:\n    os._exit(75)\n"
        "import reactivex as rx\nimport rxjobs as rj\napp = rj.App()\napp.pipeline(rx.empty())\n",
    )  # fmt: skip
    process = rxjobs.start("run", "worn:app", "--processes", "2")
    assert process.wait(30) == 0
    assert rxjobs.read("stderr").count("a process ended for a fresh start, and is started again") == 7
    assert "is started again in" not in rxjobs.read("stderr")
