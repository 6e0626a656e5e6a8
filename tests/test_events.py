"""The stream of events can harm nothing it tells."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from reactivex import operators as ops

import rxjobs as rj
from rxjobs import events
from rxjobs.event_stream import EventStream
from rxjobs.events import NodeJoined, PipelineStarted
from rxjobs.testing import a_job


def event(n: int = 0) -> PipelineStarted:
    return PipelineStarted(pipeline=str(n))


def test_every_listener_hears_every_event_in_order():
    stream = EventStream()
    heard = [list[events.Event](), list[events.Event]()]
    for each in heard:
        stream.subscribe(each.append)
    told = [event(n) for n in range(5)]
    for one in told:
        stream.emit(one)
    assert heard == [told, told]


def test_one_that_has_left_hears_no_more():
    stream, heard = EventStream(), list[events.Event]()
    subscription = stream.subscribe(heard.append)
    stream.emit(event(1))
    subscription.dispose()
    stream.emit(event(2))
    assert [one.pipeline for one in heard] == ["1"]
    assert not stream.heard


def test_it_knows_whether_anybody_listens():
    stream = EventStream()
    assert not stream.heard
    stream.subscribe(lambda _: None)
    assert stream.heard


@pytest.mark.parametrize(
    "error", [ValueError("no"), SystemExit(1), asyncio.CancelledError()], ids=lambda error: type(error).__name__
)
def test_a_listener_that_raises_is_left_out_after_three_times_and_harms_nobody(error, caplog):
    stream, heard, tried = EventStream(), list[events.Event](), list[events.Event]()

    def raising(one: events.Event) -> None:
        tried.append(one)
        raise error

    stream.subscribe(raising)
    stream.subscribe(heard.append)
    for n in range(10):
        stream.emit(event(n))
    assert len(heard) == 10
    assert len(tried) == 3
    assert caplog.text.count("a listener of app.events raised") == 3
    assert caplog.text.count("is left out from now on") == 1


def test_an_operator_that_raises_ends_that_subscription_alone():
    stream, heard, errors = EventStream(), list[events.Event](), list[Exception]()
    stream.pipe(ops.map(lambda one: one.job)).subscribe(on_error=errors.append)
    stream.subscribe(heard.append)
    stream.emit(event())
    stream.emit(event())
    assert len(errors) == 1
    assert len(heard) == 2


def test_one_may_come_or_go_while_it_is_told():
    stream, heard = EventStream(), list[str]()

    def leave(one: events.Event) -> None:
        heard.append("leaving")
        subscription.dispose()
        stream.subscribe(lambda _: heard.append("new"))

    subscription = stream.subscribe(leave)
    stream.emit(event())
    stream.emit(event())
    assert heard == ["leaving", "new"]


def test_an_event_is_frozen_and_carries_both_clocks_in_nanoseconds():
    one = NodeJoined(node="here")
    with pytest.raises(AttributeError):
        one.node = "elsewhere"
    assert abs(one.system_time - time.time_ns()) < 10**9
    assert abs(one.monotonic_time - time.monotonic_ns()) < 10**9


def test_every_kind_of_event_has_a_name_of_its_own():
    def kinds(kind: type) -> list[type]:
        return [kind, *(deeper for sub in kind.__subclasses__() for deeper in kinds(sub))]

    names = [kind.name for kind in kinds(events.Event) if "name" in vars(kind)]
    assert len(names) == len(set(names))
    assert {"job.start", "job.stop", "job.exception", "job.discard", "job.dropped", "breaker.open", "pipeline.restart"} <= set(
        names
    )


def test_events_of_a_job_carry_it():
    job = a_job()
    assert events.JobDropped(job=job, reason="why").job is job
    assert isinstance(events.JobStopped(job=job, duration=1, queue_time=1, outcome=rj.Complete()), events.JobEvent)


class Counted:
    """A listener's shorter way for runs."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.told = list[tuple[Any, ...]]()
        self._error = error

    def began(self, job: rj.Job, queue_time: int) -> None:
        self._hear(job, queue_time)

    def ended(self, job: rj.Job, outcome: rj.Outcome, duration: int) -> None:
        self._hear(job, outcome, duration)

    def _hear(self, *told: Any) -> None:
        self.told.append(told)
        if self._error is not None:
            raise self._error


def test_one_with_a_shorter_way_for_runs_is_told_of_them_there_and_all_others_by_events():
    stream, heard, runs, seen = EventStream(), list[events.Event](), Counted(), list[events.Event]()
    listening = stream.listen(heard.append, runs)
    stream.subscribe(seen.append)
    job, outcome = a_job(), rj.Complete()
    stream.run_began(job, 3, 5)
    stream.emit(event())
    stream.run_stopped(job, outcome, 3, 7)
    assert runs.told == [(job, 3), (job, outcome, 7)]
    assert [one.name for one in heard] == ["pipeline.start"]
    assert [one.name for one in seen] == ["job.start", "pipeline.start", "job.stop"]
    began, _, stopped = seen
    assert (began.job, began.queue_time, began.monotonic_time) == (job, 3, 5)
    assert (stopped.job, stopped.outcome, stopped.queue_time, stopped.duration) == (job, outcome, 3, 7)
    listening.dispose()
    stream.run_began(job, 3, 5)
    assert len(runs.told) == 2


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1)], ids=lambda error: type(error).__name__)
def test_a_shorter_way_that_raises_is_left_out_like_any_listener(error, caplog):
    stream, heard, runs = EventStream(), list[events.Event](), Counted(error)
    stream.listen(heard.append, runs)
    for _ in range(5):
        stream.run_began(a_job(), 0, 0)
    stream.emit(event())
    assert len(runs.told) == 3
    assert heard == []
    assert caplog.text.count("raised on job.start") == 3
