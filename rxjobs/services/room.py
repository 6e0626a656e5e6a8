"""Say when notifications have no room: then jobs are found by the poll alone, and nobody sees why they start late."""

from __future__ import annotations

from reactivex import Observable

from rxjobs.awaiting import every
from rxjobs.events import Emit, NotificationsFull, NotificationsResumed
from rxjobs.log_lines import logger
from rxjobs.services.lead import Leadership
from rxjobs.store.patience import patiently
from rxjobs.store.store import Store

log = logger("rxjobs.notifications")

STANDBY_SECONDS = 1.0
CALM = 3
"""So much less often it is looked at while none of it is taken."""
FULL = 0.5
"""The part of the room from which on rxjobs notifies nobody, since where all of it is taken, whoever notifies is refused."""
ADVICE = (
    "A session that listens and stays in a transaction keeps them all: find it by "
    "SELECT pid, usename, application_name, xact_start FROM pg_stat_activity WHERE state = 'idle in transaction', and end it"
)


def room(store: Store, leadership: Leadership, *, emit: Emit, every_seconds: float) -> Observable[float]:
    """Which part of the server's room for notifications is taken (0 to 1), again and again; while this node does not lead, 0.

    That notifying has ceased is told of once, and that it has begun again.
    """
    is_full, wait = False, STANDBY_SECONDS

    async def once() -> float:
        nonlocal is_full, wait
        if leadership.term is None:  # somebody else looks
            is_full, wait = False, min(STANDBY_SECONDS, every_seconds)
            return 0.0
        usage = float((await patiently("looking at the room for notifications", store.describe_server))["notifications"])
        wait = every_seconds if usage else CALM * every_seconds
        if (usage >= FULL) is not is_full:
            is_full = not is_full
            (_tell_full if is_full else _tell_resumed)(usage, emit)
        return usage

    return every(lambda: wait, once)


def _tell_full(usage: float, emit: Emit) -> None:
    log.warning(
        "%.0f %% of the room for notifications is taken: nobody is notified of jobs, the poll finds them. %s", usage * 100, ADVICE
    )
    emit(NotificationsFull(usage=usage))


def _tell_resumed(usage: float, emit: Emit) -> None:
    log.info("%.0f %% of the room for notifications is taken: jobs are notified of again", usage * 100)
    emit(NotificationsResumed(usage=usage))
