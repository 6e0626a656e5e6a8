"""What a node asks while it has nothing to do: one question, for all of its sources and services."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import NamedTuple, Protocol
from uuid import UUID

import reactivex as rx
from reactivex import Observable, abc
from reactivex import operators as ops
from reactivex.disposable import CompositeDisposable, Disposable
from reactivex.subject import Subject

from rxjobs.awaiting import LONG, conflate_map, every
from rxjobs.demand import now
from rxjobs.events import Emit
from rxjobs.log_lines import logger
from rxjobs.middleware.circuits import Circuits
from rxjobs.source import Control
from rxjobs.sources.controls import AS_IS_DECLARED, Controls
from rxjobs.sources.low_water import LowWater
from rxjobs.store.limit_statements import Limits
from rxjobs.store.patience import passes, patiently
from rxjobs.store.store import FROM_THE_START, Look, Store

log = logger("rxjobs.source")

CHANGED = "!"
"""What is heard when somebody has asked something of a queue, or for jobs to be cancelled: no queue has this name."""

LATE_SECONDS = 0.5
"""An answer for which one waits for so long, or for a poll, is not waited for."""

Since = Callable[[], datetime | None]
"""From when on what waits is to be looked for; None where that is not this node's business."""


class Following(Protocol):
    """What is asked of a running process that looks for what there is to do, and does as queues are asked to."""

    @property
    def store(self) -> Store: ...

    @property
    def id(self) -> UUID: ...

    @property
    def label(self) -> str: ...

    @property
    def poll_seconds(self) -> float: ...

    @property
    def woken(self) -> Subject[str | None]: ...

    @property
    def emit(self) -> Emit: ...

    @property
    def circuits(self) -> Circuits: ...

    def startable(self, names: Iterable[str], *, as_probes: bool = False) -> list[str]: ...


class Asking(Protocol):
    """A source, as far as a look is about it."""

    @property
    def queue(self) -> str: ...

    @property
    def types(self) -> Iterable[str]: ...

    @property
    def low_water(self) -> LowWater: ...


class Seen(NamedTuple):
    """A look, and what it was about."""

    look: Look
    sources: tuple[Asking, ...]
    since: datetime | None
    from_the_start: frozenset[Asking]
    """The sources for which it began at no mark, so that it passed no job by."""

    def is_ready(self, source: Asking) -> bool:
        """Whether a job was seen for a source."""
        return any(self.sources[place] is source for place in self.look.ready)


class Looks:
    """What one node has seen, shared by whoever waits for something there.

    It looks once in `poll_seconds`, twice while jobs are held or something is asked of a queue, and at once when somebody new waits
    or a notification says that something is asked. So whatever is asked of a queue holds everywhere within `poll_seconds`, and a
    lost wake costs no more than that. Where a look fails, nothing is known: whoever waits goes and sees for himself.
    """

    def __init__(self, node: Following) -> None:
        self.controls = Controls(lambda: node.id, node.emit)
        self._node = node
        self._sources: list[Asking] = []
        self._queues: frozenset[str] = frozenset()
        self._since: Since = lambda: None
        self._looking = 0
        self._asked_at = self._read_at = 0
        """When it was asked last, and when what is known was asked for: by this process's own clock, ns."""
        self._last: Seen | None = None
        self._has_failed = self._was_due = False
        self._seen: Subject[Seen | None] = Subject()
        self._wanted: Subject[int] = Subject()
        self._kept_up: Observable[Seen | None] = rx.defer(self._keep_looking).pipe(ops.share())

    def wakes(self, source: Asking) -> Observable[object]:
        """Says whenever there may be a job for a source that it has not been told of."""

        def subscribe(observer: abc.ObserverBase[object], scheduler: abc.SchedulerBase | None = None) -> abc.DisposableBase:
            self._sources.append(source)
            self._queues = self._queues | {source.queue}

            def leave() -> None:
                self._sources.remove(source)
                self._queues = frozenset(one.queue for one in self._sources)

            def is_worth_asking(seen: Seen | None) -> bool:
                return seen is None or seen.is_ready(source)

            ready: Observable[object] = self._answers.pipe(ops.filter(is_worth_asking))
            return CompositeDisposable(ready.subscribe(observer, scheduler=scheduler), Disposable(leave))

        return Observable(subscribe)

    def hear(self, what: str) -> None:
        """Pass on what a notification says, if there is anybody here whom it concerns: anyone may send junk, and much of it."""
        if what in self._queues or what == CHANGED:
            self._node.woken.on_next(what)

    def wake(self) -> None:
        """Have every source asked now, whatever was seen."""
        for queue in {source.queue for source in self._sources}:
            self._node.woken.on_next(queue)

    def of(self, queue: str) -> Observable[Control]:
        """What is asked of a queue: what is known when it is subscribed, if anything, and then whatever is new."""

        def is_known(_: object) -> bool:
            return queue in self.controls.known

        def known(_: object) -> Control:
            return self.controls.known[queue]

        def follow(_: object) -> Observable[Control]:
            self.controls.queues.add(queue)
            return self._answers.pipe(ops.start_with(None), ops.filter(is_known), ops.map(known), ops.distinct_until_changed())

        return rx.defer(follow)

    def pending(self, since: Since) -> Observable[Seen | None]:
        """Every look, also for what waits and is due since then; None for one that failed."""

        def follow(_: object) -> Observable[Seen | None]:
            self._since = since
            return self._answers

        return rx.defer(follow)

    @property
    def cancelling(self) -> Observable[frozenset[tuple[int, int]]]:
        """The jobs that this node executes and is to cancel, by their ids and attempts, whenever it has looked."""

        def claims(seen: Seen | None) -> Observable[frozenset[tuple[int, int]]]:
            return rx.empty() if seen is None else rx.just(seen.look.cancelling)

        return self._answers.pipe(ops.concat_map(claims))

    def may_be_ready(self, source: Asking) -> bool:
        """Whether there may be a job for a source: false where a look, not long ago, began at the start and saw none."""
        seen = self._no_older_than(2 * self._node.poll_seconds)
        return seen is None or seen.is_ready(source) or source not in seen.from_the_start

    def may_be_gone(self, seconds: float) -> bool:
        """Whether there may be a node whose lease ran out: false where a look not longer ago than so many seconds saw none."""
        seen = self._no_older_than(seconds)
        return seen is None or seen.since is None or seen.look.is_a_node_gone

    async def is_paused(self, queue: str) -> bool:
        """Whether a queue is paused for this node, as it was at most `poll_seconds` ago; waits out a database that is not there."""
        self.controls.queues.add(queue)
        is_known = queue in self.controls.known and self._no_older_than(self._node.poll_seconds) is not None
        if not is_known and not self._looking:
            await self.look()
        return self.controls.known.get(queue, AS_IS_DECLARED).is_paused

    async def look(self) -> None:
        """See what there is to do and what is asked of queues; waits out a database that is not there."""
        await patiently("looking what there is to do", self._look)

    async def _look(self) -> None:
        node, sources, since = self._node, tuple(self._sources), self._since()
        types: set[str] = set()
        about = []
        for source in sources:
            own = node.startable(source.types)
            types.update(own)
            about.append((source.queue, source.low_water.begin(own)))
        queues = sorted(self.controls.queues)
        asked_at = self._asked_at = now()
        self._looking += 1
        try:
            names = sorted({node.label, str(node.id)})
            look = await node.store.look(queues, names, about, sorted(types), since, node.id, node.circuits.unsure)
        finally:
            self._looking -= 1
        if asked_at < self._read_at:  # a later look was answered before
            return
        self._read_at = asked_at
        from_the_start = (source for source, (_, marks) in zip(sources, about, strict=True) if marks is FROM_THE_START)
        self._has_failed = False
        self._last = Seen(look, sources, since, frozenset(from_the_start))
        self.controls.learn(queues, look.asked, look.limited)
        node.circuits.learn(look.breakers, asked_at)
        self._seen.on_next(self._last)
        await self._learn_limits(look.limited_at, asked_at)

    async def _learn_limits(self, limited_at: Mapping[str, datetime], asked_at: int) -> None:
        """Read limits that may have been changed, which is rare, so that they can be told of."""
        read: dict[str, Limits] = {}
        for queue in self.controls.changed_limits(limited_at):
            read |= await self._node.store.read_limits(queue)
        if asked_at == self._read_at:  # else what a later look saw is newer
            self.controls.learn_limits(limited_at, read)

    @property
    def changed(self) -> Observable[object]:
        """Says that something was asked of a queue or of an entry of cron, or may have been while nothing could be heard."""
        return self._node.woken.pipe(ops.filter(lambda heard: heard is None or heard == CHANGED))

    @property
    def _answers(self) -> Observable[Seen | None]:
        """What is seen, while anybody wants to know; somebody new does at once."""

        def begin(_: object) -> Observable[Seen | None]:
            looked = rx.merge(self._seen, self._kept_up.pipe(ops.ignore_elements()))
            return rx.merge(looked, rx.empty().pipe(ops.do_action(on_completed=lambda: self._wanted.on_next(now()))))

        return rx.defer(begin)

    def _keep_looking(self, _: object) -> Observable[None]:
        poll = self._node.poll_seconds
        if poll < LONG:  # so that nodes do not look in step, which those that look seldom do not anyway
            poll *= random.uniform(0.97, 1.0)  # noqa: S311 - jitter

        def wait() -> float:
            # what was not due at one tick is at the next, half a poll later
            return poll / 2 if self.controls.matter or self._looking or not self._was_due else poll

        heard = self.changed.pipe(ops.map(lambda _: now()))
        ticks = every(wait, self._tick).pipe(ops.skip(1), ops.filter(bool), ops.map(lambda _: now()))
        return rx.merge(ticks, heard, self._wanted).pipe(conflate_map(self._look_after))

    async def _tick(self) -> bool:
        """Whether it is time to look; has nobody wait for an answer that does not come."""
        if self._looking and now() - self._asked_at > max(self._node.poll_seconds, LATE_SECONDS) * 1e9:
            self._seen.on_next(None)
        polls = (now() - self._asked_at) / (self._node.poll_seconds * 1e9)
        self._was_due = not self._looking and polls > (0.25 if self.controls.matter else 0.75)
        return self._was_due

    async def _look_after(self, wanted: list[int]) -> list[None]:
        """Look unless that was begun since it was wanted last."""
        if self._asked_at > wanted[-1]:
            return []
        try:
            await self._look()
        except Exception as error:
            if not passes(error) and not self._has_failed:  # of what passes, whoever goes and sees tells
                log.exception("this node cannot look what there is to do at once: each of its sources and services asks by itself")
            self._has_failed = True
            self._seen.on_next(None)
        return []

    def _no_older_than(self, seconds: float) -> Seen | None:
        """What was seen last, unless that is longer ago."""
        return self._last if now() - self._read_at <= seconds * 1e9 else None
