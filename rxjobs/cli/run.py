"""`rxjobs run`"""

from __future__ import annotations

import atexit
import os
import signal
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from rxjobs.app import App
from rxjobs.cli.asking import refusals_told
from rxjobs.cli.logs import log_to_stderr
from rxjobs.cli.processes import RUNS, STANDS, Tether, supervise
from rxjobs.cli.reload import GRACE, reload_on_change
from rxjobs.cli.standing import running, standing
from rxjobs.cli.target import HERE, Target
from rxjobs.errors import InvalidOption
from rxjobs.log_lines import logger
from rxjobs.telemetry.sdk import configure

log = logger("rxjobs.run")


def run(
    app: Annotated[str, Parameter(help="The app, as MODULE:APP, such as shop.jobs:app.")],
    /,
    *,
    queue: Annotated[
        tuple[str, ...] | None,
        Parameter(help="Run only this queue, as NAME=CONCURRENCY, such as mail=50; may be given several times."),
    ] = None,
    processes: Annotated[
        int | None,
        Parameter(
            help="Run it in so many processes, under one that starts those again that end, and on SIGHUP replaces them one by one.",
            validator=Number(gte=1),
        ),
    ] = None,
    reload: Annotated[
        bool,
        Parameter(help="In development: start it anew whenever a Python file in the current folder changes.", show_default=False),
    ] = False,
    log_level: Annotated[
        Literal["debug", "info", "warning", "error", "critical"], Parameter(help="What is logged, on stderr.")
    ] = "info",
    log_format: Annotated[Literal["text", "json"], Parameter(help="How it is logged; --json asks for json too.")] = "text",
    metrics_port: Annotated[
        int | None,
        Parameter(
            help="Where Prometheus may fetch metrics; of several processes each takes the next port that is free.",
            validator=Number(gte=1, lte=65535),
        ),
    ] = None,
    metrics_ports: Annotated[int, Parameter(show=False)] = 1,
    supervisor: Annotated[int | None, Parameter(name="--supervisor-fd", show=False)] = None,
    target: Target = HERE,
) -> int:
    """Run the pipelines of an app, or one for each queue of its job types, until SIGTERM or Ctrl-C.

    The first signal drains: jobs in flight may end. A second one exits at once. The log goes to stderr.

    Example: rxjobs run shop.jobs:app --queue mail=50 --processes 2

    While you write it: rxjobs run shop.jobs:app --reload. After a deployment: kill -HUP PID.
    """
    limits = _limits(queue or ())
    as_json = target.json or log_format == "json"
    count = processes or 1
    if supervisor is None and (reload or processes is not None):
        log_to_stderr(log_level, as_json=as_json)
        options = [*(f"--queue={one}" for one in queue or ()), f"--log-level={log_level}", f"--log-format={log_format}"]
        if metrics_port is not None:
            # one more, for the process that is to replace another
            options += [f"--metrics-port={metrics_port}", f"--metrics-ports={count + 1}"]
        options += target.options()
        return reload_on_change(["run", app, "--reload", *options], count) if reload else supervise(["run", app, *options], count)
    # until the pipelines run there is nothing to drain
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    tether = None if supervisor is None else Tether(supervisor)
    loaded = target.load(app)
    if reload:
        loaded.settings = replace(loaded.settings, shutdown_grace=min(GRACE, loaded.settings.shutdown_grace))
    log_to_stderr(log_level, as_json=as_json)
    pipelines = loaded.default_pipelines(limits) if limits else []
    _tell_how_far(loaded, tether)
    with ExitStack() as ending:
        ports = [] if metrics_port is None else range(metrics_port, min(65536, metrics_port + metrics_ports))
        # a label may be that of many processes, and each has series of its own
        ending.callback(configure("rxjobs", instance=str(loaded.id), label=loaded.settings.node, metrics_ports=ports))
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


def _tell_how_far(app: App, tether: Tether | None) -> None:
    running(app.events).subscribe(lambda _: log.info("node %s runs", app.label))
    if tether is not None:
        running(app.events).subscribe(lambda _: tether.tell(RUNS))
        standing(app.events).subscribe(lambda _: tether.tell(STANDS))
