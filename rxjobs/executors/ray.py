"""Ray for in_pool: `rj.in_pool(RayExecutor())`. A job there is a task of Ray's, asked to stop, and killed if it does not."""

from __future__ import annotations

import asyncio
import queue
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent import futures
from contextlib import suppress
from functools import partial
from typing import Any

from rxjobs.errors import InvalidOption, NotOpen
from rxjobs.executors import remote
from rxjobs.executors.reached import BEGUN, Heard, Interruptible, ReachedPool, Sent

KILL_AFTER = 2.0
"""Seconds that a job has to end after it was asked to, before the process that it runs in is killed."""

LOOK_SECONDS = 0.1
"""How often a worker looks whether its job is to stop."""


class RayExecutor(ReachedPool):
    """A Ray cluster, the one that `ray.init()` joined or started, as a `concurrent.futures.Executor`.

    ```
    ray.init()
    app.source("frames", max_demand=64).pipe(rj.execute(on=rj.in_pool(RayExecutor(num_gpus=0.5)), concurrency=64), rj.ack())
    ```

    `options` are those of `ray.remote`: `num_cpus`, `num_gpus`, `resources`, `runtime_env`, …, but no retries: to run a job again
    is its queue's business. A job that is cancelled, or takes too long, is asked to stop: a coroutine is cancelled, a plain
    function can look (`current_job().cancelled`). `kill_after` seconds later its process is killed; None leaves it alone.

    Raises InvalidOption for an option that cannot be, NotOpen without Ray (`pip install "rxjobs[ray]"`).
    """

    def __init__(self, *, kill_after: float | None = KILL_AFTER, **options: Any) -> None:
        if kill_after is not None and not 0 <= kill_after < 10**9:
            raise InvalidOption(f"kill_after is a number of seconds, or None, not {kill_after!r:.100}")
        if refused := options.keys() & {"max_retries", "retry_exceptions", "num_returns"}:
            raise InvalidOption(
                f"RayExecutor takes no {', '.join(sorted(refused))}: a job is one task of Ray's, and whether it runs again "
                "is decided by max_attempts and backoff of its type"
            )
        try:
            import ray
        except ImportError as error:
            raise NotOpen('RayExecutor needs Ray: pip install "rxjobs[ray]"') from error
        self._ray: Any = ray
        self._options = {"max_retries": 0, **options}
        self._kill_after = kill_after
        self._answer = ray.remote(num_returns="streaming", **self._options)(_answer)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="rxjobs-ray", daemon=True)
        self._thread.start()
        self._under_way: dict[asyncio.Task[None], Sent] = {}
        self._is_shut = False

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> futures.Future[Any]:
        """Run any function that Ray can send, as a task."""
        self._refuse_if_shut()
        task = self._ray.remote(**self._options)(function).remote(*args, **kwargs)
        future: futures.Future[Any] = task.future()
        return future

    def send(self, request: bytes, name: str, heard: Heard) -> Sent:
        """Have a worker answer a request."""
        self._refuse_if_shut()
        task = self._answer.options(name=name).remote(request)
        sent = Sent(lambda: self._loop.call_soon_threadsafe(self._interrupt, task))
        self._loop.call_soon_threadsafe(self._begin, task, sent, heard)
        return sent

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more, and wait for what is under way, or with `cancel_futures` interrupt it. The cluster stays as it is."""
        if not self._is_shut:
            self._is_shut = True
            asyncio.run_coroutine_threadsafe(self._finish(cancel_futures), self._loop)
        if wait:
            self._thread.join()

    def _serve(self) -> None:
        self._loop.run_forever()
        self._loop.close()

    def _refuse_if_shut(self) -> None:
        if self._is_shut:
            raise RuntimeError("cannot schedule new futures after shutdown")

    def _begin(self, task: Any, sent: Sent, heard: Heard) -> None:
        follow = self._loop.create_task(self._follow(task, sent, heard))
        self._under_way[follow] = sent
        follow.add_done_callback(self._under_way.pop)

    async def _follow(self, task: AsyncIterator[Any], sent: Sent, heard: Heard) -> None:
        has_begun, said = False, BEGUN
        failed: Exception = RuntimeError("the process that it ran in was killed")
        try:
            async for one in task:
                said = await one
                has_begun = True
                if said == BEGUN or said.startswith(remote.REPORT):
                    heard(said)
                else:
                    sent.set_result(said)
                    return
        except Exception as error:  # Ray's own: what a job raises comes as an answer
            failed = error
        if sent.is_asked and not has_begun:
            sent.withdraw()
        else:
            sent.set_exception(failed)

    def _interrupt(self, task: Any, *, kill: bool = False) -> None:
        # one that has ended, or a cluster that is gone, has nothing to stop
        with suppress(Exception):
            self._ray.cancel(task, force=kill)
        if not kill and self._kill_after is not None:
            self._loop.call_later(self._kill_after, partial(self._interrupt, task, kill=True))

    async def _finish(self, cancel: bool) -> None:
        under_way = dict(self._under_way)
        if cancel:
            for sent in under_way.values():
                sent.cancel()
        await asyncio.gather(*under_way)
        self._loop.stop()


def _answer(request: bytes) -> Iterator[bytes]:
    """A task: says that it has begun, then what its job reports, then the answer.

    The job runs in a thread of its own, since Ray interrupts the main one, and not what that waits in. Ray may do so again and
    again, so that no exception comes of it: a task that ended by one would leave its job behind.
    """
    call = Interruptible()
    before = signal.signal(signal.SIGINT, lambda *_: call.interrupt())
    try:
        yield BEGUN
        yield from _said(request, call)
    finally:
        signal.signal(signal.SIGINT, before)


def _said(request: bytes, call: Interruptible) -> Iterator[bytes]:
    said: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    thread = threading.Thread(
        target=lambda: said.put(remote.answer(request, call.wait, said.put, lambda: call.is_asked)), name="rxjobs-job", daemon=True
    )
    thread.start()
    is_answered = False
    while not is_answered:
        try:
            one = said.get(timeout=LOOK_SECONDS)  # for ever, and no signal would be handled meanwhile
        except queue.Empty:
            continue
        is_answered = not one.startswith(remote.REPORT)
        yield one
