"""Which job types stand still since what they depend on is down, or since somebody wanted so."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rxjobs.doctor.finding import Finding, ok, warning
from rxjobs.settings import Settings
from rxjobs.store.store import Store


async def breakers(store: Store, settings: Settings) -> Iterable[Finding]:
    """Which breakers are not closed."""
    shut = [row for row in await store.list_breakers() if row["state"] != "closed"]
    return [_shut(row) for row in shut] or (ok("breakers", "none is open"),)


def _shut(row: Any) -> Finding:
    name, since = row["type"], f"{row['moved_at']:%Y-%m-%d %H:%M:%S%z}"
    if row["is_by_hand"]:
        return warning("breakers", f"the breaker of {name} was opened by hand at {since}", f"rxjobs breakers close {name}")
    advice = f"see why: rxjobs jobs list --state retryable --type {name}; once it works, rxjobs breakers close {name}"
    if row["state"] == "open":
        return warning("breakers", f"the breaker of {name} is open since {since}, for {row['wait']:.0f} s more", advice)
    return warning("breakers", f"the breaker of {name} is half open since {since}, with {row['probing']} probes out", advice)
