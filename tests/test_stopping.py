"""What is asked to stop, and what is not waited for."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from rxjobs.stopping import RUNS_ON, STOP, called, left_behind
from tests.virtual import on_virtual_time
from tests.waiting import until


class Block:
    """A function that runs until it is released."""

    def __init__(self) -> None:
        self.running, self.released, self.ran = threading.Event(), threading.Event(), list[int]()

    def __call__(self, number: int) -> int:
        self.running.set()
        self.released.wait(20)
        self.ran.append(number)
        return number


@pytest.fixture
def block():
    block = Block()
    yield block
    block.released.set()


@on_virtual_time
async def test_a_coroutine_that_does_not_stop_in_time_is_left_behind():
    let_go = asyncio.Event()

    async def stubborn(_: int) -> None:
        while not let_go.is_set():
            with suppress(asyncio.CancelledError):
                await let_go.wait()

    with pytest.raises(TimeoutError, match=r"stubborn took longer than 3 s, and does not stop") as raised:
        await called(stubborn, 3)(1)
    assert type(raised.value) is TimeoutError
    assert 3 <= asyncio.get_running_loop().time() < 5
    assert len(left_behind()) == 1
    let_go.set()
    await asyncio.sleep(0.1)
    assert left_behind() == []


async def test_a_function_in_a_thread_that_took_too_long_is_left_behind(block):
    with pytest.raises(TimeoutError, match=r"took longer than 0.1 s, and does not stop"):
        await called(block, 0.1)(1)
    assert len(left_behind()) == 1
    block.released.set()
    await until(lambda: left_behind() == [])


async def test_a_function_in_a_thread_that_is_asked_to_stop_is_waited_for(block):
    task = asyncio.create_task(called(block, None)(7))
    await until(block.running.is_set)
    task.cancel(STOP)
    await asyncio.wait({task}, timeout=0.05)
    assert not task.done()
    block.released.set()
    assert await task == 7


async def test_a_function_that_is_cancelled_while_it_waits_for_a_thread_never_runs(block):
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    first = asyncio.create_task(called(block, None)(1))
    await until(block.running.is_set)
    asked, cancelled = (asyncio.create_task(called(block, None)(number)) for number in (2, 3))
    await asyncio.sleep(0)
    asked.cancel(STOP)
    cancelled.cancel()
    for task in (asked, cancelled):
        with pytest.raises(asyncio.CancelledError) as raised:
            await task
        assert raised.value.args != (RUNS_ON,)
    assert left_behind() == []
    block.released.set()
    assert await first == 1
    await called(block, None)(4)
    assert block.ran == [1, 4]


async def test_a_functions_time_counts_from_where_it_has_a_thread():
    """And not from where it began to wait for one."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    call = called(lambda seconds: time.sleep(seconds) or "done", 1.0)
    assert await asyncio.gather(*(call(0.3) for _ in range(6))) == ["done"] * 6
