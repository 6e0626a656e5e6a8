"""Whether a partitioned history has the tables that it needs."""

from __future__ import annotations

from collections.abc import Iterable

from rxjobs.doctor.finding import Finding, ok, warning
from rxjobs.settings import Settings
from rxjobs.store.store import Store

MANY = 100
FEWEST_DAYS = 6.0
"""The leader makes tables for the next seven."""
WHY = "see the log of the leader for why it could not make the table: a lock that somebody keeps, or a right that is missing"


async def history(store: Store, settings: Settings) -> Iterable[Finding]:
    """Whether there are tables for what will finish next, and whether anything finished that had none."""
    parts = await store.read_history()
    if not parts:
        return (ok("history", "finished jobs are in one table, and pruned row by row"),)
    every, ahead = parts[0]["every"], parts[0]["days_ahead"]
    landed = sum(part["jobs"] for part in parts if part["kind"] == "other")
    found = []
    if ahead < FEWEST_DAYS:
        told = f"finished jobs have a table for each {every}, and for what comes only for {max(0.0, ahead):.1f} days"
        found.append(warning("history", told, WHY))
    if len(parts) > MANY:
        told = f"{len(parts)} tables of finished jobs are asked for each job that is looked for by its id"
        found.append(warning("history", told, "rxjobs history partition --by month, so that fewer come; or a shorter keep"))
    if landed:
        told = f"{landed} finished jobs had no table for their {every} and are in finished_jobs_other, to be pruned row by row"
        found.append(warning("history", told, WHY))
    return found or (ok("history", f"finished jobs have a table for each {every}, and for the next {int(ahead)} days"),)
