"""Whether vacuum keeps up: claims slow down where dead rows stay."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rxjobs.doctor.finding import Finding, ok, warning
from rxjobs.services.horizon import LONG_SECONDS
from rxjobs.settings import Settings
from rxjobs.store.store import Store

MANY_DEAD = 10_000
SHARE = 0.5
UNCLEARED_SECONDS = 300.0
"""A queue makes two dead rows a job, so that many are no news, unless no vacuum has come for long."""


async def horizon(store: Store, settings: Settings) -> Iterable[Finding]:
    """What has kept vacuum from removing dead rows for long."""
    pins = [row for row in await store.oldest_transactions() if is_pin(row)]
    return [_pinned(row) for row in pins] or (ok("horizon", "nothing keeps vacuum from removing dead rows"),)


def is_pin(row: Any) -> bool:
    """Whether it has held on for long; a slot does not say how long, and one that nobody uses will not let go."""
    if row["kind"] == "slot":
        return bool(row["state"] == "not in use")
    return row["age"] is not None and row["age"] > LONG_SECONDS


def _pinned(row: Any) -> Finding:
    name = row["name"]
    match row["kind"]:
        case "slot":
            holder = f"replication slot {name}, which is not in use, keeps"
            advice = f"let its standby or consumer catch up, or drop it: SELECT pg_drop_replication_slot('{name}')"
        case "prepared":
            holder = f"prepared transaction {name} (user {row['username']}) has for {row['age']:.0f} s kept"
            advice = f"end it: COMMIT PREPARED '{name}', or ROLLBACK PREPARED '{name}'"
        case kind:
            state = row["state"] or "in a state that this user may not see"
            who = f"user {row['username']}, application {row['application'] or 'unnamed'}, {state}"
            holder = f"{kind} with pid {name} ({who}) has for {row['age']:.0f} s kept"
            advice = (
                "end the long query there, or turn hot_standby_feedback off"
                if kind == "standby"
                else f"end it unless it is needed: SELECT pg_terminate_backend({name})"
            )
    return warning("horizon", f"{holder} vacuum from removing dead rows, so that tables grow and claims slow down", advice)


async def dead_rows(store: Store, settings: Settings) -> Iterable[Finding]:
    """Whether the live jobs' table is cleared of what is dead."""
    row = await store.dead_rows()
    return (cleared(row["living"], row["dead"], row["uncleared"]),)


def cleared(living: int, dead: int, uncleared: float | None) -> Finding:
    """Whether dead rows are many, are most of the table, and have been so for long."""
    share = dead / (living + dead) if dead else 0.0
    when = "never" if uncleared is None else f"{uncleared:.0f} s ago"
    found = f"{dead} of {living + dead} rows of live_jobs are dead ({share:.0%}), last vacuumed: {when}"
    if dead >= MANY_DEAD and share > SHARE and (uncleared is None or uncleared > UNCLEARED_SECONDS):
        return warning("dead rows", found, "see what holds vacuum up (horizon), and that autovacuum is on; then VACUUM the table")
    return ok("dead rows", found)
