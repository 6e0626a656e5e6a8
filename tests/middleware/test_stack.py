"""An app's own middleware: around runs and inserts, in order, with what is built in between."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

import rxjobs as rj
from rxjobs.outcome import Complete, Discard, Finished, Retry
from rxjobs.testing import a_job


@pytest.fixture
def app():
    return rj.App("postgresql://nowhere/nothing")


async def run(definition, **fields):
    job = a_job(type=definition.name, definition=definition, **fields)
    finished = await definition.perform(job, None)
    assert isinstance(finished, Finished)
    return finished.outcome


class Noting(rj.Middleware):
    def __init__(self, name, seen):
        self.name, self.seen = name, seen

    async def run(self, job, call_next):
        self.seen.append(f"{self.name} before")
        outcome = await call_next(job)
        self.seen.append(f"{self.name} after {type(outcome).__name__}")
        return outcome


async def test_the_first_is_outermost_whether_it_was_given_before_the_job_type_or_after(app):
    seen = []
    app.use(Noting("first", seen))

    @app.job(name="work")
    async def work():
        seen.append("the job")
        return 7

    app.use(Noting("second", seen))

    async def third(job, call_next):
        seen.append("third before")
        return await call_next(job)

    app.use(third)
    assert await run(work) == Complete(7)
    before = ["first before", "second before", "third before"]
    assert seen == [*before, "the job", "second after Complete", "first after Complete"]


async def test_it_sees_failures_as_outcomes_and_may_change_them(app):
    class Forgiving(rj.Middleware):
        async def run(self, job, call_next):
            outcome = await call_next(job)
            match outcome:
                case Retry(failure=failure) if failure.type == "KeyError":
                    return Discard("no such thing", failure)
            return outcome

    app.use(Forgiving())

    @app.job(name="work")
    async def work(key):
        return {}[key]

    assert isinstance(await run(work, args={"key": 1}), Discard)


async def test_what_it_raises_fails_the_attempt_and_counts_for_the_breaker(app):
    async def broken(job, call_next):
        raise ValueError("the middleware is broken")

    app.use(broken)

    @app.job(name="work", breaker=rj.Breaker(fail_max=2))
    async def work(): ...

    outcomes = [await run(work) for _ in range(3)]
    assert [type(one).__name__ for one in outcomes] == ["Retry", "Retry", "Snooze"]
    assert outcomes[0].failure.message == "the middleware is broken"


async def test_what_is_no_outcome_fails_the_attempt_and_says_so(app):
    async def forgetful(job, call_next):
        await call_next(job)

    app.use(forgetful)

    @app.job(name="work")
    async def work(): ...

    outcome = await run(work)
    assert outcome.failure.message == "a middleware gave None, not an outcome: return what call_next(job) gave"


async def test_it_is_inside_the_breaker_and_outside_of_the_timeout(app):
    class Slow(rj.Middleware):
        async def run(self, job, call_next):
            outcome = await call_next(job)
            return Complete("in time") if outcome.failure.type == "TimeoutError" else outcome

    app.use(Slow())

    @app.job(name="work", timeout=0.05)
    async def work():
        import asyncio

        await asyncio.sleep(30)

    assert await run(work) == Complete("in time")


@pytest.mark.parametrize("wrong", [print, "log", rj.Middleware, lambda job, call_next: call_next(job), None])
def test_what_cannot_wrap_a_run_is_refused(app, wrong):
    with pytest.raises(rj.InvalidOption, match=r"app\.use takes an rj\.Middleware, or an async function of a job"):
        app.use(wrong)


async def test_around_inserts_it_sees_and_changes_what_is_new(dsn):
    seen = []

    class Tagging(rj.Middleware):
        async def enqueue(self, news, call_next):
            seen.append(len(news))
            rows = await call_next([msgspec.structs.replace(new, tags=(*new.tags, "tagged")) for new in news])
            seen.append([row.state for row in rows])
            return rows

    class Refusing(rj.Middleware):
        async def enqueue(self, news, call_next):
            if any(new.priority > 5 for new in news):
                raise PermissionError("not so late")
            return await call_next(news)

    app = rj.App(dsn, migrate=True)
    app.use(Tagging())
    app.use(Refusing())

    @app.job(name="work", tags=["own"])
    async def work(): ...

    async with app:
        enqueued = await work.enqueue()
        await app.enqueue_many([work.new(), work.new()])
        assert (await app.jobs.get(enqueued.id)).tags == ["own", "tagged"]
        with pytest.raises(PermissionError):
            await work.options(priority=9).enqueue()
    assert seen == [1, ["available"], 2, ["available", "available"], 1]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_one_that_takes_longer_than_the_timeout_of_the_job_type_fails_the_attempt(app, after):
    """F49."""
    ran = []

    async def slow(job, call_next):
        outcome = await call_next(job) if after else None
        await asyncio.Event().wait()
        return outcome

    app.use(slow)

    @app.job(name="work", timeout=0.1)
    async def work():
        ran.append(1)

    outcome = await asyncio.wait_for(run(work), 20)
    assert isinstance(outcome, Retry)
    assert outcome.failure.type == "TimeoutError"
    assert "slow, around work, took longer than its timeout of 0.1 s by itself" in outcome.failure.message
    assert ran == [1] * after


async def test_the_time_of_one_stands_still_while_what_it_calls_is_at_work(app):
    seconds = 1.5

    async def slow(job, call_next):
        await asyncio.sleep(seconds / 3)
        for _ in range(3):
            await call_next(job)
        return await call_next(job)

    app.use(slow)

    @app.job(name="work", timeout=seconds)
    async def work():
        await asyncio.sleep(seconds / 3)

    assert await run(work) == Complete(None)


async def test_a_task_that_one_has_left_behind_may_call_on(app):
    left = []

    async def leaves(job, call_next):
        left.append(asyncio.ensure_future(call_next(job)))
        return Complete("early")

    app.use(leaves)

    @app.job(name="work", timeout=10)
    async def work():
        return 1

    assert await run(work) == Complete("early")
    assert await left[0] == Complete(1)
