"""What runs a coroutine for each item."""

from __future__ import annotations

import asyncio
import gc
import weakref
from itertools import pairwise

import pytest
from reactivex.subject import Subject

from rxjobs.awaiting import BEAT, EARLY, Awaited, every, scheduler_here
from tests.virtual import on_virtual_time


@pytest.mark.parametrize("pause", [None, 0.1])
@on_virtual_time
async def test_what_is_stopped_is_let_go_and_makes_room_whether_it_has_begun_or_not(pause):
    """Before Python 3.12 a task begins a turn of the loop later: stopped before that, its code never runs."""
    out, emitted, left = Subject[str](), list[str](), list[str]()
    out.subscribe(emitted.append, on_completed=lambda: emitted.append("end"))

    async def work(item: str) -> str:
        await asyncio.sleep(1)
        return item.upper()

    awaited = Awaited(work, 1, out, scheduler_here(), left.append)
    for item in ("a", "b", "c"):
        awaited.add(item)
    if pause is not None:
        await asyncio.sleep(pause)
    awaited.stop(lambda item: item in ("a", "b"))
    awaited.end()
    await asyncio.sleep(5)
    assert sorted(left) == ["a", "b"]
    assert emitted == ["C", "end"]
    assert awaited.running == []


async def test_what_waits_is_held_until_it_has_ended_and_no_longer():
    """asyncio holds tasks weakly: one that only the code knows which it waits for would be gone with the next garbage."""
    left, futures = list[str](), list[weakref.ref[asyncio.Future[str]]]()

    async def work(item: str) -> str:
        future = asyncio.get_running_loop().create_future()
        futures.append(weakref.ref(future))
        return await future

    awaited = Awaited(work, 2, Subject[str](), scheduler_here(), left.append)
    awaited.add("a")
    awaited.add("b")
    await asyncio.sleep(0)
    awaited.detach(cancel=False)
    held = weakref.ref(awaited)
    del awaited
    gc.collect()
    for future, item in zip(futures, "AB", strict=True):
        found = future()
        assert found is not None
        found.set_result(item)
        del found
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    gc.collect()
    assert left == ["A", "B"]
    assert held() is None


@on_virtual_time
async def test_what_is_done_now_and_then_is_done_at_one_moment_with_all_else_and_never_later_than_asked():
    """A process that wakes costs more than what it wakes for."""
    at, watching = {1.0: list[float](), 2.5: list[float](), 10.0: list[float]()}, []
    loop = asyncio.get_running_loop()

    def noted(seconds: float):
        async def note() -> None:
            at[seconds].append(loop.time())

        return every(lambda: seconds, note).subscribe(scheduler=scheduler_here())

    for seconds in at:
        watching.append(noted(seconds))
        await asyncio.sleep(0.13)
    await asyncio.sleep(60)
    for one in watching:
        one.dispose()
    for seconds, times in at.items():
        waits = [after - before for before, after in pairwise(times)]
        assert min(waits) >= seconds - BEAT
        assert max(waits) <= seconds + EARLY
        assert len(waits) >= 60 // seconds - 1
    beats = {round(time, 6) for times in at.values() for time in times[1:]}
    assert {round((time - min(beats)) % BEAT, 4) % BEAT for time in beats} == {0.0}
