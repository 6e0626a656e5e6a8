"""What is measured of a peer, a program of its own: `python -m tests.peers.program PEER installer|filler|enqueuer|worker`.

It hears and tells what the programs of `rxjobs bench` do, and counts bodies as they do.
"""

from __future__ import annotations

import gc
import logging
import sys
import time
from importlib import import_module

from rxjobs.bench import enqueuer
from rxjobs.bench.bodies import NOTED, NOTHING, bodies
from rxjobs.bench.said import Bench, Order, Ready, Send, Sent, Work, tell
from rxjobs.bench.tally import Tally
from rxjobs.bench.worker import until_ended
from rxjobs.serving import run


async def main(peer: str, name: str) -> None:
    """Do what stdin orders."""
    its = import_module(f"tests.peers.with_{peer}")
    gc.collect()
    # what is imported to measure it is not to be gone through at each of its collections
    gc.freeze()
    if name == "enqueuer":
        await enqueuer.main(lambda order: its.opened(order.dsn, NOTED))
        return
    bench = await Bench.listen()
    match name:
        case "installer":
            await its.install((await bench.order(Order)).dsn)
            tell(Ready())
        case "filler":
            await _fill(its, bench)
        case "worker":
            order = await bench.order(Work)
            tally = Tally(order.step)
            tell(Ready())
            if await bench.says_on():
                its_own = {type: body for type, body in bodies(tally).items() if type in (NOTHING, NOTED)}
                await until_ended(its.work(order.dsn, order.concurrency, its_own), tally, bench)


async def _fill(its, bench: Bench) -> None:
    order = await bench.order(Send)
    async with its.opened(order.dsn, NOTHING) as client:
        tell(Ready())
        if await bench.says_on():
            began = time.monotonic()
            await client.enqueue_many(range(order.count))
            tell(Sent(seconds=time.monotonic() - began))


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    run(main(*sys.argv[1:]))
