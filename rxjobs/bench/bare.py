"""Computes what jobs would, in processes without any runner, a program of its own: what two processes can do here at most."""

from __future__ import annotations

import multiprocessing
import time
from multiprocessing.connection import Connection

from rxjobs.bench.bodies import compute
from rxjobs.bench.said import Bench, Compute, Computed, Ready, tell
from rxjobs.serving import run


async def main() -> None:
    """Compute what stdin orders, and tell how long it took."""
    bench = await Bench.listen()
    order = await bench.order(Compute)
    connections = [_computer() for _ in range(order.processes)]
    for connection in connections:
        connection.recv_bytes()  # it is there
    tell(Ready())
    if await bench.says_on():
        began = time.monotonic()
        for number, connection in enumerate(connections):
            connection.send_bytes(str(len(range(number, order.count, order.processes))).encode())
        for connection in connections:
            connection.recv_bytes()
        tell(Computed(time.monotonic() - began))
    for connection in connections:
        connection.close()


def _computer() -> Connection:
    ours, theirs = multiprocessing.Pipe()
    multiprocessing.get_context("spawn").Process(target=_compute, args=(theirs,), daemon=True).start()
    theirs.close()
    return ours


def _compute(connection: Connection) -> None:
    connection.send_bytes(b"")
    for number in range(int(connection.recv_bytes())):
        compute(number)
    connection.send_bytes(b"")


if __name__ == "__main__":
    run(main())
