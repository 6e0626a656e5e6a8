"""How late the loop is and how long a notification takes, measured while somebody watches."""

from __future__ import annotations

import asyncio
import itertools
import time

import pytest
from reactivex.subject import Subject

from rxjobs.awaiting import LoopScheduler
from rxjobs.services.delays import PING, loop_delay, notify_delay


class Watcher:
    is_watching = True

    def __init__(self):
        self.loop, self.notify = [], []

    def time_loop(self, seconds):
        self.loop.append(seconds)

    def time_notify(self, seconds):
        self.notify.append(seconds)


async def first(service, number=1):
    """The first that a service says, or a later one."""
    said, left = asyncio.get_running_loop().create_future(), itertools.chain(range(number - 1, 0, -1), itertools.repeat(0))
    running = service.subscribe(
        lambda value: next(left) or said.done() or said.set_result(value), scheduler=LoopScheduler(asyncio.get_running_loop())
    )
    try:
        return await asyncio.wait_for(said, 10)
    finally:
        running.dispose()


async def test_a_loop_that_is_held_up_is_late():
    watcher = Watcher()
    asyncio.get_running_loop().call_later(0.01, time.sleep, 0.3)
    late = await first(loop_delay(watcher, 0.05), 2)  # the first only says when it is to be woken
    assert watcher.loop[0] == late
    assert late > 0.2


async def test_a_notification_to_oneself_is_timed_and_those_of_others_are_not():
    watcher, heard = Watcher(), Subject()

    async def notify(queues):
        heard.on_next(f"{PING}another node's")
        await asyncio.sleep(0.05)
        heard.on_next(queues[0])

    await first(notify_delay(watcher, notify, heard, lambda: True))
    (seconds,) = watcher.notify
    assert 0.05 <= seconds < 10


@pytest.mark.parametrize("why", ["nobody watches", "nothing is heard"])
async def test_nothing_is_sent_while_nobody_watches_or_nothing_is_heard(why):
    watcher = Watcher()
    watcher.is_watching = why != "nobody watches"

    async def notify(queues):
        pytest.fail("a notification was sent")

    assert await first(notify_delay(watcher, notify, Subject(), lambda: why != "nothing is heard")) == 0.0
    assert watcher.notify == []


async def test_a_database_that_is_away_is_no_failure():
    watcher = Watcher()

    async def notify(queues):
        raise ConnectionResetError

    await first(notify_delay(watcher, notify, Subject(), lambda: True))
    assert watcher.notify == []
