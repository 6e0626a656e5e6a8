"""The storage of pybreaker's state machine, on a row that all nodes share."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

import msgspec

from rxjobs.store.standing import Standing

OPEN, HALF_OPEN, CLOSED = "open", "half-open", "closed"
"""As pybreaker names them."""


class Own(NamedTuple):
    """What happened here that the shared row does not know of."""

    failures: int = 0
    has_succeeded: bool = False
    """Before these failures."""
    successes: int = 0


class SharedStorage:
    """What is known of the row, and what has happened here since: so whoever counts never waits for an answer."""

    def __init__(self, name: str) -> None:
        self.known = Standing(name)
        self.own = self.sent = Own()
        self._state: str = CLOSED

    @property
    def state(self) -> str:
        return self._state

    @state.setter
    def state(self, state: str) -> None:
        self._state = state

    @property
    def counter(self) -> int:
        count = self.own.failures
        if self.own.has_succeeded:
            return count
        count += self.sent.failures
        return count if self.sent.has_succeeded else count + self.known.failures

    @property
    def success_counter(self) -> int:
        return self.known.successes + self.sent.successes + self.own.successes

    def increment_counter(self) -> None:
        self.own = self.own._replace(failures=self.own.failures + 1)

    def reset_counter(self) -> None:
        has_others = self.counter > self.own.failures or self.own.has_succeeded
        self.own = self.own._replace(failures=0, has_succeeded=has_others)

    def increment_success_counter(self) -> None:
        self.own = self.own._replace(successes=self.own.successes + 1)

    def reset_success_counter(self) -> None:
        self.own = self.own._replace(successes=0)
        self.sent = self.sent._replace(successes=0)
        self.known = _without_successes(self.known)

    @property
    def opened_at(self) -> datetime | None:
        """When it opened is known by a clock that nobody sets."""
        return None

    @opened_at.setter
    def opened_at(self, datetime: datetime) -> None: ...

    def take(self) -> Own:
        """What is to be told, which is on its way from now on."""
        self.sent, self.own = self.own, Own()
        return self.sent

    def put_back(self) -> None:
        """What was on its way did not arrive."""
        sent, own = self.sent, self.own
        self.sent = Own()
        failures = own.failures if own.has_succeeded else sent.failures + own.failures
        self.own = Own(failures, sent.has_succeeded or own.has_succeeded, sent.successes + own.successes)

    def forget(self) -> None:
        """What happened here was about another state than the one it is in now."""
        self.own = self.sent = Own()


def _without_successes(standing: Standing) -> Standing:
    return msgspec.structs.replace(standing, successes=0) if standing.successes else standing
