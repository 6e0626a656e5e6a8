"""The plugin for pytest, which loads it at each start: it imports nothing else of rxjobs before a test asks for a fixture of it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from rxjobs import App
    from rxjobs.testing import Database, Inline

DSN, APP, FOLDER = "rxjobs_dsn", "rxjobs_app", "rxjobs_folder"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(DSN, "The PostgreSQL for tests of jobs; RXJOBS_TEST_DSN wins. Without either an embedded one is started.")
    parser.addini(APP, "The app under test, as MODULE:APP, such as shop.jobs:app.")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_FOLDER] = _Folder(getattr(config, "workerinput", {}).get(FOLDER))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Have the workers of xdist share one server: it is started by the first that asks, and stopped by the last that leaves."""
    node.workerinput[FOLDER] = str(node.config.stash[_FOLDER].path)


def pytest_unconfigure(config: pytest.Config) -> None:
    if (folder := config.stash.get(_FOLDER, None)) is not None:
        folder.remove()


class _Folder:
    """Where the embedded server of one run lives; whoever made it removes it."""

    def __init__(self, shared: str | None) -> None:
        self._is_own = shared is None
        self._path = None if shared is None else Path(shared)

    @property
    def path(self) -> Path:
        """Directly under the temp folder: as root the server's OS user may not enter what is pytest's."""
        if self._path is None:
            self._path = Path(tempfile.mkdtemp(prefix="rxjobs-test-"))
        return self._path

    def remove(self) -> None:
        if not self._is_own or self._path is None:
            return
        if (self._path / "data" / "postmaster.pid").exists():  # of workers that were killed
            from rxjobs.store import embedded

            embedded.start(self._path).stop()
        shutil.rmtree(self._path, ignore_errors=True)
        self._path = None


_FOLDER = pytest.StashKey[_Folder]()


@pytest.fixture(scope="session")
def rxjobs_dsn(request: pytest.FixtureRequest) -> Iterator[str]:
    """The DSN of the PostgreSQL for this run: RXJOBS_TEST_DSN, or `rxjobs_dsn` of the ini file, or an embedded one of its own."""
    if given := os.environ.get("RXJOBS_TEST_DSN") or request.config.getini(DSN):
        yield str(given)
        return
    from rxjobs.store import embedded

    server = embedded.start(request.config.stash[_FOLDER].path)
    yield server.dsn
    server.stop()


@pytest.fixture(scope="session")
def _rxjobs_schemas(rxjobs_dsn: str) -> Iterator[Any]:
    from rxjobs.testing.schemas import Schemas

    with Schemas(rxjobs_dsn) as schemas:
        yield schemas


@pytest.fixture
def rxjobs_database(_rxjobs_schemas: Any) -> Database:
    """A schema for this test alone, migrated and empty: its `dsn` and `schema`, and `pointed(app)`."""
    database: Database = _rxjobs_schemas.take()
    return database


@pytest.fixture
def rxjobs_app(request: pytest.FixtureRequest, rxjobs_database: Database) -> Iterator[App]:
    """The app that the ini file names as `rxjobs_app`, on this test's own schema; without that, a new one."""
    from rxjobs import App
    from rxjobs.cli.loading import load_app

    named = request.config.getini(APP)
    with rxjobs_database.pointed(load_app(named) if named else App()) as app:
        yield app


@pytest.fixture
def rxjobs_inline(request: pytest.FixtureRequest) -> Iterator[Inline]:
    """What is enqueued runs at once, without a database; see rxjobs.testing.inline. Of the app named in the ini file."""
    from rxjobs.cli.loading import load_app
    from rxjobs.errors import InvalidOption
    from rxjobs.testing import inline

    if not (named := request.config.getini(APP)):
        raise InvalidOption("rxjobs_inline is for the app that the ini file names: rxjobs_app = shop.jobs:app; or use inline(app)")
    with inline(load_app(named)) as ran:
        yield ran
