"""Jobs of PostgreSQL through branches: each is acked exactly once, in the order of its key, also when branches break."""

import asyncio
from collections import Counter

from reactivex import operators as ops

import rxjobs as rj
from rxjobs.events import BranchRestarted
from rxjobs.testing import fill
from tests.journeys.recording import Recording
from tests.waiting import until

COUNT = 4_000
KEYS = 16


async def states(connection):
    rows = await connection.fetch("SELECT state::text, attempt, count(*) FROM rxjobs.finished_jobs GROUP BY 1, 2")
    return {(row["state"], row["attempt"]): row["count"] for row in rows}


async def is_done(connection):
    return not await connection.fetchval("SELECT count(*) FROM rxjobs.live_jobs")


async def test_jobs_of_a_key_start_in_the_order_of_their_claims_and_never_overlap(dsn, connection):
    app, began, now, overlaps = rj.App(dsn), {}, set(), []

    @app.job(name="work")
    async def work(n: int) -> None:
        key = n % KEYS
        if key in now:
            overlaps.append(n)
        now.add(key)
        began.setdefault(key, []).append(n)
        await asyncio.sleep(0.01 if key == 3 and n < 1_000 else 0)
        now.remove(key)

    async def look_up(job):
        await asyncio.sleep(job.args["n"] * 7 % 5 / 1000)
        return {"known": True}

    await fill(connection, "work", COUNT, args_sql="json_build_object('n', n)")
    source = Recording(rj.PostgresSource(app, "default"))
    pipeline = rj.pull(source, max_demand=200).pipe(
        rj.enrich(look_up, concurrency=20),
        rj.partition(4, by=lambda job: job.args["n"] % KEYS, branch=rj.execute(concurrency=5)),
        rj.ack(),
    )
    async with app.running(pipeline):
        await until(lambda: is_done(connection))
        await until(lambda: not source.held)
    assert not overlaps
    assert began == {key: list(range(key, COUNT, KEYS)) for key in range(KEYS)}
    assert await states(connection) == {("completed", 1): COUNT}
    assert max(Counter(source.settled).values()) == 1
    assert source.most_held <= 200


async def test_branches_in_branches_that_fail_drop_and_break_settle_each_job_once(dsn, connection):
    app, ran, events = rj.App(dsn), Counter(), []

    @app.job(name="work")
    async def work(n: int) -> int:
        ran[n] += 1
        await asyncio.sleep(0.001)
        if n % 50 == 7:
            raise rj.Discard("every fiftieth")
        return n

    broken = []

    def break_twice(item):
        if isinstance(item, rj.Job) and item.args["n"] in (100, 200) and item.args["n"] not in broken:
            broken.append(item.args["n"])
            raise RuntimeError(f"at {item.args['n']}")
        return item

    await fill(connection, "work", 1_000, args_sql="json_build_object('n', n)")
    source = Recording(rj.PostgresSource(app, "default"))
    written = []
    dispatch = rj.balance(
        rj.branch(
            rj.broadcast(
                rj.execute(concurrency=5),
                rj.branch(
                    rj.filter(lambda job: job.args["n"] % 3, otherwise=rj.Complete()), rj.map(lambda job: job), rj.complete()
                ),
            ),
            max_demand=10,
        ),
        rj.branch(ops.map(break_twice), rj.execute(concurrency=5), rj.ack(), ops.do_action(written.append), name="acking"),
    )
    app.events.subscribe(events.append)
    async with app.running(rj.pull(source, max_demand=60).pipe(dispatch, rj.ack())):
        await until(lambda: is_done(connection))
        await until(lambda: not source.held)
    assert await states(connection) == {("completed", 1): 980, ("discarded", 1): 20}
    # those at which the branch broke were released, and no job ran more than once for one attempt
    assert ran == Counter(range(1_000))
    restarts = [event for event in events if isinstance(event, BranchRestarted)]
    assert [event.branch for event in restarts] == ["acking"] * len(broken)
    assert written


async def test_a_pause_reaches_what_waits_for_a_branch(dsn, connection):
    app, began = rj.App(dsn), []

    @app.job(name="work")
    async def work(n: int) -> None:
        began.append(n)
        await asyncio.sleep(0.5)

    await fill(connection, "work", 40, args_sql="json_build_object('n', n)")
    source = rj.PostgresSource(app, "default")
    dispatch = rj.broadcast(rj.partition(2, by="args.n", branch=rj.balance(rj.execute(concurrency=1))))
    async with app.running(rj.pull(source, max_demand=20).pipe(dispatch, rj.ack())):
        await until(lambda: began)
        await app.queues.pause("default")
        at_pause = len(began)
        executing = "SELECT count(*) = 0 FROM rxjobs.live_jobs WHERE state = 'executing'"
        await until(lambda: connection.fetchval(executing))
        assert len(began) == at_pause <= 2
        rows = await connection.fetch("SELECT DISTINCT attempt FROM rxjobs.live_jobs")
        assert [row["attempt"] for row in rows] == [0]
        await app.queues.resume("default")
        await until(lambda: len(began) > at_pause)
