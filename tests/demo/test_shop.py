"""The worker to watch has something to show, and stops when it is told to."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress

import pytest

import rxjobs as rj
from rxjobs.demo import shop
from tests.waiting import until


async def test_customers_order_until_it_is_stopped(dsn):
    environ = {**os.environ, "RXJOBS_DSN": dsn, "RXJOBS_MIGRATE": "true"}
    command = [sys.executable, "-m", "rxjobs", "run", "rxjobs.demo.shop:app"]
    async with rj.App(dsn, migrate=True) as app:

        async def has_completed(kind, count):
            return sum((await app.jobs.count(type=kind, state="completed")).values()) >= count

        process = await asyncio.create_subprocess_exec(*command, env=environ, stderr=asyncio.subprocess.PIPE)
        try:
            for kind in ("shop.charge", "shop.pack", "shop.send_receipt"):
                await until(lambda kind=kind: has_completed(kind, 3))
        finally:
            process.send_signal(signal.SIGTERM)
            _, errors = await process.communicate()
    assert process.returncode == 0, errors
    assert b"Traceback" not in errors


async def test_some_receipts_become_dead_letters_and_some_are_not_wanted():
    with pytest.raises(shop.NoAddress):
        await shop.send_receipt(order=199, cents=1)
    with pytest.raises(rj.Cancel):
        await shop.send_receipt(order=150, cents=1)


def test_the_bank_is_away_at_the_end_of_every_few_minutes():
    opens = 7 * shop.BANK_SECONDS
    with pytest.raises(shop.BankAway):
        shop.look_at_the_bank(opens - 1)
    answers = 0
    for _ in range(200):  # of twenty calls one takes too long
        with suppress(TimeoutError):
            shop.look_at_the_bank(opens + 1)
            answers += 1
    assert 0 < answers < 200
