"""A few connections that statements follow each other on: what claims and outcomes pass through, thousands of times a second."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg

from rxjobs.store.connection import take_leave

Timed = Callable[[float, float], object]


def no_connection(seconds: float, size: int, *, are_all_there: bool) -> TimeoutError:
    """Why no connection was to be had."""
    if not are_all_there:
        return TimeoutError(f"the server gave no connection within {seconds:g} s")
    return TimeoutError(
        f"all {size} connections were in use for {seconds:g} s: statements take long, or more is asked for at once than the "
        "server can answer"
    )


class Lines:
    """At most so many connections, made when they are needed and kept from then on.

    To take one from a pool of asyncpg and give it back takes as long as the statement itself: it is a task each time, with a
    deadline. Here only those who have to wait, for a turn or for a new connection, have one.
    """

    def __init__(self, connect: Callable[[], Awaitable[Any]], size: int, acquire_timeout: float) -> None:
        self._connect = connect
        self.size = size
        self._acquire_timeout = acquire_timeout
        self._idle: list[Any] = []
        """The one to be taken next comes last: the first that was made, where that is idle, so that the others may rest."""
        self._first: Any = None
        self._count = 0
        """Connections there are, or are about to be."""
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_closed = False
        self.timeouts = 0
        self.timed: Timed | None = None
        """Who wants to know how long a connection was waited for, and then used: seconds."""

    async def fetch(self, sql: str, *args: Any, timeout: float) -> list[asyncpg.Record]:  # noqa: ASYNC109 - asyncpg's
        """Run one statement in a transaction of its own; raises TimeoutError where no connection is to be had in time."""
        began = time.monotonic()
        try:
            connection = self._take_idle() or await self._acquire()
        except TimeoutError:
            self.timeouts += 1
            raise no_connection(self._acquire_timeout, self.size, are_all_there=self._count >= self.size) from None
        got, is_whole = time.monotonic(), False
        try:
            rows: list[asyncpg.Record] = await connection.fetch(sql, *args, timeout=timeout)
            is_whole = True
            return rows
        except (asyncpg.PostgresError, asyncpg.InterfaceError):
            is_whole = True  # the server answered, or nothing was sent
            raise
        finally:
            self._release(connection, is_whole=is_whole)
            if self.timed is not None:
                self.timed(got - began, time.monotonic() - got)

    @property
    def numbers(self) -> tuple[int, int, int, int, int]:
        """Connections that are idle, in use, and there at most; who waits for one; and who waited in vain."""
        idle = len(self._idle)
        return idle, max(0, self._count - idle), self.size, len(self._waiting), self.timeouts

    @property
    def is_full(self) -> bool:
        """Whether one would have to wait for a turn."""
        return not self._idle and self._count >= self.size

    async def open(self) -> None:
        """Make all of its connections now."""
        for _ in range(self.size):
            self._idle.insert(0, await self._made())
            self._count += 1

    async def close(self) -> None:
        """Disconnect: at once what is in use, or does not answer."""
        self._is_closed = True
        idle, self._idle = self._idle, []
        for connection in idle:
            await take_leave(connection)

    async def _acquire(self) -> Any:
        """One that has become idle, or is made: to be asked where none is idle."""
        async with asyncio.timeout(self._acquire_timeout):
            while self._count >= self.size:
                await self._turn()
                if (connection := self._take_idle()) is not None:
                    return connection
            self._count += 1
            try:
                return await self._made()
            except BaseException:
                self._count -= 1
                self._next_turn()
                raise

    async def _made(self) -> Any:
        connection = await self._connect()
        if self._first is None or self._first.is_closed():
            self._first = connection
        return connection

    def _take_idle(self) -> Any:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
            self._count -= 1
        return None

    def _release(self, connection: Any, *, is_whole: bool) -> None:
        if is_whole and not connection.is_closed() and not self._is_closed:
            if connection is self._first:
                self._idle.append(connection)
            else:
                self._idle.insert(0, connection)
        else:  # the answer may still come: whoever uses it next would get that
            connection.terminate()
            self._count -= 1
        if self._waiting:
            self._next_turn()

    async def _turn(self) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except BaseException:
            if turn.done():
                self._next_turn()
            raise

    def _next_turn(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
