"""What is asked of queues at run time, as this node knows it. It is written in a table; a notification only says to look there."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from typing import Any, Protocol
from uuid import UUID

import reactivex as rx
from reactivex import Observable
from reactivex import operators as ops
from reactivex.subject import Subject

from rxjobs.awaiting import conflate_map, every
from rxjobs.demand import Control, now
from rxjobs.events import Emit, QueuePaused, QueueResumed, QueueScaled
from rxjobs.store.patience import patiently
from rxjobs.store.store import Store

log = logging.getLogger("rxjobs.queues")

CHANGED = "!"
"""What is heard when somebody has asked something of a queue: no queue has this name."""
AS_IS_DECLARED = Control()
IDLE = 5
"""Polls from one look to the next while no job is held and nothing is asked of any queue."""


class Following(Protocol):
    """What is asked of a running process that does as queues are asked to."""

    @property
    def store(self) -> Store: ...

    @property
    def id(self) -> UUID: ...

    @property
    def label(self) -> str: ...

    @property
    def poll_seconds(self) -> float: ...

    @property
    def woken(self) -> Observable[str | None]: ...

    @property
    def emit(self) -> Emit: ...


class Controls:
    """What a node knows of the queues that it takes jobs from.

    A claim itself gives nothing while its queue is paused. What was claimed before and has not begun is given back once the pause
    is known: it looks twice in `poll_seconds`, once for all queues, while jobs are held or something is asked, and when a
    notification says so. So whatever is asked of a queue holds everywhere within `poll_seconds`, also where none arrives.
    """

    def __init__(self, node: Following) -> None:
        self._node = node
        self._queues: set[str] = set()
        self._known: Mapping[str, Control] = {}
        self._held: Counter[str] = Counter()
        self._looking = 0
        self._asked_at = self._read_at = 0
        """When it was asked last, and when what is known was asked for: by this process's own clock, ns."""
        self._learned: Subject[object] = Subject()

    def of(self, queue: str) -> Observable[Control]:
        """What is asked of a queue: what is known when it is subscribed, if anything, and then whatever is new."""

        def known(_: object) -> Observable[Control]:
            return rx.of(self._known[queue]) if queue in self._known else rx.empty()

        def follow(_: object) -> Observable[Control]:
            self._queues.add(queue)
            looked = rx.merge(self._learned, self._looks)
            return looked.pipe(ops.start_with(None), ops.flat_map(known), ops.distinct_until_changed())

        return rx.defer(follow)

    def hold(self, queue: str, count: int) -> None:
        """So many jobs of a queue are held more than before, or fewer: what is asked of it matters as long as any is."""
        self._held[queue] += count

    async def is_paused(self, queue: str) -> bool:
        """Whether a queue is paused for this node, as it was at most `poll_seconds` ago; waits out a database that is not there."""
        self._queues.add(queue)
        if (queue not in self._known or now() - self._read_at > self._poll * 1e9) and not self._looking:
            await self.look()
        return self._known.get(queue, AS_IS_DECLARED).is_paused

    async def look(self) -> None:
        """See what is asked of the queues."""
        node, queues = self._node, sorted(self._queues)
        asked_at = self._asked_at = now()
        names = {node.label, str(node.id)}
        self._looking += 1
        try:
            rows = await patiently("looking which queues are paused", lambda: node.store.read_controls(queues, sorted(names)))
        finally:
            self._looking -= 1
        if asked_at >= self._read_at:  # else a later look was answered before
            self._read_at = asked_at
            self._learn(dict.fromkeys(queues, AS_IS_DECLARED) | {row["queue"]: _control(row) for row in rows})

    @property
    def _poll(self) -> float:
        return self._node.poll_seconds

    @property
    def _looks(self) -> Observable[object]:
        """A look whenever it is time, or somebody says so."""
        heard = self._node.woken.pipe(ops.filter(lambda heard: heard is None or heard == CHANGED), ops.map(lambda _: now()))
        return rx.merge(heard.pipe(conflate_map(self._look_after)), every(lambda: self._poll / 2, self._look_now_and_then))

    async def _look_now_and_then(self) -> None:
        """Look unless another pull of this node has, or is at it; less often while nothing depends on it."""
        matters = any(self._held.values()) or any(control != AS_IS_DECLARED for control in self._known.values())
        since = (now() - self._asked_at) / 1e9
        if self._looking:
            return
        if since >= self._poll * (0.5 if matters else IDLE) or not self._queues <= self._known.keys():
            await self.look()

    async def _look_after(self, heard: list[int]) -> list[object]:
        if self._asked_at <= heard[-1]:
            await self.look()
        return []

    def _learn(self, known: Mapping[str, Control]) -> None:
        before, self._known = self._known, known
        for queue, control in known.items():
            self._tell(queue, before.get(queue, AS_IS_DECLARED), control)
        self._learned.on_next(None)

    def _tell(self, queue: str, before: Control, control: Control) -> None:
        if control.is_paused != before.is_paused:
            log.info("queue %s %s", queue, "is paused: no job of it starts here" if control.is_paused else "goes on")
            self._node.emit((QueuePaused if control.is_paused else QueueResumed)(queue=queue, node=str(self._node.id)))
        if control.max_demand != before.max_demand:
            log.info("queue %s is scaled: max_demand is %s", queue, control.max_demand or "as is declared")
            self._node.emit(QueueScaled(queue=queue, node=str(self._node.id), max_demand=control.max_demand))


def _control(row: Any) -> Control:
    return Control(is_paused=row["is_paused"], max_demand=row["max_demand"])
