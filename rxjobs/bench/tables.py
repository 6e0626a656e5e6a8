"""The figures as tables, one a scenario."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rxjobs.bench.figures import MEASURES, Figure
from rxjobs.bench.run import Report

Cells = Mapping[tuple[str, str, str], Figure]

TITLES = {
    "throughput": "Throughput: jobs that do nothing, by how many run at once",
    "backlog": "Backlog: the same at concurrency 50, by how many wait",
    "enqueue": "Enqueue",
    "latency": "Latency: from the call that enqueues until the job's code starts",
    "telemetry": "Telemetry: what it costs the worker to tell so much",
    "memory": "Memory of the worker process",
    "processes": "More than one process",
}


def tables(report: Report) -> Group:
    """What was found, and where."""
    return Group(*_parts(report))


def _parts(report: Report) -> Iterator[RenderableType]:
    for scenario in report.wanted.scenarios:
        found = [figure for figure in report.figures if figure.scenario == scenario]
        if found:
            yield ""
            yield _table(TITLES[scenario], found)
    yield ""
    yield Text(where(report))


def where(report: Report) -> str:
    """The machine and the server, in a line."""
    server = report.server
    kind = "embedded " if server["embedded"] else ""
    load = "" if report.machine.load is None else f"; load {report.machine.load:g} before"
    return f"{_day(report.began)}, {report.machine.told}, {kind}PostgreSQL {server['server_version']}{load}"


def _day(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d")


def _table(title: str, figures: Sequence[Figure]) -> Table:
    table = Table(title=title, box=SIMPLE_HEAD, title_justify="left", title_style="bold", pad_edge=False)
    table.add_column("")
    columns = list(_columns(figures))
    bases = {one.ratio.of for one in figures if one.ratio}
    one_base = bases.pop() if len(bases) == 1 else None
    for measure, runner in columns:
        unit = MEASURES[measure].unit
        heading = unit if runner == "rxjobs" else f"raw {unit}" if runner == "raw" else f"÷ {one_base}" if one_base else "ratio"
        table.add_column(heading, justify="right")
    cells = {(one.case, one.measure, one.runner): one for one in figures}
    for case in dict.fromkeys(one.case for one in figures):
        table.add_row(case, *(_cell(cells, case, measure, runner, named=one_base is None) for measure, runner in columns))
    return table


def _columns(figures: Sequence[Figure]) -> Iterator[tuple[str, str | None]]:
    """Of each measure: rxjobs, raw if it was measured, and the ratio if there is one."""
    for measure in MEASURES:
        found = [one for one in figures if one.measure == measure]
        if any(one.runner == "rxjobs" for one in found):
            yield measure, "rxjobs"
        if any(one.runner == "raw" for one in found):
            yield measure, "raw"
        if any(one.ratio for one in found):
            yield measure, None


def _cell(cells: Cells, case: str, measure: str, runner: str | None, *, named: bool) -> str:
    one = cells.get((case, measure, runner or "rxjobs"))
    if one is None:
        return ""
    if runner is not None:
        return one.found.told(MEASURES[measure].digits)
    if one.ratio is None:
        return ""
    return one.ratio.told(2) + (f" of {one.ratio.of}" if named else "")
