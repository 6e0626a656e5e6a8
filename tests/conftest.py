"""What every test may ask for: a PostgreSQL server, and a fresh database on it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from rxjobs.store import embedded
from tests.servers import Databases, folder_for_a_server

# the same examples in each run: what chance finds is looked for where somebody looks, by HYPOTHESIS_PROFILE=default or nightly
settings.register_profile("suite", derandomize=True, database=None)
if "HYPOTHESIS_PROFILE" not in os.environ:
    settings.load_profile("suite")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "long: takes minutes, half an hour in all; runs only where it is asked for, with -m long")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "long" in config.option.markexpr:
        return
    long = [item for item in items if item.get_closest_marker("long")]
    items[:] = [item for item in items if item not in long]
    config.hook.pytest_deselected(items=long)


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
