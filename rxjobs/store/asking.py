"""How statements are sent: over which connections, and how long they may take."""

from __future__ import annotations

from typing import Any

import asyncpg

from rxjobs.store.database import LONG_TIMEOUT, STATEMENT_TIMEOUT, Connection, Database
from rxjobs.store.statements import statement
from rxjobs.store.undone import is_for_notifications, until_done

Rows = list[asyncpg.Record]

LINE_OF = {
    "fetch_jobs": "claims", "fetch_jobs_where": "claims", "fetch_limited": "claims",
    "exchange_jobs": "claims", "exchange_jobs_where": "claims",
    "insert_one": "inserts", "insert_alike": "inserts", "insert_jobs": "inserts", "notify_queues": "inserts",
    "ack_completed": "reserved", "ack_jobs": "reserved", "find_acked": "reserved",
    "look": "listening", "describe_server": "listening", "read_crons": "listening", "serve": "listening",
    "take_lease": "reserved", "declare_types": "reserved", "lead": "reserved", "resign": "reserved", "leave": "reserved",
}  # fmt: skip
"""Which connections a statement has to itself and its kind."""
LONG = frozenset(
    {
        "insert_one", "insert_alike", "insert_jobs", "list_jobs", "count_jobs", "delete_jobs", "queue_depths", "list_queues",
        "lost_claims", "orphans", "held_by", "rescue_jobs", "bury", "leave", "unserved", "overdue", "find_dead", "redrive_jobs",
        "tend_history",
    }
)  # fmt: skip
"""What may read a whole table, or carry a thousand jobs: these may take longer than any other."""


class Asking:
    """What every group of statements has: a schema, and connections to it."""

    database: Database
    schema: str
    _notify: str | None

    async def _run(self, name: str, *args: Any, connection: Connection | None = None) -> Rows:
        sql = statement(name, self.schema)
        if connection is not None:
            rows: Rows = await connection.fetch(sql, *args)
            return rows
        on, timeout = LINE_OF.get(name), LONG_TIMEOUT if name in LONG else STATEMENT_TIMEOUT
        try:  # as unheard_at_worst does it, which takes as long as three calls more: this is asked for every lone job
            return await self.database.fetch(sql, *args, on=on, timeout=timeout)
        except asyncpg.ProgramLimitExceededError as error:
            if not is_for_notifications(error):
                raise
            return await self.database.fetch(sql, *args, on=on, timeout=timeout)

    async def _some(self, name: str, *args: Any, connection: Connection | None = None) -> tuple[Rows, list[int]]:
        """What a statement has changed that waits for nobody but whoever has locked the first of its jobs; and what it left.

        It is done again where others were in its way, which cannot be within a caller's transaction.
        """
        if connection is not None:
            rows = await self._run(name, *args, connection=connection)
        else:
            rows = await until_done(lambda: self._run(name, *args))
        return [row for row in rows if not row["is_left"]], [row["id"] for row in rows if row["is_left"]]


def ids_of(rows: Rows) -> set[int]:
    """The ids of the jobs that a statement has changed."""
    return {row["id"] for row in rows}
