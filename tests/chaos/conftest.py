"""A server of this folder's own, with every guarantee on, and a ground on it for each test."""

from __future__ import annotations

import asyncio
import os
import secrets
from random import Random

import pytest

from tests.servers import PrivatePostgres

pytest.register_assert_rewrite("tests.chaos.loaded", "tests.chaos.stops", "tests.waiting")

from tests.chaos.ground import SMALL, Ground  # noqa: E402 - once their asserts are rewritten


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", 'chaos: breaks things while they run, four minutes in all; leave out with -m "not chaos"')


@pytest.fixture(scope="session")
def server():
    server = PrivatePostgres(**SMALL)
    asyncio.run(server.__aenter__())
    yield server
    asyncio.run(server.__aexit__())


@pytest.fixture
async def ground(server):
    async with Ground(server) as ground:
        yield ground


@pytest.fixture
def random():
    """Chance, from a seed that a failing test shows: CHAOS_SEED=… takes it again."""
    seed = int(os.environ.get("CHAOS_SEED", secrets.randbelow(10**6)))
    print(f"CHAOS_SEED={seed}")
    return Random(seed)
