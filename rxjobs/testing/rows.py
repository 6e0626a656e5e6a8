"""Rows for tests: many of them by one statement, and how many there are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rxjobs.job import State

FINISHED = (State.COMPLETED, State.DISCARDED, State.CANCELLED)
WAITING = (State.SCHEDULED, State.RETRYABLE, State.HELD)


async def fill(
    connection: Any,
    job_type: str,
    count: int,
    *,
    args: Mapping[str, Any] | None = None,
    args_sql: str | None = None,
    state: str = "available",
    queue: str = "default",
    schema: str = "rxjobs",
) -> None:
    """Insert `count` jobs of a type by one statement over an asyncpg connection. Nobody is notified.

    `args` is a mapping that all of them get, `args_sql` an SQL expression of type json or jsonb in which `n` is the row's
    number, from 0: `"json_build_object('user_id', n)"`; it is put into the statement as it is. Jobs that are scheduled,
    retryable or held are due in an hour; those that execute belong to a node that is no more.
    """
    wanted = State(state)
    given = args_sql if args_sql is not None else "$4::json"
    late = "now() + interval '1 hour'" if wanted in WAITING else "now()"
    began = wanted in FINISHED or wanted in (State.EXECUTING, State.RETRYABLE)
    columns = {
        "type": "$1",
        "queue": "$2",
        "state": f"'{wanted}'",
        "args": f"({given})::json",
        "scheduled_at": late,
        "attempt": "1" if began else "0",
        "attempted_at": "now()" if began else "NULL",
    }
    if wanted is State.EXECUTING:
        columns["node"] = "'00000000-0000-0000-0000-000000000000'"
    if wanted in FINISHED:
        columns |= {
            "id": f"nextval(pg_get_serial_sequence('\"{schema}\".live_jobs', 'id'))",
            "inserted_at": "now()",
            "max_attempts": "20",
            "priority": "0",
        }
    table = "finished_jobs" if wanted in FINISHED else "live_jobs"
    values = [job_type, queue, count]
    if args_sql is None:
        values.append(json.dumps(args or {}))
    await connection.execute(
        f'INSERT INTO "{schema}".{table} ({", ".join(columns)})\n'
        f"SELECT {', '.join(columns.values())}\nFROM generate_series(0, $3::bigint - 1) AS numbers (n)",
        *values,
    )


async def count(connection: Any, *, state: str | None = None, queue: str | None = None, schema: str = "rxjobs") -> int:
    """How many jobs there are, of a state and a queue where given, over an asyncpg connection."""
    wanted = None if state is None else State(state)
    # one table where that is enough, since the other may be large
    table = "jobs" if wanted is None else "finished_jobs" if wanted in FINISHED else "live_jobs"
    number = await connection.fetchval(
        f'SELECT count(*) FROM "{schema}".{table} '  # noqa: S608 - a test's own schema
        "WHERE ($1::text IS NULL OR state::text = $1) AND ($2::text IS NULL OR queue = $2)",
        wanted,
        queue,
    )
    return int(number)
