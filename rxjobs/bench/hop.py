"""Calls a function in a child process, again and again, a program of its own: what the way there and back takes."""

from __future__ import annotations

import time

import rxjobs as rj
from rxjobs.bench.bodies import echo
from rxjobs.bench.said import Bench, Hop, Hopped, Ready, tell
from rxjobs.calls import Call
from rxjobs.serving import run
from rxjobs.testing import a_job, job_type

PAYLOAD = "x" * 100


async def main() -> None:
    """Make the calls that stdin orders, and tell how long each took."""
    bench = await Bench.listen()
    order = await bench.order(Hop)
    executor = rj.in_processes(1)
    call = Call(echo, a_job(definition=job_type(echo), payload=f'{{"payload":"{PAYLOAD}"}}', args={"payload": PAYLOAD}))
    await executor.run(call)  # the child is there
    tell(Ready())
    if await bench.says_on():
        seconds = []
        for _ in range(order.count):
            began = time.perf_counter()
            await executor.run(call)
            seconds.append(time.perf_counter() - began)
        tell(Hopped(seconds))
    await executor.close()


if __name__ == "__main__":
    run(main())
