"""Marble diagrams for stages, on virtual time.

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
from rxjobs.job import Job
from rxjobs.outcome import COMPLETE, Finished, Outcome
from rxjobs.testing.jobs import a_job
from rxjobs.testing.virtual_time import virtually

AFTERWARDS = 1000
"""Units of time after the end of both lines in which something may still come, and would be seen."""
COMPLETED, FAILED = "|", "#"

Value = Job | Outcome | type[Outcome]


class Mark(NamedTuple):
    """What happens at a time, in units: a letter, a list in brackets, the end, or an error."""

    at: float
    what: str


class MarkedError(Exception):
    """The error that a # on the line of jobs stands for."""


def marbles(
    operator: Callable[[Observable[Any]], Observable[Any]],
    jobs: str = "-a-b|",
    expect: str = "-a-b|",
    *,
    values: Mapping[str, Value] | None = None,
    unit: float = 1.0,
) -> list[Any]:
    """Let jobs go through a stage as one line says, and hold what comes out against another; raises AssertionError.

    `values` says more about letters: which job `a` is (else any), and how `A` must have ended, as an outcome that it must
    equal or a class of outcomes (else it may have ended in any way; on the line of jobs it is complete). `unit` is how many
    virtual seconds a mark takes. Returns the items that came out, for a closer look.

        marbles(rj.filter(is_wanted, otherwise=rj.Discard()), "-a-b|", "-a-B|", values={"B": rj.Discard})
    """
    letters = _Letters(values or {})
    came, items = virtually(_observe(operator, _read(jobs), letters, unit, max(len(jobs), len(expect)) + AFTERWARDS))
    wrong = came != _read(expect)
    remarks = [*letters.remarks(items), *(_errors(items) if wrong else ())]
    if wrong or remarks:
        lines = {"jobs": jobs, "expected": expect, "came": _write(came)}
        raise AssertionError("\n".join(["marbles differ:", *(f"    {name:9}{line}" for name, line in lines.items()), *remarks]))
    return [item for item in items if not isinstance(item, Exception)]


class _Letters:
    """Which letter stands for which job, and how it must have ended."""

    def __init__(self, values: Mapping[str, Value]) -> None:
        self._values = values
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

    def _job(self, letter: str) -> Job:
        if letter not in self._jobs:
            given = self._values.get(letter)
            job = given if isinstance(given, Job) else a_job(attempt=1, args={"letter": letter})
            self._jobs[letter] = job
            self._names[job.id] = letter
        return self._jobs[letter]


async def _observe(
    operator: Callable[[Observable[Any]], Observable[Any]], line: list[Mark], letters: _Letters, unit: float, units: int
) -> tuple[list[Mark], list[Any]]:
    loop = asyncio.get_running_loop()
    source: Subject[Any] = Subject()
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

    def send(whats: list[str]) -> None:
        for what in whats:
            if what == COMPLETED:
                source.on_completed()
            elif what == FAILED:
                source.on_error(MarkedError("the # on the line of jobs"))
            else:
                source.on_next(letters.item(what))

    subscription = operator(source).subscribe(
        lambda item: see(letters.mark(item), item),
        lambda error: see(FAILED, error),
        lambda: see(COMPLETED),
        scheduler=scheduler_here(),
    )
    for at, whats in _by_time(line):
        loop.call_at(at * unit, send, whats)
    try:
        async with asyncio.timeout(units * unit):
            await ended.wait()
    except TimeoutError:
        pass  # a line may well never end
    subscription.dispose()
    return came, items


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
