"""F14: whoever changes many jobs at once holds none while it waits for whoever has one, so that nobody waits in a circle."""

import asyncio

import asyncpg
import pytest

from tests.store.ground import CLAIMED_AT, SCHEMA, a_claimed_row, a_row
from tests.waiting import until

WAITS = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')"
END = f"""
WITH gone AS (DELETE FROM {SCHEMA}.live_jobs RETURNING *)
INSERT INTO {SCHEMA}.finished_jobs (id, inserted_at, scheduled_at, state, attempt, max_attempts, priority, type, queue, args)
SELECT id, inserted_at, scheduled_at, 'discarded', attempt, max_attempts, priority, type, queue, args FROM gone
"""


async def cancel(store, node, ids):
    return await store.cancel_jobs(ids)


async def delete(store, node, ids):
    return await store.delete_jobs(ids)


async def retry(store, node, ids):
    changed, left = await store.retry_jobs(ids, 1)
    return changed | (await retry(store, node, left) if left else set())


async def redrive(store, node, ids):
    changed, left, _ = await store.redrive_jobs(ids, 1, None, 0, 0)
    return set(changed) | (await redrive(store, node, left) if left else set())


async def save_progress(store, node, ids):
    columns = [1] * len(ids), [CLAIMED_AT] * len(ids), ["{}"] * len(ids)
    changed, left = await store.save_progress(node, ids, *columns)
    return changed | (await save_progress(store, node, list(left)) if left else set())


async def that_waits(connection, node):
    return await a_row(connection, state="retryable")


async def that_runs(connection, node):
    return await a_claimed_row(connection, node)


async def a_dead_letter(connection, node):
    id_ = await a_row(connection, attempt=1)
    await connection.execute(END)
    return id_


@pytest.mark.parametrize(
    ("change", "a_job"),
    [
        (cancel, that_waits),
        (cancel, that_runs),
        (delete, that_waits),
        (delete, a_dead_letter),
        (retry, that_waits),
        (retry, a_dead_letter),
        (redrive, a_dead_letter),
        (save_progress, that_runs),
    ],
)
async def test_who_changes_many_holds_none_while_it_waits_for_one(store, connection, node, ground, change, a_job):
    other = await asyncpg.connect(ground)
    for place in range(2):
        ids = [await a_job(connection, node) for _ in range(3)]
        table = "finished_jobs" if a_job is a_dead_letter else "live_jobs"
        async with other.transaction():
            await other.execute(f"SELECT FROM {SCHEMA}.{table} WHERE id = $1 FOR UPDATE", ids[place])
            changing = asyncio.ensure_future(change(store, node, ids))
            await until(lambda: connection.fetchval(WAITS))
            # a circle, of which PostgreSQL would end one, if others were held
            await other.execute(f"SELECT FROM {SCHEMA}.live_jobs FOR UPDATE")
            await other.execute(f"SELECT FROM {SCHEMA}.finished_jobs FOR UPDATE")
            assert not changing.done()
        assert await changing == set(ids)
    await other.close()
