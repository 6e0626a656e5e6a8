"""A row that was inserted, as whoever enqueued it knows it: what may be asked about its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import msgspec
from reactivex import Observable

from rxjobs.errors import NotOpen


class Following(Protocol):
    """What is asked about the end of a job: `app.jobs`."""

    async def result(self, id: int, timeout: float | None = None) -> Any: ...  # noqa: ASYNC109 - as asyncio.wait_for has it

    def follow(self, id: int) -> Observable[tuple[float, str]]: ...


class Enqueued(msgspec.Struct, frozen=True, dict=True):
    """A row: its id, the state it was inserted in, and whether it was there already."""

    id: int
    state: str
    duplicate: bool = False

    async def result(self, timeout: float | None = None) -> Any:  # noqa: ASYNC109 - as asyncio.wait_for has it
        """Wait for the job's end; gives what it returned, where its type has `record=True`, else None.

        Raises JobFailed where it was discarded, cancelled or deleted, and TimeoutError after so many seconds.
        """
        return await self._jobs.result(self.id, timeout)

    @property
    def progress(self) -> Observable[tuple[float, str]]:
        """How far the job says that it has come, and its words, until it ends; to be subscribed on the app's event loop."""
        return self._jobs.follow(self.id)

    @property
    def _jobs(self) -> Following:
        jobs: Following | None = self.__dict__.get("jobs")
        if jobs is None:
            raise NotOpen(f"this Enqueued has left the app that made it (copied or unpickled): use app.jobs.result({self.id})")
        return jobs


# past what keeps a frozen value from changing: whom it may ask is no part of it
know_jobs: Callable[[Enqueued, dict[str, Following]], None] = Enqueued.__dict__["__dict__"].__set__
"""Have rows know whom to ask about their end. They share one mapping, of `jobs`, since there may be a million of them."""
