"""Who listens: PostgreSQL does not tell, but what a session was asked last does."""

from __future__ import annotations

from rxjobs.store.asking import LINE_OF
from rxjobs.store.statements import statement


def _starts(begin: str) -> str:
    return "starts_with(query, '{}')".format(begin.replace("'", "''"))


_ASKED_THERE = [statement(name, "rxjobs").partition("\n")[0] for name, line in LINE_OF.items() if line == "listening"]
LISTENS = f"(query = 'SELECT 1' OR {' OR '.join(map(_starts, ['LISTEN ', *_ASKED_THERE]))})"
"""A condition on a row of pg_stat_activity. While the one that listens is busy another may be asked: then both are meant."""
