"""Where a pipeline runs."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from reactivex.scheduler.eventloop import AsyncIOScheduler

import rxjobs as rj
from rxjobs.awaiting import LoopScheduler
from rxjobs.demand import Demand
from rxjobs.events import Event
from rxjobs.scope import Scope, scope_here, within
from rxjobs.testing import MemorySource


def a_scope(events: list[Event] | None = None) -> Scope:
    told = [] if events is None else events
    return Scope(LoopScheduler(asyncio.get_running_loop()), told.append, supervised=True)


async def test_inside_of_a_pipeline_its_scope_is_found():
    scope = a_scope()
    with within(scope):
        assert scope_here() is scope
        assert scope_here(AsyncIOScheduler(asyncio.get_running_loop())) is scope
    assert scope_here() is not scope


async def test_its_scheduler_carries_it_to_what_is_subscribed_late_and_elsewhere():
    scope, found = a_scope(), list[Scope]()
    assert scope_here(scope.scheduler) is scope
    thread = threading.Thread(target=lambda: found.append(scope_here(scope.scheduler)))
    thread.start()
    thread.join()
    assert found == [scope]


async def test_of_two_scopes_the_one_of_the_scheduler_counts():
    inner, outer = a_scope(), a_scope()
    with within(outer):
        assert scope_here(inner.scheduler) is inner


async def test_without_a_runner_it_is_one_of_its_own_which_cancels_what_it_runs():
    scope = scope_here()
    assert scope.cancels
    assert scope.scheduler.loop is asyncio.get_running_loop()
    assert scope_here() is not scope


def test_without_a_loop_there_is_none():
    with pytest.raises(rj.NotOpen, match="outside of an event loop"):
        scope_here()


async def test_stop_tells_those_who_asked_once_and_those_who_come_later_at_once():
    scope, told = a_scope(), list[str]()
    scope.on_stop(lambda: told.append("first"))
    left = scope.on_stop(lambda: told.append("left"))
    left.dispose()
    scope.stop()
    scope.stop()
    assert told == ["first"]
    scope.on_stop(lambda: told.append("late"))
    assert told == ["first", "late"]


async def test_a_pull_keeps_its_ledger_through_restarts_and_another_has_its_own():
    scope, source = a_scope(), MemorySource()
    make = lambda: Demand(10)  # noqa: E731 - short
    assert scope.ledger("a", source, make) is scope.ledger("a", source, make)
    assert scope.ledger("a", source, make) is not scope.ledger("b", source, make)


class Stage:
    """What runs for a stage, as far as a scope knows it."""

    def __init__(self) -> None:
        self.detached = list[bool]()

    def detach(self, *, cancel: bool) -> None:
        self.detached.append(cancel)


async def test_what_a_stage_leaves_running_is_stopped_when_its_pipeline_is_killed():
    scope, stage = a_scope(), Stage()
    running: Any = stage
    scope.watch(running)
    scope.detach(running)
    assert stage.detached == [False]
    scope.kill()
    assert stage.detached == [False, True]
    later: Any = Stage()
    scope.watch(later)
    scope.detach(later)
    assert later.detached == [True]
