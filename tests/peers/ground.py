"""The database that a peer is measured on: one of its own, beside that of rxjobs, which is gone afterwards."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg

from rxjobs.bench.ground import LONG_SECONDS, Ground
from rxjobs.bench.program import Program, started
from rxjobs.bench.said import Order, Runner, Send, Sent
from rxjobs.errors import InvalidOption
from rxjobs.store.database import Connection
from tests.peers.peers import Peer


class PeersGround(Ground):
    """What a peer finds, laid by its own calls."""

    def __init__(self, peer: Peer, python: str, dsn: str, connection: Connection, *, ours: bool) -> None:
        super().__init__(dsn, "public", connection, ours=ours)
        self._peer = peer
        self._python = python
        self._database = connection
        self._checkpoints = ours

    def started(self, name: str, order: Order) -> AbstractAsyncContextManager[Program]:
        """A program in the peer's environment."""
        return started((self._python, "-P", "-m", "tests.peers.program", self._peer.name, name), order)

    async def lay(self, runner: Runner, type: str, count: int) -> None:
        """Have so many jobs ready and no other rows, and the tables as autovacuum leaves them."""
        await self._database.execute(f"TRUNCATE {self._peer.tables}")
        if count:
            order = Send(dsn=self.dsn, schema=self.schema, runner=runner, way="bulk", count=count)
            async with self.started("filler", order) as filler:
                filler.go_on()
                await filler.ask(Sent)
        await self._database.execute(f"VACUUM ANALYZE {self._peer.tables}")
        if self._checkpoints:
            await self._database.execute("CHECKPOINT")

    async def finished(self, runner: Runner) -> int:
        """How many jobs are finished."""
        count: int = await self._database.fetchval(self._peer.finished)
        return count


@asynccontextmanager
async def prepared(peer: Peer, python: str, dsn: str, *, ours: bool) -> AsyncIterator[PeersGround]:
    """A database with the peer's tables on the server of a DSN."""
    name = f"rxjobs_bench_{peer.name}_{uuid4().hex[:8]}"
    server = await asyncpg.connect(dsn)
    try:
        try:
            await server.execute(f"CREATE DATABASE {name}")
        except asyncpg.InsufficientPrivilegeError as error:
            raise InvalidOption(f"{peer.name} needs a database of its own, which the role may not make") from error
        its_dsn = urlsplit(dsn)._replace(path=f"/{name}").geturl()
        connection = await asyncpg.connect(its_dsn, command_timeout=LONG_SECONDS)
        try:
            ground = PeersGround(peer, python, its_dsn, connection, ours=ours)
            async with ground.started("installer", Order(dsn=its_dsn, schema=ground.schema, runner="raw")):
                pass
            yield ground
        finally:
            await connection.close(timeout=2)
            await server.execute(f"DROP DATABASE {name} WITH (FORCE)")
    finally:
        await server.close(timeout=2)
