"""The log of `rxjobs run`, on stderr: a line a record, which nothing in a job's data can break or forge."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime

import msgspec

from rxjobs.cli.escaping import escape, escape_json
from rxjobs.failure import clean
from rxjobs.telemetry.logs import JobLogFilter, told_of_job

LIMIT = 64 * 1024


class Lines(logging.Formatter):
    """A record as a line for people; the lines of a traceback follow it, indented, and nothing else breaks a line."""

    def format(self, record: logging.LogRecord) -> str:
        head = f"{_at(record)} {record.levelname:<8} [{record.process}] {record.name}: {record.getMessage()}"
        return "\n    ".join(map(escape, [*head.split("\n    "), *_traceback(self, record).splitlines()]))


class Objects(logging.Formatter):
    """A record as a line of JSON, which names the job that it comes from."""

    def format(self, record: logging.LogRecord) -> str:
        said = {"message": record.getMessage(), "traceback": _traceback(self, record)}
        line = {"at": _at(record), "level": record.levelname.lower(), "pid": record.process, "logger": record.name}
        line |= told_of_job(record)
        line |= {name: clean(text, LIMIT) for name, text in said.items() if text}
        return escape_json(msgspec.json.encode(line).decode())


def log_to_stderr(level: str, *, as_json: bool) -> None:
    """Log from this level on, unless the user's module has set up logging of its own."""
    root = logging.getLogger()
    if root.handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Objects() if as_json else Lines())
    handler.addFilter(JobLogFilter())
    root.addHandler(handler)
    root.setLevel(level.upper())


def _at(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    return formatter.formatException(record.exc_info) if record.exc_info and record.exc_info[0] else ""
