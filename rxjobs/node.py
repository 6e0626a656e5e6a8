"""One running process as the others see it: its identity and lease, and the services that it runs beside its pipelines."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Any, Protocol
from uuid import UUID

from reactivex import Observable, abc
from reactivex import operators as ops
from reactivex.disposable import CompositeDisposable, SerialDisposable, SingleAssignmentDisposable
from reactivex.subject import Subject

from rxjobs.awaiting import LoopScheduler
from rxjobs.cron import Cron
from rxjobs.dead_letters import DeadLetters
from rxjobs.definition import Definition
from rxjobs.event_stream import EventStream
from rxjobs.events import NodeCutOff, NodeJoined, NodeLeft, NodeLost
from rxjobs.log_lines import logger
from rxjobs.nodes import WATCHED
from rxjobs.runner import Running
from rxjobs.services.ageing import ageing
from rxjobs.services.claims import lost_claims
from rxjobs.services.cron import cron, declare
from rxjobs.services.delays import PING, loop_delay, notify_delay
from rxjobs.services.delays import Watcher as DelayWatcher
from rxjobs.services.horizon import horizon
from rxjobs.services.lead import Leadership, lead
from rxjobs.services.lease import Lease
from rxjobs.services.observe import Watcher as DepthWatcher
from rxjobs.services.observe import observe
from rxjobs.services.progress import progress, quiet_seconds
from rxjobs.services.prune import prune
from rxjobs.services.rescue import rescue
from rxjobs.services.room import room
from rxjobs.services.serve import serve
from rxjobs.services.stage import stage
from rxjobs.services.unserved import unserved, unserved_so_far
from rxjobs.services.watch import LoopWatch
from rxjobs.settings import Settings
from rxjobs.sources.looks import Looks
from rxjobs.status import Status
from rxjobs.stopping import spawn
from rxjobs.store.hearing import listens_or_tells, tell_if_deaf
from rxjobs.store.listener import Listener
from rxjobs.store.patience import patiently
from rxjobs.store.store import Store
from rxjobs.telemetry.vitals import Vitals
from rxjobs.vitals import NodeVitals

log = logger("rxjobs.node")

RESTARTS = 1.0, 30.0
"""Seconds until a service that failed is started again: the first time, and at most."""
POLLS = 10
"""For how many polls a job has been ready before whoever looks on is told that nobody takes it."""
UNSERVED_SECONDS, HORIZON_SECONDS, ROOM_SECONDS = 60.0, 30.0, 10.0
"""How often jobs are looked for that nobody takes, what pins the vacuum horizon, and the room for notifications."""
LEAVE_SECONDS = 2.0


class Watcher(DepthWatcher, DelayWatcher, Protocol):
    """Who wants to know how a node does."""

    def follow(self, vitals: Vitals | None) -> None: ...

    def time_connection(self, pool: str, waited: float, used: float) -> None: ...


class Node:
    """A node, from its start to its end."""

    def __init__(
        self,
        id: UUID,
        settings: Settings,
        store: Store,
        events: EventStream,
        watcher: Watcher,
        definitions: Mapping[str, Definition[..., Any]],
        looks: Looks,
        crons: Cron,
        breakers: Callable[[], Mapping[str, str]],
        dead_letters: DeadLetters,
    ) -> None:
        self.id = id
        self._settings = settings
        self._store = store
        self._events = events
        self._watcher = watcher
        self._definitions = definitions
        self._looks = looks
        self._crons = crons
        self._breakers = breakers
        self._dead_letters = dead_letters
        self._pings: Subject[str | None] = Subject()

    async def join(
        self,
        stack: AsyncExitStack,
        scheduler: LoopScheduler,
        heard: Callable[[str | None], object],
        running: Running,
    ) -> None:
        """Take up the lease, listen and serve until the stack is closed; the lease goes last, after the last ack."""

        def held() -> set[int]:
            return running.held_ids

        how, witness = self._settings, self._dead_letters.witness
        status = Status(running, witness, how.lease_seconds)
        lease = Lease(
            self._store.database.apart(), how.schema, self.id, how.node, seconds=how.lease_seconds, heartbeat=how.heartbeat_seconds,
            on_cut_off=lambda: scheduler.here(lambda: self._cut_off(running)),
            on_lost=lambda: scheduler.here(self._lost),
            on_restored=lambda: scheduler.here(lambda: self._restored(running, heard)),
            status=status.told, tenure=running.tenure,
        )  # fmt: skip
        # the database was there a moment ago: should it go away, it is waited for, as it is later
        take_lease, declare_types = self._store.take_lease, self._store.declare_types
        await patiently("taking up a lease", lambda: take_lease(self.id, how.node, os.getpid(), how.lease_seconds))
        stack.push_async_callback(self._leave, held, status)
        stack.push_async_callback(self._dead_letters.finish)
        types = [definition.how for definition in self._definitions.values()]
        await patiently("telling what job types there are", lambda: declare_types(types))
        lease.start()
        stack.push_async_callback(asyncio.to_thread, lease.stop)
        watch = LoopWatch(scheduler, self._events.emit)
        witness.loop_delay = lambda: watch.delay
        watch.start()
        stack.push_async_callback(asyncio.to_thread, watch.stop)
        self._events.emit(NodeJoined(node=str(self.id)))
        listener: Listener | None = None
        if how.notify and (how.listen_dsn or await listens_or_tells(self._store.database)):

            def hear(what: str | None) -> None:
                if what is None:
                    heard(what)
                elif what == WATCHED:
                    lease.hasten()
                else:
                    (self._pings.on_next if what.startswith(PING) else self._looks.hear)(what)

            self._store.database.listener = listener = Listener(
                self._store.database.apart(how.listen_dsn), self._store.channel, hear
            )
            if how.listen_dsn:
                stack.push_async_callback(_cancel, spawn(scheduler.loop, tell_if_deaf(listener.database, self._store.database)))
            stack.push_async_callback(_cancel, spawn(scheduler.loop, listener.listen()))
            await listener.begun()
        # whoever dies may have led: another must lead by the time that the lease is over
        leading = min(how.leader_seconds, how.lease_seconds / 2)
        leadership = Leadership(self.id, leading, self._events.emit)
        status.vitals = self._show(running, leadership, listener, stack)
        services = self._services(running, held, leadership, leading, status.vitals)
        stack.callback(CompositeDisposable(*(supervise(*service, scheduler) for service in services.items())).dispose)

    def _show(self, running: Running, leadership: Leadership, listener: Listener | None, stack: AsyncExitStack) -> NodeVitals:
        """Have this node's numbers read until it ends."""
        store, watcher = self._store, self._watcher
        vitals = NodeVitals(running, leadership, store.database, listener, store.channel, self._breakers, self._events)
        watcher.follow(vitals)
        stack.callback(watcher.follow, None)
        store.database.timed = watcher.time_connection
        return vitals

    def _services(
        self, running: Running, held: Callable[[], set[int]], leadership: Leadership, leading: float, vitals: NodeVitals
    ) -> dict[str, Observable[Any]]:
        how, store, emit = self._settings, self._store, self._events.emit

        def is_listening() -> bool:
            return store.database.listener is not None and store.database.listener.is_connected

        rising = {} if how.ageing_seconds is None else {"age": ageing(store, leadership, how.ageing_seconds, emit)}
        return rising | {
            "lead": lead(store, leadership, leading),
            "stage": stage(store, leadership, self._looks.pending, how.poll_seconds, emit),
            "rescue": rescue(
                store,
                leadership,
                self._definitions,
                every_seconds=how.rescue_seconds,
                lease_seconds=how.lease_seconds,
                emit=emit,
                may_be_gone=self._looks.may_be_gone,
                dead_letters=self._dead_letters,
            ),
            "cron": cron(store, leadership, self._crons.enqueue_slots, self._looks.changed, is_listening),
            "declare": declare(store, self.id, self._crons.columns),
            "cancel": self._looks.cancelling.pipe(ops.do_action(running.cancel)),
            "prune": prune(store, leadership, how.keep, emit, how.keep_discarded),
            "horizon": horizon(store, leadership, emit=emit, every_seconds=HORIZON_SECONDS).pipe(ops.do_action(vitals.saw_horizon)),
            "room": room(store, leadership, emit=emit, every_seconds=ROOM_SECONDS).pipe(ops.do_action(vitals.saw_notifications)),
            "lost claims": lost_claims(store, self.id, held, every_seconds=how.heartbeat_seconds),
            "serve": serve(store, self.id, lambda: running.ledgers),
            "unserved": unserved(store, leadership, emit=emit, every_seconds=UNSERVED_SECONDS),
            "unserved so far": unserved_so_far(store, leadership, first_seconds=POLLS * how.poll_seconds),
            "progress": progress(lambda: running.ledgers, quiet=quiet_seconds(how.poll_seconds), emit=emit),
            "observe": observe(store, self._watcher, lambda: leadership.term is not None, emit),
            "loop delay": loop_delay(self._watcher),
            "notify delay": notify_delay(self._watcher, store.notify_queues, self._pings, is_listening),
        }

    def _cut_off(self, running: Running) -> None:
        log.error("this node could not renew its lease, and gives its jobs up before others may take them")
        self._events.emit(NodeCutOff(node=str(self.id), ids=sorted(running.held_ids)))
        running.cut_off()

    def _restored(self, running: Running, heard: Callable[[str | None], object]) -> None:
        log.warning("this node has a lease again")
        running.restore()
        heard(None)

    def _lost(self) -> None:
        log.error("the lease of this node ran out, and its jobs may run elsewhere: how they end here changes nothing")
        self._events.emit(NodeLost(node=str(self.id)))

    async def _give_up(self, held: Callable[[], set[int]], status: Status) -> None:
        if self._store.lost_answers:  # what was claimed by those began no attempt
            await self._store.lost_claims(self.id, held(), datetime.max.replace(tzinfo=UTC))
        await self._store.resign(self.id)
        await self._store.leave(self.id, status.told())

    async def _leave(self, held: Callable[[], set[int]], status: Status) -> None:
        try:
            await asyncio.wait_for(self._give_up(held, status), LEAVE_SECONDS)
        except Exception as error:
            log.warning("the lease of this node could not be given up, and will run out: %s", str(error) or type(error).__name__)
        self._events.emit(NodeLeft(node=str(self.id)))


def supervise(
    name: str, service: Observable[Any], scheduler: LoopScheduler, restarts: tuple[float, float] = RESTARTS
) -> abc.DisposableBase:
    """Run a service; one that fails is started again after a delay that grows while it goes on failing, and no other notices."""
    first, longest = restarts
    failures = 0
    subscription = SerialDisposable()

    def start() -> None:
        slot = SingleAssignmentDisposable()
        subscription.disposable = slot
        try:
            slot.disposable = service.subscribe(works, failed, scheduler=scheduler)
        except Exception as error:
            failed(error)

    def works(_: object) -> None:
        nonlocal failures
        if failures:
            log.warning("the service %s works again after %d failures", name, failures)
        failures = 0

    def failed(error: Exception) -> None:
        nonlocal failures
        delay = min(longest, first * 2 ** min(failures, 10)) * random.uniform(0.8, 1.0)  # noqa: S311 - jitter
        failures += 1
        log.error("the service %s failed, and is started again in %.1f s", name, delay, exc_info=error)
        subscription.disposable = scheduler.later(delay, start)

    start()
    return subscription


async def _cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.wait([task], timeout=LEAVE_SECONDS)
