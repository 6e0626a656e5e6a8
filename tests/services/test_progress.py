import asyncio

import pytest
import reactivex as rx

import rxjobs as rj
from rxjobs.events import QueueStalled
from rxjobs.services.progress import progress, quiet_seconds
from rxjobs.sources.postgres import PostgresSource
from tests.waiting import until

QUIET = 0.4


class Deaf(PostgresSource):
    """A source that nothing wakes: whatever it misses, it misses for good."""

    wakes = rx.never()


@pytest.fixture
def app(dsn):
    return rj.App(dsn, migrate=True)


def watched(running, events, scheduler):
    return progress(lambda: running.ledgers, quiet=QUIET, emit=events.append).subscribe(scheduler=scheduler)


async def test_a_source_that_stands_still_is_told_of_once_and_asked_again_until_it_moves(app, scheduler, caplog):
    @app.job(name="work")
    async def work() -> None: ...

    events = []
    async with app.running(rj.pull(Deaf(app, "default"), max_demand=5).pipe(rj.execute(), rj.ack())) as running:
        watching = watched(running, events, scheduler)
        await asyncio.sleep(3 * QUIET)
        assert events == []  # it is idle, and there is nothing to do
        for episode in (1, 2):
            await work.enqueue()
            await until(lambda episode=episode: is_completed(app, episode))
            assert [type(event) for event in events] == [QueueStalled] * episode
        assert (events[0].name, events[0].queue) == ("queue.stalled", "default")
        assert QUIET < events[0].seconds < 20
        watching.dispose()
    assert caplog.text.count("jobs of queue default are ready and there is room for them") == 2


async def is_completed(app, count):
    return await app.jobs.count() == {"completed": count}


async def test_neither_a_source_without_room_nor_jobs_of_others_are_told_of(dsn, scheduler):
    app = rj.App(dsn, migrate=True, shutdown_grace=0)

    @app.job(name="long")
    async def long() -> None:
        await asyncio.sleep(60)

    @app.job(name="other")
    async def other() -> None: ...

    events = []
    source = Deaf(app, "default", {"types": ["long"]})
    async with app.running(rj.pull(source, max_demand=1).pipe(rj.execute(), rj.ack())) as running:
        await other.enqueue()
        watching = watched(running, events, scheduler)
        await asyncio.sleep(4 * QUIET)  # in which it would be told of
        await app.enqueue_many([long.new(), long.new()])
        await until(lambda: app.jobs.count(state="executing"))
        told = len(events)
        await asyncio.sleep(4 * QUIET)
        assert len(events) == told == 1  # of the first that was missed; then there was no room
        watching.dispose()


async def test_a_question_that_nobody_answers_is_given_up(app, scheduler):
    class Hung(Deaf):
        """Its first questions get no answer."""

        left = 1

        async def fetch(self, n):
            if self.left:
                self.left -= 1
                await asyncio.Event().wait()
            return await super().fetch(n)

    @app.job(name="work")
    async def work() -> None: ...

    events = []
    async with app.running(rj.pull(Hung(app, "default"), max_demand=5).pipe(rj.execute(), rj.ack())) as running:
        watching = watched(running, events, scheduler)
        await work.enqueue()
        await until(lambda: is_completed(app, 1))
        watching.dispose()


def test_ten_seconds_are_the_least_and_three_polls():
    assert [quiet_seconds(poll) for poll in (0.5, 1, 60)] == [10, 10, 180]
