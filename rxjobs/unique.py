"""Of which jobs there is only one: what makes them the same, in which states, for how long, and what becomes of another."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from rxjobs.errors import InvalidOption
from rxjobs.job import State

LIVE = ("scheduled", "available", "executing", "retryable", "held")
"""The states of a job that has not ended."""
BEFORE = ("scheduled", "available")
"""The states that jobs are inserted in."""
REPLACEABLE = ("args", "priority", "max_attempts", "scheduled_at", "tags", "meta")
PART = re.compile(r"type|queue|(args|meta)(\.[^.]+)*")
LONGEST_PERIOD = 10 * 366 * 86400.0

OnConflict = Literal["skip", "replace", "raise"]


class Unique(msgspec.Struct, frozen=True):
    """At most one job of a key is in any of these states: held by an index, so that no two callers can both insert one.

    by: what makes the key beside the job type: "args", "args.user_id", "queue", "meta", "meta.tenant". Arguments that are left out
    count with their defaults.
    period: seconds from its insertion on that a job stands for its key; None is for as long as it is in one of the states.
    states: by default every one that is not terminal. "scheduled" and "available" are always among them.
    on_conflict: what becomes of another: "skip" gives the job that is there, with `duplicate` set; "replace" does too, and writes
    what `replace` names over what that one has, if it has not begun; "raise" raises DuplicateJob.
    """

    by: tuple[str, ...] = ("args",)
    period: float | None = None
    states: tuple[str, ...] = LIVE
    on_conflict: OnConflict = "skip"
    replace: tuple[str, ...] = REPLACEABLE

    def __post_init__(self) -> None:
        for name in ("by", "states", "replace"):
            given = getattr(self, name)
            if not isinstance(given, Iterable):
                raise InvalidOption(f"Unique: {name} is text or a tuple of it, not {given!r:.100}")
            msgspec.structs.force_setattr(self, name, (given,) if isinstance(given, str) else tuple(given))
        for part in self.by:
            if not isinstance(part, str) or not PART.fullmatch(part):
                raise InvalidOption(f"Unique: by takes args, args.NAME, meta, meta.NAME, queue and type, not {part!r:.100}")
        unknown = [state for state in self.states if state not in (*State,)]
        if unknown:
            raise InvalidOption(f"Unique: states are {', '.join(State)}, not {', '.join(map(repr, unknown))}")
        if missing := [state for state in BEFORE if state not in self.states]:
            raise InvalidOption(f"Unique: states lack {' and '.join(missing)}, which jobs are inserted in; add them")
        if self.states_after and (missing := [state for state in LIVE if state not in self.states]):
            raise InvalidOption(
                f"Unique: where {self.states_after[0]} jobs count, so do all that have not ended; states lack {', '.join(missing)}"
            )
        if self.on_conflict not in ("skip", "replace", "raise"):
            raise InvalidOption(f"Unique: on_conflict is 'skip', 'replace' or 'raise', not {self.on_conflict!r:.100}")
        if unknown := [name for name in self.replace if name not in REPLACEABLE]:
            raise InvalidOption(f"Unique: replace takes {', '.join(REPLACEABLE)}, not {', '.join(map(repr, unknown))}")
        period = self.period
        is_number = isinstance(period, int | float) and not isinstance(period, bool)
        if period is not None and not (is_number and 0 < period <= LONGEST_PERIOD):
            raise InvalidOption(f"Unique: period is a number of seconds above 0, at most ten years, or None, not {period!r:.100}")

    @property
    def states_after(self) -> tuple[str, ...]:
        """Those of its states that are terminal."""
        return tuple(state for state in self.states if state not in LIVE)

    @property
    def argument_names(self) -> list[str]:
        """The arguments that the key is made of by name."""
        return [part.split(".")[1] for part in self.by if part.startswith("args.")]

    def claim(self, type_: str, queue: str, args: Mapping[str, Any], meta: Mapping[str, Any]) -> UniqueClaim:
        """What one job claims: `args` as they are stored, with defaults."""
        whole = {"queue": queue, "args": args, "meta": meta, "type": type_}
        values = [[part, _value(whole, part.split("."))] for part in sorted(set(self.by))]
        text = msgspec.json.encode([type_, values], order="deterministic")
        return UniqueClaim(
            key=hashlib.sha256(text).hexdigest()[:40],
            period=None if self.period is None else float(self.period),
            states=self.states,
            on_conflict=self.on_conflict,
            replace=self.replace if self.on_conflict == "replace" else (),
        )


class UniqueClaim(msgspec.Struct, frozen=True, kw_only=True):
    """The key of one job, and how it is to be held."""

    key: str
    period: float | None
    states: tuple[str, ...]
    on_conflict: OnConflict
    replace: tuple[str, ...]

    @property
    def outlives_its_job(self) -> bool:
        """Whether jobs that have ended may stand for the key."""
        return any(state not in LIVE for state in self.states)


def _value(found: Any, path: list[str]) -> Any:
    for step in path:
        found = found.get(step) if isinstance(found, Mapping) else None
    return found
