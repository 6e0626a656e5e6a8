"""The pages: each asks the database for no more than it shows."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response

from rxjobs.app import App
from rxjobs.cli.frame import STATES, queues_in_order
from rxjobs.job import Job, State
from rxjobs.store.encoding import to_json
from rxjobs.web.asking import Looker, asked
from rxjobs.web.drawing import page
from rxjobs.web.options import TRACE, WebOptions

MOST, USUAL, LARGEST = 200, 50, 2**63 - 1
LONGEST = 200
TRACE_ID = re.compile(r"[0-9a-f]{32}")
FILTERS = ("queue", "type", "tag")


class Pages:
    """What is answered to GET."""

    def __init__(self, app: App, options: WebOptions) -> None:
        self._app = app
        self._options = options
        self._looker = Looker(app)

    async def overview(self, request: Request) -> Response:
        """Pipelines, queues, nodes and the slowest types."""
        seen = await asked(self._looker.look())
        return page(
            request, "overview", seen=seen, states=[one.value for one in STATES], queues=queues_in_order(seen, "name")[:MOST]
        )

    async def overview_json(self, request: Request) -> Response:
        """The same for programs."""
        seen = await asked(self._looker.look())
        return Response(to_json(seen), media_type="application/json")

    async def jobs(self, request: Request) -> Response:
        """Jobs, the newest first, by filters."""
        given = _given(request, ("state", *FILTERS))
        limit, after = _number(request, "limit", USUAL, MOST), _number(request, "after", None, LARGEST)
        found = await asked(self._app.jobs.list(**_filters(given), limit=limit or USUAL, after=after))
        older = f"?{urlencode({**given, 'limit': limit, 'after': found[-1].id})}" if len(found) == limit else None
        return page(request, "jobs", jobs=found, given=given, states=[one.value for one in State], older=older, headline=headline)

    async def dead(self, request: Request) -> Response:
        """Dead letters, and how to bring them back."""
        given = _given(request, FILTERS)
        limit, after = _number(request, "limit", USUAL, MOST), _number(request, "after", None, LARGEST)
        filters = {**_filters(given), "state": State.DISCARDED.value}
        found = await asked(self._app.jobs.list(**filters, limit=limit or USUAL, after=after))
        older = f"?{urlencode({**given, 'limit': limit, 'after': found[-1].id})}" if len(found) == limit else None
        return page(request, "dead", jobs=found, given=given, older=older, headline=headline)

    async def job(self, request: Request) -> Response:
        """One job: its attempts, and every error."""
        id_ = request.path_params["id"]
        job = await asked(self._app.jobs.get(id_)) if 0 < id_ <= LARGEST else None
        if job is None:
            raise HTTPException(404, f"there is no job {id_}: it was deleted, or pruned")
        return page(
            request, "job", job=job, shows_args=self._options.shows_args, trace=self._trace, headline=headline, lines=_lines
        )

    async def cron(self, request: Request) -> Response:
        """Entries of cron."""
        return page(request, "cron", entries=(await asked(self._app.cron.list()))[:MOST])

    async def breakers(self, request: Request) -> Response:
        """Breakers of job types that have failed."""
        return page(request, "breakers", breakers=(await asked(self._app.breakers.list()))[:MOST])

    async def login(self, request: Request) -> Response:
        """Where a token is asked for."""
        if not self._options.needs_token or request.state.role is not None:
            return RedirectResponse("/", 303)
        return page(request, "login")

    async def not_found(self, request: Request, error: Exception) -> Response:
        """What went wrong, as a page or as JSON."""
        assert isinstance(error, HTTPException)  # noqa: S101 - registered for it alone
        if request.method == "POST" or request.url.path.endswith(".json"):
            return JSONResponse({"error": error.detail}, error.status_code)
        if request.url.path.startswith("/static/") or getattr(request.state, "role", None) is None:
            return PlainTextResponse(f"{error.detail}\n", error.status_code)
        return page(request, "wrong", error.status_code, code=error.status_code, reason=error.detail)

    @property
    def _trace(self) -> Callable[[Any], str | None]:
        """The address of a trace by its id, where that is known and one is given."""
        template = self._options.trace_url

        def address(trace_id: Any) -> str | None:
            is_one = isinstance(trace_id, str) and TRACE_ID.fullmatch(trace_id)
            return template.replace(TRACE, trace_id) if template and is_one else None

        return address


def headline(job: Job) -> str:
    """A job's last error, on one line."""
    error = job.errors[-1] if job.errors else None
    text = "" if not isinstance(error, Mapping) else f"{error.get('type')}: {error.get('message')}"
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _lines(text: Any) -> list[str]:
    return str(text or "").splitlines()[:1000]


def _given(request: Request, names: tuple[str, ...]) -> dict[str, str]:
    given = {name: value for name in names if (value := request.query_params.get(name, ""))}
    unknown = set(request.query_params) - {*names, "limit", "after"}
    if unknown:
        raise HTTPException(400, f"this page takes {', '.join(names)}, limit and after, not {', '.join(sorted(unknown))[:LONGEST]}")
    return given


def _filters(given: Mapping[str, str]) -> dict[str, Any]:
    return {"tags" if name == "tag" else name: value for name, value in given.items()}


def _number(request: Request, name: str, usual: int | None, most: int) -> int | None:
    text = request.query_params.get(name)
    if text in (None, ""):
        return usual
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and 1 <= int(text) <= most):
        raise HTTPException(400, f"{name} is a whole number from 1 to {most}, not {text[:LONGEST]!r}")
    return int(text)
