"""Keep this node's lease, from a thread and a connection of its own: neither a blocked loop nor a busy pool can cost it."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from uuid import UUID

from rxjobs.store.database import Database
from rxjobs.store.patience import PASSING, patiently
from rxjobs.store.store import Store

log = logging.getLogger("rxjobs.lease")


class Lease:
    """The lease of one node. `on_lost` is called, on this thread, when it was taken away."""

    def __init__(
        self,
        dsn: str,
        schema: str,
        node: UUID,
        label: str,
        *,
        seconds: float,
        heartbeat: float,
        on_lost: Callable[[], object],
    ) -> None:
        self._dsn = dsn
        self._schema = schema
        self._node = node
        self._label = label
        self._seconds = seconds
        self._heartbeat = heartbeat
        self._on_lost = on_lost
        self._stopping = threading.Event()
        self._wake: Callable[[], object] = lambda: None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._keep()), name="rxjobs-lease", daemon=True)

    def start(self) -> None:
        """Begin to renew; the lease itself was taken before."""
        self._thread.start()

    def stop(self) -> None:
        """Stop renewing. Called last, after the last ack."""
        self._stopping.set()
        with suppress(RuntimeError):  # its loop is closed where it was stopped before
            self._wake()
        self._thread.join(timeout=5)

    async def _keep(self) -> None:
        loop, stopped = asyncio.get_running_loop(), asyncio.Event()
        self._wake = lambda: loop.call_soon_threadsafe(stopped.set)
        if self._stopping.is_set():
            return
        renewing = asyncio.ensure_future(self._renew_for_ever())
        await asyncio.wait([renewing, asyncio.ensure_future(stopped.wait())], return_when=asyncio.FIRST_COMPLETED)
        renewing.cancel()

    async def _renew_for_ever(self) -> None:
        while True:
            try:
                connection = await patiently("connecting to renew the lease", self._connect, longest=self._heartbeat)
                try:
                    await self._renew_on(Store(_One(connection), self._schema))
                finally:
                    connection.terminate()
            except PASSING as error:
                log.warning("the lease could not be renewed, and is tried again: %s", error or type(error).__name__)
            except Exception:
                log.exception("the lease could not be renewed, and is tried again")
                await asyncio.sleep(self._heartbeat)

    async def _connect(self) -> Any:
        async with asyncio.timeout(self._seconds / 3):  # a link that has gone silent must not cost the lease
            return await Database(self._dsn).connect()

    async def _renew_on(self, store: Store) -> None:
        while True:
            async with asyncio.timeout(self._seconds / 3):
                is_ours = await store.renew_lease(self._node, self._seconds)
            if not is_ours:
                self._on_lost()
                await store.take_lease(self._node, self._label, os.getpid(), self._seconds)
            await asyncio.sleep(self._heartbeat)


class _One(Database):
    """A single connection in the place of a pool."""

    def __init__(self, connection: Any) -> None:
        super().__init__("")
        self._connection = connection

    async def fetch(self, sql: str, *args: Any) -> list[Any]:
        rows: list[Any] = await self._connection.fetch(sql, *args)
        return rows
