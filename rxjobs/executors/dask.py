"""Dask's `client.get_executor()` for in_pool: jobs there tell that they begin and how far they are, and can be asked to stop."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent import futures
from functools import partial
from typing import Any
from uuid import uuid4

from rxjobs.executors import remote
from rxjobs.executors.reached import BEGUN, Heard, Interruptible, ReachedPool, Sent
from rxjobs.outcome import Release

MOST_UNWANTED = 10_000
"""A worker remembers so many calls that are not to begin: those that were withdrawn while they were on their way to it."""


def is_of_dask(executor: futures.Executor) -> bool:
    """Whether it is what `client.get_executor()` gives; asked without importing Dask."""
    return type(executor).__module__ == "distributed.cfexecutor" and hasattr(executor, "_client")


class DaskPool(ReachedPool):
    """A Dask cluster, by the executor of one of its clients. What calls say comes as events of a topic of our own."""

    def __init__(self, executor: futures.Executor) -> None:
        self._submit: Callable[..., futures.Future[Any]] = executor.submit
        self._client: Any = vars(executor)["_client"]  # it tells nobody else
        self._topic = f"rxjobs-{uuid4().hex}"
        self._calls: dict[str, Heard] = {}
        self._client.subscribe_topic(self._topic, self._hear)

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> futures.Future[Any]:
        """As the executor of the client."""
        return self._submit(function, *args, **kwargs)

    def send(self, request: bytes, name: str, heard: Heard) -> Sent:
        """Have a worker answer a request."""
        token = uuid4().hex
        theirs: list[futures.Future[bytes]] = []
        sent = Sent(lambda: threading.Thread(target=self._recall, args=(token, theirs[0]), name="rxjobs-dask", daemon=True).start())
        self._calls[token] = heard
        try:
            # a key of its own: Dask runs what has the same key, or the same arguments, once
            theirs.append(self._submit(answer, request, token, self._topic, key=f"{name}-{token}", pure=False))
        except BaseException:
            del self._calls[token]
            raise
        theirs[0].add_done_callback(partial(self._ended, token, sent))
        return sent

    def _ended(self, token: str, sent: Sent, theirs: futures.Future[bytes]) -> None:
        self._calls.pop(token, None)
        if theirs.cancelled():
            sent.withdraw()
        elif (error := theirs.exception()) is not None:
            sent.set_exception(error)
        else:
            sent.set_result(theirs.result())

    def _hear(self, event: tuple[float, list[str]]) -> None:
        token, said = event[1]
        heard = self._calls.get(token)
        if heard is not None:
            heard(said.encode())

    def _recall(self, token: str, theirs: futures.Future[bytes]) -> None:
        """Ask whoever runs it to stop it; where nobody does, nobody will. Not by Dask's own cancel, which forgets what runs on."""
        found = self._client.run(interrupt, token, on_error="ignore")
        if not any(found.values()):
            theirs.cancel()


def answer(request: bytes, token: str, topic: str) -> bytes:
    """Answer a request on a worker of Dask's, in a thread of it."""
    from distributed import get_worker

    worker, call = get_worker(), Interruptible()
    with _lock:
        if token in _unwanted:
            return remote.write_outcome(Release(reason="it was withdrawn before it began"))
        _running[token] = call

    def tell(said: bytes) -> None:
        worker.log_event(topic, [token, said.decode()])

    try:
        tell(BEGUN)
        return remote.answer(request, call.wait, tell, lambda: call.is_asked)
    finally:
        with _lock:
            del _running[token]


def interrupt(token: str) -> bool:
    """Ask a call to stop that runs on this worker; gives whether one does. If not, it does not begin here from now on."""
    with _lock:
        call = _running.get(token)
        if call is None:
            _unwanted[token] = None
            if len(_unwanted) > MOST_UNWANTED:
                _unwanted.popitem(last=False)
    if call is not None:
        call.interrupt()
    return call is not None


_lock = threading.Lock()
_running: dict[str, Interruptible] = {}
_unwanted: OrderedDict[str, None] = OrderedDict()
