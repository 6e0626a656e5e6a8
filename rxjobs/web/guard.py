"""What every request passes before a page sees it, and what every answer carries."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rxjobs.cli.escaping import on_one_line
from rxjobs.log_lines import logger
from rxjobs.web.entrance import COOKIE, Entrance, address_of
from rxjobs.web.options import Role, WebOptions

log = logger("rxjobs.web")

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; frame-ancestors 'none'; "
        "base-uri 'none'; form-action 'self'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}
OPEN_TO_ALL = re.compile(r"/login|/static/[a-z.]+")
BAD_PATH = re.compile(rb"%00|%2f|%5c|\\|//|/\.\.?(/|$)|%2e", re.IGNORECASE)
"""What no path of ours has: a way up, or another host."""
MOST_BYTES = 64 * 1024


class Guard:
    """Refuses forged hosts, strangers and requests that another site made; adds headers for browsers."""

    def __init__(self, app: ASGIApp, options: WebOptions, entrance: Entrance) -> None:
        self._app = app
        self._options = options
        self._entrance = entrance

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # we have no other, and it would pass unguarded
            await send({"type": "websocket.close", "code": 1008})
            return

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        request = Request(scope, receive)
        refusal = self._refusal(request)
        if refusal is not None and refusal.status_code >= 400:
            where = on_one_line(f"{request.method} {request.url.path}")[:200]
            log.warning("refused %d: %s from %s", refusal.status_code, where, address_of(request))
        await (self._app if refusal is None else refusal)(scope, receive, sent)

    def _refusal(self, request: Request) -> Response | None:
        headers, scope = request.headers, request.scope
        if not self._options.is_known_host(headers.get("host", "")):
            return _no(request, 400, "the Host of this request is not known; --origin names the address that browsers have for it")
        if BAD_PATH.search(scope.get("raw_path") or scope["path"].encode()):
            return _no(request, 404, "there is no such page")
        if request.method not in ("GET", "HEAD", "POST"):
            return _no(request, 405, "only GET, HEAD and POST are answered")
        role, has_token = self._role(request)
        scope["state"] = {**scope.get("state", {}), "role": role}
        if request.method == "POST" and (refusal := self._refusal_of_post(request, has_token=has_token)) is not None:
            return refusal
        if OPEN_TO_ALL.fullmatch(scope["path"]):
            return None
        if role is None:
            wants_page = (
                request.method in ("GET", "HEAD") and "authorization" not in headers and "html" in headers.get("accept", "")
            )
            return RedirectResponse("/login", 303) if wants_page else _no(request, 401, "say who you are: POST /login, or a token")
        if request.method == "POST" and role is not Role.OPERATE and scope["path"] != "/logout":
            return _no(request, 403, "whoever may only look changes nothing")
        return None

    def _refusal_of_post(self, request: Request, *, has_token: bool) -> Response | None:
        headers = request.headers
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return _no(request, 415, "changes are asked for in JSON")
        if not has_token and not self._is_from_here(headers):
            return _no(request, 403, "another site asks for this")
        if not headers.get("content-length", "").isdecimal():
            return _no(request, 411, "say how long it is")
        if int(headers["content-length"]) > MOST_BYTES:
            return _no(request, 413, f"at most {MOST_BYTES} bytes")
        return None

    def _role(self, request: Request) -> tuple[Role | None, bool]:
        """What whoever asks may do, and whether a token says so: no other site has it, and no browser sends it by itself."""
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and self._options.needs_token:
            role = self._entrance.role_of_token(token.strip(), address_of(request))
            return role, role is not None
        return self._options.everybody or self._entrance.role_of_session(request.cookies.get(COOKIE)), False

    def _is_from_here(self, headers: Headers) -> bool:
        """Whether one of our own pages asks: a browser says where a request comes from, and a page cannot change what it says."""
        site, origin = headers.get("sec-fetch-site"), headers.get("origin")
        if site is not None and site != "same-origin":
            return False
        if origin is not None:
            ours = self._options.origin
            return origin == ours or (urlsplit(origin).netloc == headers.get("host") and origin.startswith("http"))
        return site is not None


def _no(request: Request, status: int, reason: str) -> Response:
    if request.method == "POST":
        return JSONResponse({"error": reason}, status)
    return PlainTextResponse(f"{reason}\n", status)
