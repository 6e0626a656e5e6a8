"""`python manage.py rxjobs run|migrate|…`: the commands of rxjobs, on the project's app and database."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

from django.core.management.base import BaseCommand

from rxjobs.cli import obey
from rxjobs.contrib.django.project import the_app

APP = "rxjobs.contrib.django.worker:app"
KNOW_AN_APP = {("enqueue",), ("doctor",), ("cron", "add"), ("queues", "list"), ("breakers", "list")}
"""The commands that take --app."""


class Command(BaseCommand):  # type: ignore[misc]  # Django has no types
    help = "Run and look after background jobs: the commands of rxjobs, on this project. See: manage.py rxjobs -- --help"
    requires_system_checks: Sequence[str] = ()

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="run | migrate | enqueue | jobs | queues | …")

    def handle(self, *_: Any, arguments: Sequence[str], **options: Any) -> None:
        """Do as `rxjobs` does, and end as it ends."""
        how = the_app().settings
        os.environ.setdefault("RXJOBS_SCHEMA", how.schema)
        os.environ["RXJOBS_DSN"] = how.dsn or ""
        if code := obey(on_this_project([one for one in arguments if one != "--"])):
            sys.exit(code)


def on_this_project(arguments: Sequence[str]) -> list[str]:
    """A command line with the project's app where one is to be named, unless another is."""
    match arguments:
        case ["run", *rest] if not rest or rest[0].startswith("-"):
            return ["run", APP, *rest]
        case [first, *rest] if ((first,) in KNOW_AN_APP or (first, *rest[:1]) in KNOW_AN_APP) and not _names_an_app(rest):
            return [*arguments, f"--app={APP}"]
        case _:
            return list(arguments)


def _names_an_app(arguments: Sequence[str]) -> bool:
    return any(one == "--app" or one.startswith("--app=") for one in arguments)
