"""Whether the server is one to keep jobs on: its version, what it writes, its clock, and whether it can be heard."""

from __future__ import annotations

import time
from collections.abc import Iterable

from rxjobs.doctor.finding import Finding, ok, problem, warning
from rxjobs.services.room import FULL
from rxjobs.settings import Settings
from rxjobs.store.advice import masked
from rxjobs.store.hearing import HEARD_SECONDS, can_listen, hears
from rxjobs.store.store import Store
from rxjobs.store.trust import ADVICE, trust_in

OLDEST, NEWEST = 14, 18
"""The major versions of PostgreSQL that it is tested with."""
SKEW_SECONDS = 1.0
FILLING = 0.1
"""The part of the room for notifications that is taken where all is well at most."""


async def examine(store: Store, settings: Settings) -> Iterable[Finding]:
    """The server itself, from one statement."""
    await store.describe_server()  # makes the connection, which is no part of the round trip
    before = time.time()
    row = await store.describe_server()
    after = time.time()
    where = f"PostgreSQL {row['version']} at {masked(store.database.dsn)}, which answers in {(after - before) * 1000:.1f} ms"
    return (
        version(row["major"], where),
        durability(row["fsync"], row["synchronous_commit"], is_read_only=row["is_read_only"]),
        clock(before, row["now"].timestamp(), after),
        trust(store.database.dsn),
        await _pooler(store, settings),
        room(row["notifications"]),
    )


def version(major: int, where: str) -> Finding:
    """Whether it is a version that is known to do."""
    if major < OLDEST:
        return problem("server", where, f"upgrade it: PostgreSQL {OLDEST} is the oldest that does")
    if major > NEWEST:
        return warning(
            "server", where, f"see that there is no newer rxjobs: this one is tested with PostgreSQL {OLDEST} to {NEWEST}"
        )
    return ok("server", where)


def durability(fsync: bool, synchronous_commit: str, *, is_read_only: bool) -> Finding:
    """Whether what the server says is written is there after a crash."""
    found = f"fsync {'on' if fsync else 'off'}, synchronous_commit {synchronous_commit}"
    if is_read_only:
        return problem("durability", "it takes no writes: a standby, or default_transaction_read_only is on", "name the primary")
    if not fsync:
        return problem("durability", found, "turn fsync on: a crash of its machine may cost jobs, or the whole database")
    if synchronous_commit == "off":
        return problem("durability", found, "turn synchronous_commit on: a crash costs jobs whose enqueue has returned")
    return ok("durability", found)


def clock(before: float, server: float, after: float) -> Finding:
    """Whether the server's clock and this machine's agree, as far as the way there and back lets one know."""
    skew, doubt = server - (before + after) / 2, (after - before) / 2
    found = (
        f"the server's clock is {abs(skew):.3f} s {'ahead of' if skew > 0 else 'behind'} this machine's, give or take {doubt:.3f} s"
    )
    if abs(skew) - doubt > SKEW_SECONDS:
        return warning(
            "clock", found, "set both by NTP; only times that are shown suffer, for all decisions are by the server's clock"
        )
    return ok("clock", found)


def trust(dsn: str) -> Finding:
    """Whether it is the server that is meant, and nobody stands between."""
    found = trust_in(dsn)
    if not found.is_sure:
        return warning("tls", found.doubt, ADVICE)
    return ok("tls", "sslmode=verify-full: the server is made sure of" if found.hosts else "the server is on this machine")


def room(usage: float) -> Finding:
    """Whether notifications gather that a session does not take."""
    found = f"{usage:.0%} of the room for notifications is taken"
    advice = "end the session that listens and stays in a transaction: see pg_stat_activity, state 'idle in transaction'"
    if usage >= FULL:
        return problem("notification queue", found, f"{advice}. Until then nobody is notified of jobs: the poll finds them")
    return warning("notification queue", found, advice) if usage > FILLING else ok("notification queue", found)


async def _pooler(store: Store, settings: Settings) -> Finding:
    if not store.database.is_behind_pooler:
        return ok("pooler", "no pooler stands between")
    if settings.listen_dsn:
        return ok("pooler", "behind a pooler, and listen_dsn is there for notifications")
    if await can_listen(store.database):
        return ok("pooler", "behind a pooler in session mode: no statement is kept prepared, and notifications are heard")
    return warning(
        "pooler",
        f"behind a pooler in transaction mode: no notification is heard, and a job starts within about {settings.poll_seconds:g} s",
        "for jobs that start at once, set listen_dsn to the server itself, or to a pooler in session mode",
    )


async def listens(store: Store, settings: Settings) -> Iterable[Finding]:
    """Whether a notification comes through, on a channel of our own."""
    if not settings.notify or not (settings.listen_dsn or await can_listen(store.database)):
        why = "behind a pooler in transaction mode" if settings.notify else "notify is off"
        return (ok("notifications", f"not tried, {why}: jobs are found by the poll, every {settings.poll_seconds:g} s"),)
    seconds = await hears(store.database.apart(settings.listen_dsn), store.database)
    way = "" if settings.listen_dsn is None else f" on listen_dsn ({masked(settings.listen_dsn)})"
    if seconds is None:
        return (
            problem(
                "notifications",
                f"a notification was not heard{way} within {HEARD_SECONDS:g} s: jobs are found by the poll only",
                "look for what stands between, a proxy or a pooler, and name the server itself",
            ),
        )
    return (ok("notifications", f"LISTEN and NOTIFY work{way}: heard after {seconds * 1000:.1f} ms"),)
