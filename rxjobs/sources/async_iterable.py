"""Jobs from an asynchronous stream: of another system's messages, say."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from typing import Any

from rxjobs.awaiting import let_others, scheduler_here
from rxjobs.errors import InvalidOption
from rxjobs.log_lines import logger
from rxjobs.outcome import Finished
from rxjobs.sources.iterable import IteratedSource, Jobs, Later, Make

log = logger("rxjobs.source")


class AsyncIterableSource(IteratedSource):
    """The items of an async iterable as jobs: `rj.pull(rj.AsyncIterableSource(messages(), handle), max_demand=10)`.

    As IterableSource. An item is waited for only when a job was asked for, one at a time, and what has come is given without
    waiting for more. One that comes when nobody asks any more is kept for the next who does. When the stream is left, the
    wait for one is cancelled, and the iterator closed; a pipeline that breaks and is subscribed again goes on where it was.
    """

    def __init__(
        self,
        items: AsyncIterable[Any],
        make: Make | None = None,
        *,
        app: Jobs | None = None,
        on_settle: Callable[[Finished], Any] | None = None,
    ) -> None:
        super().__init__(make, app, on_settle)
        if not isinstance(items, AsyncIterable):
            more = "; use rj.IterableSource" if isinstance(items, Iterable) else ""
            raise InvalidOption(f"AsyncIterableSource takes an async iterable, not {items!r:.100}{more}")
        self._items: AsyncIterator[Any] = aiter(items)
        self._reading: Any = None
        """The task that waits for an item."""
        self._came: list[Any] = []
        """The item that has come, or the error in place of one: never more than one."""
        self._is_fetching = False

    def __repr__(self) -> str:
        return f"AsyncIterableSource({self._items!r:.100})"

    async def read(self) -> Any:
        if self._reading is None and not self._came:
            self._reading = scheduler_here().start(_anext(self._items), self._read, self._read)
        self._is_fetching = True
        # a tick or two: an item that is there needs no wake
        for _ in range(2):
            if not self._came:
                await let_others()
        self._is_fetching = False
        if not self._came:
            raise Later
        found = self._came.pop()
        if isinstance(found, BaseException):
            raise found
        return found[0]

    def _read(self, found: Any) -> None:
        self._reading = None
        self._came.append(found)
        if not self._is_fetching:
            self._wakes.on_next("item")

    def close(self) -> None:
        if self._reading is None:
            self._close_items()
        else:  # what runs cannot be closed
            self._reading.add_done_callback(lambda _: self._close_items())
            self._reading.cancel()

    def _close_items(self) -> None:
        close = getattr(self._items, "aclose", None)
        if close is not None:
            scheduler_here().start(close(), failed=lambda error: log.warning("%r could not be closed: %r", self, error))


async def _anext(items: AsyncIterator[Any]) -> tuple[Any]:
    """The next item, in a tuple: it may be anything, also an exception."""
    return (await anext(items),)
