import os
import signal

import asyncpg

from rxjobs.store.database import Database
from rxjobs.store.store import Store
from tests.servers import PrivatePostgres
from tests.store.ground import SCHEMA, a_node, migrated
from tests.waiting import until


async def test_nobody_is_dead_until_the_server_has_been_up_for_a_lease_since_it_crashed():
    """A backend that crashes takes all sessions with it, and nobody can renew until the server has recovered."""
    async with PrivatePostgres(shared_buffers="16MB") as postgres:
        connection = await migrated(postgres.dsn)
        await until(lambda: connection.fetchval("SELECT now() - pg_postmaster_start_time() > interval '1 second'"))
        await a_node(connection, seconds=0.5)
        since = await connection.fetchval(BACK_SINCE)
        os.kill(await connection.fetchval("SELECT pg_backend_pid()"), signal.SIGKILL)
        await connection.close()
        connection = await until(lambda: recovered(postgres.dsn, since))
        await until(lambda: connection.fetchval(f"SELECT expires_at < now() FROM {SCHEMA}.nodes"))
        database = Database(postgres.dsn)
        await database.open()
        lease = await connection.fetchval("SELECT extract(epoch FROM now() - pg_postmaster_start_time())::float8")
        assert await Store(database, SCHEMA).expired_nodes(lease) == []
        assert len(await Store(database, SCHEMA).expired_nodes(0.0)) == 1
        await database.close()
        await connection.close()


BACK_SINCE = "SELECT stats_reset FROM pg_stat_bgwriter"
"""A server that recovers loses its statistics."""


async def recovered(dsn, before):
    """A connection to the server, once it has recovered: until it has noticed the crash, it takes new ones, and ends them then."""
    try:
        connection = await asyncpg.connect(dsn)
        if await connection.fetchval(BACK_SINCE) > before:
            return connection
        await connection.close()
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
        pass
    return None
