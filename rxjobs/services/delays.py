"""Measure now and then how late the event loop wakes, and how long a notification takes, while somebody watches."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Protocol
from uuid import uuid4

from reactivex import Observable

from rxjobs.awaiting import every
from rxjobs.store.patience import PASSING

LOOP_SECONDS = 0.5
NOTIFY_SECONDS, STANDBY_SECONDS = 15.0, 1.0
PING = "~"
"""What a notification of a node to itself begins with: no queue's name does."""
LOST_SECONDS = 5.0
"""A notification that takes longer is taken for lost."""


class Watcher(Protocol):
    """Who wants to know."""

    @property
    def is_watching(self) -> bool: ...

    def time_loop(self, seconds: float) -> None: ...

    def time_notify(self, seconds: float) -> None: ...


def loop_delay(watcher: Watcher, every_seconds: float = LOOP_SECONDS) -> Observable[float]:
    """How much later than asked the event loop woke a timer, seconds."""

    async def once() -> float:
        if not watcher.is_watching:
            await asyncio.sleep(STANDBY_SECONDS)
            return 0.0
        due = time.monotonic() + every_seconds
        await asyncio.sleep(every_seconds)
        late = max(0.0, time.monotonic() - due)
        watcher.time_loop(late)
        return late

    return every(lambda: 0.0, once)


def notify_delay(
    watcher: Watcher,
    notify: Callable[[Sequence[str]], Awaitable[None]],
    heard: Observable[str | None],
    is_listening: Callable[[], bool],
    every_seconds: float = NOTIFY_SECONDS,
) -> Observable[float]:
    """How long a notification of this node to itself takes, seconds: one clock measures both ends."""
    token = f"{PING}{uuid4()}"
    wait = STANDBY_SECONDS

    async def once() -> float:
        nonlocal wait
        wait = STANDBY_SECONDS
        if not (watcher.is_watching and is_listening()):
            return 0.0
        wait = every_seconds
        arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def hear(what: str | None) -> None:
            if what == token and not arrived.done():
                arrived.set_result(None)

        hearing = heard.subscribe(hear)
        began = time.monotonic()
        try:
            with suppress(TimeoutError, *PASSING):
                async with asyncio.timeout(LOST_SECONDS):
                    await notify([token])
                    await arrived
                watcher.time_notify(time.monotonic() - began)
        finally:
            hearing.dispose()
        return time.monotonic() - began

    return every(lambda: wait, once)
