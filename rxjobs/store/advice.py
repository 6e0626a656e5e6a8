"""Why no connection came about, in words for whoever gave the DSN: what was given, what was wrong, what to do."""

from __future__ import annotations

import re
import socket

import asyncpg

from rxjobs.errors import InvalidDSN, NoDatabase
from rxjobs.store.trust import advice_for

GIVEN_AS = "RXJOBS_DSN, --dsn or App(dsn)"
FORM = "postgresql://user:password@host:5432/database"
SCHEME = re.compile(r"postgres(ql)?://")
SQLALCHEMY = re.compile(r"postgres(ql)?\+\w+://")
WITHOUT_SCHEME = re.compile(r"[\w.-]+(:\d+)?/\w+")

_PASSWORD_OF_USER = re.compile(r"(://[^:@/?#]*:).*@", re.DOTALL)
_PASSWORD_OPTION = re.compile(r"(password\s*=\s*)('(?:[^'\\]|\\.)*'?|[^&\s]*)", re.IGNORECASE)


def masked(dsn: str) -> str:
    """The DSN without its passwords, also where it is no well-formed one: rather too little is shown than too much."""
    return _PASSWORD_OPTION.sub(r"\1***", _PASSWORD_OF_USER.sub(r"\1***@", dsn))


def no_database(dsn: str, error: BaseException) -> NoDatabase:
    """The error to raise where a server does not answer, or not to us."""
    reason = str(error) or type(error).__name__
    return NoDatabase(
        f"no connection to {masked(dsn)}: {reason}. {advice_for(error) or _advice(error)} The DSN is given by {GIVEN_AS}"
    )


def no_dsn(dsn: str, reason: str = "") -> InvalidDSN:
    """The error to raise for what is no DSN; a `reason` of the parser's that quotes none of it is passed on."""
    return InvalidDSN(f"{masked(dsn)} is no DSN of PostgreSQL: {_mending(dsn, reason)}. Is {GIVEN_AS} right?")


def _advice(error: BaseException) -> str:
    match error:
        case asyncpg.InvalidCatalogNameError():
            return "Create that database (createdb), or name one that is there."
        case asyncpg.InvalidPasswordError():
            return "Are its user and password right, with %40 and the like for special characters?"
        case asyncpg.InvalidAuthorizationSpecificationError():
            return "Is its user right, and does the server's pg_hba.conf let that user in from here?"
        case asyncpg.InsufficientPrivilegeError():
            return "GRANT its user CONNECT on the database, or take another user."
        case asyncpg.TooManyConnectionsError():
            return "Raise max_connections, run fewer processes, or put PgBouncer between."
        case socket.gaierror():
            return "No such host is known here: is its host right?"
        case ConnectionRefusedError() | FileNotFoundError():
            return "Is the server up, and are its host and port right?"
        case TimeoutError():
            return "Nothing answered in time: are its host and port right, and does a firewall let this machine through."
    return "Is the server up?"


def _mending(dsn: str, reason: str) -> str:
    if SQLALCHEMY.match(dsn):
        return f"leave out what SQLAlchemy wants to know of its driver, and begin with {FORM.partition('//')[0]}//"
    if WITHOUT_SCHEME.fullmatch(dsn):
        return f"it lacks the beginning, postgresql://{dsn}"
    if re.search(r"\b(host|dbname)\s*=", dsn):
        return f"it is given as a URL, {FORM}"
    if reason and SCHEME.match(dsn):
        return reason
    return f"it is {FORM}, with %40 and the like for special characters in a password"
