"""The history, looked at and partitioned from outside: `app.history`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Literal, get_args

import msgspec

from rxjobs.errors import InvalidOption
from rxjobs.store.history import partition_history
from rxjobs.store.store import Store

Period = Literal["day", "week", "month"]


class HistoryPart(msgspec.Struct, frozen=True):
    """A table of a partitioned history, and when the jobs in it finished: from `lower` until before `upper` (None: no border).

    `kind` is period; before, for what had finished before there were periods; dead letters; or other, for what finished when its
    period had no table. `jobs` is about how many are in it, as of its last vacuum; `bytes` is with its indexes.
    """

    name: str
    kind: str
    lower: datetime | None
    upper: datetime | None
    jobs: int
    bytes: int


class History:
    """The finished jobs of this schema."""

    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store

    async def partition(self, by: Period) -> datetime:
        """Keep finished jobs in a table for each `by`: day, week or month, which are dropped whole; gives from when on.

        To do it twice does no harm; by another period than before, those that come are of that. There is no way back. Needs the
        rights that migrations need. Raises InvalidOption where something of yours depends on the table of finished jobs.
        """
        if by not in get_args(Period):
            raise InvalidOption(f"history.partition is by day, week or month, not {by!r:.100}")
        store = self._store()
        connection = await store.database.connect_now()
        try:
            return await partition_history(connection, store.schema, by)
        finally:
            await connection.close()

    async def list(self) -> list[HistoryPart]:
        """The tables of the history, the oldest first; none where it is not partitioned."""
        names = HistoryPart.__struct_fields__
        return [HistoryPart(**{name: row[name] for name in names}) for row in await self._store().read_history()]
