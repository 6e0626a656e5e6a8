"""`rxjobs history`"""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter

from rxjobs.cli.asking import ask
from rxjobs.cli.printing import instant, print_json, print_table
from rxjobs.cli.target import HERE, Target
from rxjobs.history import HistoryPart, Period

MIB = 1024 * 1024


def list_parts(*, target: Target = HERE) -> None:
    """List the tables of a partitioned history: what each is for, from when until when, and how large it is.

    Example: rxjobs history list --json
    """
    app = target.app()
    found = ask(app, app.history.list)
    if target.json:
        print_json(found)
    elif not found:
        print("finished jobs are in one table: rxjobs history partition --by month has one for each month that comes")
    else:
        print_table(["table", "for", "from", "until", "jobs (about)", "size"], map(_row, found))


def partition(*, by: Annotated[Period, Parameter(help="How long a time a table is for.")], target: Target = HERE) -> None:
    """Keep finished jobs in a table for each day, week or month, which are dropped whole when they are over. There is no way back.

    Jobs go on meanwhile. To do it twice does no harm; by another period, those that come are of that.

    Example: rxjobs history partition --by month
    """
    app = target.app()
    since = ask(app, lambda: app.history.partition(by))
    if target.json:
        print_json({"by": by, "since": since})
    else:
        print(f"jobs that finish since {instant(since)} are in a table for each {by}")


def _row(part: HistoryPart) -> list[Any]:
    size = f"{part.bytes / MIB:,.1f} MiB"
    return [part.name, part.kind, part.lower, part.upper, part.jobs, size]
