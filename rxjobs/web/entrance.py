"""Who gets in: tokens, and the sessions that browsers have instead."""

from __future__ import annotations

import hmac
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import Callable

from starlette.requests import Request

from rxjobs.web.options import Role, WebOptions

COOKIE = "rxjobs_session"
SESSION_SECONDS = 12 * 3600.0
MOST_SESSIONS = 1000
TRIES, TRY_SECONDS = 10, 60.0
"""So many wrong tokens from one address in so many seconds, and none from there is looked at for the rest of them."""
MOST_ADDRESSES = 10_000


class Entrance:
    """Tokens are compared in constant time and tried only so often; sessions are kept in memory, and end with the process."""

    def __init__(self, options: WebOptions, clock: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._clock = clock
        self._sessions: OrderedDict[str, tuple[Role, float]] = OrderedDict()
        self._wrong: OrderedDict[str, deque[float]] = OrderedDict()

    def is_closed_to(self, address: str) -> bool:
        """Whether too many wrong tokens came from an address of late."""
        wrong = self._wrong.get(address)
        return wrong is not None and len(wrong) == TRIES and wrong[0] > self._clock() - TRY_SECONDS

    def role_of_token(self, token: str, address: str) -> Role | None:
        """What whoever has this token may do; None for a wrong one, and while too many of those came from there."""
        if self.is_closed_to(address):
            return None
        found: Role | None = None
        for known, role in ((self._options.view_token, Role.VIEW), (self._options.token, self._options.most)):
            if known is not None and hmac.compare_digest(known.encode(), token.encode()):
                found = role
        if found is None:
            self._note_wrong(address)
        return found

    def begin(self, role: Role) -> str:
        """Begin a session; gives the value of its cookie."""
        session = secrets.token_urlsafe(32)
        self._sessions[session] = (role, self._clock() + SESSION_SECONDS)
        while len(self._sessions) > MOST_SESSIONS:
            self._sessions.popitem(last=False)
        return session

    def role_of_session(self, session: str | None) -> Role | None:
        """What whoever has this session may do; None where there is none, or it is over."""
        role, until = self._sessions.get(session or "", (None, 0.0))
        if role is not None and until <= self._clock():
            self.end(session)
            return None
        return role

    def end(self, session: str | None) -> None:
        """End a session."""
        self._sessions.pop(session or "", None)

    def _note_wrong(self, address: str) -> None:
        self._wrong.setdefault(address, deque(maxlen=TRIES)).append(self._clock())
        while len(self._wrong) > MOST_ADDRESSES:
            self._wrong.popitem(last=False)


def address_of(request: Request) -> str:
    """Where a request comes from."""
    return request.client.host if request.client else "?"
