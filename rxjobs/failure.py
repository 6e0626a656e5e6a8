"""What is kept of an exception: text that any database can hold, taken without trusting the exception."""

from __future__ import annotations

import os
import traceback
from types import TracebackType

import msgspec

PACKAGE = os.path.dirname(__file__) + os.sep
MESSAGE_LIMIT = 8 * 1024
TRACEBACK_LIMIT = 64 * 1024
TYPE_LIMIT = 512
FRAME_LIMIT = 50
CHAIN_LIMIT = 10
GROUP_LIMIT = 5
DEPTH_LIMIT = 2
"""Groups are looked into that are so deep in others."""
NOTE = "__rxjobs_failure__"


class Failure(msgspec.Struct, frozen=True):
    """One failed attempt, as text: the class's qualified name, its message and its traceback; how long it took, in seconds."""

    type: str
    message: str
    traceback: str = ""
    duration: float | None = None
    trace_id: str | None = None


class RemoteFailure(Exception):
    """An exception of another process, which travelled here as text and is never rebuilt into its class."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def describe(error: BaseException) -> Failure:
    """The text of an exception; one whose `__str__` or traceback raises is described by what can be said."""
    if isinstance(error, RemoteFailure):
        return error.failure
    noted = _notes_of(error).pop(NOTE, None)
    if isinstance(noted, Failure):
        return noted
    return Failure(qualified_name(type(error)), clean(_message(error), MESSAGE_LIMIT), clean(_traceback(error), TRACEBACK_LIMIT))


def describe_here(error: BaseException) -> Failure:
    """Describe an exception where it was raised, for the next one who does: it may take for ever, which is its job's own time."""
    failure = describe(error)
    _notes_of(error)[NOTE] = failure
    return failure


def qualified_name(kind: type) -> str:
    """The class's name with its module, unless builtin."""
    try:
        module, name = kind.__module__, kind.__qualname__
    except Exception:  # what a metaclass does
        module, name = "builtins", type.__dict__["__name__"].__get__(kind)
    return clean(name if module == "builtins" else f"{module}.{name}", TYPE_LIMIT)


def clean(text: str, limit: int) -> str:
    """Text that PostgreSQL can hold: no NUL, no lone surrogate, at most `limit` characters (the end is kept)."""
    if len(text) > limit:
        text = f"… {len(text) - limit} characters left out …\n{text[-limit:]}"
    return text.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode("utf-8")


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as worse:  # a job's exception may raise anything while it is printed
        return f"(its message could not be printed: {type(worse).__name__})"


def _notes_of(error: BaseException) -> dict[str, object]:
    """Where something can be noted on an exception, past what its class does about that."""
    notes = object.__getattribute__(error, "__dict__")
    return notes if isinstance(notes, dict) else {}


def _traceback(error: BaseException, depth: int = 0) -> str:
    try:
        return "".join(_chain(error, depth))
    except BaseException as worse:  # the same
        return f"(its traceback could not be printed: {type(worse).__name__})"


def _chain(error: BaseException, depth: int) -> list[str]:
    """The tracebacks of an exception and its causes, the oldest first; at most ten of what may be thousands."""
    parts: list[str] = []
    seen: BaseException | None = error
    for _ in range(CHAIN_LIMIT):
        if seen is None:
            break
        frames = traceback.format_tb(_of_the_job(seen.__traceback__), limit=-FRAME_LIMIT)
        parts.append(
            "".join(["Traceback (most recent call last):\n", *frames, f"{qualified_name(type(seen))}: {_short(_message(seen))}\n"])
        )
        if isinstance(seen, BaseExceptionGroup) and depth < DEPTH_LIMIT:
            parts += [_traceback(one, depth + 1) for one in seen.exceptions[:GROUP_LIMIT]]
        seen = seen.__cause__ or (None if seen.__suppress_context__ else seen.__context__)
    return parts[::-1]


def _short(text: str) -> str:
    return text if len(text) <= MESSAGE_LIMIT else clean(text, MESSAGE_LIMIT)


def _of_the_job(frames: TracebackType | None) -> TracebackType | None:
    """The frames from the job's own on: those of rxjobs that called it say nothing about it."""
    own = frames
    while own is not None and own.tb_frame.f_code.co_filename.startswith(PACKAGE):
        own = own.tb_next
    return own or frames
