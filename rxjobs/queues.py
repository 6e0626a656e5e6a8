"""The queues, looked at from outside: `app.queues`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from rxjobs.definition import Definition
from rxjobs.store.store import Store


class Queue(msgspec.Struct, frozen=True):
    """A queue, how many unfinished jobs stand in it by state, and the job types that name it."""

    name: str
    jobs: Mapping[str, int]
    types: tuple[str, ...]


class Queues:
    """What queues there are, and what stands in them."""

    def __init__(self, store: Callable[[], Store], definitions: Mapping[str, Definition[..., Any]]) -> None:
        self._store = store
        self._definitions = definitions

    async def list(self) -> list[Queue]:
        """Every queue that a job type names or that holds unfinished jobs."""
        types: dict[str, list[str]] = {}
        for definition in self._definitions.values():
            types.setdefault(definition.how.queue, []).append(definition.name)
        depths: dict[str, dict[str, int]] = {name: {} for name in types}
        for row in await self._store().queue_depths():
            depths.setdefault(row["queue"], {})[row["state"]] = row["jobs"]
        return [Queue(name, jobs, tuple(sorted(types.get(name, ())))) for name, jobs in sorted(depths.items())]
