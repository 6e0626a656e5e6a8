from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

import rxjobs as rj
from rxjobs.event_stream import EventStream
from rxjobs.events import Event, JobFailed, JobStarted, JobStopped
from rxjobs.middleware.circuits import Circuits
from rxjobs.middleware.timeout import timeout as limit
from rxjobs.perform import Next
from rxjobs.testing import MemorySource, a_job, job_type, marbles
from rxjobs.testing.watched import runs
from tests.virtual import on_virtual_time

FINISHED = {"A": rj.Complete, "B": rj.Discard, "C": rj.Complete}


def handler(answer: Any) -> Any:
    async def handle(jobs: list[rj.Job]) -> Any:
        await asyncio.sleep(2)
        return answer(jobs)

    return handle


def test_one_call_for_a_list_and_each_comes_out_by_itself():
    calls = list[list[rj.Job]]()
    marbles(rj.execute_batch(handler(calls.append)), "[abc]--|", "--(ABC)|", values={letter: rj.Complete() for letter in "ABC"})
    assert [len(jobs) for jobs in calls] == [3]


def test_outcomes_may_come_in_the_order_of_the_jobs():
    marbles(
        rj.execute_batch(handler(lambda jobs: [rj.Complete(), rj.Discard("b"), rj.Complete()])),
        "[abc]--|",
        "--(ABC)|",
        values=FINISHED,
    )


def test_outcomes_may_come_by_id_and_those_not_named_are_complete():
    marbles(rj.execute_batch(handler(lambda jobs: {jobs[1].id: rj.Discard("b")})), "[abc]--|", "--(ABC)|", values=FINISHED)


def test_one_outcome_is_for_all():
    values = {letter: rj.Snooze(5) for letter in "ABC"}
    marbles(rj.execute_batch(handler(lambda jobs: rj.Snooze(5))), "[abc]--|", "--(ABC)|", values=values)


@pytest.mark.parametrize(
    "answer",
    [
        lambda jobs: [rj.Complete()],
        lambda jobs: {0: rj.Complete()},
        lambda jobs: {jobs[0].id: "done"},
        lambda jobs: "ABC",
        lambda jobs: 5,
    ],
    ids=["too few", "of no job", "no outcomes", "text", "number"],
)
def test_an_answer_that_fits_no_job_fails_all_and_says_so(answer):
    items = marbles(rj.execute_batch(handler(answer)), "[abc]--|", "--(ABC)|", values=dict.fromkeys("ABC", rj.Retry))
    assert all("or a mapping of their ids to outcomes, not" in item.outcome.failure.message for item in items)


@pytest.mark.parametrize("kind", [ValueError, SystemExit, asyncio.CancelledError])
def test_what_the_handler_raises_fails_all_each_by_its_own_rule(kind):
    def fail(_: Any) -> None:
        raise kind("no")

    values = {"a": a_job(attempt=20), "A": rj.Discard, "B": rj.Retry}
    marbles(rj.execute_batch(handler(fail)), "[ab]--|", "--(AB)|", values=values)


def test_a_handler_that_takes_too_long_fails_all():
    items = marbles(
        rj.execute_batch(handler(lambda jobs: None), timeout=1), "[ab]-|", "-(AB)|", values={"A": rj.Retry, "B": rj.Retry}
    )
    assert {item.outcome.failure.type for item in items} == {"TimeoutError"}


@pytest.mark.parametrize(("own", "expect", "end"), [(None, "-(ABC)-|", rj.Retry), (3, "--(ABC)|", rj.Complete)])
def test_a_handler_without_a_timeout_has_the_shortest_of_its_jobs_types(own, expect, end):
    types = [
        job_type(print, name=f"type_{seconds}", timeout=seconds, middleware=(limit(seconds),) if seconds else ())
        for seconds in (1, 30, None)
    ]
    values = {letter: a_job(definition=one) for letter, one in zip("abc", types, strict=True)}
    values |= dict.fromkeys("ABC", end)
    marbles(rj.execute_batch(handler(lambda jobs: None), timeout=own), "[abc]--|", expect, values=values)


def test_so_many_calls_at_once():
    marbles(rj.execute_batch(handler(lambda jobs: None)), "a[b]----|", "--A-B-|")


def test_a_plain_handler_runs_in_a_thread_and_may_give_a_coroutine():
    async def later(jobs: list[rj.Job]) -> list[rj.Outcome]:
        return [rj.Cancel("so") for _ in jobs]

    marbles(rj.execute_batch(lambda jobs: None), "[ab]-|", "(AB)-|", values={"A": rj.Complete, "B": rj.Complete})
    marbles(rj.execute_batch(lambda jobs: later(jobs)), "[ab]-|", "(AB)-|", values={"A": rj.Cancel, "B": rj.Cancel})


def test_what_is_finished_passes_and_is_not_given_to_the_handler():
    calls = list[list[rj.Job]]()
    marbles(rj.execute_batch(handler(calls.append)), "[aBc]--|", "B-(AC)|")
    assert [len(jobs) for jobs in calls] == [2]


@on_virtual_time
async def test_each_job_makes_its_events():
    source = MemorySource([a_job(), a_job()])
    answer = handler(lambda jobs: [rj.Complete(), rj.Retry(delay=5)])
    async with runs(rj.pull(source, max_demand=10).pipe(rj.buffer(2), rj.execute_batch(answer), rj.ack())) as observed:
        await asyncio.sleep(3)
    kinds: list[type[Event]] = [type(event) for event in observed.events if isinstance(event, JobStarted | JobStopped | JobFailed)]
    assert kinds == [JobStarted, JobStarted, JobStopped, JobFailed]


@on_virtual_time
async def test_each_job_of_a_type_makes_its_events_and_counts_for_the_breaker_of_its_type():
    events = EventStream()
    seen: list[Event] = []
    events.listen(seen.append)
    circuits = Circuits(events.emit)
    kind = job_type(print, events=events, middleware=(circuits.middleware("shaky", rj.Breaker(fail_max=1)),))
    given: list[int] = []

    def fail(jobs: list[rj.Job]) -> Any:
        given.append(len(jobs))
        raise ValueError("no")

    source = MemorySource([a_job(definition=kind) for _ in range(5)])
    async with runs(rj.pull(source, max_demand=3).pipe(rj.buffer(3, 5), rj.execute_batch(handler(fail)), rj.ack())):
        await asyncio.sleep(10)  # before the first is tried again
    assert circuits.states() == {"shaky": "open"}
    assert given == [3], "the handler was given jobs that the open breaker holds back"
    assert Counter(type(one.outcome) for one in source.settled) == {rj.Retry: 3, rj.Snooze: 2}
    kinds = Counter(type(event) for event in seen)
    assert (kinds[JobStarted], kinds[JobFailed], kinds[JobStopped]) == (5, 3, 2)


@on_virtual_time
async def test_a_call_that_fails_is_one_failure_to_the_breaker_however_many_jobs_it_has():
    circuits = Circuits(EventStream().emit)
    kind = job_type(print, middleware=(circuits.middleware("shaky", rj.Breaker(fail_max=2)),))
    given: list[int] = []

    def fail(jobs: list[rj.Job]) -> Any:
        given.append(len(jobs))
        raise ValueError("no")

    source = MemorySource([a_job(definition=kind) for _ in range(6)])
    async with runs(rj.pull(source, max_demand=3).pipe(rj.buffer(3, 5), rj.execute_batch(handler(fail)), rj.ack())):
        await asyncio.sleep(10)  # before the first is tried again
    assert circuits.states() == {"shaky": "open"}
    assert len(given) == 2
    assert sum(given) > 2


@on_virtual_time
async def test_a_middleware_that_waits_holds_up_the_call_and_is_stopped_with_it():
    async def wait(job: rj.Job, call_next: Next) -> rj.Outcome:
        if job.args["slow"]:
            await asyncio.sleep(3600)
        return await call_next(job)

    kind = job_type(print, middleware=(wait,))
    source = MemorySource([a_job(definition=kind, args={"slow": slow}) for slow in (False, True)])
    calls: list[Any] = []
    stream = rj.pull(source, max_demand=2).pipe(rj.buffer(2), rj.execute_batch(handler(calls.append)), rj.ack())
    async with runs(stream, grace=0):
        await asyncio.sleep(5)
    assert calls == []
    assert [type(one.outcome) for one in source.settled] == [rj.Release] * 2


@on_virtual_time
async def test_when_it_is_killed_its_jobs_are_released():
    source = MemorySource([a_job() for _ in range(6)])
    stream = rj.pull(source, max_demand=10).pipe(rj.buffer(2), rj.execute_batch(handler(lambda jobs: None)), rj.ack())
    async with runs(stream, grace=0):
        await asyncio.sleep(1)
    assert [type(one.outcome) for one in source.settled] == [rj.Release] * 6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"handler": None}, "handler is a function of a job, not None"),
        ({"concurrency": 0}, "concurrency is a whole number of at least 1, not 0"),
        ({"timeout": 0}, "timeout is a number of seconds above 0, or None, not 0"),
    ],
)
def test_what_cannot_be_is_refused(options, message):
    with pytest.raises(rj.InvalidOption, match=message):
        rj.execute_batch(**{"handler": print, **options})
