"""An app with some job types on an empty, migrated schema."""

from __future__ import annotations

import asyncio

import pytest

import rxjobs as rj
from tests.store.ground import a_shared_database, emptied


@pytest.fixture(scope="session")
def ground(databases):
    yield from a_shared_database(databases)


@pytest.fixture
def app(ground):
    app = rj.App(asyncio.run(emptied(ground)))
    yield app
    app.sync.close()
