"""What runs a coroutine for each item."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest
from reactivex.subject import Subject

from rxjobs.awaiting import Awaited, scheduler_here
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
