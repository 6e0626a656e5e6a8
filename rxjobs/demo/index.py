"""The index: a job for each source file, worked on in stages and written to a table in batches."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from reactivex import Observable
from reactivex import operators as ops

import rxjobs as rj
from rxjobs.demo.library import is_python
from rxjobs.demo.parsing import measure, parse
from rxjobs.store.database import Database

QUEUE = "files"
PROCESSES = min(2, os.cpu_count() or 1)

MAKE_TABLE = """
CREATE TABLE {schema}.python_files (
    name text PRIMARY KEY,
    bytes bigint NOT NULL,
    lines integer NOT NULL,
    functions integer NOT NULL,
    classes integer NOT NULL,
    imports integer NOT NULL
)"""

# a job may run twice, as when the acknowledgement of a batch is lost: to write a file again changes nothing
WRITE_FILES = """
INSERT INTO {schema}.python_files (name, bytes, lines, functions, classes, imports)
SELECT * FROM unnest($1::text[], $2::bigint[], $3::integer[], $4::integer[], $5::integer[], $6::integer[])
ON CONFLICT (name) DO UPDATE
SET bytes = excluded.bytes, lines = excluded.lines, functions = excluded.functions, classes = excluded.classes,
    imports = excluded.imports"""


def index_file(name: str, path: Path) -> None:
    """A file of the library. The stages below do its work, so that nothing is left for the job itself."""
    raise NotImplementedError(f"{name} is indexed by the pipeline of the queue {QUEUE}")


def declare_index(
    app: rj.App, database: Database, acked: Callable[[Any], None]
) -> tuple[rj.Definition[[str, Path], None], Observable[Any]]:
    """The job type of a file, and the pipeline that indexes them; `acked` is told of each job that is written down."""
    definition = app.job(name="index_file", queue=QUEUE, max_attempts=3, backoff=lambda attempt, error: 0.5, breaker=None)(
        index_file
    )
    write_files = WRITE_FILES.format(schema=app.settings.schema)

    async def write(jobs: list[rj.Job]) -> None:
        facts = [job.assigns for job in jobs]
        columns = [[fact[column] for fact in facts] for column in ("bytes", "lines", "functions", "classes", "imports")]
        await database.fetch(write_files, [job.args["name"] for job in jobs], *columns)

    pipeline = app.source(QUEUE, max_demand=200).pipe(
        rj.filter(lambda job: is_python(job.args["path"]), otherwise=rj.Cancel("not Python")),
        rj.enrich(measure, concurrency=4, on=rj.in_threads(4), name="measure"),
        rj.enrich(parse, concurrency=PROCESSES, on=rj.in_processes(PROCESSES), name="parse"),
        rj.buffer(50, 0.2),
        rj.execute_batch(write, name="write"),
        rj.ack(),
        ops.do_action(acked),
    )
    return definition, app.pipeline(pipeline, name="index")
