"""Keep this node's lease, from a thread and a connection of its own: neither a blocked loop nor a busy pool can cost it."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from typing import Any
from uuid import UUID

from rxjobs.hold import Tenure
from rxjobs.log_lines import logger
from rxjobs.store.database import Database
from rxjobs.store.patience import PASSING, patiently
from rxjobs.store.store import Store

log = logger("rxjobs.lease")


MARGIN = 0.2
"""The part of its time, at the end, in which a lease no longer counts: this clock and the server's need not run alike, and to stop
what runs takes a moment."""
WATCHED_SECONDS, WATCHED_BEAT = 15.0, 1.0
"""For so long after somebody has looked, a node tells of itself so often."""


class Lease:
    """The lease of one node; made before it is taken, since its time is counted from before the server was asked.

    On its thread, `on_cut_off` is called when it could not be renewed and is about to run out, `on_lost` when it was taken away,
    and `on_restored` when the node has one again after either. `status` gives what the node tells of itself with each heartbeat;
    `tenure` is kept up to date, so that nothing begins in the moment until those are heard.
    """

    def __init__(
        self,
        database: Database,
        schema: str,
        node: UUID,
        label: str,
        *,
        seconds: float,
        heartbeat: float,
        on_cut_off: Callable[[], object],
        on_lost: Callable[[], object],
        on_restored: Callable[[], object],
        status: Callable[[], str | None] = lambda: None,
        tenure: Tenure | None = None,
    ) -> None:
        self._database = database
        self._schema = schema
        self._node = node
        self._label = label
        self._seconds = seconds
        self._heartbeat = heartbeat
        self._on_cut_off = on_cut_off
        self._on_lost = on_lost
        self._on_restored = on_restored
        self._status = status
        self._tenure = tenure or Tenure()
        self._asked = time.monotonic()
        self._is_cut_off = False
        self._timer: asyncio.TimerHandle | None = None
        self._stopping = threading.Event()
        self._watched_until = self._begun = float("-inf")
        self._hurry: Callable[[], object] = lambda: None
        self._wake: Callable[[], object] = lambda: None
        context = copy_context()  # a thread has none of its maker's
        self._thread = threading.Thread(target=lambda: context.run(asyncio.run, self._keep()), name="rxjobs-lease", daemon=True)

    def start(self) -> None:
        """Begin to renew; the lease itself was taken before."""
        self._thread.start()

    def hasten(self) -> None:
        """Renew more often for a while, since somebody watches what is told with it; from any thread, as often as may be."""
        self._watched_until = time.monotonic() + WATCHED_SECONDS
        with suppress(RuntimeError):  # its loop is closed where it was stopped before
            self._hurry()

    def stop(self) -> None:
        """Stop renewing. Called last, after the last ack."""
        self._stopping.set()
        with suppress(RuntimeError):  # its loop is closed where it was stopped before
            self._wake()
        self._thread.join(timeout=5)

    async def _keep(self) -> None:
        loop, stopped = asyncio.get_running_loop(), asyncio.Event()
        self._wake = lambda: loop.call_soon_threadsafe(stopped.set)
        hurried = asyncio.Event()
        self._hurry = lambda: loop.call_soon_threadsafe(hurried.set)
        if self._stopping.is_set():
            return
        self._renewed(self._asked)
        renewing = asyncio.ensure_future(self._renew_for_ever(hurried))
        await asyncio.wait([renewing, asyncio.ensure_future(stopped.wait())], return_when=asyncio.FIRST_COMPLETED)
        renewing.cancel()

    async def _renew_for_ever(self, hurried: asyncio.Event) -> None:
        while True:
            try:
                connection = await patiently("renewing the lease", self._begin, longest=self._heartbeat)
                try:
                    while True:
                        await self._pause(hurried)
                        await self._renew_on(connection)
                finally:
                    connection.terminate()
            except PASSING as error:
                log.warning("the lease could not be renewed, and is tried again: %s", str(error) or type(error).__name__)
            except Exception:
                log.exception("the lease could not be renewed, and is tried again")
                await asyncio.sleep(self._heartbeat)

    async def _pause(self, hurried: asyncio.Event) -> None:
        """Wait until it is time to renew again, which may come to be sooner meanwhile."""
        while True:
            now = time.monotonic()
            every = min(self._heartbeat, WATCHED_BEAT) if now < self._watched_until else self._heartbeat
            if (left := self._begun + every - now) <= 0:
                return
            hurried.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(hurried.wait(), left)

    async def _begin(self) -> Any:
        """A connection on which the lease was renewed: a server that may only be read lets one connect, and not renew."""
        async with asyncio.timeout(self._seconds if self._is_cut_off else self._seconds / 3):
            connection = await self._database.connect()
        try:
            await self._renew_on(connection)
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def _renew_on(self, connection: Any) -> None:
        store, status = Store(_One(connection), self._schema), self._status()
        asked = self._begun = time.monotonic()
        async with asyncio.timeout(self._useful if self._is_cut_off else self._seconds / 3):
            is_ours = await store.renew_lease(self._node, self._seconds, status)
        if not is_ours:
            self._cut_off()
            self._on_lost()
            asked = time.monotonic()
            await store.take_lease(self._node, self._label, os.getpid(), self._seconds)
        self._renewed(asked)

    def _renewed(self, asked: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._tenure.until = asked + self._useful
        left = self._tenure.until - time.monotonic()
        self._timer = asyncio.get_running_loop().call_later(left, self._cut_off)
        if self._is_cut_off:
            self._is_cut_off = False
            self._on_restored()

    @property
    def _useful(self) -> float:
        """Seconds after which an answer comes too late.

        A link that has gone silent must not cost the lease, so that as a rule a third of it is waited; where it is lost already, a
        link that is only slow may take its time, or it would never be had again.
        """
        return self._seconds * (1 - MARGIN)

    def _cut_off(self) -> None:
        if not self._is_cut_off:
            self._is_cut_off = True
            self._on_cut_off()


class _One(Database):
    """A single connection in the place of a pool."""

    def __init__(self, connection: Any) -> None:
        super().__init__("")
        self._connection = connection

    async def fetch(self, sql: str, *args: Any, **how: Any) -> list[Any]:
        rows: list[Any] = await self._connection.fetch(sql, *args)
        return rows
