"""`rxjobs queues`"""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter

from rxjobs.cli.asking import ask
from rxjobs.cli.printing import print_json, print_table
from rxjobs.cli.target import HERE, Target
from rxjobs.job import State
from rxjobs.queues import Queue

WAITING = [state.value for state in (State.AVAILABLE, State.EXECUTING, State.SCHEDULED, State.RETRYABLE, State.HELD)]


def list_queues(
    *,
    app: Annotated[str | None, Parameter(help="Also list the queues and job types of this app, as MODULE:APP.")] = None,
    target: Target = HERE,
) -> None:
    """List the queues, and how many unfinished jobs stand in each.

    Example: rxjobs queues list --app shop.jobs:app
    """
    asked = target.app() if app is None else target.load(app)
    found = ask(asked, asked.queues.list)
    if target.json:
        print_json(found)
    elif not found:
        print("no queue holds unfinished jobs")
    else:
        columns = ["queue", *WAITING, *(["job types"] if app else [])]
        print_table(columns, (_row(one)[: len(columns)] for one in found))


def _row(queue: Queue) -> list[Any]:
    return [queue.name, *(queue.jobs.get(state, 0) for state in WAITING), ", ".join(queue.types)]
