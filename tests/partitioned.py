"""Every test on a history in partitions, for whoever changes a statement about that: `pytest -p tests.partitioned tests/store`.

Only test_migrate.py finds a difference: it compares schemas table by table, and a partition's name says when it begins.
"""

from __future__ import annotations

from typing import Any

import asyncpg

from rxjobs.store import migrate
from rxjobs.store.history import partition_history

_migrate = migrate._migrate


async def _migrate_and_partition(connection: asyncpg.Connection[Any], schema: str) -> list[str]:
    names = await _migrate(connection, schema)
    await partition_history(connection, schema, "day")
    return names


migrate._migrate = _migrate_and_partition
