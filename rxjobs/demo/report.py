"""The summary as it is printed."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rxjobs.demo.summary import Summary
from rxjobs.demo.witness import Transition
from rxjobs.store.advice import masked


def report(summary: Summary) -> Group:
    """What came of the demo."""
    return Group(*_parts(summary))


def further(dsn: str, schema: str) -> str:
    """How to look further: a line to copy."""
    return f"To look further: rxjobs jobs list --dsn {shlex.quote(masked(dsn))} --schema {schema} --state discarded"


def _parts(summary: Summary) -> Iterator[RenderableType]:
    totals = summary.totals
    yield ""
    yield (
        f"[bold]{totals['files']:,} files[/] of Python's standard library: {totals['lines']:,} lines, "
        f"{totals['functions']:,} functions, {totals['classes']:,} classes, {totals['imports']:,} imports"
    )
    yield f"[bold]{summary.jobs:,} jobs[/] in {summary.seconds:.1f} s, {summary.jobs_per_second:.0f} a second"
    largest = _table("The largest modules", "module", "lines", "functions", "classes")
    for module in summary.largest:
        largest.add_row(Text(module.name), *(f"{count:,}" for count in (module.lines, module.functions, module.classes)))
    yield largest
    yield _ends(summary)
    latencies = _table("How long it took, in seconds", "", "half", "95 %", "99 %", "most")
    for what, times in summary.latencies.items():
        latencies.add_row(what, *(f"{seconds:.3f}" for seconds in (times.p50, times.p95, times.p99, times.max)))
    yield latencies
    letters = _table("Dead letters", "job", "type", "attempts", "about", "error", justify="left")
    for letter in summary.dead_letters:
        letters.add_row(str(letter.id), letter.type, str(letter.attempts), Text(letter.about), Text(letter.error))
    yield letters
    yield from (Text(line) for line in _journeys(summary.transitions))
    yield f"{summary.retries} retries; {summary.rejected} times a job was put off by an open breaker"
    yield ""


def _ends(summary: Summary) -> Table:
    ends = _table("How the jobs ended", "job type", "completed", "cancelled", "discarded", "other")
    for name, states in summary.states.items():
        counts = [states.get(state, 0) for state in ("completed", "cancelled", "discarded")]
        ends.add_row(name, *map(str, counts), str(sum(states.values()) - sum(counts)))
    return ends


def _journeys(transitions: Sequence[Transition]) -> Iterator[str]:
    """A line for each breaker: the states it went through."""
    for name, moves in groupby(sorted(transitions, key=lambda one: one.type), key=lambda one: one.type):
        first, *rest = moves
        yield f"breaker of {name}: {' → '.join([first.before, first.after, *(one.after for one in rest)])}"


def _table(title: str, first: str, *columns: str, justify: Literal["left", "right"] = "right") -> Table:
    table = Table(title=title, box=SIMPLE_HEAD, title_justify="left", title_style="bold", pad_edge=False)
    table.add_column(first)
    for column in columns:
        table.add_column(column, justify=justify)
    return table
