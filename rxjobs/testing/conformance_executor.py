"""The laws that every executor keeps."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

from rxjobs.calls import Call, Executor
from rxjobs.codec import PlainCodec
from rxjobs.definition import Definition, NewJob, Options
from rxjobs.enqueued import Enqueued
from rxjobs.failure import describe
from rxjobs.job import Job, running_job
from rxjobs.outcome import Outcome
from rxjobs.settings import Settings
from rxjobs.testing import conformance_jobs as jobs

Make = Callable[[], Executor]

MOMENT = 1.0
"""Seconds in which a cancelled call must have returned."""

_ids = itertools.count(1)


async def executor(make: Make, *, size: int | None = None) -> None:
    """Hold an executor to all laws; `size` is how many calls it runs at once, where it has a limit."""
    place = make()
    try:
        await returns_what_the_function_returned(place)
        await raises_what_the_function_raised(place)
        await carries_outcomes(place)
        await never_takes_code_that_has_not_run_for_done(place)
        await knows_its_current_job(place)
        await ends_a_cancelled_call_at_once(place)
        if size is not None:
            await runs_no_more_than_its_size(place, size)
        await works_after_close(place)
    finally:
        await place.close()


async def returns_what_the_function_returned(place: Executor) -> None:
    """Plain and coroutine functions, typed arguments, and the functions of stages, which are given the job."""
    for function in (jobs.add, jobs.add_soon, jobs.promise):
        result = await run(place, call_of(function, 2, b=3))
        assert result == 5, f"{function.__name__} returned {result!r}, not 5"
    result = await run(place, call_of(jobs.next_day, date(2024, 2, 28)))
    assert result == "2024-02-29", f"next_day returned {result!r}: the argument did not arrive as a date"
    call = call_of(jobs.identify, payload_of=(jobs.add, 1, 2), assigns={"name": "Ada"})
    result = await run(place, call)
    expected = [call.job.id, {"a": 1, "b": 2}, {"name": "Ada"}, call.job.id]
    assert result == expected, f"identify returned {result!r}, not {expected!r}"


async def raises_what_the_function_raised(place: Executor) -> None:
    """Whatever it was, it is that job's failure and nobody else's."""
    for name in jobs.FAILURES:
        for function in (jobs.fail, jobs.fail_soon):
            error = await caught(place, call_of(function, name))
            assert error is not None, f"{function.__name__} did not raise {name}"
            kind = describe(error).type
            assert kind == name, f"{function.__name__} raised {kind}, not {name}"
    error = await caught(place, call_of(jobs.stop_iteration))
    # PEP 479: no coroutine can raise it
    kind = "nothing" if error is None else describe(error).type
    assert kind in ("StopIteration", "RuntimeError"), f"a StopIteration arrived as {kind}"
    assert await run(place, call_of(jobs.add, 1)) == 1, "after failures, nothing runs"


async def carries_outcomes(place: Executor) -> None:
    """Returned or raised, an outcome arrives as it was."""
    for name, outcome in jobs.OUTCOMES.items():
        returned = await run(place, call_of(jobs.end_with, name))
        assert returned == outcome, f"{outcome!r} was returned and arrived as {returned!r}"
        error = await caught(place, call_of(jobs.raise_outcome, name))
        assert isinstance(error, Outcome), f"{outcome!r} was raised and arrived as {error!r}"
        assert error == outcome, f"{outcome!r} was raised and arrived as {error!r}"


async def never_takes_code_that_has_not_run_for_done(place: Executor) -> None:
    """A generator is an error that says what to do."""
    for function in (jobs.count, jobs.count_soon):
        error = await caught(place, call_of(function, 3))
        assert error is not None, f"{function.__name__} returned a generator, and passed for done"
        failure = describe(error)
        assert failure.type == "TypeError", f"{function.__name__} failed with {failure.type}, not TypeError"
        assert "generator" in failure.message, f"{failure.message!r} does not say what was wrong"


async def knows_its_current_job(place: Executor) -> None:
    """`current_job()` is right in each of fifty calls at once."""
    calls = [call_of(jobs.who, 0.01) for _ in range(50)]
    results = await asyncio.gather(*(run(place, call) for call in calls))
    for call, result in zip(calls, results, strict=True):
        assert result == [call.job.id] * 2, f"job {call.job.id} was told to be {result!r}"


async def ends_a_cancelled_call_at_once(place: Executor) -> None:
    """A running call that is cancelled returns within a second, and the next one runs."""
    with tempfile.TemporaryDirectory() as folder:
        mark = Path(folder, "begun")
        task = asyncio.create_task(caught(place, call_of(jobs.begin_and_sleep, str(mark), 2)))
        await until(mark.exists)
        began = time.monotonic()
        task.cancel()
        error = await task
        seconds = time.monotonic() - began
    assert isinstance(error, asyncio.CancelledError), f"a cancelled call raised {error!r}"
    assert seconds < MOMENT, f"a cancelled call returned after {seconds:.1f} s"
    assert await run(place, call_of(jobs.add, 1)) == 1, "after a cancelled call, nothing runs"


async def works_after_close(place: Executor) -> None:
    """Closed, and closed again, it starts anew when it is used."""
    await place.close()
    await place.close()
    assert await run(place, call_of(jobs.add, 1)) == 1, "after close, nothing runs"


async def runs_no_more_than_its_size(place: Executor, size: int) -> None:
    """Of many calls at once, never more than `size` run, and after a while that many do."""
    deadline = time.monotonic() + 10
    most = 0
    # a pool may take its time to start what it runs them in
    while most < size:
        assert time.monotonic() < deadline, f"no more than {most} calls ran at once, of {size}"
        spans = await asyncio.gather(*(run(place, call_of(jobs.span, 0.03)) for _ in range(4 * size)))
        most = max(sum(began <= at < ended for began, ended in spans) for at, _ in spans)
        assert most <= size, f"{most} calls ran at once, which is more than {size}"


def call_of(
    function: Callable[..., Any],
    *args: Any,
    payload_of: tuple[Any, ...] | None = None,
    assigns: dict[str, Any] | None = None,
    **kwargs: Any,
) -> Call:
    """A call of a function with arguments, or, with `payload_of`, of a stage's function for a job of another function's."""
    typed, *values = payload_of or (function, *args)
    definition = Definition(typed, _NoRegistry(), Options(name=f"{typed.__module__}.{typed.__qualname__}"))
    payload = definition.new(*values, **kwargs).payload
    job = Job(
        id=next(_ids),
        type=definition.name,
        payload=payload,
        args=definition.arguments.load(payload),
        definition=definition,
        attempt=1,
        assigns=assigns or {},
    )
    return Call(function, job, takes_job=payload_of is not None)


async def run(place: Executor, call: Call) -> Any:
    """What the call returned, with its job as the current one; raises what it raised, in the caller's task."""
    token = running_job.set(call.job)
    try:
        return await place.run(call)
    finally:
        running_job.reset(token)


async def caught(place: Executor, call: Call) -> BaseException | None:
    """What the call raised."""
    try:
        await run(place, call)
    except BaseException as error:  # whatever it is
        return error
    return None


async def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait for something that must come about."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"it did not come about within {seconds:g} s"
        await asyncio.sleep(0.005)


class _NoRegistry:
    """An app that nothing can be enqueued with."""

    max_args_bytes = 1024 * 1024
    codec = PlainCodec()
    settings = Settings()

    async def enqueue(self, new: NewJob, connection: Any = None) -> Enqueued:
        raise NotImplementedError(f"{new.type} is only run here")
