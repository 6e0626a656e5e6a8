"""The same machine, and every step done on a real PostgreSQL too: the statements do what the rows in memory do."""

from __future__ import annotations

import asyncio
from typing import ClassVar

import pytest
from hypothesis.stateful import run_state_machine_as_test

from tests.model.machine import Nodes
from tests.model.profile import profile
from tests.model.worlds import Memory, Postgres
from tests.store.ground import a_shared_database


@pytest.fixture(scope="module")
def ground(databases):
    yield from a_shared_database(databases)


class NodesOnPostgres(Nodes):
    dsn: ClassVar[str]
    loop: ClassVar[asyncio.AbstractEventLoop]

    def world_here(self) -> Memory:
        return Postgres(self.dsn, self.loop)


def test_the_statements_do_what_the_model_does(ground):
    with asyncio.Runner() as runner:
        NodesOnPostgres.dsn, NodesOnPostgres.loop = ground, runner.get_loop()
        run_state_machine_as_test(NodesOnPostgres, settings=profile(60))
