"""A value that is not shown: in no error, log, trace or table, and in no reader of rows that does not know its type."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Generic, NoReturn, TypeVar, get_args, get_origin

from rxjobs.errors import InvalidOption

T = TypeVar("T")

_is_storing: ContextVar[bool] = ContextVar("rxjobs_is_storing", default=False)

MASK = "***"
MARK = "rxjobs.secret"
"""The key of the JSON object that a secret is stored as, so that a reader of the row knows what not to show."""


class Secret(Generic[T]):
    """A value that shows as `***` wherever it is printed; `get()` gives it.

    A parameter or a field annotated `Secret[str]` takes a plain text too, and the job gets a Secret. It is not encrypted by
    this: App(codec=EncryptedCodec(...)) does that.
    """

    __slots__ = ("_value",)
    _value: T

    def __init__(self, value: T) -> None:
        if isinstance(value, Secret):
            raise InvalidOption("a Secret holds a plain value, not another Secret")
        object.__setattr__(self, "_value", value)

    def get(self) -> T:
        """The value itself."""
        return self._value

    def __repr__(self) -> str:
        return MASK

    def __format__(self, how: str) -> str:
        return format(MASK, how)

    def __eq__(self, other: object) -> bool:
        return self._value == other._value if isinstance(other, Secret) else NotImplemented

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("a Secret does not change; make another")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("a Secret does not change; make another")

    def __copy__(self) -> Secret[T]:
        return self

    def __deepcopy__(self, memo: object) -> Secret[T]:
        return self

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, schema_of: Any) -> Any:
        """How a field of a pydantic model takes one: as a plain value, and dumped as `***` by all but rxjobs itself."""
        from pydantic_core import core_schema  # it is pydantic that calls this

        inner = schema_of.generate_schema(inner_type(source))
        dumped = core_schema.wrap_serializer_function_ser_schema(_dump, info_arg=True, schema=inner)
        return core_schema.no_info_wrap_validator_function(_validate, inner, serialization=dumped)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a Secret is not pickled, since its value could then be read; pass what get() gives, or name the secret")


def is_secret(kind: Any) -> bool:
    """Whether a type is Secret, with or without its parameter."""
    return kind is Secret or get_origin(kind) is Secret


def inner_type(kind: Any) -> Any:
    """What a type of secret holds."""
    return get_args(kind)[0] if get_args(kind) else Any


def unmarked(form: Any) -> Any:
    """What the JSON form of a secret stands for; a plain value is taken too, as a caller or another program gives it."""
    return form[MARK] if isinstance(form, dict) and form.keys() == {MARK} else form


@contextmanager
def storing() -> Iterator[None]:
    """While inside, a pydantic model is dumped with its secrets, marked."""
    token = _is_storing.set(True)
    try:
        yield
    finally:
        _is_storing.reset(token)


def _validate(value: Any, inner: Callable[[Any], Any]) -> Secret[Any]:
    return Secret(inner(value.get() if isinstance(value, Secret) else unmarked(value)))


def _dump(value: Any, inner: Callable[[Any], Any], how: Any) -> Any:
    if how.mode != "json":
        return value
    return {MARK: inner(value.get())} if _is_storing.get() else MASK


def mask(value: Any) -> Any:
    """Plain JSON with `***` in place of what is marked as secret."""
    if isinstance(value, dict):
        return MASK if MARK in value else {key: mask(item) for key, item in value.items()}
    if isinstance(value, list):
        return [mask(item) for item in value]
    return value


def as_secrets(value: Any) -> Any:
    """Plain JSON with a Secret in place of what is marked as one."""
    if isinstance(value, dict):
        return Secret(value[MARK]) if value.keys() == {MARK} else {key: as_secrets(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_secrets(item) for item in value]
    return value
