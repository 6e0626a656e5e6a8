"""The laws have teeth: each broken part is caught."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
import reactivex as rx
from reactivex import operators as ops

import rxjobs as rj
from rxjobs.outcome import Finished
from rxjobs.testing import MemorySource, a_job, conformance
from rxjobs.testing import conformance_operator as laws


def refuse(_: Any) -> Any:
    raise ValueError("refused")


def twice(source: rx.Observable[Any]) -> rx.Observable[Any]:
    """Lets what is finished pass as a copy."""
    return source.pipe(ops.map(lambda item: Finished(item.job, item.outcome) if isinstance(item, Finished) else item))


def to_threads(source: rx.Observable[Any]) -> rx.Observable[Any]:
    """Emits on threads of its own."""

    def on_a_thread(item: Any) -> rx.Observable[Any]:
        done: rx.Subject[Any] = rx.subject.ReplaySubject()
        thread = threading.Thread(target=lambda: (done.on_next(item), done.on_completed()))
        thread.start()
        return done

    return source.pipe(ops.flat_map(on_a_thread))


def never_ends(source: rx.Observable[Any]) -> rx.Observable[Any]:
    """Does not complete when its source has."""
    return rx.merge(source, rx.never())


@pytest.mark.parametrize(
    ("operator", "law", "message"),
    [
        (
            ops.filter(lambda item: isinstance(item, Finished) or item.args["n"] != 7),
            laws.settles_every_job_exactly_once,
            "not ended",
        ),
        (
            ops.map(refuse),
            laws.makes_values_of_failures,
            "where a failure must be a value: ValueError: refused",
        ),
        (rj.complete(), laws.makes_values_of_failures, "did not fail, though the function raised"),
        (twice, laws.passes_on_what_is_finished, "finished jobs"),
        (to_threads, laws.emits_on_the_loop_what_came_from_threads, "came out on other threads than the event loop's"),
        (never_ends, laws.settles_every_job_exactly_once, "the pipeline has not ended"),
    ],
    ids=["drops", "raises", "does not fail", "copies", "emits on threads", "never ends"],
)
async def test_an_operator_that(operator, law: Callable[..., Any], message, monkeypatch):
    """… is caught."""
    if operator is not to_threads:  # which does end, on a busy machine late
        monkeypatch.setattr(laws, "SECONDS", 2.0)
    with pytest.raises(AssertionError, match=message):
        await law(lambda: operator)


class Twice(MemorySource):
    """Gives a job again that nobody has settled."""

    async def fetch(self, n: int) -> list[rj.Job]:
        jobs = await super().fetch(n)
        self._ready += jobs[:1]
        return jobs


class TooMany(MemorySource):
    async def fetch(self, n: int) -> list[rj.Job]:
        return await super().fetch(n + 1)


class Greedy(MemorySource):
    """Keeps released jobs."""

    async def settle(self, finished: list[Finished]) -> None:
        self.settled += finished


class Unclaimed(MemorySource):
    """Gives jobs without beginning an attempt."""

    async def fetch(self, n: int) -> list[rj.Job]:
        taken, self._ready = self._ready[:n], self._ready[n:]
        return taken


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Twice, "twice, which nobody had settled"),
        (TooMany, "asked for 7 jobs, it gave 8"),
        (Greedy, "a released job was not given again"),
        (Unclaimed, "without attempt 1 having begun"),
    ],
)
async def test_a_source_that_breaks_a_law_is_caught(kind, message, monkeypatch):
    monkeypatch.setattr("rxjobs.testing.conformance_source.SECONDS", 0.5)
    with pytest.raises(AssertionError, match=message):
        await conformance.source(lambda count: kind(a_job() for _ in range(count)))


async def test_the_executors_are_held_to_theirs():
    class Swallowing:
        name = "loop"

        async def run(self, call: Any) -> Any:
            try:
                result = call.invoke()
                return await result if asyncio.iscoroutine(result) else result
            except BaseException:
                return None

        async def close(self) -> None: ...

    with pytest.raises(AssertionError):
        await conformance.executor(Swallowing)
