"""The breakers of job types, looked at and moved from outside: `app.breakers`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from rxjobs.definition import Definition
from rxjobs.errors import InvalidOption, UnknownJobType
from rxjobs.middleware.circuits import Circuits
from rxjobs.sources.looks import Looks
from rxjobs.store.store import Store


class BreakerState(msgspec.Struct, frozen=True):
    """How the breaker of a job type stands for all nodes: closed, open or half-open.

    `moved_at` is since when, None where it never moved; `wait` is for how many seconds more it stays open, None where it is not, or
    was opened by hand and stays so until it is closed; `failures` are those in a row while it is closed, and `probing` how many
    jobs try whether it can close. `queue` is what the type declares, where that is known.
    """

    type: str
    state: str = "closed"
    moved_at: datetime | None = None
    wait: float | None = None
    is_by_hand: bool = False
    failures: int = 0
    probing: int = 0
    queue: str | None = None


class Breakers:
    """The breakers of all job types. Called, it gives the state that each is in on this node: `app.breakers()`.

    What is asked here is written in a table, and heeded on each node within its `poll_seconds`, at once where notifications
    arrive. Each move is told as an event on every node: `breaker.open`, `breaker.half_open`, `breaker.close`.
    """

    def __init__(
        self,
        store: Callable[[], Store],
        definitions: Mapping[str, Definition[..., Any]],
        circuits: Circuits,
        looks: Looks,
    ) -> None:
        self._store = store
        self._definitions = definitions
        self._circuits = circuits
        self._looks = looks

    def __call__(self) -> dict[str, str]:
        """The state of each job type's breaker on this node: closed, open or half-open."""
        return self._circuits.states()

    async def list(self) -> list[BreakerState]:
        """The breakers of this app's job types, and of all others that have failed."""
        found = {row["type"]: BreakerState(**row) for row in await self._store().list_breakers()}
        return [found.get(name) or BreakerState(name) for name in sorted({*found, *self._own})]

    async def open(self, name: str) -> bool:
        """Start no job of a type on any node until its breaker is closed by hand; gives whether that is new.

        What runs may end. What a node has fetched and not begun goes back, which costs it no attempt. Raises UnknownJobType, and
        InvalidOption for a type that has no breaker.
        """
        await self._check(name)
        is_new = await self._store().open_breaker(name)
        await self._looks.look()
        return is_new

    async def close(self, name: str) -> bool:
        """Start jobs of a type again, and count its failures anew; gives whether that is new. Raises as `open` does."""
        await self._check(name)
        is_new = await self._store().close_breaker(name)
        await self._looks.look()
        return is_new

    @property
    def _own(self) -> set[str]:
        """The job types of this app that have one."""
        return {name for name, definition in self._definitions.items() if definition.how.breaker is not None}

    async def _check(self, name: str) -> None:
        if name in self._definitions:
            if name not in self._own:
                raise InvalidOption(f"job type {name!r} has no breaker: it is declared with breaker=None")
        elif not await self._store().is_known_type(name):
            known = ", ".join(one.type for one in await self.list()) or "none"
            raise UnknownJobType(
                f"no job type {name!r} is known: this app has none, no living node takes its jobs, and none has failed; breakers "
                f"are known of {known}"
            )
