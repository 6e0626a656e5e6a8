"""Watch the event loop from a thread: a job that blocks it holds up all others, and nothing on it can say so."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType

from rxjobs import perform
from rxjobs.awaiting import LoopScheduler
from rxjobs.event_stream import EventStream
from rxjobs.events import Emit, Event, LoopBlocked
from rxjobs.job import Job
from rxjobs.log_lines import Indented, logger

log = logger("rxjobs.watch")

BLOCKED_SECONDS = 1.0
REMEMBERED = 20
"""How many of the last answers count for how late it is."""
MOST_LINES = 8
"""How many frames of a stack are shown at most."""
OURS = str(Path(__file__).parents[1])
MOMENT = 0.05
"""Seconds for a loop that comes back just now: this whole process may have been stopped."""


class LoopWatch:
    """Tells of a loop that does not run for `seconds`: where it is held up, in the log, and for how long it was, as an event."""

    def __init__(self, scheduler: LoopScheduler, emit: Emit, *, seconds: float = BLOCKED_SECONDS) -> None:
        self._scheduler = scheduler
        self._emit = emit
        self._seconds = seconds
        self._stopping = threading.Event()
        self._answers: deque[float] = deque(maxlen=REMEMBERED)
        self._thread = threading.Thread(target=self._watch, name="rxjobs-watch", daemon=True)

    @property
    def delay(self) -> float | None:
        """The longest that the loop took to answer of late, seconds; None before it was asked. For any thread."""
        return max(self._answers.copy(), default=None)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """Watch no longer; blocks a moment, so not to be called on the loop."""
        self._stopping.set()
        self._thread.join(timeout=5)

    def _watch(self) -> None:
        while not self._stopping.wait(self._seconds / 2):
            asked, answered = time.monotonic(), threading.Event()
            self._do(lambda asked=asked, answered=answered: self._answer(asked, answered))  # type: ignore[misc]
            if not answered.wait(self._seconds) and not answered.wait(MOMENT) and not self._stopping.is_set():
                self._tell(asked, answered)

    def _answer(self, asked: float, answered: threading.Event) -> None:
        self._answers.append(time.monotonic() - asked)
        answered.set()

    def _tell(self, asked: float, answered: threading.Event) -> None:
        frame = sys._current_frames().get(self._scheduler.thread)
        told = _told_in(frame)
        job = None if told is not None else _job_in(frame)  # a job is told of in the midst of its run
        by = f"a listener of app.events, told of {told.name}" if told is not None else job and f"job {job.id} ({job.type})"
        log.warning(
            "the event loop has not run for %g s, and no job on it does%s; what computes or waits without await belongs in a "
            "thread, where jobs of a plain def run, or in a process: @app.job(executor=rj.in_processes(2)). It is here:\n%s",
            self._seconds,
            f": it is held up by {by}" if by else "",
            Indented("".join(_where(frame))),
        )
        while not answered.wait(self._seconds):
            if self._stopping.is_set():
                return
        seconds, id_ = time.monotonic() - asked, None if job is None else job.id
        log.warning("the event loop runs again after %.1f s", seconds)
        self._do(lambda: self._emit(LoopBlocked(seconds=seconds, job=id_)))

    def _do(self, action: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the loop was closed just now
            self._scheduler.here(action)


def _where(frame: FrameType | None) -> list[str]:
    """The lines of a stack, without those that lead from the beginning of the program to the user's own code."""
    stack = traceback.extract_stack(frame)
    ours = [place for place, one in enumerate(stack) if one.filename.startswith(OURS)]
    theirs = stack[ours[-1] + 1 :] if ours else []
    return traceback.format_list(theirs[-MOST_LINES:] or stack[-MOST_LINES:])


def _told_in(frame: FrameType | None) -> Event | None:
    """The event that a listener in a thread is being told of."""
    while frame is not None:
        if frame.f_code is EventStream.tell.__code__:
            event: Event = frame.f_locals["event"]
            return event
        frame = frame.f_back
    return None


def _job_in(frame: FrameType | None) -> Job | None:
    """The job whose run a thread is in."""
    while frame is not None:
        if frame.f_code.co_filename == perform.__file__ and isinstance(job := frame.f_locals.get("job"), Job):
            return job
        frame = frame.f_back
    return None
