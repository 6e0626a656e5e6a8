"""A loop whose clock jumps."""

from __future__ import annotations

import asyncio
import time

import pytest

from rxjobs.testing import virtually
from rxjobs.testing.virtual_time import Stuck
from tests.virtual import on_virtual_time


def test_a_year_is_over_at_once_and_in_order():
    async def main() -> list[int]:
        order = list[int]()

        async def at(days: int) -> None:
            await asyncio.sleep(days * 86400)
            order.append(days)

        await asyncio.gather(at(365), at(1), at(30))
        assert asyncio.get_running_loop().time() == pytest.approx(365 * 86400)
        return order

    began = time.monotonic()
    assert virtually(main()) == [1, 30, 365]
    assert time.monotonic() - began < 5


def test_a_timeout_comes_when_it_is_due():
    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(10):
                await asyncio.sleep(11)
        return asyncio.get_running_loop().time()

    assert virtually(main()) == 10


def test_work_in_a_thread_takes_no_virtual_time():
    async def main() -> float:
        timer = asyncio.create_task(asyncio.sleep(1))
        await asyncio.to_thread(time.sleep, 0.05)
        assert not timer.done()
        return asyncio.get_running_loop().time()

    assert virtually(main()) == 0


def test_where_a_real_loop_would_hang_it_says_who_waits():
    async def wait_for_ever() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Stuck, match="wait_for_ever"):
        virtually(wait_for_ever())


@on_virtual_time
async def test_what_is_due_at_the_same_time_comes_in_the_order_in_which_it_was_asked_for():
    came = list[int]()

    async def sleep(n: int) -> None:
        await asyncio.sleep(1)
        came.append(n)

    await asyncio.gather(*map(sleep, range(50)))
    assert came == list(range(50))
