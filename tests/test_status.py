"""What a node tells of itself: how fast it goes, and what is in its stages."""

import asyncio

import rxjobs as rj
from rxjobs.status import Rates
from tests.waiting import until


def test_a_rate_is_what_was_added_a_second_since_the_look_before():
    clock = iter([0.0, 10.0, 12.0])
    rates = Rates(lambda: next(clock))
    rates.look()
    assert rates.of("a", 100) is None  # nobody knows since when
    rates.keep()
    rates.look()
    assert rates.of("a", 150) == 25.0
    assert rates.of("b", 7) is None


def test_a_look_a_moment_after_another_does_not_hide_what_was_before():
    clock = iter([0.0, 0.0, 10.0, 10.001, 10.002])
    rates = Rates(lambda: next(clock))
    told = []
    for count in (0, 50, 50, 60):
        rates.look()
        told.append(rates.of("a", count))
        rates.keep()
    assert told[:2] == [None, 5.0]
    assert all(rate < 250 for rate in told[2:])


def test_a_counter_that_begins_anew_is_no_rate_below_nothing():
    clock = iter([0.0, 0.0, 1.0])
    rates = Rates(lambda: next(clock))
    for count, rate in ((9, None), (1, 0.0)):
        rates.look()
        assert rates.of("a", count) == rate
        rates.keep()


async def test_a_node_tells_of_its_stages_in_the_order_of_the_pipeline_with_what_is_in_them(dsn):
    app = rj.App(dsn, migrate=True, heartbeat_seconds=0.1, lease_seconds=30)
    goes_on = asyncio.Event()

    @app.job(name="work", queue="mail")
    async def work(n: int) -> None:
        await goes_on.wait()

    @app.job(name="other", queue="batches")
    async def other() -> None: ...

    async def write(jobs: list[rj.Job]) -> None:
        await goes_on.wait()

    mail = app.source("mail", max_demand=20).pipe(
        rj.filter(lambda job: job.args["n"] > 0, name="some"), rj.enrich(lambda job: {}, name="look up"),
        rj.rate_limit(10_000, name="slowly"), rj.execute(concurrency=3, name="send"), rj.ack(),
    )  # fmt: skip
    batches = app.source("batches", max_demand=9).pipe(rj.buffer(4, 600.0), rj.execute_batch(write), rj.ack())
    app.pipeline(mail, "mail")
    app.pipeline(batches, "batches")

    async def told(held):
        [node] = await app.nodes.list()
        found = {one.name: one for one in node.pipelines}
        return (node, found["mail"], found["batches"]) if [one.held for one in found.values()] == held else None

    async with app.running():
        await app.enqueue_many([work.new(n) for n in range(8)])
        await app.enqueue_many([other.new() for _ in range(6)])
        node, mail, batches = await until(lambda: told([7, 6]))
        assert (mail.max_demand, mail.demand, mail.running, mail.queues) == (20, 13, 3, ("mail",))
        assert [(one.name, one.running, one.waiting, one.limit, one.dropped) for one in mail.stages] == [
            ("some", 0, 0, 0, 1), ("look up", 0, 0, 10, 0), ("slowly", 0, 0, 0, 0), ("send", 3, 4, 3, 0),
        ]  # fmt: skip
        # four jobs are one list; two wait for others
        assert [(one.name, one.running, one.waiting) for one in batches.stages] == [("buffer", 0, 2), ("execute_batch", 4, 0)]
        assert node.age < 30
        goes_on.set()
        _, mail, _ = await until(lambda: told([0, 2]))
        assert mail.rates.keys() == {"mail"}
        assert mail.rate is not None
        assert mail.failed == 0
