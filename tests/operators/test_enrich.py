from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable
from typing import Any, NoReturn

import pytest

import rxjobs as rj
from rxjobs.executors.in_threads import in_threads
from rxjobs.testing import MemorySource, a_job, marbles
from rxjobs.testing.watched import runs
from tests.virtual import on_virtual_time


async def two_seconds(job: rj.Job) -> dict[str, str]:
    await asyncio.sleep(2)
    return {"found": job.args["letter"].upper()}


def test_what_is_found_is_merged_into_assigns():
    (job,) = marbles(rj.enrich(two_seconds), "-a---|", "---a-|", values={"a": a_job(args={"letter": "a"}, assigns={"before": 1})})
    assert job.assigns == {"before": 1, "found": "A"}


def test_so_many_at_once_and_the_rest_wait_for_their_turn():
    marbles(rj.enrich(two_seconds, concurrency=2), "abcd|", "--abc(d|)")


def test_it_completes_after_the_last_is_out():
    marbles(rj.enrich(two_seconds), "a|", "--(a|)")


def test_nothing_found_changes_nothing():
    async def nothing(job: rj.Job) -> None: ...

    marbles(rj.enrich(nothing), "-a|", "-a|")


@pytest.mark.parametrize("outcome", [rj.Snooze(60), rj.Cancel("gone"), rj.Discard("no")], ids=repr)
@pytest.mark.parametrize("how", ["returned", "raised"])
def test_an_outcome_in_place_of_a_mapping_settles_the_job(outcome, how):
    async def end(job: rj.Job) -> rj.Outcome:
        if how == "raised":
            raise outcome
        return outcome

    marbles(rj.enrich(end), "-a|", "-A|", values={"A": outcome})


def test_one_that_takes_too_long_is_a_failed_attempt():
    (finished,) = marbles(rj.enrich(two_seconds, timeout=1), "a--|", "-A-|", values={"A": rj.Retry})
    assert finished.outcome.failure.type == "TimeoutError"


def test_what_is_no_mapping_is_a_failed_attempt_that_says_so():
    (finished,) = marbles(rj.enrich(lambda job: 5, name="look"), "a|", "A|", values={"A": rj.Retry})
    assert "the function of stage 'look' gives a mapping, not int" in finished.outcome.failure.message


def test_a_plain_function_runs_in_a_thread_and_takes_no_virtual_time():
    threads = list[int]()

    def look(job: rj.Job) -> dict[str, int]:
        threads.append(threading.get_ident())
        return {"n": 1}

    marbles(rj.enrich(look), "-a-b|", "-a-b|")
    assert threads
    assert threading.get_ident() not in threads


class Caller:
    """A callable object."""

    async def __call__(self, job: rj.Job) -> dict[str, int]:
        return {"n": 1}


async def _find(n: int, job: rj.Job) -> dict[str, int]:
    return {"n": n}


@pytest.mark.parametrize(
    "function",
    [lambda job: _find(1, job), functools.partial(_find, 1), Caller(), functools.partial(lambda n, job: _find(n, job), 1)],
    ids=["lambda", "partial", "object", "partial of a lambda"],
)
def test_a_coroutine_is_awaited_whatever_gave_it(function):
    (job,) = marbles(rj.enrich(function), "a|", "a|")
    assert job.assigns == {"n": 1}


def _fail(make: Callable[[], BaseException]) -> tuple[Callable[[rj.Job], Any], Callable[[rj.Job], Any]]:
    def plain(job: rj.Job) -> NoReturn:
        raise make()

    async def coroutine(job: rj.Job) -> NoReturn:
        await asyncio.sleep(0)
        raise make()

    return plain, coroutine


@pytest.mark.parametrize("kind", [ValueError, SystemExit, KeyboardInterrupt, asyncio.CancelledError, StopIteration, GeneratorExit])
@pytest.mark.parametrize("which", [0, 1], ids=["in a thread", "on the loop"])
def test_whatever_the_function_raises_is_a_failed_attempt(kind, which):
    marbles(rj.enrich(_fail(kind)[which]), "-a-b|", "-A-B|", values={"A": rj.Retry, "B": rj.Retry})


@pytest.mark.parametrize("kind", [rj.enrich, rj.map])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"function": None}, "function is a function of a job, not None"),
        ({"concurrency": 0}, "concurrency is a whole number of at least 1, not 0"),
        ({"concurrency": True}, "not True"),
        ({"concurrency": 1.5}, "not 1.5"),
        ({"timeout": 0}, "timeout is a number of seconds above 0, or None, not 0"),
        ({"timeout": -1}, "not -1"),
    ],
)
def test_what_cannot_be_is_refused(kind, options, message):
    with pytest.raises(rj.InvalidOption, match=message):
        kind(**{"function": two_seconds, **options})


@on_virtual_time
async def test_when_it_is_killed_what_it_looks_up_is_cancelled_and_released():
    cancelled = list[int]()

    async def look(job: rj.Job) -> None:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            cancelled.append(job.id)
            raise

    jobs = [a_job() for _ in range(4)]
    source = MemorySource(jobs)
    async with runs(rj.pull(source, max_demand=10).pipe(rj.enrich(look, concurrency=2), rj.complete(), rj.ack()), grace=0):
        await asyncio.sleep(1)
    assert sorted(cancelled) == [job.id for job in jobs[:2]]
    assert [type(one.outcome) for one in source.settled] == [rj.Release] * 4


async def test_on_an_executor_it_runs_there_and_the_executor_is_closed_with_the_app():
    threads, names = in_threads(2), list[str]()

    def look(job: rj.Job) -> dict[str, str]:
        names.append(threading.current_thread().name)
        return {"n": "1"}

    source = MemorySource([a_job()])
    source.close()
    async with runs(rj.pull(source, max_demand=10).pipe(rj.enrich(look, on=threads), rj.complete(), rj.ack())) as observed:
        await asyncio.wait_for(observed.running.wait(), 10)
    assert names[0].startswith("rxjobs-thread")
    assert threads.abandoned == 0


def test_map_replaces_the_job():
    (job,) = marbles(rj.map(lambda job: job.assign({"n": 2})), "a|", "a|")
    assert job.assigns == {"n": 2}


@pytest.mark.parametrize("made", [None, {"n": 1}, "job"], ids=repr)
def test_map_takes_nothing_but_the_job(made):
    (finished,) = marbles(rj.map(lambda job: made), "a|", "A|", values={"A": rj.Retry})
    assert "use reactivex's own map" in finished.outcome.failure.message


# what is taken in place of what failed


async def fail(job: rj.Job) -> NoReturn:
    raise ValueError("not found")


def test_a_fallback_is_taken_when_the_function_raises():
    (job,) = marbles(rj.enrich(fail, fallback={"found": None}), "-a|", "-a|")
    assert job.assigns == {"found": None}


def test_a_fallback_is_taken_when_the_function_takes_too_long():
    (job,) = marbles(rj.enrich(two_seconds, timeout=1, fallback={"late": True}), "a--|", "-a-|")
    assert job.assigns == {"late": True}


async def _soon(job: rj.Job, error: BaseException) -> dict[str, str]:
    await asyncio.sleep(1)
    return {"why": str(error)}


@pytest.mark.parametrize(
    ("fallback", "line"), [(lambda job, error: {"why": str(error)}, "-a-|"), (_soon, "--a|")], ids=["plain", "coroutine"]
)
def test_a_fallback_may_be_a_function_of_the_job_and_the_error(fallback, line):
    (job,) = marbles(rj.enrich(fail, fallback=fallback), "-a-|", line)
    assert job.assigns == {"why": "not found"}


@pytest.mark.parametrize("kind", [rj.enrich, rj.map])
@pytest.mark.parametrize("fallback", [rj.Snooze(60), lambda job, error: rj.Snooze(60)], ids=["value", "function"])
def test_a_fallback_may_settle_the_job(kind, fallback):
    marbles(kind(fail, fallback=fallback), "-a|", "-A|", values={"A": rj.Snooze(60)})


def test_a_fallback_that_raises_is_a_failed_attempt():
    (finished,) = marbles(rj.enrich(fail, fallback=lambda job, error: 1 / 0), "a|", "A|", values={"A": rj.Retry})
    assert finished.outcome.failure.type == "ZeroDivisionError"
    assert "not found" in finished.outcome.failure.traceback


def test_an_outcome_that_is_raised_is_no_failure_and_needs_no_fallback():
    async def end(job: rj.Job) -> NoReturn:
        raise rj.Cancel("gone")

    marbles(rj.enrich(end, fallback={}), "a|", "A|", values={"A": rj.Cancel("gone")})


def test_a_fallback_of_a_map_gives_the_job():
    (job,) = marbles(rj.map(fail, fallback=lambda job, error: job.assign({"n": 0})), "a|", "a|")
    assert job.assigns == {"n": 0}


@pytest.mark.parametrize("kind", [rj.enrich, rj.map])
@pytest.mark.parametrize("fallback", [5, "none", dict, rj.Cancel], ids=repr)
def test_a_fallback_that_is_none_is_refused(kind, fallback):
    with pytest.raises(rj.InvalidOption, match=f"rj.{kind.__name__}: fallback is "):
        kind(two_seconds, fallback=fallback)


@on_virtual_time
async def test_a_look_up_that_is_stopped_takes_no_fallback():
    async def look(job: rj.Job) -> None:
        await asyncio.sleep(100)

    source = MemorySource([a_job()])
    pipeline = rj.pull(source, max_demand=10).pipe(rj.enrich(look, fallback={}), rj.complete(), rj.ack())
    async with runs(pipeline, grace=0):
        await asyncio.sleep(1)
    assert [type(one.outcome) for one in source.settled] == [rj.Release]
