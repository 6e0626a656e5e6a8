"""`rxjobs nodes`"""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from rxjobs.cli.asking import ask
from rxjobs.cli.printing import instant, print_json, print_table
from rxjobs.cli.target import HERE, Target
from rxjobs.nodes import DAY, GONE_SECONDS, RegisteredNode

MIB = 1024 * 1024


def nodes(
    *,
    gone: Annotated[
        float, Parameter(help="Also those that went within so many seconds, at most a day.", validator=Number(gte=0, lte=DAY))
    ] = GONE_SECONDS,
    target: Target = HERE,
) -> None:
    """List the nodes: who leads, what each runs and has run, and how it does, as of its last heartbeat.

    Example: rxjobs nodes --gone 0

    Example: rxjobs nodes --json
    """
    app = target.app()
    found = ask(app, lambda: app.nodes.list(gone=gone))
    if target.json:
        print_json(found)
    elif not found:
        print("no node runs, and none did of late: rxjobs run starts one")
    else:
        columns = [
            "node", "state", "host", "pid", "started", "queues", "held", "running", "done", "failed", "last job", "load", "memory",
            "loop delay", "rxjobs", "python",
        ]  # fmt: skip
        print_table(columns, map(_row, found))


def _row(node: RegisteredNode) -> list[Any]:
    last = node.last_job
    return [
        node.label or node.id,
        _state(node),
        node.host,
        node.pid,
        node.started_at,
        ", ".join(node.queues),
        sum(one.held for one in node.pipelines),
        node.running,
        node.completed,
        node.failed,
        None if last is None else f"{last.id} {last.type} at {instant(last.at)}",
        None if node.load is None else f"{node.load[0]:.2f} of {node.cpus}",
        None if node.memory is None else f"{node.memory / MIB:,.0f} MiB",
        None if node.loop_delay is None else f"{node.loop_delay * 1000:,.0f} ms",
        node.rxjobs,
        node.python,
    ]


def _state(node: RegisteredNode) -> str:
    if node.gone_at is not None:
        return f"{node.state} at {instant(node.gone_at)}"
    if node.lease is None:
        return node.state
    return f"{'leads' if node.is_leading else 'lives'}, {node.lease:.0f} s left"
