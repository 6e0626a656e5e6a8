"""Measure now and then how late the event loop wakes, and how long a notification takes, while somebody watches."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol
from uuid import uuid4

import reactivex as rx
from reactivex import Observable
from reactivex import operators as ops

from rxjobs.awaiting import every
from rxjobs.store.patience import PASSING

LOOP_SECONDS = 0.5
NOTIFY_SECONDS, STANDBY_SECONDS = 15.0, 1.0
PING = "~"
"""What a notification of a node to itself begins with: no queue's name does."""


class Watcher(Protocol):
    """Who wants to know."""

    @property
    def is_watching(self) -> bool: ...

    def time_loop(self, seconds: float) -> None: ...

    def time_notify(self, seconds: float) -> None: ...


def loop_delay(watcher: Watcher, every_seconds: float = LOOP_SECONDS) -> Observable[float]:
    """How much later than asked the event loop woke a timer, seconds."""
    asked_at: float | None = None

    def wait() -> float:
        nonlocal asked_at
        asked_at = time.monotonic() if watcher.is_watching else None
        return every_seconds if watcher.is_watching else STANDBY_SECONDS

    async def once() -> float:
        if asked_at is None:
            return 0.0
        late = max(0.0, time.monotonic() - asked_at - every_seconds)
        watcher.time_loop(late)
        return late

    return every(wait, once)


def notify_delay(
    watcher: Watcher,
    notify: Callable[[Sequence[str]], Awaitable[None]],
    heard: Observable[str | None],
    is_listening: Callable[[], bool],
    every_seconds: float = NOTIFY_SECONDS,
) -> Observable[float]:
    """How long a notification of this node to itself takes, seconds: one clock measures both ends. 0 while none is sent."""
    sent: dict[str, float] = {}
    """The one that is on its way, and when it was sent."""

    def wait() -> float:
        return every_seconds if sent else STANDBY_SECONDS

    async def once() -> float:
        sent.clear()  # one that has not come by now is lost
        if watcher.is_watching and is_listening():
            token = f"{PING}{uuid4()}"
            sent[token] = time.monotonic()
            with suppress(*PASSING):
                await notify([token])
        return 0.0

    def arrived(token: Any) -> float:
        seconds = time.monotonic() - sent[token]
        watcher.time_notify(seconds)
        return seconds

    own = heard.pipe(ops.filter(lambda what: what in sent), ops.map(arrived))
    return rx.merge(own, every(wait, once))
