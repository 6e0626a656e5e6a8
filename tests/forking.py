"""Becomes the program that a line on stdin asks for, in a process of its own, forked from this one, which has imported rxjobs.

A line is JSON: what Python is to run, its folder, its environment, and the file that takes its output. For each a line with the
process's number is printed, and when it has ended another with its exit code.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import sys
from typing import Any

import rxjobs
from rxjobs import node, runner, serving, sync
from rxjobs.middleware import machine, sharing
from rxjobs.services import autoscale
from rxjobs.store import migrate, served

EVERYTHING = (
    node,
    runner,
    serving,
    sync,
    machine,
    sharing,
    autoscale,
    migrate,
    served,
    [getattr(rxjobs, name) for name in rxjobs.__all__],
)
"""What a worker has already."""


def say(**what: int) -> None:
    os.write(1, f"{json.dumps(what)}\n".encode())


def reap(*_: object) -> None:
    """Tell of those that have ended."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        say(ended=pid, code=os.waitstatus_to_exitcode(status))


def serve() -> dict[str, Any]:
    """Fork for every line; gives the line in the process that was forked for it."""
    signal.signal(signal.SIGCHLD, reap)
    for line in sys.stdin:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
        pid = os.fork()
        if pid:
            say(began=pid)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        order: dict[str, Any] = json.loads(line)
        return order
    sys.exit()


def be(command: list[str], folder: str, environ: dict[str, str], out: str) -> None:
    """Be `python COMMAND` from here on, to the end of this process."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    here = os.open(os.devnull, os.O_RDONLY)
    there = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for fd, path in ((0, here), (1, there), (2, there)):
        os.dup2(path, fd)
    os.close(here)
    os.close(there)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environ)
    if command[0] == "-m":
        sys.argv, sys.path[0] = command[1:], folder
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv, sys.path[0] = command, os.path.dirname(command[0])
        runpy.run_path(command[0], run_name="__main__")


if __name__ == "__main__":
    be(**serve())
