"""Hear from PostgreSQL which queues have new jobs. A hint only: what is not heard is found by the slow poll."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import asyncpg

from rxjobs.log_lines import logger
from rxjobs.store.database import Connection, Database
from rxjobs.store.patience import PASSING, patiently

log = logger("rxjobs.database")

PING_SECONDS = 4.0
"""How often a silent connection is asked whether it is still there; a black hole is noticed after twice as long."""
ANSWER_SECONDS = 3.0
BEGIN_SECONDS = CLOSE_SECONDS = 1.0


class Listener:
    """One connection that listens. `heard` is told a queue's name, or None when anything may have been missed.

    What is asked again and again is best asked there: an answer shows that it still listens, and without any it is asked for one.
    """

    def __init__(self, database: Database, channel: str, heard: Callable[[str | None], object]) -> None:
        self.database = database
        self._channel = channel
        self._heard = heard
        self._connection: Connection | None = None
        self._is_asked = self._has_answered = False
        self._has_begun = asyncio.Event()
        self.connections = self.messages = 0
        """How often it began to listen, and how many notifications came."""

    @property
    def is_connected(self) -> bool:
        """Whether it listens."""
        return self._connection is not None

    async def listen(self) -> None:
        """Listen until cancelled, on a new connection whenever one is lost."""
        while True:
            try:
                await self._listen_once()
            except PASSING as error:
                log.warning("the connection that listens for new jobs was lost: %s", str(error) or type(error).__name__)
            except Exception:
                log.exception("new jobs cannot be listened for, which is tried again; the poll finds them meanwhile")
                await asyncio.sleep(PING_SECONDS)

    async def begun(self) -> None:
        """Wait until it listens for the first time, or a moment: whoever asks before is to ask again then."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._has_begun.wait(), BEGIN_SECONDS)

    @property
    def is_free(self) -> bool:
        """Whether it listens, and is not being asked something."""
        return self._connection is not None and not self._is_asked

    async def fetch(self, sql: str, *args: Any) -> list[asyncpg.Record]:
        """Ask something while it is free; raises TimeoutError after ANSWER_SECONDS, and gives up a connection that is not there."""
        connection, self._is_asked = self._connection, True
        assert connection is not None  # noqa: S101 - it is free
        try:
            rows: list[asyncpg.Record] = await connection.fetch(sql, *args, timeout=ANSWER_SECONDS)
            self._has_answered = True
            return rows
        except TimeoutError:
            await _ping(connection)  # the table may be locked, or the link gone
            raise
        finally:
            self._is_asked = False

    async def _listen_once(self) -> None:
        connection, lost = await patiently("listening for new jobs", self._begin)
        try:
            self._connection = connection
            self.connections += 1
            self._heard(None)
            self._has_begun.set()
            await self._stay(lost)
        finally:
            self._connection = None
            await _close(connection)

    async def _begin(self) -> tuple[Connection, asyncio.Event]:
        """A connection that listens, and what is set once it is lost: a standby lets one connect, and not listen."""
        connection = await self.database.connect()
        try:
            lost = asyncio.Event()
            connection.add_termination_listener(lambda _: lost.set())
            await connection.add_listener(self._channel, self._notified)
        except BaseException:
            await _close(connection)
            raise
        return connection, lost

    async def _stay(self, lost: asyncio.Event) -> None:
        while not lost.is_set():
            self._has_answered = False
            try:
                await asyncio.wait_for(lost.wait(), PING_SECONDS)
            except TimeoutError:
                if not self._has_answered and self.is_free:
                    await self.fetch("SELECT 1")
        raise ConnectionResetError("the server closed it")

    def _notified(self, connection: Any, pid: int, channel: str, payload: object) -> None:
        # any role may notify: the payload is a queue's name or it is nothing
        if isinstance(payload, str) and 0 < len(payload) <= 128:
            self.messages += 1
            self._heard(payload)


async def _ping(connection: Connection) -> None:
    try:
        await connection.fetchval("SELECT 1", timeout=PING_SECONDS)
    except PASSING:
        connection.terminate()


async def _close(connection: Connection) -> None:
    try:
        await connection.close(timeout=CLOSE_SECONDS)
    except PASSING:
        connection.terminate()
    except asyncio.CancelledError:
        connection.terminate()
        raise
