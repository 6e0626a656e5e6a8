"""What a source of jobs is to a pull: whoever has these methods is one."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import msgspec
from reactivex import Observable

from rxjobs.job import Job
from rxjobs.outcome import Finished


class Source(Protocol):
    """Where jobs come from.

    `fetch(n)` gives at most n jobs, fewer when there are no more now. `wakes` says, by any item, that there may be more; a
    source whose wakes complete is finite. `settle` writes outcomes down; the places of its jobs are free once it returns.
    """

    @property
    def wakes(self) -> Observable[object]: ...

    async def fetch(self, n: int) -> list[Job]: ...

    async def settle(self, finished: list[Finished]) -> None: ...


@runtime_checkable
class Finite(Protocol):
    """A source that knows when every job it will ever give is held: then nothing comes unless one of those comes back."""

    @property
    def is_exhausted(self) -> bool: ...


class Control(msgspec.Struct, frozen=True):
    """What is asked of a source's pulls while they run: to begin no job, and to hold so many at most (None: as is declared)."""

    is_paused: bool = False
    max_demand: int | None = None


@runtime_checkable
class Controlled(Protocol):
    """A source that is told at run time how its jobs are to be taken."""

    @property
    def controls(self) -> Observable[Control]: ...
