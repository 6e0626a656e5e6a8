"""Claims begin at their marks where it is crowded behind them, and nothing that they pass by is left there."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

import rxjobs as rj
from rxjobs.sources import low_water
from rxjobs.sources.low_water import CROWDED_SECONDS, LOOK_SECONDS, SETTLED, SHARE, LowWater
from rxjobs.store.store import FROM_THE_START, PRIORITIES
from tests.store.ground import a_row, a_shared_database, emptied
from tests.waiting import until

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LONG_AGO = NOW - timedelta(hours=1)
LONG = 10 * CROWDED_SECONDS


def row(id_, scheduled_at, priority=0, now=NOW):
    return {"id": id_, "scheduled_at": scheduled_at.timestamp(), "priority": priority, "attempted_at": now.timestamp()}


def crowded():
    water = LowWater()
    water.begin(["work"])
    water.claimed(water.beginning, [row(1, LONG_AGO)], 1)
    water.looked(water.marks, False, LONG)
    return water


def places(marks):
    return list(zip(*marks, strict=True))


def test_claims_begin_at_the_start_until_it_takes_long_to_step_over_what_was_claimed():
    water = LowWater()
    assert water.begin(["work"]) == FROM_THE_START
    assert not water.needs_a_look
    water.claimed(FROM_THE_START, [row(7, LONG_AGO)], 1)
    assert water.needs_a_look
    water.looked(water.marks, False, CROWDED_SECONDS / 2)
    assert water.begin(["work"]) is FROM_THE_START
    assert not water.needs_a_look, "nothing was claimed since"
    water.looked(water.marks, False, LONG)
    assert places(water.begin(["work"]))[0] == (LONG_AGO, 7)
    assert water.needs_a_look, "claims pass something by"
    water.looked(water.marks, False, 0.0)
    assert water.begin(["work"]) is FROM_THE_START


def test_a_full_claim_exhausts_the_priorities_before_its_last_row_and_leaves_those_after_it():
    water = crowded()
    water.claimed(water.beginning, [row(3, LONG_AGO), row(5, LONG_AGO, priority=2)], 2)
    settled = NOW - SETTLED, 0
    assert places(water.marks) == [settled, settled, (LONG_AGO, 5), *places(FROM_THE_START)[3:]]


def test_a_claim_that_got_fewer_than_it_asked_for_exhausts_all_priorities():
    water = crowded()
    water.claimed(water.beginning, [row(3, LONG_AGO)], 2)
    assert places(water.marks) == [(NOW - SETTLED, 0)] * PRIORITIES


def test_what_is_younger_than_the_longest_ordinary_transaction_is_not_passed_by():
    water = crowded()
    water.claimed(water.beginning, [row(3, NOW - SETTLED / 2)], 1)
    assert places(water.marks)[0] == (NOW - SETTLED, 0)


def test_a_claim_of_nothing_moves_no_mark():
    water = crowded()
    before = water.marks
    water.claimed(water.beginning, [], 5)
    assert water.marks is before


def test_a_job_that_was_passed_by_takes_claims_back_to_the_start():
    water = crowded()
    began = water.begin(["work"])
    assert water.looked(water.marks, True, LONG)
    water.claimed(began, [row(3, LONG_AGO)], 1)  # it was on its way, and has not seen what is behind
    assert water.begin(["work"]) is FROM_THE_START
    water.claimed(FROM_THE_START, [row(4, LONG_AGO)], 1)
    assert places(water.begin(["work"]))[0] == (LONG_AGO, 4)


def test_another_choice_of_job_types_takes_claims_back_to_the_start():
    water = crowded()
    assert water.begin(["work"]) is not FROM_THE_START
    assert water.begin(["work", "other"]) is FROM_THE_START


def test_a_claim_is_followed_by_a_look_at_once_where_nobody_knows_how_crowded_it_is(monkeypatch):
    clock = 1.0
    monkeypatch.setattr(low_water, "now", lambda: int(clock * 1e9))
    water = LowWater()

    def claim(id_):
        return water.claimed(water.begin(["work"]), [row(id_, LONG_AGO)], 1)

    assert not water.claimed(FROM_THE_START, [], 1)
    assert [claim(1), claim(2)] == [True, False]
    water.looked(water.marks, False, 0.0)
    clock += LOOK_SECONDS
    assert not claim(3), "it is looked again and again while jobs are claimed"
    clock += 2 * LOOK_SECONDS
    assert claim(4), "nobody has looked for long"
    assert not claim(5)
    water.begin(["other"])
    water.begin(["work"])
    assert claim(6), "of other job types it is not known"
    water.looked(water.marks, False, LONG)
    clock += 9 * LOOK_SECONDS
    assert not claim(7), "claims begin behind what is in the way already"


def test_looking_behind_takes_a_small_part_of_the_time():
    water = LowWater()
    assert water.wait == LOOK_SECONDS
    water.looked(FROM_THE_START, False, 3.0)
    assert water.wait == SHARE * 3.0
    water.looked(FROM_THE_START, False, 0.1)
    assert water.wait == LOOK_SECONDS


@pytest.fixture(scope="module")
def ground(databases):
    yield from a_shared_database(databases)


@pytest.fixture
async def connection(ground):
    connection = await asyncpg.connect(await emptied(ground))
    yield connection
    await connection.close()


@pytest.fixture
def always_crowded(monkeypatch):
    monkeypatch.setattr(low_water, "CROWDED_SECONDS", 0.0)
    monkeypatch.setattr(low_water, "LOOK_SECONDS", 0.1)


@pytest.fixture
async def app(ground, connection):
    app = rj.App(ground, poll_seconds=600, notify=False)
    app.job(name="work")(work)
    async with app:
        await app.store.take_lease(app.id, "", 1, 600.0)
        yield app


async def work(n: int = 0) -> None: ...


async def fetched_from_the_marks(source, connection):
    """Fetch until a job of long ago is passed by."""

    async def is_passed_by() -> bool:
        await a_row(connection)
        old = await a_row(connection, scheduled_at=LONG_AGO)
        return old not in [job.id for job in await source.fetch(10)]

    await until(is_passed_by)


async def test_a_job_that_was_passed_by_wakes_the_source_and_is_fetched(app, connection, always_crowded):
    source = rj.PostgresSource(app, "default")
    woken = asyncio.Event()
    watching = source.wakes.subscribe(lambda _: woken.set())
    await fetched_from_the_marks(source, connection)
    async with asyncio.timeout(60):
        await woken.wait()
    assert len(await source.fetch(10)) == 1
    watching.dispose()


async def test_what_is_in_the_way_of_the_first_claim_is_not_in_that_of_those_that_follow(app, connection, monkeypatch):
    """Such as ten thousand jobs of a type whose breaker is open; none of them waits for the next look, a second later."""
    monkeypatch.setattr(low_water, "CROWDED_SECONDS", 0.0)
    monkeypatch.setattr(low_water, "LOOK_SECONDS", 600.0)
    await a_row(connection, type="fragile", scheduled_at=LONG_AGO)
    source = rj.PostgresSource(app, "default")
    watching = source.wakes.subscribe(lambda _: None)
    await a_row(connection)
    assert len(await source.fetch(1)) == 1
    await until(lambda: source.low_water.beginning is not FROM_THE_START)
    watching.dispose()


async def test_an_answer_that_comes_when_others_are_asked_for_says_nothing_of_those(app, connection, monkeypatch):
    source, fetch = rj.PostgresSource(app, "default"), app.store.fetch_jobs

    async def late(*args):
        rows = await fetch(*args)
        source.low_water.begin(["other"])  # as a look does once a breaker has opened
        return rows

    monkeypatch.setattr(app.store, "fetch_jobs", late)
    await a_row(connection)
    assert len(await source.fetch(1)) == 1
    assert source.low_water.marks is FROM_THE_START


async def test_where_it_is_not_crowded_nothing_is_passed_by(app, connection, monkeypatch):
    monkeypatch.setattr(low_water, "CROWDED_SECONDS", 60.0)
    monkeypatch.setattr(low_water, "LOOK_SECONDS", 0.01)
    source = rj.PostgresSource(app, "default")
    watching = source.wakes.subscribe(lambda _: None)
    for _ in range(20):
        await a_row(connection)
        old = await a_row(connection, scheduled_at=LONG_AGO)
        assert old in [job.id for job in await source.fetch(10)]
        await asyncio.sleep(0.01)
    watching.dispose()


LATE_ONES = {
    "long ago": {"scheduled_at": LONG_AGO},
    "long ago, urgent": {"scheduled_at": LONG_AGO, "priority": 0},
    "now, urgent": {"priority": 0},
    "now, last": {"priority": 9},
}


async def test_whatever_comes_late_runs_while_others_flow_by(ground, connection, always_crowded):
    """Released, retried at once, of another priority, of long ago, of a long transaction: none waits for an empty queue."""
    ran: dict[str, int] = {}
    app = rj.App(ground, poll_seconds=600)

    @app.job(name="work", priority=5)
    async def work(name: str = "") -> rj.Outcome | None:
        ran[name] = ran.get(name, 0) + 1
        if ran[name] == 1 and name in ("released", "retried"):
            return rj.Release() if name == "released" else rj.Retry(delay=0)
        return None

    async def flow():
        while True:
            await app.enqueue_many([work.new() for _ in range(20)])

    async with app.running():
        flowing = asyncio.ensure_future(flow())
        slow = await asyncpg.connect(ground)
        transaction = slow.transaction()
        await transaction.start()
        await app.enqueue(work.new("long transaction"), connection=slow)
        await until(lambda: ran.get("", 0) > 500)
        await asyncio.sleep(SETTLED.total_seconds())  # that it took longer than this is the point
        await transaction.commit()
        await slow.close()
        await app.enqueue_many([work.new("released"), work.new("retried")])
        for name, columns in LATE_ONES.items():
            await a_row(connection, type="work", args=f'{{"name": "{name}"}}', **{"priority": 5, **columns})
        expected = {"released": 2, "retried": 2, "long transaction": 1, **dict.fromkeys(LATE_ONES, 1)}
        await until(lambda: {name: ran.get(name) for name in expected} == expected)
        flowing.cancel()
