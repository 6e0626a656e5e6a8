"""The return value of a job type that keeps it: checked against its annotation, written as JSON, read back typed."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FunctionType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from rxjobs.arguments import Arguments
from rxjobs.errors import BadPayload, InvalidArguments, InvalidOption
from rxjobs.outcome import Outcome

NAME = "result"
ENDLESS = 2**62
"""More bytes than any result has: its size is looked at by itself."""
OPEN, CLOSE = f'{{"{NAME}":', "}"


class Results:
    """What a function returns, as its annotation says; raises InvalidOption where JSON cannot hold that.

    Any plain JSON is taken of a function without an annotation. Outcomes that it may return are no result.
    """

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self._name = name
        try:
            # what a result is to fit is an argument, but for its name
            self._arguments = Arguments(_taking(_annotation_of(function, name)), name)
        except InvalidOption as error:
            raise InvalidOption(str(error).replace(f"parameter {NAME}", "its return annotation", 1)) from error

    def dump(self, value: Any, max_bytes: int) -> str:
        """A return value as JSON; raises InvalidArguments, which says why it cannot be kept."""
        try:
            text = self._arguments.dump((value,), {}, ENDLESS)[len(OPEN) : -len(CLOSE)]
        except InvalidArguments as error:
            said = str(error).removeprefix(f"{self._name}: ")
            said = said.removeprefix(f"argument {NAME}").removeprefix("arguments")
            raise InvalidArguments(f"{self._name}: its result{said}") from None
        if (size := len(text.encode())) > max_bytes:
            raise InvalidArguments(
                f"{self._name}: its result: expected at most {max_bytes} bytes as JSON, got {size}; store the data elsewhere and "
                "return a reference"
            )
        return text

    def load(self, text: str) -> Any:
        """Read one back, typed; raises BadPayload."""
        try:
            return self._arguments.load(f"{OPEN}{text}{CLOSE}")[NAME]
        except BadPayload as error:
            raise BadPayload(str(error).replace(f"stored argument {NAME}", "its stored result", 1)) from None


def _annotation_of(function: Callable[..., Any], name: str) -> Any:
    try:
        kind = get_type_hints(inspect.unwrap(function), include_extras=True).get("return", Any)
    except NameError as error:
        raise InvalidOption(f"{name}: its return annotation: {error}; import it where the code runs") from error
    except TypeError:  # a callable object, which has no annotations of its own
        return Any
    if get_origin(kind) in (Union, UnionType):
        kinds = [one for one in get_args(kind) if not _is_outcome(one)]
        if len(kinds) < len(get_args(kind)):
            return Union[tuple(kinds)] if kinds else type(None)  # noqa: UP007 - of a list
    return type(None) if _is_outcome(kind) else kind


def _is_outcome(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Outcome)


def _taking(kind: Any) -> Callable[..., Any]:
    """A function that takes a result of this type."""

    def take(result: Any) -> None: ...

    taking = FunctionType(take.__code__, globals())
    taking.__annotations__ = {NAME: kind}
    return taking
