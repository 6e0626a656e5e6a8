"""`rxjobs doctor`"""

from __future__ import annotations

from collections import Counter
from typing import Annotated

from cyclopts import Parameter
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from rxjobs.cli.asking import answer
from rxjobs.cli.printing import cell, count, print_json, show
from rxjobs.cli.target import HERE, Target
from rxjobs.doctor.examine import examine
from rxjobs.doctor.finding import Finding, Health, worst

WELL, UNWELL = 0, 1
STYLES = {Health.OK: "green", Health.WARNING: "yellow", Health.PROBLEM: "bold red"}


def doctor(
    *,
    app: Annotated[str | None, Parameter(help="Take the settings of this app, as MODULE:APP.")] = None,
    target: Target = HERE,
) -> int:
    """Look for what is wrong with the database, the schema, the nodes and the queues, and say what to do.

    It changes nothing. The exit code is 1 where it finds a problem; warnings leave it at 0.

    Example: rxjobs doctor --app shop.jobs:app
    """
    asked = target.app() if app is None else target.load(app)
    findings = answer(examine(asked.settings))
    state = worst(findings)
    if target.json:
        print_json({"state": state, "findings": findings})
    else:
        _print(findings)
    return UNWELL if state is Health.PROBLEM else WELL


def _print(findings: list[Finding]) -> None:
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for column in ("check", "state"):
        table.add_column(column, no_wrap=True)
    for column in ("found", "what to do"):
        table.add_column(column, overflow="fold")
    for one in findings:
        table.add_row(cell(one.check), Text(one.state, style=STYLES[one.state]), cell(one.found), cell(one.advice))
    show(table)
    tally = Counter(finding.state for finding in findings)
    print(f"\n{count(tally[Health.PROBLEM], 'problem')}, {count(tally[Health.WARNING], 'warning')}")
