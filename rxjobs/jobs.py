"""The rows, looked after from outside: `app.jobs`."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import asyncpg

from rxjobs.definition import Definition, check_number
from rxjobs.errors import InvalidOption
from rxjobs.failure import clean
from rxjobs.job import Job, State
from rxjobs.store.encoding import Filters, job_from_row
from rxjobs.store.store import Store

log = logging.getLogger("rxjobs.jobs")

BATCH = 1000
MOST = 100_000

Names = str | Iterable[str] | None


class Jobs:
    """Find, count, cancel, retry and delete jobs, by id or by filters; a filter takes one value or several."""

    def __init__(self, store: Callable[[], Store], definitions: Mapping[str, Definition[..., Any]]) -> None:
        self._store = store
        self._definitions = definitions

    async def get(self, id: int) -> Job | None:
        """The job with this id, or None."""
        rows = await self._store().get_jobs([id])
        return self._job(rows[0]) if rows else None

    async def list(
        self,
        *,
        state: Names = None,
        queue: Names = None,
        type: Names = None,
        tags: Names = None,
        limit: int = 100,
        after: int | None = None,
    ) -> list[Job]:
        """Jobs, the newest first; `after` is the id of the last one of the page before, `limit` at most 100,000."""
        check_number("jobs.list", "limit", limit, 1, MOST)
        rows = await self._store().list_jobs(_filters(state, queue, type, tags), after, limit)
        return [self._job(row) for row in rows]

    async def count(
        self,
        *,
        state: Names = None,
        queue: Names = None,
        type: Names = None,
        tags: Names = None,
    ) -> dict[str, int]:
        """How many jobs there are, by state."""
        return await self._store().count_jobs(_filters(state, queue, type, tags))

    async def cancel(self, ids: int | Iterable[int] | None = None, **filters: Names) -> int:
        """Cancel jobs that wait; gives how many were."""
        return await self._apply(self._store().cancel_jobs, ids, filters)

    async def retry(self, ids: int | Iterable[int] | None = None, *, attempts: int = 1, **filters: Names) -> int:
        """Make jobs available at once; where attempts are used up, `attempts` more. Gives how many were."""
        return await self._apply(lambda some: self._retry(some, attempts), ids, filters)

    async def delete(self, ids: int | Iterable[int] | None = None, **filters: Names) -> int:
        """Delete jobs that are not executing; gives how many were."""
        return await self._apply(self._store().delete_jobs, ids, filters)

    async def _retry(self, ids: Sequence[int], attempts: int) -> set[int]:
        """All but those whose unique key another job has by now: these stay ended, or are cancelled if they waited."""
        while True:
            try:
                return await self._store().retry_jobs(ids, attempts)
            except asyncpg.UniqueViolationError:
                twins = await self._store().twins_of(ids)
                pairs = ", ".join(f"{id_} ({twin})" for id_, twin in twins.items())
                log.warning("not retried, since others have their unique keys: %s", pairs)
                await self._store().cancel_twins(list(twins), None, list(twins.values()))
                ids = [id_ for id_ in ids if id_ not in twins]

    async def _apply(
        self,
        change: Callable[[Sequence[int]], Awaitable[set[int]]],
        ids: int | Iterable[int] | None,
        filters: Mapping[str, Names],
    ) -> int:
        filters = {name: value for name, value in filters.items() if value is not None}
        if (ids is None) == (not filters):
            raise InvalidOption("say which jobs: by id, or by filters such as state='discarded', queue=, type=, tags=")
        if ids is not None:
            return len(await change([ids] if isinstance(ids, int) else list(ids)))
        unknown = filters.keys() - {"state", "queue", "type", "tags"}
        if unknown:
            raise InvalidOption(f"jobs are filtered by state, queue, type and tags, not by {', '.join(sorted(unknown))}")
        wanted = _filters(filters.get("state"), filters.get("queue"), filters.get("type"), filters.get("tags"))
        changed, above = 0, 0
        while page := await self._store().find_jobs(wanted, above, BATCH):
            changed += len(await change(page))
            above = page[-1]
        return changed

    def _job(self, row: asyncpg.Record) -> Job:
        definition, stored = self._definitions.get(row["type"]), row["args"]
        if definition is None:
            return job_from_row(row, stored)
        try:
            stored = definition.unseal(stored)
            return job_from_row(row, stored, definition.arguments.load(stored))
        except Exception:  # BadPayload, or whatever a codec raises: the row is shown as far as it can be read
            return job_from_row(row, stored)


def _filters(state: Names, queue: Names, type: Names, tags: Names) -> Filters:
    states = _several(state)
    known = {one.value for one in State}
    for one in states or ():
        if one not in known:
            raise InvalidOption(f"state is one of {', '.join(sorted(known))}, not {one!r}")
    return Filters(states, _several(queue), _several(type), _several(tags))


def _several(names: Names) -> tuple[str, ...] | None:
    if names is None:
        return None
    several = (names,) if isinstance(names, str) else tuple(names)
    for name in several:
        if not isinstance(name, str) or clean(name, len(name)) != name:
            raise InvalidOption(f"jobs are filtered by text that PostgreSQL can hold, not by {name!r:.100}")
    return several
