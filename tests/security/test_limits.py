"""What is enqueued, asked for and stored is bounded, in size and in shape."""

import math
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

import rxjobs as rj
from rxjobs.failure import MESSAGE_LIMIT, TRACEBACK_LIMIT, describe
from rxjobs.job import Job
from rxjobs.outcome import Cancel, Discard, Finished, Retry
from rxjobs.settings import Settings
from rxjobs.store.encoding import Written
from rxjobs.testing import a_job, fill
from tests.waiting import until

KIB = 1024


def nested(levels):
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.fixture
def work():
    app = rj.App()

    @app.job(name="work")
    def work(data: Any = None) -> None: ...

    return work


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("x" * 2**20, "at most 1048576 bytes"),
        (["x" * 2**16] * 17, "at most 1048576 bytes"),
        (nested(100), "at most 100 levels"),
        (nested(5_000), "at most 100 levels"),
        (dict.fromkeys(map(str, range(10_000))), "at most 10000 keys, got 10001"),
        ([{"a": 1}] * 10_000, "at most 10000 keys, got 10001"),
    ],
)
def test_arguments_are_bounded(work, data, message):
    began = time.thread_time()
    with pytest.raises(rj.InvalidArguments, match=message):
        work.new(data)
    assert time.thread_time() - began < 1


def test_arguments_up_to_the_bounds_are_taken(work):
    work.new("x" * (2**20 - len('{"data":""}')))
    work.new(nested(98))
    work.new(dict.fromkeys(map(str, range(9_999))))
    work.new([":" * 20_000] * 20)


@pytest.mark.parametrize(
    "options",
    [
        {"delay": -1},
        {"delay": 3660 * 86400 + 1},
        {"delay": math.nan},
        {"delay": math.inf},
        {"delay": "5"},
        {"delay": True},
        {"scheduled_at": datetime.now(UTC) + timedelta(days=3661)},
        {"scheduled_at": datetime.max.replace(tzinfo=UTC)},
        {"scheduled_at": datetime(2026, 1, 1)},  # noqa: DTZ001 - it is the point
        {"scheduled_at": "2026-01-01T00:00:00Z"},
        {"max_attempts": 0},
        {"max_attempts": 1001},
        {"max_attempts": 1.5},
        {"priority": 10},
        {"priority": 0.5},
        {"queue": "q" * 129},
        {"tags": ["x"] * 33},
        {"tags": ["x" * 65]},
        {"tags": [""]},
        {"meta": {"x": "y" * 65536}},
        {"meta": {"x": nested(101)}},
        {"meta": {"x": "\0"}},
        {"meta": {"x": math.nan}},
        {"meta": {"x": object()}},
        {"meta": {1: 2}},
    ],
)
def test_options_are_bounded(work, options):
    with pytest.raises(rj.InvalidOption):
        work.options(**options)
    if "delay" not in options and "scheduled_at" not in options:
        with pytest.raises(rj.InvalidOption):
            rj.App().job(name="other", **options)(lambda: None)


def test_options_up_to_the_bounds_are_taken(work):
    work.options(delay=3650 * 86400.0, max_attempts=1000, priority=9, tags=["x" * 64] * 32, meta={"x": "y" * 60_000})
    work.options(scheduled_at=datetime.now(UTC) + timedelta(days=3650))
    work.options(scheduled_at=datetime(1900, 1, 2, tzinfo=UTC))


class Loud(Exception):
    def __str__(self):
        return "é\0\ud800" * 10**7


def test_what_is_stored_of_an_error_is_bounded():
    error = Loud()
    for _ in range(500):
        cause, error = error, Loud()
        error.__cause__ = cause
    began = time.thread_time()
    failure = describe(error)
    assert time.thread_time() - began < 20
    assert len(failure.message) < 8 * MESSAGE_LIMIT
    assert len(failure.traceback) < 8 * TRACEBACK_LIMIT
    assert "\0" not in failure.message + failure.traceback
    (failure.message + failure.traceback).encode()


@pytest.mark.parametrize("outcome", [Retry(1, "x" * 10**7), Discard("x" * 10**7), Cancel("x" * 10**7)])
def test_what_is_stored_of_a_reason_is_bounded(outcome):
    (entry,) = Written.of([Finished(a_job(), outcome)], "node").errors
    assert entry is not None
    assert len(entry) < 2 * MESSAGE_LIMIT


@pytest.mark.parametrize("limit", [0, -1, 100_001, 1.5, "5", True, None])
async def test_a_page_is_bounded(dsn, limit):
    app = rj.App(dsn, migrate=True)
    async with app:
        with pytest.raises(rj.InvalidOption, match="limit is a whole number from 1 to 100000"):
            await app.jobs.list(limit=limit)


@pytest.mark.parametrize("label", ["x" * 129, "a\nb", "\x1b[2J", "\u202e", "a\0"])
def test_a_nodes_label_is_short_and_printable(label):
    with pytest.raises(rj.InvalidOption, match="node is a label"):
        Settings(node=label)


UNREADABLE = [
    "null", "1", '"text"', "[1]", '{"n": "text"}', '{"n": 1.5}', '{"n": 1e400000}', '{"unknown": 1}', '{"n": 1, "x": "\\ud800"}',
    '{"x": ' + "[" * 1000 + "]" * 1000 + "}", '{"n": ' + "9" * 5000 + "}",
]  # fmt: skip


async def test_a_row_that_nobody_could_have_enqueued_is_discarded_and_the_others_of_its_batch_run(dsn):
    app = rj.App(dsn, migrate=True, poll_seconds=0.1)
    ran = []

    @app.job(name="work")
    async def work(n: int = 0, x: Any = None) -> None:
        ran.append(n)

    async with app:
        connection = await asyncpg.connect(dsn)
        for args in UNREADABLE:
            await connection.execute("INSERT INTO rxjobs.live_jobs (type, args) VALUES ('work', $1)", args)
        large = await connection.fetchval(
            """INSERT INTO rxjobs.live_jobs (type, args) VALUES ('work', json_build_object('x', repeat('x', 100000000)))
               RETURNING id"""
        )
        await fill(connection, "work", 40, args_sql="json_build_object('n', n)")
        async with app.running():
            await until(lambda: counts_are(app, {"completed": 40, "discarded": len(UNREADABLE) + 1}))
        errors = await connection.fetch("SELECT errors FROM rxjobs.jobs WHERE state = 'discarded'")
        message = await connection.fetchval("SELECT errors -> 0 ->> 'message' FROM rxjobs.jobs WHERE id = $1", large)
        await connection.close()
    assert sorted(ran) == list(range(40))
    assert all('"rxjobs.errors.BadPayload"' in row["errors"] for row in errors)
    assert message == "work: stored arguments: expected at most 2162688 bytes, got more"


async def counts_are(app, wanted):
    return await app.jobs.count() == wanted


async def test_what_a_claim_takes_follows_the_setting_and_leaves_room(dsn):
    app = rj.App(dsn, migrate=True, poll_seconds=0.1, max_args_bytes=100_000)
    lengths: list[int] = []

    @app.job(name="work")
    async def work(x: str) -> None:
        lengths.append(len(x))

    async with app:
        connection = await asyncpg.connect(dsn)
        # one that compresses well, and one that does not
        for length in (100_000, 272_000):
            await connection.execute(
                """INSERT INTO rxjobs.live_jobs (type, args) VALUES
                   ('work', json_build_object('x', repeat('x', $1::int))),
                   ('work', json_build_object('x', (SELECT string_agg(md5(n::text), '')
                                                    FROM generate_series(1, $1::int / 32) AS n)))""",
                length,
            )
        await connection.close()
        async with app.running():
            await until(lambda: counts_are(app, {"completed": 2, "discarded": 2}))
    assert lengths == [100_000, 100_000]


async def test_a_source_that_looks_only_at_tags_is_not_stopped_by_arguments_that_it_cannot_look_into(dsn):
    app = rj.App(dsn, migrate=True, poll_seconds=0.1)
    ran: list[Job] = []

    @app.job(name="work")
    async def work(x: Any = None) -> None:
        ran.append(rj.current_job())

    async with app:
        connection = await asyncpg.connect(dsn)
        await connection.execute("""INSERT INTO rxjobs.live_jobs (type, tags, args) VALUES ('work', '{a}', '{"x": "\\u0000"}')""")
        await connection.close()
        await work.options(tags=["a"]).enqueue()
        async with app.running(app.source("default", where={"tags": ["a"]}).pipe(rj.execute(), rj.ack())):
            await until(lambda: len(ran) == 2)
