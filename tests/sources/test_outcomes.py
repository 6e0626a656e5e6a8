"""A server that has no room: what fits is written down, the rest is kept, and a state is worth more than a result."""

from __future__ import annotations

import asyncpg
import pytest

import rxjobs as rj
from rxjobs.aside import Unwritten
from rxjobs.outcome import Finished
from rxjobs.sources.outcomes import Outcomes

LARGE = 10_000
"""Bytes: rows of more find no room."""
CRAMPED = f"""
CREATE FUNCTION public.has_no_room() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF length(NEW.args::text) + length(COALESCE(NEW.result::text, '')) > {LARGE} THEN
        RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER has_no_room BEFORE INSERT ON rxjobs.finished_jobs FOR EACH ROW EXECUTE FUNCTION public.has_no_room();
"""

COUNTED = """
CREATE SEQUENCE public.tried;
CREATE FUNCTION public.count_tries() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM nextval('public.tried');
    RETURN NEW;
END $$;
CREATE TRIGGER counts_tries BEFORE INSERT ON rxjobs.finished_jobs FOR EACH ROW EXECUTE FUNCTION public.count_tries();
"""


@pytest.fixture
async def connection(dsn):
    await rj.App(dsn).migrate()
    connection = await asyncpg.connect(dsn)
    await connection.execute(CRAMPED)
    yield connection
    await connection.close()


@pytest.fixture
async def app(dsn, connection):
    app = rj.App(dsn)

    @app.job(name="work", record=True)
    async def work(text: str = "") -> str:
        return text

    async with app:
        await app.store.take_lease(app.id, "node-a", 1, 600.0)
        yield app


async def claimed(app, *texts):
    for text in texts:
        await app.enqueue(app.definition("work").new(text=text))
    return await rj.PostgresSource(app, "default").fetch(100)


async def ended(connection):
    rows = await connection.fetch(
        "SELECT id, state, result::text AS result, errors->0->>'type' AS error FROM rxjobs.jobs ORDER BY id"
    )
    return [tuple(row.values()) for row in rows]


async def test_what_fits_is_written_down_in_whatever_order_it_came(app, connection):
    large, *small = await claimed(app, "x" * LARGE, *"abc")
    with pytest.raises(Unwritten, match="no room for 1 outcomes: DiskFullError") as left:
        await Outcomes(app).write_what_fits([Finished(job, rj.Complete(None)) for job in (large, *small)])
    assert left.value.left == {large.id}
    assert [state for _, state, *_ in await ended(connection)] == ["executing", "completed", "completed", "completed"]


async def test_after_three_that_find_no_room_the_larger_ones_are_not_tried(app, connection):
    jobs = await claimed(app, *("x" * (LARGE + n) for n in range(20)), "a")
    await connection.execute(COUNTED)
    with pytest.raises(Unwritten) as left:
        await Outcomes(app).write_what_fits([Finished(job, rj.Complete(None)) for job in jobs])
    assert left.value.left == {job.id for job in jobs[:20]}
    # the first of all together, the small one, and three of the others
    assert await connection.fetchval("SELECT last_value FROM tried") == 5


async def test_a_result_that_there_is_no_room_for_is_kept_for_a_while_and_then_given_up_for_the_state(app, connection):
    (job,) = await claimed(app, "a")
    finished = [Finished(job, rj.Complete("x" * LARGE))]
    patient, hasty = Outcomes(app), Outcomes(app, result_seconds=0.0)
    for _ in range(2):
        with pytest.raises(Unwritten):
            await patient.write_what_fits(finished)
    with pytest.raises(Unwritten):
        await hasty.write_what_fits(finished)
    await hasty.write_what_fits(finished)
    assert await ended(connection) == [(job.id, "completed", None, "rxjobs.UnstorableResult")]


async def test_a_source_tells_which_outcomes_it_could_not_write_and_reads_on(app, connection):
    source = rj.PostgresSource(app, "default")
    large, small = await claimed(app, "x" * LARGE, "a")
    with pytest.raises(Unwritten) as left:
        await source.settle([Finished(large, rj.Complete(None)), Finished(small, rj.Complete(None))])
    assert left.value.left == {large.id}
    await connection.execute("DROP TRIGGER has_no_room ON rxjobs.finished_jobs")
    await source.settle([Finished(large, rj.Complete(None))])
    assert [state for _, state, *_ in await ended(connection)] == ["completed", "completed"]
