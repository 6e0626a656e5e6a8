"""What the leader does for a partitioned history: make the periods that come, and drop those that are over."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

import asyncpg

from rxjobs.log_lines import logger
from rxjobs.store.store import Store

log = logger("rxjobs.history")


class Tending:
    """Looks after the partitions of a history that has some: one of them a round, until there is nothing left to do."""

    def __init__(self, store: Store, keep: float, keep_discarded: float | None) -> None:
        self._store = store
        self._kept = keep, keep_discarded
        self._failed: str | None = None
        self.is_not_done = False

    async def once(self, leader: UUID, term: int) -> Counter[str]:
        """Do the next thing; gives how many jobs went with it. What fails is done in the next round: nothing waits for it."""
        keep, keep_discarded = self._kept
        try:
            done = await self._store.tend_history(keep, leader, term, keep_discarded)
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError) as error:
            self._tell(error)
            self.is_not_done = False
            return Counter()
        self._tell(None)
        self.is_not_done = bool(done)
        for one in done[:1]:
            if one.done != "pruned":
                log.info("partition %s of the history was %s", one.name, one.done)
        return Counter({one.state: one.jobs for one in done if one.state is not None})

    def _tell(self, error: BaseException | None) -> None:
        failed = None if error is None else type(error).__name__
        if error is not None and failed != self._failed:
            why = "somebody keeps a lock on one of them" if isinstance(error, TimeoutError) else f"{failed}: {error}"
            log.warning(
                "the partitions of the history could not be looked after, which is tried again each minute: %s. Jobs end as "
                "before, and those whose period has no table go to finished_jobs_other. What keeps a lock is a transaction that "
                "reads finished jobs and does not end, as a backup; where a right is missing, run rxjobs migrate as the owner",
                why,
            )
        elif error is None and self._failed is not None:
            log.warning("the partitions of the history are looked after again")
        self._failed = failed
