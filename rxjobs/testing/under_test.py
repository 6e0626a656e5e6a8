"""Which app a test is about, where it does not say so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rxjobs.app import App
from rxjobs.definition import Definition
from rxjobs.errors import InvalidOption, NotOpen

_under_test: list[App] = []


@contextmanager
def under_test(app: App) -> Iterator[None]:
    """Within this, what a test asserts is about this app unless it names another."""
    _under_test.append(app)
    try:
        yield
    finally:
        _under_test.remove(app)


def app_for(app: App | None, type: Definition[Any, Any] | str | None = None) -> App:
    """The app that is meant: the one given, or that of a job type, or the one under test; raises InvalidOption."""
    if app is not None:
        return app
    if isinstance(type, Definition) and isinstance(type.registry, App):
        return type.registry
    if _under_test:
        return _under_test[-1]
    raise InvalidOption("it is not said which app is meant: give app=, or the job type itself, or use the fixture rxjobs_app")


def is_open(app: App) -> bool:
    """Whether an app's client side is open."""
    try:
        return bool(app.dsn)
    except NotOpen:
        return False
