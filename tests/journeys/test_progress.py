"""How far a job has come is seen from anywhere while it runs."""

import asyncio
import time

import pytest
from reactivex import operators as ops

import rxjobs as rj
from rxjobs.executors import remote
from tests.waiting import until

FAST = {"poll_seconds": 0.3}


def in_steps(seconds: float) -> None:
    job = rj.current_job()
    for step in range(10):
        job.progress(step / 10, f"step {step}")
        time.sleep(seconds / 10)
    job.progress(1, "done")


def an_app(dsn):
    app = rj.App(dsn, migrate=True, **FAST)

    @app.job(name="coroutine")
    async def coroutine(seconds: float) -> None:
        job = rj.current_job()
        for step in range(10):
            await job.progress(step / 10, f"step {step}")
            await asyncio.sleep(seconds / 10)
        await job.progress(1, "done")

    app.job(name="thread")(in_steps)
    app.job(name="child", executor=rj.in_processes(1))(in_steps)
    return app


async def all_of(observable):
    seen: list[object] = []
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    observable.subscribe(seen.append, ended.set_exception, lambda: ended.set_result(None))
    await asyncio.wait_for(ended, 30)
    return seen


@pytest.mark.parametrize("kind", ["coroutine", "thread", "child"])
async def test_the_enqueuer_follows_a_job_until_it_ends(dsn, kind):
    app, other = an_app(dsn), an_app(dsn)
    async with other:
        enqueued = await other.definitions[kind].enqueue(2.5)
        following = asyncio.ensure_future(all_of(enqueued.progress))
        async with app.running():
            seen = await following
        assert 3 <= len(seen) <= 11
        assert seen == sorted(seen, key=lambda one: one[0])
        assert seen[-1] == (1, "done")
        job = await other.jobs.get(enqueued.id)
        assert job.progress == (1, "done")
        assert (job.progress.fraction, job.progress.message) == (1, "done")


async def test_the_last_word_before_the_end_is_kept_and_writes_are_few(dsn, monkeypatch):
    app = an_app(dsn)

    @app.job(name="quick")
    async def quick() -> None:
        for step in range(1001):
            await rj.current_job().progress(step / 1000, str(step))

    async with app.running():
        writes, save = [], app.store.save_progress

        async def counted(*columns):
            writes.append(columns)
            return await save(*columns)

        monkeypatch.setattr(app.store, "save_progress", counted)
        enqueued = await quick.enqueue()
        await enqueued.result(timeout=20)
        assert (await app.jobs.get(enqueued.id)).progress == (1, "1000")
        assert len(writes) <= 5
        assert await all_of(enqueued.progress) == [(1, "1000")]


async def test_progress_of_an_attempt_that_is_not_the_current_one_changes_nothing(dsn, connection):
    app = an_app(dsn)
    begun, go_on = asyncio.Event(), asyncio.Event()

    @app.job(name="late")
    async def late() -> None:
        begun.set()
        await go_on.wait()
        await rj.current_job().progress(0.9, "late")
        await asyncio.sleep(0.2)

    async with app.running():
        enqueued = await late.enqueue()
        await begun.wait()
        await connection.execute("UPDATE rxjobs.live_jobs SET attempt = 7, progress = NULL")
        go_on.set()
        await until(lambda: not app._running.held_ids)
        assert await connection.fetchval("SELECT progress FROM rxjobs.live_jobs WHERE id = $1", enqueued.id) is None


async def test_who_follows_a_job_that_is_not_there_hears_its_end(dsn):
    async with an_app(dsn) as app:
        assert await all_of(app.jobs.follow(10**9).pipe(ops.to_list())) == [[]]


@pytest.mark.parametrize("fraction", [-0.1, 1.1, float("nan"), "half", True, None])
def test_a_fraction_that_is_none_is_refused(fraction):
    with pytest.raises(rj.InvalidOption, match="a number from 0 to 1"):
        rj.Job(id=1, type="work").progress(fraction)


def test_who_is_no_running_job_is_told_so():
    with pytest.raises(rj.NotOpen, match="job 1 does not run here"):
        rj.Job(id=1, type="work").progress(0.5)
    with pytest.raises(rj.NotOpen, match="in_pool"):
        remote.Away().report(0.5, "")


@pytest.mark.parametrize("kept", [None, {}, [1], "x", {"fraction": "1", "message": 2}])
def test_what_another_program_has_written_there_is_no_progress(kept):
    assert rj.Job(id=1, type="work", progressed=kept).progress == ()
