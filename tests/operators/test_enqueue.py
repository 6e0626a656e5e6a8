"""The sink of new jobs, with a table in memory: rows in a real one are tested where the statement is."""

from __future__ import annotations

import asyncio
from typing import Any

import reactivex as rx
from reactivex import operators as ops
from reactivex.testing import ReactiveTest, TestScheduler

import rxjobs as rj
from rxjobs.testing import a_job, marbles, virtually
from rxjobs.testing.conformance_executor import until
from tests.operators.parts import Inserting, new


def of_jobs(inserting: Inserting, jobs: dict[int, rj.Job]) -> Any:
    """New jobs are made of jobs, and the jobs come out as their rows do."""
    return rx.compose(
        ops.do_action(lambda job: jobs.update({job.id: job})),
        ops.map(new),
        rj.enqueue(inserting),
        ops.map(lambda row: jobs[row.id]),
    )


def test_what_comes_while_an_insert_runs_goes_into_the_next_and_rows_come_out_in_order():
    inserting = Inserting(2.0)
    marbles(of_jobs(inserting, {}), "abcd------|", "--a-(bc)-d---|")
    assert inserting.inserts == [1, 2, 1]


def test_what_comes_in_one_burst_is_one_insert():
    inserting = Inserting(1.0)
    marbles(of_jobs(inserting, {}), "-(abcd)-|", "--(abcd)|")
    assert inserting.inserts == [4]


def test_it_ends_once_its_last_row_is_there():
    marbles(of_jobs(Inserting(3.0), {}), "-a-b|", "----a--(b|)")


def test_an_error_of_the_stream_passes_and_nothing_comes_after_it():
    marbles(of_jobs(Inserting(3.0), {}), "-a#", "--#")


def test_an_insert_that_fails_is_an_error_of_the_stream():
    inserting = Inserting(1.0)
    marbles(of_jobs(inserting, {}), "-a-x-b|", "--a-#", values={"x": a_job(args={"letter": "x"})})


def test_it_is_on_the_time_of_operators_before_it():
    time = TestScheduler()
    inserting = Inserting(1.0)
    seen = time.create_observer()
    events = time.create_hot_observable(ReactiveTest.on_next(1.0, a_job()), ReactiveTest.on_next(1.5, a_job()))

    async def main() -> None:
        stream = events.pipe(ops.debounce(2.0), ops.map(new), rj.enqueue(inserting))
        with stream.subscribe(seen, scheduler=time):
            await asyncio.sleep(9)

    virtually(main(), scheduler=time)
    assert [one.time for one in seen.messages] == [4.5]
    assert inserting.inserts == [1]


async def test_disposed_it_inserts_nothing_more():
    inserting, jobs, rows = Inserting(60.0), rx.Subject[Any](), list[Any]()
    subscription = jobs.pipe(ops.map(new), rj.enqueue(inserting)).subscribe(rows.append)
    jobs.on_next(a_job())
    await until(lambda: inserting.inserts == [1])
    subscription.dispose()
    jobs.on_next(a_job())
    await asyncio.sleep(0.01)
    assert inserting.inserts == [1]
    assert rows == []
