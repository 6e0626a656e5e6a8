"""Say what keeps vacuum from removing dead rows: a forgotten transaction makes tables grow and claims slow, and nobody sees it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from reactivex import Observable

from rxjobs.awaiting import every
from rxjobs.events import DatabaseFreed, DatabasePinned, Emit
from rxjobs.log_lines import logger
from rxjobs.services.lead import Leadership
from rxjobs.store.patience import patiently
from rxjobs.store.store import Store

log = logger("rxjobs.horizon")

LONG_SECONDS = 60.0


def horizon(
    store: Store, leadership: Leadership, *, emit: Emit, every_seconds: float, long_seconds: float = LONG_SECONDS
) -> Observable[float]:
    """For how many seconds the vacuum horizon has been pinned, again and again; while this node does not lead, 0.

    Whatever pins it for longer than `long_seconds` is told of once in the log, and once more when it is gone.
    """
    pins = Pins(emit, long_seconds)

    async def once() -> float:
        if leadership.term is None:
            pins.forget()
            return 0.0
        return pins.seen(await patiently("looking for what pins the vacuum horizon", store.oldest_transactions))

    return every(lambda: every_seconds, once)


@dataclass(frozen=True, slots=True)
class Pin:
    """One that holds on to an old transaction id; while it goes on to a newer one it is no pin."""

    kind: str
    name: str
    held: str


class Pins:
    """What has been seen to pin the horizon, and what of it was told."""

    def __init__(self, emit: Emit, long_seconds: float) -> None:
        self._emit = emit
        self._long_seconds = long_seconds
        self._first_seen: dict[Pin, datetime] = {}
        self._told: dict[Pin, str] = {}

    def forget(self) -> None:
        """Begin anew: somebody else looks."""
        self._first_seen.clear()
        self._told.clear()

    def seen(self, rows: Sequence[Any]) -> float:
        """Take note of a look; gives the age of the oldest pin in seconds."""
        found = {Pin(row["kind"], row["name"], row["held"]): row for row in rows}
        # who held on to something else at the last look is merely busy, however long its transaction
        ages = {pin: self._age(pin, row) for pin, row in found.items() if pin in self._first_seen}
        self._first_seen = {pin: self._first_seen.get(pin, row["now"]) for pin, row in found.items()}
        for pin in [pin for pin in self._told if pin not in found]:
            self._tell_freed(self._told.pop(pin))
        for pin, age in ages.items():
            if age >= self._long_seconds and pin not in self._told:
                self._told[pin] = _described(found[pin])
                self._tell_pinned(pin, age)
        return max(ages.values(), default=0.0)

    def _age(self, pin: Pin, row: Any) -> float:
        if row["age"] is not None:
            return float(row["age"])
        return float((row["now"] - self._first_seen[pin]).total_seconds())

    def _tell_pinned(self, pin: Pin, age: float) -> None:
        holder = self._told[pin]
        log.warning(
            "%s has kept vacuum from removing dead rows for %.0f s, so that tables grow and claims slow down. %s",
            holder, age, _advice(pin),
        )  # fmt: skip
        self._emit(DatabasePinned(holder=holder, age=age))

    def _tell_freed(self, holder: str) -> None:
        log.info("%s no longer keeps vacuum from removing dead rows", holder)
        self._emit(DatabaseFreed(holder=holder))


def _described(row: Any) -> str:
    name = row["name"]
    match row["kind"]:
        case "slot":
            return f"replication slot {name} ({row['state']})"
        case "prepared":
            return f"prepared transaction {name} (user {row['username']})"
        case kind:
            state = row["state"] or "in a state that this user may not see"
            return f"{kind} with pid {name} (user {row['username']}, application {row['application'] or 'unnamed'}, {state})"


def _advice(pin: Pin) -> str:
    match pin.kind:
        case "slot":
            return f"Let its standby or consumer catch up, or drop it: SELECT pg_drop_replication_slot('{pin.name}')"
        case "prepared":
            return f"End it: COMMIT PREPARED '{pin.name}', or ROLLBACK PREPARED '{pin.name}'"
        case "standby":
            return "End the long query there, or turn hot_standby_feedback off"
        case _:
            return (
                f"End it unless it is needed: SELECT pg_terminate_backend({pin.name}); "
                "the setting idle_in_transaction_session_timeout ends a forgotten one by itself"
            )
