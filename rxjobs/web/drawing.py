"""Templates, in which every text is shown literally: as HTML it is escaped, and nothing in it turns or hides what is beside it."""

from __future__ import annotations

import json
from datetime import datetime
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse

from rxjobs.cli.escaping import escape
from rxjobs.cli.frame import rate
from rxjobs.cli.printing import instant
from rxjobs.store.encoding import to_json
from rxjobs.web.options import Role

MIB = 1024 * 1024


@cache
def templates() -> Environment:
    """The templates of this package."""
    made = Environment(
        loader=PackageLoader("rxjobs.web"), autoescape=True, undefined=StrictUndefined, finalize=_seen,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    made.globals["body"] = body
    made.filters |= {"rate": rate, "took": took, "mib": lambda size: f"{size / MIB:,.0f} MiB", "json": as_text}
    return made


def page(request: Request, name: str, status: int = 200, **values: Any) -> HTMLResponse:
    """One page. `may` is whether whoever sees it may change things."""
    role = getattr(request.state, "role", None)
    shared = {"may": role is Role.OPERATE, "role": role, "path": request.url.path}
    shared["has_login"] = request.app.state.options.needs_token
    return HTMLResponse(templates().get_template(f"{name}.html").render(**shared, **values), status)


def body(**values: Any) -> str:
    """What a button sends: JSON of plain ASCII."""
    return json.dumps(values)


def took(seconds: float) -> str:
    """So long, in a unit that suits."""
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s" if seconds < 100 else f"{seconds / 60:,.0f} min"


def as_text(value: Any) -> str:
    """A value of JSON, to be read by people."""
    return "" if value is None else to_json(value).decode()


def _seen(value: Any) -> Any:
    match value:
        case None:
            return ""
        case Markup():
            return value
        case str():
            return escape(value)
        case datetime():
            return instant(value)
        case _:
            return value
