"""The statements about dead letters, and about what becomes of finished jobs in the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from rxjobs.store.asking import Asking, Rows
from rxjobs.store.encoding import Filters
from rxjobs.store.undone import until_done


class Pruned(NamedTuple):
    """What a look for finished jobs that were kept long enough has deleted."""

    states: Counter[str]
    """How many of each state."""
    up_to: datetime
    """What ended before is old, dead letters aside. Where fewer were deleted than might have been none of it is left, unless
    somebody held it, or writes it down only now: an instant is that of a transaction's beginning."""


class Tended(NamedTuple):
    """What was done to a partition of the history, and how many jobs of which state went with it."""

    done: str
    """made, dropped, emptied or pruned"""
    name: str
    state: str | None
    jobs: int


class DeadStatements(Asking):
    """Dead letters: the jobs that were discarded. And all that are finished."""

    async def prune_jobs(
        self, keep: float, limit: int, leader: UUID, term: int, keep_discarded: float | None = None, since: datetime | None = None
    ) -> Pruned:
        """Delete finished jobs older than `keep` seconds, dead letters by an age of their own, others that ended `since`."""
        age = keep if keep_discarded is None else keep_discarded
        *rows, last = await self._run("prune_jobs", keep, limit, leader, term, age, since)
        return Pruned(Counter({row["state"]: row["count"] for row in rows}), last["up_to"])

    async def tend_history(self, keep: float, leader: UUID, term: int, keep_discarded: float | None = None) -> list[Tended]:
        """Do the next thing that a partitioned history needs; gives what it was, and nothing where there is nothing to do.

        Raises TimeoutError where somebody keeps a lock on a table of it for longer than others may be kept waiting.
        """
        age = keep if keep_discarded is None else keep_discarded
        return [Tended(**row) for row in await self._run("tend_history", leader, term, keep, age)]

    async def read_history(self) -> Rows:
        """The partitions of the history, the oldest first; none where it is not partitioned."""
        return await self._run("read_history")

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
