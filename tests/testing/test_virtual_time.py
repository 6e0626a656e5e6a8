"""A loop whose clock is that of a TestScheduler, and jumps."""

from __future__ import annotations

import asyncio
import time

import pytest
from reactivex.testing import TestScheduler

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


def test_the_time_is_that_of_the_scheduler_that_is_given():
    time_, came = TestScheduler(), list[tuple[str, float]]()

    def see(name: str) -> None:
        came.append((name, asyncio.get_running_loop().time()))

    async def main() -> None:
        for due in (1.0, 2.5, 4.0):
            time_.schedule_absolute(due, lambda scheduler, state: see("scheduled"))
        for _ in range(3):
            await asyncio.sleep(1.5)
            see("slept")

    virtually(main(), scheduler=time_)
    assert came == [
        ("scheduled", 1.0), ("slept", 1.5), ("scheduled", 2.5), ("slept", 3.0), ("scheduled", 4.0), ("slept", 4.5)
    ]  # fmt: skip
    assert time_.clock == 4.5


def test_a_timer_that_is_set_by_what_is_scheduled_comes_before_what_is_scheduled_later():
    time_, came = TestScheduler(), list[str]()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        time_.schedule_absolute(1.0, lambda scheduler, state: loop.call_later(1.0, came.append, "timer"))
        time_.schedule_absolute(3.0, lambda scheduler, state: came.append("scheduled"))
        time_.schedule_absolute(4.0, lambda scheduler, state: loop.call_soon(came.append, "soon"))
        time_.schedule_absolute(4.5, lambda scheduler, state: came.append("later"))
        await asyncio.sleep(5)

    virtually(main(), scheduler=time_)
    assert came == ["timer", "scheduled", "soon", "later"]


@on_virtual_time
async def test_as_many_timers_as_you_like_at_one_time_do_not_move_it():
    async def sleep_long(_: int) -> float:
        await asyncio.sleep(1)
        await asyncio.sleep(0)
        return asyncio.get_running_loop().time()

    assert set(await asyncio.gather(*map(sleep_long, range(1000)))) == {1.0}


@on_virtual_time
async def test_time_passes_however_short_a_sleep_is():
    loop = asyncio.get_running_loop()
    for seconds in (1e-12, 1e-7, 1 / 3, 0.1 + 0.2):
        end = loop.time() + seconds
        while loop.time() < end:  # noqa: ASYNC110 - what a clock that rounds would never leave
            await asyncio.sleep(end - loop.time())
    assert loop.time() == pytest.approx(1 / 3 + 0.3, abs=1e-4)


@on_virtual_time
async def test_timers_that_were_cancelled_leave_nothing():
    loop = asyncio.get_running_loop()
    for _ in range(1000):
        async with asyncio.timeout(3600):
            await asyncio.sleep(1)
    assert loop.time() == 1000
    assert len(loop._scheduled) < 200


def test_what_is_scheduled_and_raises_ends_the_run():
    time_ = TestScheduler()
    time_.schedule_absolute(1.0, lambda scheduler, state: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        virtually(asyncio.sleep(5), scheduler=time_)
    assert virtually(asyncio.sleep(5, "again"), scheduler=time_) == "again"


def test_a_thread_that_is_begun_by_what_is_scheduled_holds_the_time():
    time_, ended = TestScheduler(), list[float]()

    async def main() -> None:
        loop = asyncio.get_running_loop()

        def begin(*_: object) -> None:
            work = loop.run_in_executor(None, time.sleep, 0.05)
            work.add_done_callback(lambda _: ended.append(loop.time()))

        time_.schedule_absolute(1.0, begin)
        await asyncio.sleep(5)

    virtually(main(), scheduler=time_)
    assert ended == [1.0]
