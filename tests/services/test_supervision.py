"""Services run beside each other: one that fails is started again, and no other notices."""

import asyncio
import logging

import reactivex as rx
import reactivex.operators
from reactivex import Observable

from rxjobs.awaiting import every
from rxjobs.node import supervise
from tests.waiting import until

SOON = 0.0001, 0.0002


async def test_one_that_fails_at_its_start_costs_no_other(scheduler, caplog):
    """As river#1161 (row 14): whoever cannot begin is started again, and the others never knew."""
    caplog.set_level(logging.WARNING, "rxjobs.node")
    attempts, others, works = [], [], []

    def subscribe(observer, _=None):
        attempts.append(len(attempts))
        if len(attempts) < 4:
            raise ValueError("cannot begin")
        return rx.just("works").subscribe(observer)

    async def other():
        others.append(True)

    failing = Observable(subscribe)
    running = [
        supervise("broken", failing.pipe(rx.operators.do_action(works.append)), scheduler, SOON),
        supervise("sound", every(lambda: 0.001, other), scheduler, SOON),
    ]
    await until(lambda: works and len(others) > 10)
    for one in running:
        one.dispose()
    assert attempts == [0, 1, 2, 3]
    messages = [record.message for record in caplog.records]
    assert [message.startswith("the service broken failed, and is started again in ") for message in messages[:3]] == [True] * 3
    assert messages[3:] == ["the service broken works again after 3 failures"]


async def test_one_that_fails_two_thousand_times_works_on_as_if_it_had_not(scheduler, caplog):
    """As RxPY#76 (row 83): to start again is no recursion."""
    logging.getLogger("rxjobs.node").setLevel(logging.CRITICAL)
    runs, seen = [], []

    async def once():
        runs.append(True)
        if len(runs) <= 2000:
            raise ValueError("not yet")
        return len(runs)

    running = supervise("stubborn", every(lambda: 0.0, once).pipe(rx.operators.do_action(seen.append)), scheduler, (0.0, 0.0))
    try:
        await until(lambda: len(seen) >= 3)
    finally:
        logging.getLogger("rxjobs.node").setLevel(logging.NOTSET)
        running.dispose()
    assert seen[:3] == [2001, 2002, 2003]


async def test_delays_grow_while_it_goes_on_failing(scheduler, caplog):
    async def once():
        raise ValueError("never")

    running = supervise("hopeless", every(lambda: 0.0, once), scheduler, (0.01, 0.05))
    await until(lambda: len(caplog.records) >= 6)
    running.dispose()
    delays = [float(record.args[1]) for record in caplog.records[:6]]
    assert delays[0] <= 0.01
    assert delays[0] < delays[1] < delays[2]
    assert all(0.04 <= delay <= 0.05 for delay in delays[3:])
    count = len(caplog.records)
    await asyncio.sleep(0.2)
    assert len(caplog.records) == count  # disposed of, it stays so
