"""`rxjobs bench`"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, get_args

from cyclopts import Parameter
from cyclopts.validators import Number

from rxjobs.bench import plot as plots
from rxjobs.bench.run import Wanted, run
from rxjobs.bench.said import Level
from rxjobs.bench.scenarios import LEVELS, SHORT, Scenario, sizes
from rxjobs.bench.tables import tables
from rxjobs.bench.view import view_on
from rxjobs.cli.asking import refusals_told
from rxjobs.cli.printing import print_json, show
from rxjobs.errors import InvalidOption

BROKEN, TERMINATED = 1, 143
ALL: tuple[Scenario, ...] = get_args(Scenario)


def bench(
    *scenarios: Annotated[Scenario, Parameter(help="What to measure. Otherwise throughput, enqueue and latency.")],
    jobs: Annotated[
        int | None,
        Parameter(help="How many jobs throughput takes, and the others in proportion.", validator=Number(gte=20)),
    ] = None,
    rounds: Annotated[int, Parameter(help="Measure each so often, and tell medians and ranges.", validator=Number(gte=1))] = 1,
    full: Annotated[bool, Parameter(help="All there is, at full sizes: the figures of the README.", show_default=False)] = False,
    telemetry: Annotated[
        tuple[str, ...] | None,
        Parameter(help="Measure telemetry, at this level: off, metrics, sampled-10 or all; may be given several times."),
    ] = None,
    plot: Annotated[Path | None, Parameter(help="Draw the rates by concurrency and by backlog into a file, .svg or .png.")] = None,
    dsn: Annotated[
        str | None, Parameter(help="The PostgreSQL to measure on. Otherwise RXJOBS_DSN, or an embedded one in a temporary folder.")
    ] = None,
    schema: Annotated[str, Parameter(help="The schema to make, and to drop at the end.")] = "rxjobs_bench",
    json: Annotated[bool, Parameter(help="Answer with one JSON document.", show_default=False)] = False,
) -> int:
    """Measure jobs a second, latency, memory and more on this machine, beside the raw limit: a loop of bare asyncpg.

    What is measured is told on stderr as it comes. A machine that does other work besides gives ratios at best.

    Example: rxjobs bench throughput latency --rounds 3 --plot rates.svg
    """
    levels = _levels(telemetry or ())
    chosen = _chosen(scenarios, levels, full=full, plotted=plot is not None)
    if plot is not None:
        plots.check(plot, chosen)
    wanted = Wanted(scenarios=chosen, sizes=sizes(jobs, full=full), rounds=rounds, levels=levels or LEVELS)
    try:
        with refusals_told(), view_on(sys.stderr) as view:
            report = asyncio.run(run(wanted, dsn, schema, view))
    except asyncio.CancelledError:
        return TERMINATED
    if json:
        print_json(report)
    else:
        show(tables(report))
    if plot is not None:
        plots.plot(report, plot)
    for one in report.missing:
        print(f"rxjobs: {one.scenario}, {one.case}, {one.runner} was not measured: {one.reason}", file=sys.stderr)
    return BROKEN if report.missing else 0


def _levels(given: Sequence[str]) -> list[Level]:
    named = [level for one in given for level in one.replace("|", ",").split(",")]
    for level in named:
        if level not in LEVELS:
            raise InvalidOption(f"--telemetry takes {', '.join(LEVELS)}, not {level!r}")
    return [level for level in LEVELS if level in named]


def _chosen(named: Sequence[Scenario], levels: Sequence[Level], *, full: bool, plotted: bool) -> list[Scenario]:
    """The scenarios, in one order: those named and those that the options ask for, or else a few."""
    asked = {*named, *(["telemetry"] if levels else [])}
    if not asked:
        asked = {*(ALL if full else SHORT), *(["backlog"] if plotted else [])}
    return [scenario for scenario in ALL if scenario in asked]
