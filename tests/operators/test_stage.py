"""What every stage has in common."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from reactivex.observer import Observer
from reactivex.subject import Subject

import rxjobs as rj
from rxjobs.awaiting import LoopScheduler
from rxjobs.operators.stage import items, on_the_loop
from rxjobs.testing import a_job
from rxjobs.testing.conformance_executor import until


def elsewhere(function: Any, *args: Any) -> None:
    """Call a function on another thread, and wait for it without giving way to the loop."""
    thread = threading.Thread(target=function, args=args)
    thread.start()
    thread.join()


async def test_an_end_that_is_told_on_the_loop_does_not_overtake_what_comes_from_a_thread():
    seen, source = list[Any](), Subject[Any]()
    scheduler = LoopScheduler(asyncio.get_running_loop())
    told = on_the_loop(Observer(), scheduler, seen.append, lambda: seen.append("end"))
    source.subscribe(told)
    elsewhere(source.on_next, 1)
    assert seen == []
    source.on_next(2)
    elsewhere(source.on_next, 3)
    source.on_completed()
    assert seen == [1, 2, 3, "end"]


async def test_what_a_thread_tells_comes_on_the_loop_in_order():
    seen, threads = list[int](), set[int]()

    def see(item: int) -> None:
        seen.append(item)
        threads.add(threading.get_ident())

    told = on_the_loop(Observer(), LoopScheduler(asyncio.get_running_loop()), see)
    elsewhere(lambda: [told.on_next(n) for n in range(1000)])
    await until(lambda: len(seen) == 1000)
    assert seen == list(range(1000))
    assert threads == {threading.get_ident()}


async def test_a_stage_that_raises_is_one_on_error():
    errors = list[Exception]()
    told = on_the_loop(Observer(on_error=errors.append), LoopScheduler(asyncio.get_running_loop()), lambda item: 1 / item)
    told.on_next(0)
    elsewhere(told.on_next, 0)
    await until(lambda: bool(errors))
    assert [type(error) for error in errors] == [ZeroDivisionError]


def test_jobs_are_found_in_what_comes_down():
    job, finished = a_job(), rj.Finished(a_job(), rj.Complete())
    assert items("execute", job) == [job]
    assert items("execute", [job, finished]) == [job, finished]
    assert items("execute", []) == []


@pytest.mark.parametrize("item", [None, 5, "job", {"id": 1}, (1, 2), [a_job(), 5]], ids=lambda item: type(item).__name__)
def test_what_is_no_job_is_refused_with_advice(item):
    with pytest.raises(TypeError, match=r"rj.execute takes jobs, and got .*use rj.enrich to add to a job, or rj.map to replace it"):
        items("execute", item)
