"""One node loses its way to the database, and the others do not."""

import asyncio

import pytest

from rxjobs.testing import fill
from tests.proxy import Proxy
from tests.waiting import until

FAST = {"rxjobs_lease_seconds": 3, "rxjobs_heartbeat_seconds": 0.5, "rxjobs_rescue_seconds": 0.5, "rxjobs_poll_seconds": 0.5}


@pytest.fixture(autouse=True)
async def been_up_for_a_lease(connection):
    """Before that nobody is rescued."""
    await until(lambda: connection.fetchval("SELECT now() - pg_postmaster_start_time() > interval '3 seconds'"))


async def test_a_node_that_is_cut_off_changes_nothing_when_its_link_heals_and_works_on(connection, dsn, start):
    async with Proxy(dsn) as link:
        cut = start(link.dsn, **FAST)
        await fill(connection, "work", 5, args={"seconds": 4.0})
        await until(lambda: len(cut.lines("start")) == 5)
        link.silence()
        other = start(dsn, **FAST)
        await until(lambda: len(other.lines("start")) == 5)  # rescued
        await asyncio.sleep(1)  # they run in the one, and would still run in the other
        link.heal()
        done = "SELECT count(*) = 5 FROM rxjobs.finished_jobs WHERE state = 'completed' AND attempt = 2"
        await until(lambda: connection.fetchval(done))
        ran = len(cut.lines("start"))
        await fill(connection, "work", 500, args={"seconds": 0.02})
        await until(lambda: len(cut.lines("start")) > ran + 20)
        await until(lambda: connection.fetchval("SELECT count(*) = 505 FROM rxjobs.finished_jobs WHERE state = 'completed'"))
        started = [(line.id, line.attempt) for worker in (cut, other) for line in worker.lines("start")]
        assert len(started) == len(set(started))


async def test_a_node_that_is_cut_off_stops_its_jobs_before_another_may_start_them(connection, dsn, start):
    async with Proxy(dsn) as link:
        cut = start(link.dsn, **FAST)
        await fill(connection, "work", 5, args={"seconds": 60.0})
        await until(lambda: len(cut.lines("start")) == 5)
        link.silence()
        other = start(dsn, **FAST)
        await until(lambda: len(other.lines("start")) == 5)
        stopped = {line.id: line.at for line in cut.lines("cancelled")}
        for again in other.lines("start"):
            assert stopped[again.id] < again.at
