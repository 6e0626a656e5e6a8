"""What changes something: POST with JSON, each told in the log with who asked for it."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from rxjobs.app import App
from rxjobs.cli.escaping import on_one_line
from rxjobs.log_lines import logger
from rxjobs.web.asking import CHANGE_SECONDS, asked
from rxjobs.web.entrance import COOKIE, SESSION_SECONDS, Entrance, address_of
from rxjobs.web.options import WebOptions

log = logger("rxjobs.web")

T = TypeVar("T")
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Ids = Annotated[list[Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]], msgspec.Meta(min_length=1, max_length=200)]


class Wish(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a page asks for; anything that is not named is refused."""


class OfJobs(Wish, frozen=True):
    """Something to be done to jobs."""

    do: Literal["cancel", "retry", "delete"]
    ids: Ids


class OfDeadLetters(Wish, frozen=True):
    """Dead letters to be brought back: of one type of error, one job type or one queue; `rate` is so many a second."""

    type: Name | None = None
    queue: Name | None = None
    error: Name | None = None
    rate: Annotated[float, msgspec.Meta(gt=0, le=1_000_000)] | None = None


class OfQueue(Wish, frozen=True):
    """Something to be done to a queue."""

    do: Literal["pause", "resume"]
    queue: Name


class OfCron(Wish, frozen=True):
    """Something to be done to an entry of cron."""

    do: Literal["pause", "resume", "run", "remove"]
    name: Name


class OfBreaker(Wish, frozen=True):
    """Something to be done to a breaker."""

    do: Literal["open", "close"]
    type: Name


class Token(Wish, frozen=True):
    """Who somebody is."""

    token: Annotated[str, msgspec.Meta(max_length=1000)]


class Actions:
    """What is answered to POST."""

    def __init__(self, app: App, options: WebOptions, entrance: Entrance) -> None:
        self._app = app
        self._options = options
        self._entrance = entrance

    async def jobs(self, request: Request) -> Response:
        """Cancel, retry or delete jobs."""
        wish = await _read(request, OfJobs)
        jobs = self._app.jobs
        change: Any = {"cancel": jobs.cancel, "retry": jobs.retry, "delete": jobs.delete}[wish.do]
        return await _done(request, wish, change(wish.ids))

    async def dead(self, request: Request) -> Response:
        """Bring dead letters back."""
        wish = await _read(request, OfDeadLetters)
        given = {name: value for name, value in msgspec.structs.asdict(wish).items() if value is not None}
        return await _done(request, wish, self._app.jobs.redrive(**given))

    async def queues(self, request: Request) -> Response:
        """Pause or resume a queue."""
        wish = await _read(request, OfQueue)
        change = self._app.queues.pause if wish.do == "pause" else self._app.queues.resume
        return await _done(request, wish, change(wish.queue))

    async def cron(self, request: Request) -> Response:
        """Pause, resume, run or remove an entry."""
        wish = await _read(request, OfCron)
        cron = self._app.cron
        change: Any = {"pause": cron.pause, "resume": cron.resume, "run": cron.run, "remove": cron.remove}[wish.do]
        return await _done(request, wish, change(wish.name))

    async def breakers(self, request: Request) -> Response:
        """Open or close a breaker."""
        wish = await _read(request, OfBreaker)
        change = self._app.breakers.open if wish.do == "open" else self._app.breakers.close
        return await _done(request, wish, change(wish.type))

    async def login(self, request: Request) -> Response:
        """Begin a session with a token."""
        wish = await _read(request, Token)
        where = address_of(request)
        role = self._entrance.role_of_token(wish.token, where)
        if role is None:
            log.warning("a wrong token from %s", where)
            if self._entrance.is_closed_to(where):
                raise HTTPException(429, "too many wrong tokens: wait a minute")
            raise HTTPException(401, "the token is wrong")
        response = JSONResponse({"done": "login", "role": role})
        is_secure = (self._options.origin or "").startswith("https:") or request.url.scheme == "https"
        response.set_cookie(
            COOKIE, self._entrance.begin(role), max_age=int(SESSION_SECONDS), httponly=True, samesite="strict", secure=is_secure
        )
        return response

    async def logout(self, request: Request) -> Response:
        """End a session."""
        self._entrance.end(request.cookies.get(COOKIE))
        response = JSONResponse({"done": "logout"})
        response.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return response


async def _read(request: Request, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(await request.body(), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise HTTPException(400, f"that cannot be asked for: {error}") from error


async def _done(request: Request, wish: Wish, change: Awaitable[Any]) -> Response:
    answer = await asked(change, CHANGE_SECONDS)
    asked_for, became = on_one_line(repr(wish)), on_one_line(repr(answer))
    log.info("%s asked at %s: %s → %s", address_of(request), request.url.path, asked_for, became[:200])
    changed = answer if isinstance(answer, bool | int) else True
    return JSONResponse({"done": getattr(wish, "do", "redrive"), "changed": changed})
