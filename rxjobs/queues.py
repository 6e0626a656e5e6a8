"""The queues, looked at and steered from outside: `app.queues`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from rxjobs.definition import Definition, check_number, check_queue
from rxjobs.errors import InvalidOption, UnknownQueue
from rxjobs.sources.looks import Looks
from rxjobs.store.store import Rows, Store

ALL = ""
MOST = 1_000_000
"""As many jobs as a pull is to hold at most."""


class Asked(msgspec.Struct, frozen=True):
    """What was asked of a queue at run time: for all nodes, or for those of one name, its label or id."""

    node: str | None
    paused_at: datetime | None
    max_demand: int | None
    is_living: bool
    """Whether a node of that name lives."""


class Queue(msgspec.Struct, frozen=True):
    """A queue: how many unfinished jobs stand in it by state, and the job types that name it.

    `waited` is for how many seconds the oldest job that may run has done so; `nodes` are the living ones that take jobs from it, by
    their labels or else ids; `asked` is what was asked of it at run time.
    """

    name: str
    jobs: Mapping[str, int]
    types: tuple[str, ...]
    waited: float | None = None
    nodes: tuple[str, ...] = ()
    asked: tuple[Asked, ...] = ()


class Queues:
    """What queues there are, and what is asked of them while they are worked on.

    What is asked is written in a table, and holds until something else is asked: also for nodes that start later. It takes effect
    on each node within its `poll_seconds`, and at once where notifications arrive. Each call gives whether that was new.
    """

    def __init__(
        self,
        store: Callable[[], Store],
        definitions: Mapping[str, Definition[..., Any]],
        taken: Collection[str],
        looks: Looks,
    ) -> None:
        self._store = store
        self._definitions = definitions
        self._taken = taken
        self._looks = looks

    async def list(self) -> list[Queue]:
        """Every queue that a job type names, that holds unfinished jobs, that a node serves, or that something is asked of."""
        store = self._store()
        types: dict[str, list[str]] = {}
        for definition in self._definitions.values():
            types.setdefault(definition.how.queue, []).append(definition.name)
        backlogs = _by_queue(await store.list_queues())
        controls = _by_queue(await store.list_controls())
        nodes = await store.list_nodes()
        serving = {queue for node in nodes for queue in node["queues"]}
        return [
            Queue(
                name=name,
                jobs={row["state"]: row["jobs"] for row in backlogs.get(name, ())},
                types=tuple(sorted(types.get(name, ()))),
                waited=next((row["waited"] for row in backlogs.get(name, ()) if row["waited"] is not None), None),
                nodes=tuple(node["label"] or node["id"] for node in nodes if name in node["queues"]),
                asked=tuple(_asked(row) for row in controls.get(name, ())),
            )
            for name in sorted({*types, *backlogs, *controls, *serving})
        ]

    async def pause(self, queue: str, *, node: str | UUID | None = None) -> bool:
        """Start no more jobs of a queue, on no node or not on those with this label or id; raises UnknownQueue, InvalidOption.

        What runs may end. What a node holds and has not begun goes back, which costs it no attempt.
        """
        await self._check(queue)
        name = await self._named(node)
        return await self._done(queue, self._store().pause_queue(queue, name))

    async def resume(self, queue: str, *, node: str | UUID | None = None) -> bool:
        """Start jobs of a queue again: without a node, also on those nodes that were paused by themselves."""
        await self._check(queue)
        if node is None:
            return await self._done(queue, self._store().resume_queue(queue))
        controls = await self._store().list_controls()
        paused = {row["node"] for row in controls if row["queue"] == queue and row["paused_at"] is not None}
        name = str(node) if str(node) in paused else await self._named(node)
        if ALL in paused and name not in paused:
            raise InvalidOption(f"queue {queue!r} is paused for all nodes, and so for {name!r}: resume it without naming a node")
        return await self._done(queue, self._store().resume_queue(queue, name))

    async def scale(self, queue: str, *, max_demand: int | None, node: str | UUID | None = None) -> bool:
        """Hold at most so many jobs of a queue at a time in each of its pulls, in place of what is declared (None: as is declared).

        Without a node it holds for all, also for those that were told another number by themselves. What is held beyond it runs to
        its end, and none is fetched before. How many run at once is also bounded by the concurrency of the stage that runs them.
        """
        await self._check(queue)
        if max_demand is not None:
            check_number(f"queue {queue}", "max_demand", max_demand, 1, MOST)
        name = await self._named(node)
        return await self._done(queue, self._store().scale_queue(queue, max_demand, name))

    async def _done(self, queue: str, change: Coroutine[Any, Any, bool]) -> bool:
        """Have a change made, and heed it here before the caller is told."""
        await self._looks.is_paused(queue)  # what it was before is to be known, so that what is new can be told
        is_new = await change
        await self._looks.look()
        return is_new

    async def _check(self, queue: str) -> None:
        check_queue(queue)
        own = {definition.how.queue for definition in self._definitions.values()} | set(self._taken)
        if queue not in own and not await self._store().is_known_queue(queue):
            known = ", ".join(sorted({one.name for one in await self.list()} | own)) or "none"
            raise UnknownQueue(
                f"no queue {queue!r} is known: this app has no job type and no pipeline of it, no node takes jobs from it, and it "
                f"holds none; known are {known}"
            )

    async def _named(self, node: str | UUID | None) -> str:
        """The name that rows call a node by; raises InvalidOption where no living node has it."""
        if node is None:
            return ALL
        name, nodes = str(node), await self._store().list_nodes()
        if not any(name and name in (row["label"], row["id"]) for row in nodes):
            known = ", ".join(row["label"] or row["id"] for row in nodes) or "none"
            raise InvalidOption(f"no living node has the label or id {name!r}; there are {known}")
        return name


def _by_queue(rows: Rows) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for row in rows:
        found.setdefault(row["queue"], []).append(row)
    return found


def _asked(row: Any) -> Asked:
    return Asked(row["node"] or None, row["paused_at"], row["max_demand"], row["is_living"])
