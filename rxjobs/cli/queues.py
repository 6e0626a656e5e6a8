"""`rxjobs queues`"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from rxjobs.app import App
from rxjobs.cli.asking import ask
from rxjobs.cli.printing import instant, print_json, print_lines, print_table
from rxjobs.cli.target import HERE, Target
from rxjobs.errors import InvalidOption
from rxjobs.job import State
from rxjobs.queues import LONGEST, MOST, MOST_AT_ONCE, MOST_STARTS, SHORTEST, Asked, Queue

WAITING = [state.value for state in (State.AVAILABLE, State.EXECUTING, State.SCHEDULED, State.RETRYABLE, State.HELD)]

Name = Annotated[str, Parameter(name="QUEUE", help="A queue's name.")]
Node = Annotated[str | None, Parameter(help="Only on nodes with this label or id. Otherwise on all, also on those to come.")]
By = Annotated[str | None, Parameter(help='For the jobs of each key, which is an argument: "args.tenant".')]
Path = Annotated[str | None, Parameter(help="An app that names the queue, as MODULE:APP: for one that nothing else knows yet.")]


def list_queues(
    *,
    app: Annotated[str | None, Parameter(help="Also list the queues and job types of this app, as MODULE:APP.")] = None,
    target: Target = HERE,
) -> None:
    """List the queues: unfinished jobs, how long the oldest that may run has waited, what is asked of each, and who takes from it.

    Example: rxjobs queues list --app shop.jobs:app
    """
    asked = _app(app, target)
    found = ask(asked, asked.queues.list)
    if target.json:
        print_json(found)
    elif not found:
        print("no queue holds unfinished jobs")
    else:
        columns = ["queue", *WAITING, "oldest", "paused", "max demand", "limits", "nodes", *(["job types"] if app else [])]
        print_table(columns, (_row(one)[: len(columns)] for one in found))


def pause(queue: Name, /, *, node: Node = None, app: Path = None, target: Target = HERE) -> None:
    """Start no more jobs of a queue, until it is resumed. What runs may end, and what has not begun goes back to its queue.

    Example: rxjobs queues pause mail
    """
    asked = _app(app, target)
    _change(queue, "paused", node, asked, lambda: asked.queues.pause(queue, node=node), target)


def resume(queue: Name, /, *, node: Node = None, app: Path = None, target: Target = HERE) -> None:
    """Start jobs of a queue again. Without --node, also on nodes that were paused by themselves.

    Example: rxjobs queues resume mail
    """
    asked = _app(app, target)
    _change(queue, "resumed", node, asked, lambda: asked.queues.resume(queue, node=node), target)


def scale(
    queue: Name,
    /,
    max_demand: Annotated[
        int | None, Parameter(help="How many jobs a pipeline holds at most on each node.", validator=Number(gte=1, lte=MOST))
    ] = None,
    *,
    reset: Annotated[bool, Parameter(help="As many as the pipeline declares.", show_default=False)] = False,
    node: Node = None,
    app: Path = None,
    target: Target = HERE,
) -> None:
    """Have the pipelines of a queue hold at most so many jobs at a time, in place of the max_demand that they declare.

    Example: rxjobs queues scale mail --max-demand 50
    """
    if (max_demand is None) != reset:
        raise InvalidOption("say how many: --max-demand 50, or --reset for as many as the pipeline declares")
    asked = _app(app, target)
    _change(queue, "scaled", node, asked, lambda: asked.queues.scale(queue, max_demand=max_demand, node=node), target)


def limit(
    queue: Name,
    /,
    concurrency: Annotated[
        int | None,
        Parameter(help="How many jobs run at once at most, on all nodes together.", validator=Number(gte=1, lte=MOST_AT_ONCE)),
    ] = None,
    *,
    reset: Annotated[bool, Parameter(help="No such limit: without --by, of no key either.", show_default=False)] = False,
    by: By = None,
    app: Path = None,
    target: Target = HERE,
) -> None:
    """Have at most so many jobs of a queue run at once across all nodes, or of each key of it.

    Example: rxjobs queues limit mail --concurrency 10
    """
    if (concurrency is None) != reset:
        raise InvalidOption("say how many: --concurrency 10, or --reset for no limit")
    asked = _app(app, target)
    _change(queue, "limited", None, asked, lambda: asked.queues.limit(queue, concurrency=concurrency, by=by), target)


def rate(
    queue: Name,
    n: Annotated[int | None, Parameter(help="How many jobs start at most.", validator=Number(gte=1, lte=MOST_STARTS))] = None,
    /,
    *,
    per: Annotated[float, Parameter(help="In how many seconds.", validator=Number(gte=SHORTEST, lte=LONGEST))] = 60.0,
    burst: Annotated[
        int | None,
        Parameter(help="In place of fixed windows a bucket of so many tokens.", validator=Number(gte=1, lte=MOST_STARTS)),
    ] = None,
    reset: Annotated[bool, Parameter(help="No such limit: without --by, of no key either.", show_default=False)] = False,
    by: By = None,
    app: Path = None,
    target: Target = HERE,
) -> None:
    """Have at most so many jobs of a queue start in a time across all nodes, or of each key of it.

    Example: rxjobs queues rate mail 60 --per 60
    """
    if (n is None) != reset:
        raise InvalidOption("say how many: rate mail 60 --per 60, or --reset for no limit")
    asked = _app(app, target)
    _change(queue, "limited", None, asked, lambda: asked.queues.rate(queue, n, per=per, by=by, burst=burst), target)


def share(
    queue: Name,
    /,
    *,
    by: By = None,
    weight: Annotated[dict[str, float] | None, Parameter(help="How much a key weighs, as --weight.KEY 3; otherwise 1.")] = None,
    reset: Annotated[bool, Parameter(help="The keys share the queue no more.", show_default=False)] = False,
    app: Path = None,
    target: Target = HERE,
) -> None:
    """Have keys share a queue by their weights, so that the many jobs of one do not delay the few of another.

    Example: rxjobs queues share mail --by args.tenant --weight.acme 3
    """
    if (by is None) != reset:
        raise InvalidOption("say what the key is: --by args.tenant, or --reset to share no more")
    asked = _app(app, target)
    _change(queue, "shared", None, asked, lambda: asked.queues.share(queue, by=by, weights=weight), target)


def _app(path: str | None, target: Target) -> App:
    return target.app() if path is None else target.load(path)


def _change(queue: str, done: str, node: str | None, app: App, change: Callable[[], Awaitable[bool]], target: Target) -> None:
    is_new = ask(app, change)
    if target.json:
        print_json({"queue": queue, "node": node, "changed": is_new})
    else:
        where = "on all nodes" if node is None else f"on node {node}"
        print_lines(f"queue {queue} {done} {where}" if is_new else f"queue {queue}: nothing to do, it was so already {where}")


def _row(queue: Queue) -> list[Any]:
    return [
        queue.name,
        *(queue.jobs.get(state, 0) for state in WAITING),
        None if queue.waited is None else f"{queue.waited:.0f} s",
        _each(queue.asked, lambda one: None if one.paused_at is None else f"since {instant(one.paused_at)}"),
        _each(queue.asked, lambda one: None if one.max_demand is None else str(one.max_demand)),
        str(queue.limits),
        ", ".join(queue.nodes),
        ", ".join(queue.types),
    ]


def _each(asked: Iterable[Asked], told: Callable[[Asked], str | None]) -> str:
    """What is asked for all nodes, and then what is for single ones."""
    named = ((one, told(one)) for one in asked)
    return ", ".join(f"{_where(one)}{text}" for one, text in named if text)


def _where(one: Asked) -> str:
    if one.node is None:
        return ""
    return f"{one.node}: " if one.is_living else f"{one.node} (not running): "
