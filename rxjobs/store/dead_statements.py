"""The statements about dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rxjobs.store.asking import Asking
from rxjobs.store.encoding import Filters
from rxjobs.store.undone import until_done


class DeadStatements(Asking):
    """Dead letters: the jobs that were discarded."""

    async def find_dead(
        self, filters: Filters, errors: Sequence[str] | None, since: datetime | None, above: int, limit: int
    ) -> list[int]:
        """The ids of dead letters above an id, in order; `errors` are types of their last errors."""
        _, queues, types, tags = filters.columns()
        return [row["id"] for row in await self._run("find_dead", queues, types, tags, errors, since, above, limit)]

    async def redrive_jobs(
        self, ids: Sequence[int], attempts: int, since: datetime | None, after: float, apart: float
    ) -> tuple[list[int], list[int], datetime]:
        """Bring dead letters back, the first `after` seconds after an instant (None: now), the others each `apart` seconds later.

        Gives the ids of those that were, of those that are left for another time, and the instant.
        """
        (row,) = await until_done(lambda: self._run("redrive_jobs", ids, attempts, since, after, apart, self._notify))
        return row["ids"], row["ids_left"], row["since"]
