"""The queues, looked at and steered from outside: `app.queues`."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Coroutine, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from rxjobs.checks import check_number
from rxjobs.definition import Definition, check_queue
from rxjobs.errors import InvalidOption, UnknownQueue
from rxjobs.log_lines import logger
from rxjobs.sources.looks import Looks
from rxjobs.store.limit_statements import NONE, Limits, Rate
from rxjobs.store.store import Rows, Store

log = logger("rxjobs")

ALL = ""
MOST = 1_000_000
"""As many jobs as a pull is to hold at most."""
MOST_AT_ONCE = 10_000
"""As many jobs of a queue, or of one key, as a limit lets run at once: each claim looks at every one of those that run."""
MOST_STARTS = 1_000_000_000
SHORTEST, LONGEST = 0.1, 30 * 86400.0
"""Seconds of a window."""
HEAVIEST = 1000
BY = re.compile(r"args(\.[^.]{1,100}){1,8}")


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
    their labels or else ids; `asked` is what was asked of it at run time, and `limits` holds across all nodes.
    """

    name: str
    jobs: Mapping[str, int]
    types: tuple[str, ...]
    waited: float | None = None
    nodes: tuple[str, ...] = ()
    asked: tuple[Asked, ...] = ()
    limits: Limits = NONE


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
        limits = await store.read_limits()
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
                limits=limits.get(name, NONE),
            )
            for name in sorted({*types, *backlogs, *controls, *limits, *serving})
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

    async def limit(self, queue: str, *, concurrency: int | None, by: str | None = None) -> bool:
        """Have at most so many jobs of a queue run at once across all nodes, or of each key of it; None lifts that.

        `by` says what the key is: "args.tenant" is the argument `tenant`. Both may hold: so many in all, and so many of each key.
        Without `by`, None lifts both. A job counts from its claim until its end is written down. Those that run already do too.
        Raises UnknownQueue, InvalidOption.
        """
        if concurrency is not None:
            check_number(f"queue {queue}", "concurrency", concurrency, 1, MOST_AT_ONCE)

        def change(before: Limits) -> Limits:
            if by is not None:
                return _by(queue, before, by, each_concurrency=concurrency)
            each = before.each_concurrency if concurrency is not None else None
            return _by(queue, before, None, concurrency=concurrency, each_concurrency=each)

        return await self._limited(queue, by, change)

    async def rate(self, queue: str, n: int | None, *, per: float = 60, by: str | None = None, burst: int | None = None) -> bool:
        """Have at most n jobs of a queue start in any window of `per` seconds across all nodes, or of each key; None lifts that.

        Windows are fixed: they begin at the multiples of `per` of PostgreSQL's clock. With `burst` there are none: a bucket of that
        size gets n tokens in `per` seconds, and each start takes one. A job starts when it is claimed. `by` as in `limit`.
        Raises UnknownQueue, InvalidOption.
        """
        if n is not None:
            check_number(f"queue {queue}", "n", n, 1, MOST_STARTS)
            check_number(f"queue {queue}", "per", per, SHORTEST, LONGEST, (int, float))
        if burst is not None:
            check_number(f"queue {queue}", "burst", burst, 1, MOST_STARTS)
        rate = None if n is None else Rate(n, float(per), burst)

        def change(before: Limits) -> Limits:
            if by is not None:
                return _by(queue, before, by, each_rate=rate)
            return _by(queue, before, None, rate=rate, each_rate=before.each_rate if rate is not None else None)

        return await self._limited(queue, by, change)

    async def share(self, queue: str, *, by: str | None, weights: Mapping[str, float] | None = None) -> bool:
        """Have keys share a queue: of jobs of one priority each gets as many as its weight says while it has any. None lifts it.

        A key weighs 1 if `weights` does not say otherwise. `by` as in `limit`. Raises UnknownQueue, InvalidOption.
        """
        weights = {} if weights is None else dict(weights)
        for key, weight in weights.items():
            if not isinstance(key, str):
                raise InvalidOption(f"queue {queue}: weights are by the text of a key, such as {{'acme': 3}}, not {key!r:.100}")
            check_number(f"queue {queue}", f"the weight of {key!r:.100}", weight, 1 / HEAVIEST, HEAVIEST, (int, float))
        if by is None and weights:
            raise InvalidOption(f'queue {queue}: weights are of keys; say what the key is, such as by="args.tenant"')
        if by is None:
            return await self._limited(queue, by, lambda before: _by(queue, before, None, weights={}, is_shared=False))
        given = {key: float(weight) for key, weight in weights.items()}
        return await self._limited(queue, by, lambda before: _by(queue, before, by, weights=given, is_shared=True))

    async def _limited(self, queue: str, by: str | None, change: Callable[[Limits], Limits]) -> bool:
        await self._check(queue)
        if by is not None and (not isinstance(by, str) or not BY.fullmatch(by)):
            raise InvalidOption(f'queue {queue}: by names an argument, such as "args.tenant" or "args.user.id", not {by!r:.100}')
        return await self._done(queue, self._store().change_limits(queue, change))

    @property
    def declared(self) -> set[str]:
        """The queues that this app's job types and pipelines name."""
        return {definition.how.queue for definition in self._definitions.values()} | set(self._taken)

    def warn_of_those_that_wait(self) -> None:
        """Say in the log which queues of this app's job types no pipeline of it takes jobs from."""
        waiting = self.declared - set(self._taken)
        if waiting:
            log.warning("no declared pipeline takes jobs from %s: they wait until some process does", ", ".join(sorted(waiting)))

    async def _done(self, queue: str, change: Coroutine[Any, Any, bool]) -> bool:
        """Have a change made, and heed it here before the caller is told."""
        await self._looks.is_paused(queue)  # what it was before is to be known, so that what is new can be told
        is_new = await change
        await self._looks.look()
        return is_new

    async def _check(self, queue: str) -> None:
        check_queue(queue)
        own = self.declared
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


def _by(queue: str, before: Limits, by: str | None, **changes: Any) -> Limits:
    """Limits with something changed; raises InvalidOption where that would be by another key than what stands."""
    after = msgspec.structs.replace(before, **changes)
    if by is not None and before.by not in (None, by) and before.is_by_key:
        raise InvalidOption(
            f"queue {queue} is limited by {before.by}, and a queue has one kind of keys: lift what is by {before.by} before it is "
            f"limited by {by}"
        )
    return msgspec.structs.replace(after, by=(by or before.by) if after.is_by_key else None)


def _by_queue(rows: Rows) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for row in rows:
        found.setdefault(row["queue"], []).append(row)
    return found


def _asked(row: Any) -> Asked:
    return Asked(row["node"] or None, row["paused_at"], row["max_demand"], row["is_living"])
