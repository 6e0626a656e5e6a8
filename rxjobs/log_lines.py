"""What rxjobs logs stays on its own line: names and errors that come from rows can neither forge one nor move a cursor."""

from __future__ import annotations

import logging
import re
import traceback
from functools import partial
from typing import Any

UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, line separators, marks that turn the direction of writing, and what no encoding can write."""


def escape(text: str) -> str:
    """The text with what is not seen written out: a newline becomes the two characters `\\n`."""
    return UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


class Indented:
    """A text of several lines as an argument of a log call: it follows the record's own line, as a traceback does.

    Indented, since an exception's text may have lines that look like records.
    """

    def __init__(self, text: str) -> None:
        self._text = text

    def __str__(self) -> str:
        return "\n".join(f"    {escape(line)}" for line in self._text.rstrip("\n").split("\n"))


def logger(name: str) -> logging.Logger:
    """A logger that escapes what it is given, whatever formats its records, and bears handlers that raise."""
    found = logging.getLogger(name)
    if _escape_record not in found.filters:  # others may have got it before
        found.addFilter(_escape_record)
        found.handle = partial(_handle, found)  # type: ignore[method-assign]
    return found


def _handle(logger: logging.Logger, record: logging.LogRecord) -> None:
    try:
        logging.Logger.handle(logger, record)
    except Exception:  # a filter or handler of the user's: what is logged about must not break with it
        _LOST.handleError(record)


_LOST = logging.NullHandler()
"""Tells of what could not be logged as logging does by itself: on stderr, unless logging.raiseExceptions is off."""


def _escape_record(record: logging.LogRecord) -> bool:
    if isinstance(record.args, tuple):
        record.args = tuple(map(_escaped, record.args))
    if record.exc_info and record.exc_info[0] is not None and not record.exc_text:
        record.exc_text = str(Indented("".join(traceback.format_exception(*record.exc_info))))
    return True


def _escaped(value: Any) -> Any:
    # a number is formatted as one; what else there is shows itself by repr, which escapes
    if not isinstance(value, str | BaseException):
        return value
    try:
        return escape(str(value))
    except Exception:
        return f"(a {type(value).__name__} that could not be printed)"
