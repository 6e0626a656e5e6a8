"""Measure what a test pays for a schema of its own: `python -m tests.testing.fresh`, on RXJOBS_TEST_DSN or an embedded server."""

from __future__ import annotations

import os
import statistics
import time
from contextlib import nullcontext

import rxjobs as rj
from rxjobs.store import embedded
from rxjobs.testing.schemas import Schemas
from tests.servers import folder_for_a_server

TIMES = 50


def measure(dsn: str) -> None:
    with Schemas(dsn) as schemas:
        began = time.perf_counter()
        database = schemas.take()
        print(f"a new schema, migrated   {1e3 * (time.perf_counter() - began):6.1f} ms")
        app = rj.App(database.dsn, schema=database.schema)

        @app.job(name="work")
        def work(n: int) -> None: ...

        taken = []
        for _ in range(TIMES):
            app.sync.enqueue_many(work.new(n=n) for n in range(10))
            began = time.perf_counter()
            assert schemas.take() == database
            taken.append(1e3 * (time.perf_counter() - began))
        app.sync.close()
    low, middle, high = (sorted(taken)[place] for place in (0, TIMES // 2, TIMES - 1))
    print(f"one emptied of ten jobs  {middle:6.1f} ms, the median of {TIMES}; {low:.1f} to {high:.1f} ms")
    print(f"the load of this machine {os.getloadavg()[0]:6.1f}")
    assert statistics.median(taken) < 60_000


if __name__ == "__main__":
    given = os.environ.get("RXJOBS_TEST_DSN")
    with nullcontext() if given else folder_for_a_server() as folder:
        server = None if folder is None else embedded.start(folder)
        measure(given or server.dsn)  # type: ignore[union-attr, arg-type]
        if server is not None:
            server.stop()
