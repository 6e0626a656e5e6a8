"""`rxjobs breakers`"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from cyclopts import Parameter

from rxjobs.app import App
from rxjobs.breakers import BreakerState
from rxjobs.cli.asking import ask
from rxjobs.cli.printing import instant, print_json, print_lines, print_table
from rxjobs.cli.target import HERE, Target

Name = Annotated[str, Parameter(name="JOB_TYPE", help="The name of a job type.")]
Path = Annotated[str | None, Parameter(help="An app that has the job type, as MODULE:APP: for one that no node serves yet.")]


def list_breakers(
    *,
    app: Annotated[str | None, Parameter(help="Also list those job types of this app that never failed, as MODULE:APP.")] = None,
    target: Target = HERE,
) -> None:
    """List the breakers of job types that have failed: open, half-open or closed, since when, and what they wait for.

    Example: rxjobs breakers list --json
    """
    asked = _app(app, target)
    found = ask(asked, asked.breakers.list)
    if target.json:
        print_json(found)
    elif not found:
        print("no breaker has anything to tell: no job has failed")
    else:
        print_table(["job type", "state", "since", "probes in", "failures", "probing"], map(_row, found))


def open_breaker(name: Name, /, *, app: Path = None, target: Target = HERE) -> None:
    """Start no job of a type on any node, until its breaker is closed. What runs may end, and what waits costs no attempt.

    Example: rxjobs breakers open shop.charge
    """
    asked = _app(app, target)
    done = "opened: no job of it starts until it is closed"
    _change(name, done, "open by hand", asked, lambda: asked.breakers.open(name), target)


def close_breaker(name: Name, /, *, app: Path = None, target: Target = HERE) -> None:
    """Start jobs of a type again, and count its failures anew.

    Example: rxjobs breakers close shop.charge
    """
    asked = _app(app, target)
    _change(name, "closed", "closed", asked, lambda: asked.breakers.close(name), target)


def _app(path: str | None, target: Target) -> App:
    return target.app() if path is None else target.load(path)


def _change(name: str, done: str, already: str, app: App, change: Callable[[], Awaitable[bool]], target: Target) -> None:
    is_new = ask(app, change)
    if target.json:
        print_json({"type": name, "changed": is_new})
    else:
        print_lines(f"breaker of {name} {done}" if is_new else f"breaker of {name}: nothing to do, it was {already} already")


def _row(one: BreakerState) -> list[Any]:
    wait = "closed by hand" if one.is_by_hand else None if one.wait is None else f"{one.wait:.0f} s"
    since = None if one.moved_at is None else instant(one.moved_at)
    return [one.type, one.state, since, wait, one.failures, one.probing]
