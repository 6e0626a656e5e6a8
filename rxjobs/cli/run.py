"""`rxjobs run`"""

from __future__ import annotations

import atexit
import logging
import os
import signal
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from cyclopts.validators import Number
from reactivex import operators as ops

from rxjobs.app import App
from rxjobs.cli.asking import refusals_told
from rxjobs.cli.logs import log_to_stderr
from rxjobs.cli.processes import Tether, supervise
from rxjobs.cli.target import HERE, Target
from rxjobs.errors import InvalidOption
from rxjobs.events import PipelineStarted
from rxjobs.telemetry.sdk import configure

log = logging.getLogger("rxjobs.run")


def run(
    app: Annotated[str, Parameter(help="The app, as MODULE:APP, such as shop.jobs:app.")],
    /,
    *,
    queue: Annotated[
        tuple[str, ...] | None,
        Parameter(help="Run only this queue, as NAME=CONCURRENCY, such as mail=50; may be given several times."),
    ] = None,
    processes: Annotated[int, Parameter(help="How many processes run it.", validator=Number(gte=1))] = 1,
    log_level: Annotated[
        Literal["debug", "info", "warning", "error", "critical"], Parameter(help="What is logged, on stderr.")
    ] = "info",
    supervisor: Annotated[int | None, Parameter(name="--supervisor-fd", show=False)] = None,
    target: Target = HERE,
) -> int:
    """Run the pipelines of an app, or one for each queue of its job types, until SIGTERM or Ctrl-C.

    The first signal drains: jobs in flight may end. A second one exits at once. The log goes to stderr; with --json each of its
    lines is an object.

    Example: rxjobs run shop.jobs:app --queue mail=50 --processes 2
    """
    limits = _limits(queue or ())
    if processes > 1:
        log_to_stderr(log_level, as_json=target.json)
        options = [*(f"--queue={one}" for one in queue or ()), f"--log-level={log_level}", *target.options()]
        return supervise(["run", app, *options], processes)
    # until the pipelines run there is nothing to drain
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    tether = None if supervisor is None else Tether(supervisor)
    loaded = target.load(app)
    log_to_stderr(log_level, as_json=target.json)
    pipelines = loaded.default_pipelines(limits) if limits else []
    _once_started(loaded, tether)
    with ExitStack() as ending:
        ending.callback(configure("rxjobs", instance=loaded.label))
        # a job that does not stop may end this process inside of run; who comes first ends telemetry, and only once
        atexit.register(ending.close)
        with refusals_told():
            loaded.run(*pipelines)
    log.info("stopped")
    return 0


def _limits(given: Sequence[str]) -> dict[str, int]:
    limits: dict[str, int] = {}
    for one in given:
        name, _, text = one.rpartition("=")
        if not name or not text.isdecimal() or not 1 <= int(text) <= 100_000:
            raise InvalidOption(f"--queue takes NAME=CONCURRENCY, such as mail=50, not {one!r}")
        if name in limits:
            raise InvalidOption(f"--queue is given twice for {name!r}; give it one concurrency")
        limits[name] = int(text)
    return limits


def _once_started(app: App, tether: Tether | None) -> None:
    def tell(_: Any) -> None:
        log.info("node %s runs", app.label)
        if tether is not None:
            tether.tell_running()

    # the first alone: on the hot path an event that nobody hears is not even made
    app.events.pipe(ops.filter(lambda event: isinstance(event, PipelineStarted)), ops.take(1)).subscribe(tell)
