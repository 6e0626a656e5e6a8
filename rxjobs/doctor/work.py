"""Whether the work is done: who lives and leads, what is paused, what nobody takes, and what stands still."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rxjobs.doctor.finding import Finding, ok, problem, warning
from rxjobs.settings import Settings
from rxjobs.store.store import Store

POLLS = 10
"""For how many polls a job has been ready before it is asked why."""


def patience(settings: Settings) -> float:
    """For how many seconds a job may be ready without a question."""
    return POLLS * settings.poll_seconds


async def nodes(store: Store, settings: Settings) -> Iterable[Finding]:
    """Which nodes live, and which of them leads."""
    living, leader = await store.list_nodes(), await store.who_leads()
    if not living:
        return (warning("nodes", "no node lives: nothing runs jobs", "start one: rxjobs run MODULE:APP"),)
    names = {row["id"]: row["label"] or row["id"] for row in living}
    found = ok("nodes", f"{len(living)} live: {', '.join(names.values())}")
    return found, _leader(leader, names, settings)


def _leader(row: Any, names: dict[str, str], settings: Settings) -> Finding:
    if row["node"] is not None:
        return ok("leader", f"{names.get(row['node'], row['node'])} leads, in term {row['term']}")
    found = f"no node has led for {row['unled']:.0f} s: nobody makes due jobs ready, rescues those of dead nodes, or prunes"
    if row["unled"] < settings.leader_seconds:
        return warning("leader", found, "ask again in a moment: a new leader is found when one was lost")
    return problem("leader", found, "see the logs of the nodes for why none leads, and restart one")


async def paused(store: Store, settings: Settings) -> Iterable[Finding]:
    """Which queues are paused."""
    asked = [row for row in await store.list_controls() if row["paused_at"] is not None]
    return [_paused(row) for row in asked] or (ok("queues", "none is paused"),)


def _paused(row: Any) -> Finding:
    where, how = (f"on node {row['node']}", f" --node {row['node']}") if row["node"] else ("on all nodes", "")
    since = f"{row['paused_at']:%Y-%m-%d %H:%M:%S%z}"
    return warning("queues", f"queue {row['queue']} is paused {where} since {since}", f"rxjobs queues resume {row['queue']}{how}")


async def unserved(store: Store, settings: Settings) -> Iterable[Finding]:
    """Which ready jobs no living node takes."""
    rows = await store.unserved(patience(settings))
    return [_unserved(row) for row in rows] or (ok("unserved", "no ready job is one that no living node takes"),)


def _unserved(row: Any) -> Finding:
    what = f"{row['jobs']} of type {row['type']} in queue {row['queue']}"
    if row["is_queue_served"]:
        return problem(
            "unserved",
            f"ready and taken by nobody: {what}; nodes take from the queue, and none knows the type",
            "start a node whose app has this job type, or delete the jobs: rxjobs jobs delete --state available --type "
            f"{row['type']} --queue {row['queue']}",
        )
    return problem(
        "unserved",
        f"ready and taken by nobody: {what}; no living node takes from the queue",
        f"start a node that takes from it: rxjobs run MODULE:APP --queue {row['queue']}=10",
    )


async def progress(store: Store, settings: Settings) -> Iterable[Finding]:
    """Which ready jobs wait for long although a living node takes them: there are too many, or it stands still."""
    seconds = patience(settings)
    rows = await store.overdue(seconds)
    return [overdue(row, seconds) for row in rows] or (
        ok("progress", f"no job that a node takes waits for longer than {seconds:g} s"),
    )


def overdue(row: Any, seconds: float) -> Finding:
    """Why jobs wait, as far as it is seen from outside: their nodes are busy, or idle."""
    found = f"{row['jobs']} of type {row['type']} in queue {row['queue']} wait, the oldest for {row['waited']:.0f} s"
    if row["is_moving"]:
        return warning(
            "progress", f"{found}; the queue moves", "start more nodes, or raise its concurrency, if it does not catch up"
        )
    if row["executing"]:
        return warning(
            "progress",
            f"{found}; none was begun for {seconds:g} s, while {row['executing']} of the queue run",
            "raise the concurrency of the queue if these fill it, or give them a timeout",
        )
    return problem(
        "progress",
        f"{found}; a living node takes them, none runs and none was begun for {seconds:g} s",
        "see the logs of its nodes for a pipeline that broke, and whether their pipelines' where= takes "
        "these jobs; then restart them",
    )
