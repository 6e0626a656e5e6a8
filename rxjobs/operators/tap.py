"""Do something beside for each job, and pass it on as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rxjobs.calls import Executor
from rxjobs.counted import Counted
from rxjobs.job import Job
from rxjobs.operators.enrich import calling
from rxjobs.operators.stage import Operator


def tap(
    function: Callable[[Job], Any],
    *,
    concurrency: int = 10,
    timeout: float | None = None,
    on: Executor | None = None,
    name: str = "tap",
    traced: bool = False,
) -> Operator:
    """Call `function(job)` for up to `concurrency` jobs at once, and pass each on once it has returned, unchanged.

    A coroutine function runs on the loop, a plain one in a thread, either on the executor `on` where one is given. `timeout` is in
    seconds. What raises, or takes longer, is a failed attempt of that job; an outcome settles it; else what it gives is ignored.

        ──a──────b──────
          tap(print)
        ────a──────b────
    """
    return calling("tap", function, lambda job, _: job, concurrency, timeout, on, None, Counted(name, traced=traced))
