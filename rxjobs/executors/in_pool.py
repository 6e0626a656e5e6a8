"""Run jobs in somebody else's pool: any concurrent.futures.Executor."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent import futures
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from rxjobs.calls import Call, Start
from rxjobs.errors import InvalidOption, PoolBroken
from rxjobs.executors import remote
from rxjobs.executors.dask import DaskPool, is_of_dask
from rxjobs.executors.ran import Ran, Reply
from rxjobs.executors.reached import ReachedPool, Sent
from rxjobs.executors.scheduling import ClosureScheduler, NoScheduler
from rxjobs.executors.threaded import ThreadedCall
from rxjobs.log_lines import logger
from rxjobs.stopping import RUNS_ON, STOP
from rxjobs.telemetry.context import carried, carry

log = logger("rxjobs")

T = TypeVar("T")

MOMENT = 0.7
"""Seconds in which a call that was asked to stop in another process has ended: then it is known that it did."""

MOST_STUCK = 64
"""So many calls that do not stop are too many in a pool that does not tell its size."""


def in_pool(
    executor: futures.Executor, *, carrier: remote.Carrier | None = None, attach: remote.Attach | None = None
) -> InThreadPool | InRemotePool:
    """An executor on a pool that the caller owns, and closes: of threads, of processes, Dask's, Ray's, loky's, MPI's.

    A cancellation reaches what runs in Dask's `client.get_executor()` and a `RayExecutor`: see docs/scale.md. Where a pool runs
    code in other processes, `carrier` makes the trace context that goes along with a job, and `attach`, an importable function,
    makes a context manager of it there.
    """
    if not isinstance(executor, futures.Executor):
        raise InvalidOption(f"in_pool takes a concurrent.futures.Executor, not {executor!r:.200}")
    # an InterpreterPoolExecutor (Python 3.14) is a ThreadPoolExecutor by name, and can take no closure
    apart = getattr(futures, "InterpreterPoolExecutor", ())
    if isinstance(executor, futures.ThreadPoolExecutor) and not isinstance(executor, apart):
        return InThreadPool(executor)
    if is_of_dask(executor):
        executor = DaskPool(executor)
    return InRemotePool(executor, carrier or carry, attach or carried)


class InPool:
    """What is in somebody else's pool: the calls that it was given, and those that were cancelled and run on, in whose place
    nobody puts anything."""

    name = "pool"

    def __init__(self, pool: futures.Executor) -> None:
        super().__init__()
        self.calls = 0
        """How many it was given that have not ended."""
        self.stuck = 0
        self._pool = pool

    def __repr__(self) -> str:
        return f"in_pool({type(self._pool).__name__}, stuck={self.stuck})"

    @property
    def size(self) -> int | None:
        """How many calls it runs at once; None where it does not say."""
        # the standard library's pools have this, and those that are made like them
        size = getattr(self._pool, "_max_workers", None)
        return size if isinstance(size, int) else None

    @property
    def busy(self) -> int:
        """How many places are taken, if nobody else uses it."""
        return self.calls if self.size is None else min(self.calls, self.size)

    @property
    def waiting(self) -> int:
        """How many calls wait for one."""
        return self.calls - self.busy

    @property
    def is_worn_out(self) -> bool:
        """Whether jobs that do not stop have taken every place, or, where nobody knows how many there are, too many."""
        return self.stuck >= (MOST_STUCK if self.size is None else self.size)

    async def close(self) -> None:
        """The pool is its owner's."""

    async def _run(
        self,
        call: Call,
        submit: Callable[[], futures.Future[T]],
        read: Callable[[T], Ran],
        interrupt: Callable[[], bool],
    ) -> Any:
        reply = Reply()
        try:
            future = submit()
        except Exception as error:
            raise _broken(error) from error
        self.calls += 1
        future.add_done_callback(lambda done: reply.give(_read(done, read)))

        def stop() -> bool:
            if not future.cancel():
                interrupt()
            return future.cancelled()

        try:
            value = await reply.taken(stop)
        except asyncio.CancelledError:
            if not (future.cancel() or future.done() or await _ends(future, reply)):
                self._leave_behind(call, reply.leave_behind(), was_told=interrupt())
                raise asyncio.CancelledError(RUNS_ON) from None
            self.calls -= 1
            raise
        except BaseException:
            self.calls -= 1
            raise
        self.calls -= 1
        return value

    def _leave_behind(self, call: Call, arrived: asyncio.Future[None], *, was_told: bool) -> None:
        """A call runs on until this is done."""
        self.stuck += 1
        arrived.add_done_callback(self._arrived)
        if not was_told:
            log.warning(
                "job %s (%s) was cancelled and may still run in its pool, which does not stop what it has begun",
                call.job.id,
                call.job.type,
            )

    def _arrived(self, _: asyncio.Future[None]) -> None:
        self.stuck -= 1
        self.calls -= 1


class InThreadPool(InPool, ClosureScheduler):
    """A pool of threads as an executor."""

    tells_start = True

    async def run(self, call: Call) -> Any:
        """Run the function in a thread of the pool; cancelled, one that runs runs on, and is waited for with stopping.STOP."""
        threaded = ThreadedCall(call)
        return await self._run(call, partial(self._pool.submit, threaded.run), _as_it_is, threaded.interrupt)

    def _begin(self, closure: Callable[[], None]) -> Callable[[], Any]:
        return self._pool.submit(closure).cancel


class InRemotePool(InPool, NoScheduler):
    """A pool of other processes as an executor: what goes there and comes back is text."""

    def __init__(self, pool: futures.Executor, carrier: remote.Carrier, attach: remote.Attach) -> None:
        super().__init__(pool)
        self.carrier = carrier
        self.attach = attach
        # others, such as loky, say too early or too late that a call runs
        self.tells_start = isinstance(pool, futures.ProcessPoolExecutor | ReachedPool)

    async def run(self, call: Call) -> Any:
        """Run the function in the pool; cancelled, one that runs is asked to stop where the pool can be reached, or else runs on,
        and is waited for with stopping.STOP."""
        request = remote.write_request(call, self.carrier(), self.attach)
        submit: Callable[[], futures.Future[bytes]] = partial(self._pool.submit, remote.answer, request)
        if isinstance(self._pool, ReachedPool):
            submit = partial(_send, self._pool, request, call)
        elif self.tells_start:
            submit = partial(_submit_told, submit, call.start)
        return await self._run(call, submit, remote.read_answer, _cannot)


def _submit_told(submit: Callable[[], futures.Future[T]], start: Start) -> futures.Future[T]:
    """Have a call begin where its pool takes it to a process, with no more than one that it keeps in store there."""
    start.wait()
    future = submit()
    set_running = future.set_running_or_notify_cancel

    def begin() -> bool:
        is_wanted = set_running()
        if is_wanted:
            start.begin()
        return is_wanted

    # a future has nobody else to tell
    future.set_running_or_notify_cancel = begin  # type: ignore[method-assign]
    if future.running() and start.at is None:
        start.begin()
    return future


def _send(pool: ReachedPool, request: bytes, call: Call) -> Sent:
    """Have a call begin where its pool tells so, and its reports passed on."""
    start, loop = call.start, asyncio.get_running_loop()
    start.wait()

    def heard(said: bytes) -> None:
        if not said:
            start.begin()
            return
        # a loop that was closed meanwhile does not want it
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(remote.pass_on, said, call.job)

    return pool.send(request, call.job.type, heard)


async def _ends(future: futures.Future[T], reply: Reply) -> bool:
    """Whether a call that was asked to stop has ended within a moment."""
    if not isinstance(future, Sent):
        return False
    try:
        return await reply.arrives_within(MOMENT)
    except asyncio.CancelledError:  # whoever cancels it again does not wait
        return False


def _read(done: futures.Future[T], read: Callable[[T], Ran]) -> Ran:
    if isinstance(done, Sent) and done.is_asked and done.cancelled():
        return Ran(error=asyncio.CancelledError(STOP))
    try:
        return read(done.result())
    except BaseException as error:  # what a job raises comes as a value, so this is the pool's own
        broken = _broken(error)
        broken.__cause__ = error
        return Ran(error=broken)


def _broken(error: BaseException) -> PoolBroken:
    return PoolBroken(
        f"the pool that in_pool was given did not run the job ({type(error).__name__}: {error}); if it is broken or "
        "shut down, only its owner can make a new one"
    )


def _cannot() -> bool:
    """How a call in another process is interrupted."""
    return False


def _as_it_is(ran: Ran) -> Ran:
    return ran
