"""Outcomes that are written down and jobs that are fetched in one transaction: a place goes round by one statement, not two.

Two of them may be on their way at once: while the jobs of the one run, the other brings the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import msgspec

from rxjobs.aside import Settling
from rxjobs.job import Job
from rxjobs.outcome import Finished

AT_ONCE = 2
REST_SECONDS = 1.0
"""After one that failed, outcomes are written and jobs are fetched each by themselves for so long: those know how to wait."""


@runtime_checkable
class Exchanging(Protocol):
    """A source that can do both in one transaction."""

    def may_exchange(self, finished: Sequence[Finished]) -> bool:
        """Whether it can now, and with these outcomes."""
        ...

    async def exchange(self, finished: list[Finished], n: int) -> list[Job]:
        """Write outcomes down and fetch up to n jobs. Tried once: where it raises, it is not known whether that was done."""
        ...


class Taker(Protocol):
    """A pull, which jobs are fetched for."""

    @property
    def takes_more(self) -> bool:
        """Whether it takes jobs, and the source may have more."""
        ...

    @property
    def is_handing_on(self) -> bool:
        """Whether some of what was fetched last is still to be handed on."""
        ...

    def room(self, must_ask: bool) -> None:
        """There may be room to ask for jobs; whether to do that even of a source that had no more."""

    def asked(self) -> None:
        """The source is asked for jobs in its place."""

    def exchanged(self, jobs: list[Job], asked: int, began: int) -> None:
        """Of so many that the source was asked for at `began`, by this process's own clock, ns, it gave these."""


class Exchange(msgspec.Struct, eq=False):
    """One that is on its way."""

    source: Exchanging
    settling: list[Settling]
    asked: int
    beyond: int
    """How many more jobs it may bring than it writes outcomes: the places that are promised to it."""
    taker: Taker
    era: int
    began: int
    task: Any = None
