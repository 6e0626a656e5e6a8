"""The dashboard as an ASGI application."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from rxjobs.app import App
from rxjobs.web.actions import Actions
from rxjobs.web.entrance import Entrance
from rxjobs.web.guard import Guard
from rxjobs.web.options import WebOptions
from rxjobs.web.pages import Pages

STATIC = {"rxjobs.js": "text/javascript", "rxjobs.css": "text/css", "icon.svg": "image/svg+xml"}
"""The files that a browser may fetch: these, and no others."""


def site(app: App, options: WebOptions) -> ASGIApp:
    """The pages of an app that is open while they are asked for."""
    entrance = Entrance(options)
    pages, actions = Pages(app, options), Actions(app, options, entrance)
    made = Starlette(
        routes=[
            Route("/", pages.overview),
            Route("/overview.json", pages.overview_json),
            Route("/jobs", pages.jobs),
            Route("/jobs/{id:int}", pages.job),
            Route("/dead", pages.dead),
            Route("/cron", pages.cron),
            Route("/breakers", pages.breakers),
            Route("/login", pages.login),
            Route("/static/{name}", _static),
            Route("/login", actions.login, methods=["POST"]),
            Route("/logout", actions.logout, methods=["POST"]),
            Route("/do/jobs", actions.jobs, methods=["POST"]),
            Route("/do/dead", actions.dead, methods=["POST"]),
            Route("/do/queues", actions.queues, methods=["POST"]),
            Route("/do/cron", actions.cron, methods=["POST"]),
            Route("/do/breakers", actions.breakers, methods=["POST"]),
        ],
        exception_handlers={HTTPException: pages.not_found},
    )
    # a redirect to the same with or without a slash would be made of the Host that a request came with
    made.router.redirect_slashes = False
    made.state.options = options
    # around all of it: what breaks inside is answered with its headers too
    return Guard(made, options, entrance)


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in STATIC:
        raise HTTPException(404, "there is no such file")
    return Response(_file(name), media_type=STATIC[name])


@cache
def _file(name: str) -> bytes:
    return files("rxjobs.web").joinpath("static", name).read_bytes()
