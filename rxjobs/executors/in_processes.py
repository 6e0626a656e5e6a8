"""Run jobs in child processes: for code that computes, leaks or crashes."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

from rxjobs.calls import Call
from rxjobs.errors import InvalidOption
from rxjobs.executors import remote
from rxjobs.executors.child import Child
from rxjobs.executors.crew import Crew, check_count
from rxjobs.executors.errand import OneErrand, Paces
from rxjobs.executors.line import Asked, Line
from rxjobs.executors.ran import Ran, Reply
from rxjobs.executors.scheduling import NoScheduler
from rxjobs.telemetry.context import carried, carry

LEAST_MEMORY = 16 * 1024 * 1024
"""Bytes without which a child can do nothing at all."""

PATIENCE = 1.0
"""Seconds that a child has to end by itself when its executor is closed."""


def in_processes(
    n: int, *, memory: int | None = None, carrier: remote.Carrier | None = None, attach: remote.Attach | None = None
) -> InProcesses:
    """An executor of n child processes, each for one job at a time; cancelled, it is killed and replaced.

    It is no sandbox: a child may do what its parent may. `memory` is how many bytes of address space a child may take beyond
    what it starts with (Linux only): a job that wants more gets a MemoryError, and one whose child dies of it is charged alone.
    `carrier` makes the trace context that goes along with a job, and `attach`, an importable function, makes a context manager
    of it in the child.
    """
    return InProcesses(n, memory, carrier or carry, attach or carried)


class InProcesses(NoScheduler):
    """n children, started as they are needed."""

    name = "process"
    tells_start = True

    def __init__(self, size: int, memory: int | None, carrier: remote.Carrier, attach: remote.Attach) -> None:
        check_count("in_processes", "n", size)
        if memory is not None and (isinstance(memory, bool) or not isinstance(memory, int) or memory < LEAST_MEMORY):
            raise InvalidOption(f"in_processes: memory is a number of bytes from {LEAST_MEMORY} on, or None, not {memory!r:.100}")
        super().__init__()
        self.size = size
        self.memory = memory
        self.carrier = carrier
        self.attach = attach
        self._children = Children(size, memory)

    async def run(self, call: Call) -> Any:
        """Run the function in a child. Raises RemoteFailure for what it raised, ChildDied if there was no answer."""
        asked = Asked(call, remote.path_of_call(call), remote.write_request(call, self.carrier(), self.attach))
        line = self._children.line
        line.add(asked)
        try:
            return await asked.reply.taken()
        except asyncio.CancelledError:
            line.withdraw(asked)
            raise

    @property
    def busy(self) -> int:
        """How many children are seen to."""
        return self._children.line.busy

    @property
    def waiting(self) -> int:
        """How many calls wait for one."""
        return self._children.line.waiting

    async def close(self) -> None:
        """Ask the children to end, and kill those that have not after a second."""
        children, self._children = self._children, Children(self.size, self.memory)
        reply = Reply()
        # beside the threads of the line, which may all be busy
        closing = Crew("rxjobs-close", 1)
        closing.submit(children.close, reply.give)
        closing.dismiss()
        await reply.taken()


class Children:
    """The children of an executor from its first use to its close."""

    def __init__(self, size: int, memory: int | None) -> None:
        self._memory = memory
        # what one leaves behind might be refused to the next before it could be told
        self.may_go_together = memory is None
        self._paces = Paces()
        self.line = Line("rxjobs-process", size, self._errand)
        self._lock = threading.Lock()
        self._idle: list[Child] = []
        self._busy: set[Child] = set()
        self._closed = False

    def take(self) -> Child:
        """A child that waits for a request: an idle one, or a new one."""
        while True:
            with self._lock:
                child = self._idle.pop() if self._idle else None
            if child is None:
                child = Child(self._memory)
            elif not child.is_quiet:
                # it went in its own time, which is no fault of the job that comes now
                child.end()
                continue
            with self._lock:
                self._busy.add(child)
            return child

    def give_back(self, child: Child) -> None:
        """A child that has answered."""
        with self._lock:
            self._busy.discard(child)
            if not self._closed:
                self._idle.append(child)
                return
        child.end(PATIENCE)

    def bury(self, child: Child) -> str:
        """A child that is of no more use; returns how it ended."""
        with self._lock:
            self._busy.discard(child)
        return child.end()

    def close(self) -> Ran:
        """End them all; what a busy one still runs has as long as an idle one has to go."""
        deadline = time.monotonic() + PATIENCE
        self.line.dismiss()
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            busy = tuple(self._busy)
        for child in idle:
            child.hang_up()
        for child in idle:
            child.end(max(0.0, deadline - time.monotonic()))
        for child in busy:
            if not child.ended.wait(max(0.0, deadline - time.monotonic())):
                child.kill()
        for child in busy:
            child.ended.wait(PATIENCE)
        return Ran()

    def _errand(self, first: Asked) -> OneErrand:
        return OneErrand(first, self.line, self, self._paces)
