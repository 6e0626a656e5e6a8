"""Each kind of measurement, end to end, with so few jobs that no figure means anything."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from math import isfinite

import asyncpg
import pytest

from rxjobs.bench.figures import Key
from rxjobs.bench.ground import MARK, Ground, prepared
from rxjobs.bench.run import Run, Wanted
from rxjobs.bench.scenarios import FULL, LEAST, Sizes, cases, sizes
from rxjobs.bench.view import Lines
from rxjobs.errors import InvalidOption

TINY = sizes(LEAST, full=False)
SCHEMA = "rxjobs_bench_test"
TIMES = ["p50", "p95", "p99"]

# what starts a program takes half a second of a core, so that no two do the same: the command's own tests run a backlog
MEASURED = [
    ("throughput", "concurrency 1,000", "rxjobs", ["rate", "cpu", "peak"]),
    ("enqueue", "enqueue_many", "raw", ["rate"]),
    ("enqueue", "one at a time", "rxjobs", ["rate"]),
    ("enqueue", "twenty callers", "rxjobs", ["rate"]),
    ("latency", "20 jobs/s, idle worker", "raw", TIMES),
    ("latency", "20 jobs/s, idle worker", "rxjobs", TIMES),
    ("telemetry", "all", "rxjobs", ["rate", "cpu"]),
    ("memory", "100 jobs", "rxjobs", ["peak", "growth"]),
    ("memory", "20, then 200 in flight", "rxjobs", ["before", "after", "per_job"]),
    ("processes", "two worker processes, 50 at once in each", "rxjobs", ["rate"]),
    ("processes", "two raw loops, 1,000 at once in each", "rxjobs", ["rate"]),
    ("processes", "CPU-bound, in the worker", "rxjobs", ["rate"]),
    ("processes", "CPU-bound, in_processes(2)", "rxjobs", ["rate"]),
    ("processes", "CPU-bound, two bare processes", "rxjobs", ["rate"]),
    ("processes", "call into a child process", "rxjobs", ["hop"]),
]


@pytest.fixture
async def ground(dsn: str) -> AsyncIterator[Ground]:
    async with prepared(dsn, SCHEMA) as ground:
        yield ground


@pytest.mark.parametrize(
    ("scenario", "case", "runner", "names"), MEASURED, ids=lambda value: None if isinstance(value, list) else value
)
async def test_a_case_gives_its_figures(ground: Ground, scenario, case, runner, names):
    (one,) = [one for one in cases(scenario, TINY) if one.subject.key == Key(scenario, case, runner)]
    values = await one.measure(ground)
    assert list(values) == names
    assert all(isfinite(value) for value in values.values())
    # memory may as well have been given back
    assert all(value > 0 for name, value in values.items() if name not in ("growth", "per_job"))


async def test_what_cannot_be_measured_is_said_with_the_last_words_of_its_program(ground: Ground):
    connection = await asyncpg.connect(ground.dsn)
    await connection.execute(f"DROP TABLE {SCHEMA}.migrations")
    await connection.close()
    told = io.StringIO()
    wanted = Wanted(scenarios=["telemetry"], sizes=TINY, rounds=1, levels=["off"])
    run = Run(wanted.cases, ground, Lines(told), limit=wanted.limit)
    await run.measure(wanted.rounds)
    (missing,) = run.missing
    assert missing.reason.startswith("worker ended too early: rxjobs.errors.NotMigrated: "), missing
    assert missing.reason in told.getvalue()
    assert run.rounds == {Key("telemetry", "off", "rxjobs"): [None]}


async def test_a_schema_that_the_bench_has_not_made_is_left_alone(dsn: str):
    connection = await asyncpg.connect(dsn)
    await connection.execute(f"CREATE SCHEMA {SCHEMA}; CREATE TABLE {SCHEMA}.precious ()")
    with pytest.raises(InvalidOption, match="was not made by the bench"):
        async with prepared(dsn, SCHEMA):
            pytest.fail("it was taken")
    assert await connection.fetchval("SELECT to_regclass($1)::text", f"{SCHEMA}.precious") == f"{SCHEMA}.precious"
    await connection.close()


async def test_two_benches_do_not_share_a_schema(dsn: str, ground: Ground):
    with pytest.raises(InvalidOption, match="another bench uses the schema"):
        async with prepared(dsn, SCHEMA):
            pytest.fail("it was taken")


async def test_what_a_killed_bench_has_left_is_replaced(dsn: str):
    connection = await asyncpg.connect(dsn)
    await connection.execute(f"CREATE SCHEMA {SCHEMA}; COMMENT ON SCHEMA {SCHEMA} IS '{MARK}'; CREATE TABLE {SCHEMA}.left_over ()")
    async with prepared(dsn, SCHEMA):
        assert await connection.fetchval("SELECT to_regclass($1)", f"{SCHEMA}.left_over") is None
    assert await connection.fetchval("SELECT to_regnamespace($1)", SCHEMA) is None
    await connection.close()


def test_all_sizes_follow_the_one_that_is_given():
    assert sizes(None, full=False) == Sizes()
    assert sizes(None, full=True) == FULL
    half = sizes(10_000, full=False)
    assert (half.throughput, half.memory, half.backlogs) == (10_000, 50_000, (500, 50_000))
    assert sizes(LEAST, full=True).backlogs == (LEAST, LEAST, 200)
    assert len({one.subject.key for one in cases("backlog", sizes(LEAST, full=True))}) == 4
