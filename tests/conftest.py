"""What every test may ask for: a PostgreSQL server, and a fresh database on it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from rxjobs.store import embedded
from tests.servers import Databases, folder_for_a_server


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The DSN of the server for this run: RXJOBS_TEST_DSN, or else an embedded one of our own."""
    if given := os.environ.get("RXJOBS_TEST_DSN"):
        yield given
        return
    with folder_for_a_server() as folder:
        server = embedded.start(folder)
        yield server.dsn
        server.stop()


@pytest.fixture(scope="session")
def databases(postgres: str) -> Iterator[Databases]:
    databases = Databases(postgres)
    yield databases
    databases.close()


@pytest.fixture
def dsn(databases: Databases) -> Iterator[str]:
    """The DSN of an empty database that only this test uses."""
    dsn = databases.take()
    yield dsn
    databases.give_back(dsn)
