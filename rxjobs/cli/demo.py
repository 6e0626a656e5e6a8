"""`rxjobs demo`"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from rxjobs.cli.asking import refusals_told
from rxjobs.cli.printing import print_json, show
from rxjobs.demo.report import further, report
from rxjobs.demo.run import Wanted, run
from rxjobs.demo.view import view_on
from rxjobs.errors import InvalidOption, PipelineBroken
from rxjobs.store.served import EMBEDDED
from rxjobs.telemetry.sdk import configure

BROKEN, TERMINATED = 1, 143


def demo(
    *,
    dsn: Annotated[str, Parameter(help="The PostgreSQL to run on: a DSN.")] = EMBEDDED,
    schema: Annotated[str, Parameter(help="The schema to make anew, if the demo made it.")] = "rxjobs_demo",
    files: Annotated[int | None, Parameter(help="Index only so many files.", validator=Number(gte=1))] = None,
    otlp: Annotated[str | None, Parameter(help="Send traces and metrics there, such as http://localhost:4318.")] = None,
    json: Annotated[bool, Parameter(help="Answer with one JSON document; the progress is written to stderr.")] = False,
) -> int:
    """Index Python's standard library, a job a file, beside jobs that fail in every way; it ends by itself.

    Example: rxjobs demo --dsn postgresql://localhost/scratch
    """
    wanted = Wanted(dsn=dsn, schema=schema, files=files)
    try:
        with refusals_told(), _sent_to(otlp), view_on(sys.stderr if json else sys.stdout) as view:
            summary = asyncio.run(run(wanted, view))
    except asyncio.CancelledError:
        return TERMINATED
    except PipelineBroken as error:
        print(f"rxjobs: {error}", file=sys.stderr)
        return BROKEN
    if json:
        print_json(summary)
    else:
        show(report(summary))
        print(further(dsn, schema))
    for problem in summary.problems:
        print(f"rxjobs: the demo did not end as it should: {problem}", file=sys.stderr)
    return BROKEN if summary.problems else 0


@contextmanager
def _sent_to(otlp: str | None) -> Iterator[None]:
    """Export what this process tells OpenTelemetry, to this collector or as OTEL_* says."""
    if otlp is not None:
        if not re.match(r"https?://[^/]", otlp):
            raise InvalidOption(f"--otlp takes the URL of a collector, such as http://localhost:4318, not {otlp!r}")
        # the exporters look nowhere else
        os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = otlp
    shutdown = configure("rxjobs-demo")
    try:
        yield
    finally:
        shutdown()
