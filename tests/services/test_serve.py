import asyncio
import json

import rxjobs as rj
from rxjobs.awaiting import LoopScheduler
from rxjobs.demand import Demand
from rxjobs.ledger import Ledger
from rxjobs.services.serve import serve
from rxjobs.testing import MemorySource
from tests.store.ground import a_node
from tests.waiting import until

WRITTEN = "SELECT serves FROM rxjobs.nodes WHERE id = $1"


async def test_what_a_node_serves_is_known_to_the_others_as_it_changes(connection, store, dsn):
    app, node = rj.App(dsn), await a_node(connection)
    for name in ("send", "receive"):

        @app.job(name=name)
        async def work() -> None: ...

    scheduler = LoopScheduler(asyncio.get_running_loop())

    def ledger(source):
        return Ledger(source, Demand(1), scheduler, lambda event: None)

    sources = rj.PostgresSource(app, "mail"), rj.PostgresSource(app, "slow", {"types": ["send"]}), MemorySource([])
    ledgers = [ledger(source) for source in sources]
    watching = serve(store, node, lambda: ledgers, every_seconds=0.01).subscribe(scheduler=scheduler)

    async def written():
        return json.loads(await connection.fetchval(WRITTEN, node))

    both = ["receive", "send"]
    await until(written)
    assert await written() == {"mail": both, "slow": ["send"]}
    ledgers.pop(0)

    async def has_changed():
        return await written() == {"slow": ["send"]}

    await until(has_changed)
    watching.dispose()
