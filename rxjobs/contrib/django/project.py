"""The app of a Django project: on the project's own database, with threads that Django's ORM may be used in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache, wraps
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, close_old_connections, connections

from rxjobs.app import THREADS, App
from rxjobs.calls import Call
from rxjobs.definition import NewJob
from rxjobs.enqueued import Enqueued
from rxjobs.errors import InvalidOption
from rxjobs.executors.in_threads import InThreads
from rxjobs.job import Job
from rxjobs.middleware.stack import Middleware
from rxjobs.outcome import Outcome
from rxjobs.perform import Next

OWN = {"database": DEFAULT_DB_ALIAS, "threads": THREADS, "migrate_with_django": True}
"""What the setting RXJOBS says beside the settings of an App, and what holds where it does not."""
PASSED_ON = {"sslmode", "sslcert", "sslkey", "sslrootcert", "sslcrl", "sslpassword", "passfile", "target_session_attrs"}
"""The OPTIONS of a database that rxjobs' own connections need too."""


def option(name: str) -> Any:
    """What the setting RXJOBS says of one of OWN."""
    return getattr(settings, "RXJOBS", {}).get(name, OWN[name])


def dsn(using: str | None = None) -> str:
    """The DSN of one of DATABASES as it is now: in tests of Django that is another than the settings say. Raises InvalidOption."""
    alias = using or option("database")
    connection = connections[alias]
    if connection.vendor != "postgresql":
        raise InvalidOption(
            f"DATABASES[{alias!r}] is no PostgreSQL but {connection.vendor}: name one that is, RXJOBS = {{'database': ...}}"
        )
    return dsn_of(connection.settings_dict)


def dsn_of(how: Mapping[str, Any]) -> str:
    """The DSN of a database as the settings of Django describe it."""
    options = how.get("OPTIONS") or {}
    if "service" in options:
        raise InvalidOption("this database is named by a service, in OPTIONS: give its DSN as well, RXJOBS = {'dsn': ...}")
    query = {name: value for name, value in options.items() if name in PASSED_ON}
    host, port = str(how.get("HOST") or ""), str(how.get("PORT") or "")
    if host.startswith("/"):  # the folder of a socket
        query |= {"host": host, **({"port": port} if port else {})}
        host = port = ""
    user, password = (quote(str(how.get(name) or ""), safe="") for name in ("USER", "PASSWORD"))
    account = user + (f":{password}" if password else "") + "@" if user else ""
    place = account + (f"[{host}]" if ":" in host else host) + (f":{port}" if port else "")
    return f"postgresql://{place}/{quote(str(how.get('NAME') or 'postgres'), safe='')}" + (f"?{urlencode(query)}" if query else "")


@cache
def the_app() -> App:
    """The one app of the project, as the setting RXJOBS describes it."""
    given = {name: value for name, value in getattr(settings, "RXJOBS", {}).items() if name not in OWN}
    app = App(**{"dsn": dsn(), **given}, threads=DjangoThreads(option("threads"), option("threads")))
    app.use(Tidying())
    return app


def enqueue(new: NewJob, *, using: str | None = None) -> Enqueued:
    """Insert a job over Django's own connection: part of `transaction.atomic()`, or, outside of that, committed at once."""
    return the_app().sync.enqueue(new, connections[using or option("database")])


def enqueue_many(news: Iterable[NewJob], *, using: str | None = None) -> list[Enqueued]:
    """Insert jobs as `enqueue` does one."""
    return the_app().sync.enqueue_many(news, connections[using or option("database")])


def migrate_too(using: str, verbosity: int = 1, **_: Any) -> None:
    """After `manage.py migrate`, or when Django has made a database for tests: the same for rxjobs' schema."""
    if using != option("database") or not option("migrate_with_django"):
        return
    app = the_app()
    if "dsn" not in getattr(settings, "RXJOBS", {}):
        app.sync.close()
        app.settings = replace(app.settings, dsn=dsn())
    done = app.sync.migrate()
    if verbosity and done:
        print(f"rxjobs: schema {app.settings.schema} migrated: {', '.join(done)}")  # noqa: T201 - as Django's own migrations do


class DjangoThreads(InThreads):
    """Threads in which jobs use the ORM: as after a request, a connection is closed that is broken or older than CONN_MAX_AGE."""

    async def run(self, call: Call) -> Any:
        return await super().run(msgspec.structs.replace(call, function=_tidied(call.function)))


class Tidying(Middleware):
    """The same for the thread in which coroutines use the ORM."""

    async def run(self, job: Job, call_next: Next) -> Outcome:
        if not job.definition.is_async:
            return await call_next(job)
        await _close_old_connections()
        try:
            return await call_next(job)
        finally:
            await _close_old_connections()


_close_old_connections = sync_to_async(close_old_connections)


def _tidied(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        close_old_connections()
        try:
            return function(*args, **kwargs)
        finally:
            close_old_connections()

    return run
