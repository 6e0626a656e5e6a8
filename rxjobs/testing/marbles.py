"""Marble diagrams for stages and whole pipelines, on virtual time.

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

from reactivex import Observable
from reactivex.subject import Subject

from rxjobs.awaiting import scheduler_here
from rxjobs.definition import NewJob
from rxjobs.demand import settle
from rxjobs.errors import InvalidOption
from rxjobs.job import Job
from rxjobs.outcome import COMPLETE, Finished, Outcome
from rxjobs.scope import within
from rxjobs.testing.instead import ANY, Instead
from rxjobs.testing.jobs import App, a_job, job_of
from rxjobs.testing.virtual_time import virtually

AFTERWARDS = 1000
"""Units of time after the end of both lines in which something may still come, and would be seen."""
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
    """
    given = {ANY: jobs} if isinstance(jobs, str) else dict(jobs)
    letters = _Letters(values or {}, app)
    read = {name: _read(line) for name, line in given.items()}
    if isinstance(tested, Observable):
        _check_jobs(read)
    units = max(map(len, (expect, *given.values()))) + AFTERWARDS
    came, items = virtually(_observe(tested, read, letters, unit, units))
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

    def jobs(self, what: str) -> list[Job]:
        """The jobs that a source gets for a mark."""
        return [self._job(letter) for letter in what.strip("[]")]

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
) -> tuple[list[Mark], list[Any]]:
    loop = asyncio.get_running_loop()
    came: list[Mark] = []
    items: list[Any] = []
    ended = asyncio.Event()

    def see(what: str, item: Any = None) -> None:
        at = loop.time() / unit
        # what is a hair's breadth from a whole unit is that unit: a timer's clock adds floats
        came.append(Mark(round(at) if abs(at - round(at)) < 1e-6 else round(at, 3), what))
        if item is not None:
            items.append(item)
        if what in (COMPLETED, FAILED):
            ended.set()

    def take(item: Any) -> None:
        see(letters.mark(item), item)
        for one in item if isinstance(item, list) else [item]:
            if isinstance(one, Finished):
                settle(one)  # as at the end of any pipeline that runs

    surroundings = Instead(scheduler_here(), lines)
    stream, send = (
        _to_pipeline(tested, surroundings, letters) if isinstance(tested, Observable) else _to_stage(tested, surroundings, letters)
    )
    timed = [(name, at, whats) for name, line in lines.items() for at, whats in _by_time(line)]
    with within(surroundings):
        subscription = stream.subscribe(
            take, lambda error: see(FAILED, error), lambda: see(COMPLETED), scheduler=surroundings.scheduler
        )
    try:
        for name, at, whats in timed:
            loop.call_at(at * unit, send, name, whats)
        async with asyncio.timeout(units * unit):
            await ended.wait()
    except TimeoutError:
        pass  # a line may well never end
    finally:
        subscription.dispose()
    if isinstance(tested, Observable):
        surroundings.check()
    return came, items


Send = Callable[[str, list[str]], None]


def _to_stage(
    operator: Callable[[Observable[Any]], Observable[Any]], surroundings: Instead, letters: _Letters
) -> tuple[Observable[Any], Send]:
    if surroundings.sources.keys() != {ANY}:
        raise ValueError("a stage takes one line of jobs; lines by queue are for a pipeline with several sources")
    source: Subject[Any] = Subject()

    def send(_: str, whats: list[str]) -> None:
        for what in whats:
            if what == COMPLETED:
                source.on_completed()
            elif what == FAILED:
                source.on_error(MarkedError("the # on the line of jobs"))
            else:
                source.on_next(letters.item(what))

    return operator(source), send


def _to_pipeline(pipeline: Observable[Any], surroundings: Instead, letters: _Letters) -> tuple[Observable[Any], Send]:
    def send(name: str, whats: list[str]) -> None:
        source = surroundings.sources[name]
        for what in whats:
            if what == COMPLETED:
                source.close()
            elif what == FAILED:
                source.fail(MarkedError("the # on the line of jobs"))
            else:
                source.push(*letters.jobs(what))

    return pipeline, send


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
