"""Marble diagrams for stages and whole pipelines, on the virtual time of reactivex's TestScheduler.

A line is read from left to right. Each of these takes one unit of time, a list or a group like any other:

    -       nothing happens; ^ says the same aloud: a line of ^ is one on which nothing ever comes
    a … z   a job
    A … Z   the job of that letter, finished
    [ab]    a list of jobs
    (ab)    several at once, in this order
    |       the stream completes
    #       the stream ends with an error

Spaces are for alignment and take no time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from reactivex import Notification, Observable
from reactivex.notification import OnCompleted, OnError, OnNext
from reactivex.testing import TestScheduler
from reactivex.testing.hotobservable import HotObservable
from reactivex.testing.recorded import Recorded

from rxjobs.awaiting import LoopScheduler
from rxjobs.definition import NewJob
from rxjobs.demand import settle
from rxjobs.errors import InvalidOption
from rxjobs.job import Job
from rxjobs.outcome import COMPLETE, Finished, Outcome
from rxjobs.scope import within
from rxjobs.testing.instead import ANY, Instead, LineSource
from rxjobs.testing.jobs import App, a_job, job_of
from rxjobs.testing.virtual_time import virtually

AFTERWARDS = 1000
"""Units of time after the end of both lines in which something may still come, and would be seen."""
HAIR = 1e-4
"""Seconds by which something may miss a unit that it is meant for: a clock adds floats, and counts microseconds."""
COMPLETED, FAILED = "|", "#"

Value = Job | NewJob | Outcome | type[Outcome]


class Mark(NamedTuple):
    """What happens at a time, in units: a letter, a list in brackets, the end, or an error."""

    at: float
    what: str


class MarkedError(Exception):
    """The error that a # on the line of jobs stands for."""


def marbles(
    tested: Observable[Any] | Callable[[Observable[Any]], Observable[Any]],
    jobs: str | Mapping[str, str] = "-a-b|",
    expect: str = "-a-b|",
    *,
    values: Mapping[str, Value] | None = None,
    unit: float = 1.0,
    app: App | None = None,
    scheduler: TestScheduler | None = None,
) -> list[Any]:
    """Let jobs go through a stage, or a declared pipeline, as one line says, and hold what comes out against another.

    Raises AssertionError where they differ. `values` says more about letters: which job `a` is (else any), and how `A` must have
    ended, as an outcome that it must equal or a class of outcomes (else it may have ended in any way; on the line of jobs it is
    complete). `unit` is how many virtual seconds a mark takes. Returns the items that came out, for a closer look.

        marbles(rj.filter(is_wanted, otherwise=rj.Discard()), "-a-b|", "-a-B|", values={"B": rj.Discard})

    Of a pipeline nothing is changed but where its jobs come from: each letter is pushed into its source, is held there until it is
    acked, and comes back when it is to be retried. Where it has several sources there is a line for each: `jobs={"mail": "-a|",
    "sms": "--b|"}`. A letter may be what a job type's `new(...)` gives, with `app=`, which knows the type; its function runs on the
    event loop, where `asyncio.sleep` takes virtual time.

        marbles(mail, "-a---|", "--A--|", values={"a": send_welcome.new(user_id=7), "A": rj.Complete}, app=app)

    All of it is on the time of a TestScheduler, in seconds: jobs come from its hot observable, its observer records what comes out,
    coroutines sleep on it, and so do reactivex's operators on time, which are given it as their scheduler when they are subscribed.
    To give it to them by hand, or to schedule more on it, make it: `scheduler=`. The line begins at the time that its clock shows.

        time = TestScheduler()
        marbles(ops.debounce(2, scheduler=time), "-ab----|", "----b--|", scheduler=time)
    """
    given = {ANY: jobs} if isinstance(jobs, str) else dict(jobs)
    letters = _Letters(values or {}, app)
    read = {name: _read(line) for name, line in given.items()}
    if isinstance(tested, Observable):
        _check_jobs(read)
    units = max(map(len, (expect, *given.values()))) + AFTERWARDS
    time = TestScheduler() if scheduler is None else scheduler
    began = time.to_seconds(time.clock)
    seen = virtually(_observe(tested, read, letters, unit, units, time, is_given=scheduler is not None), scheduler=time)
    came, items = [_mark(one, letters, began, unit) for one in seen], [item for one in seen for item in _items(one)]
    wrong = came != _read(expect)
    remarks = [*letters.remarks(items), *(_errors(items) if wrong else ())]
    if wrong or remarks:
        lines = {name or "jobs": line for name, line in given.items()} | {"expected": expect, "came": _write(came)}
        raise AssertionError("\n".join(["marbles differ:", *(f"    {name:9}{line}" for name, line in lines.items()), *remarks]))
    return [item for item in items if not isinstance(item, Exception)]


class _Letters:
    """Which letter stands for which job, and how it must have ended."""

    def __init__(self, values: Mapping[str, Value], app: App | None) -> None:
        self._values = {letter: self._made(value, app) for letter, value in values.items()}
        self._jobs: dict[str, Job] = {}
        self._names: dict[int, str] = {}

    def item(self, what: str) -> Any:
        """What goes into the stage for a mark."""
        if what.startswith("["):
            return [self.item(letter) for letter in what[1:-1]]
        job = self._job(what.lower())
        if what.islower():
            return job
        outcome = self._values.get(what, COMPLETE)
        return Finished(job, outcome() if isinstance(outcome, type) else outcome)  # type: ignore[arg-type]

    def notification(self, what: str) -> Notification[Any]:
        """What a mark says to whoever observes its line."""
        match what:
            case "|":
                return OnCompleted()
            case "#":
                return OnError(MarkedError("the # on the line of jobs"))
            case _:
                return OnNext(self.item(what))

    def mark(self, item: Any) -> str:
        """How what came out is written."""
        match item:
            case list():
                return f"[{''.join(self.mark(one) for one in item)}]"
            case Job():
                return self._names.get(item.id, "?")
            case Finished():
                return self._names.get(item.job.id, "?").upper()
            case _:
                return "?"

    def remarks(self, items: list[Any]) -> list[str]:
        """What is wrong about how jobs ended, and what is no job at all."""
        return [remark for item in items for remark in self._remarks(item)]

    def _remarks(self, item: Any) -> list[str]:
        match item:
            case list():
                return self.remarks(item)
            case Finished(outcome=outcome):
                letter = self.mark(item)
                wanted = self._values.get(letter)
                fits = wanted is None or (isinstance(outcome, wanted) if isinstance(wanted, type) else outcome == wanted)
                return [] if fits else [f"    {letter} ended with {outcome!r}, not with {_said(wanted)}"]
            case Job() | Exception():
                return []
            case _:
                return [f"    ? is no job: {item!r:.200}"]

    def _made(self, value: Value, app: App | None) -> Job | Outcome | type[Outcome]:
        if not isinstance(value, NewJob):
            return value
        if app is None:
            raise InvalidOption(f"marbles needs app=, the app that knows the job type {value.type!r}")
        return job_of(value, app)

    def _job(self, letter: str) -> Job:
        if letter not in self._jobs:
            given = self._values.get(letter)
            job = given if isinstance(given, Job) else a_job(attempt=1, args={"letter": letter})
            self._jobs[letter] = job
            self._names[job.id] = letter
        return self._jobs[letter]


async def _observe(
    tested: Observable[Any] | Callable[[Observable[Any]], Observable[Any]],
    lines: Mapping[str, list[Mark]],
    letters: _Letters,
    unit: float,
    units: int,
    time: TestScheduler,
    *,
    is_given: bool,
) -> list[Recorded[Any]]:
    """What an observer of the scheduler records of what is tested."""
    seen = time.create_observer()
    ended = asyncio.Event()

    def take(item: Any) -> None:
        seen.on_next(item)
        for one in item if isinstance(item, list) else [item]:
            if isinstance(one, Finished):
                settle(one)  # as at the end of any pipeline that runs

    def fail(error: Exception) -> None:
        seen.on_error(error)
        ended.set()

    def complete() -> None:
        seen.on_completed()
        ended.set()

    # whoever gives a scheduler may reckon with its dates
    here = LoopScheduler(asyncio.get_running_loop(), began=time.to_datetime(0.0) if is_given else None)
    surroundings = Instead(here, lines)
    began, hot = here.loop.time(), dict[str, HotObservable[Any]]()
    for name, line in lines.items():
        hot[name] = time.create_hot_observable([Recorded(began + at * unit, letters.notification(what)) for at, what in line])  # type: ignore[arg-type]
    if isinstance(tested, Observable):
        stream = _of_lines(tested, hot, surroundings)
    elif hot.keys() == {ANY}:
        stream = tested(hot[ANY])
    else:
        raise ValueError("a stage takes one line of jobs; lines by queue are for a pipeline with several sources")
    with within(surroundings):
        subscription = stream.subscribe(take, fail, complete, scheduler=surroundings.scheduler)
    try:
        async with asyncio.timeout(units * unit):
            await ended.wait()
    except TimeoutError:
        pass  # a line may well never end
    finally:
        subscription.dispose()
    if isinstance(tested, Observable):
        surroundings.check()
    return seen.messages


def _of_lines(pipeline: Observable[Any], hot: Mapping[str, Observable[Any]], surroundings: Instead) -> Observable[Any]:
    """A pipeline whose sources are given what comes on the lines."""
    for name, jobs in hot.items():
        _feed(surroundings.sources[name], jobs)
    return pipeline


def _feed(source: LineSource, jobs: Observable[Any]) -> None:
    jobs.subscribe(lambda item: source.push(*(item if isinstance(item, list) else [item])), source.fail, source.close)


def _mark(one: Recorded[Any], letters: _Letters, began: float, unit: float) -> Mark:
    at = (one.time - began) / unit
    whole = round(at)
    place = whole if abs(at - whole) * unit < HAIR else round(at, 3)
    match one.value:
        case OnNext(value=item):
            return Mark(place, letters.mark(item))
        case OnError():
            return Mark(place, FAILED)
        case _:
            return Mark(place, COMPLETED)


def _items(one: Recorded[Any]) -> list[Any]:
    match one.value:
        case OnNext(value=item):
            return [item]
        case OnError(exception=error):
            return [error]
        case _:
            return []


def _read(line: str) -> list[Mark]:
    """The marks of a line; raises ValueError for what is none."""
    marks: list[Mark] = []
    text, at = line.replace(" ", ""), 0
    while text:
        closing = {"[": "]", "(": ")"}.get(text[0])
        length = text.find(closing) + 1 if closing else 1
        part, text = text[:length], text[length:]
        if not part:
            raise ValueError(f"{text[0]} at {at} of the line {line!r} is never closed")
        if part[0] == "(":
            marks += [Mark(at, one.what) for one in _read(part[1:-1])]
        elif part[0] == "[" or part.isalpha() or part in (COMPLETED, FAILED):
            marks.append(Mark(at, part))
        elif part not in ("-", "^"):
            raise ValueError(f"{part!r} at {at} of the line {line!r} means nothing; there are - ^ a A [ab] (ab) | #")
        at += 1
    return marks


def _check_jobs(lines: Mapping[str, list[Mark]]) -> None:
    """Raise ValueError for what no source gives."""
    for mark in (mark for line in lines.values() for mark in line):
        if mark.what not in (COMPLETED, FAILED) and not mark.what.strip("[]").islower():
            raise ValueError(
                f"{mark.what} is on the line of jobs of a pipeline, whose source gives jobs that are not finished, a … z"
            )


def _write(marks: list[Mark]) -> str:
    """Marks as a line; what happened between two units is added in words."""
    line, units, between = "", 0, []
    for at, whats in _by_time(marks):
        if at != int(at):
            between.append(f"{''.join(whats)} at {at:g}")
            continue
        line += "-" * (int(at) - units) + (whats[0] if len(whats) == 1 else f"({''.join(whats)})")
        units = int(at) + 1
    return (line or "^") + (f"    and {', '.join(between)}" if between else "")


def _by_time(marks: list[Mark]) -> list[tuple[float, list[str]]]:
    return [(at, [mark.what for mark in marks if mark.at == at]) for at in sorted({mark.at for mark in marks})]


def _errors(items: list[Any]) -> list[str]:
    return [f"    # was {item!r}" for item in items if isinstance(item, Exception) and not isinstance(item, MarkedError)]


def _said(wanted: Value | None) -> str:
    return wanted.__name__ if isinstance(wanted, type) else repr(wanted)
