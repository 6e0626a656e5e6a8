"""The JSON that rows hold: what may become JSON, and whether it would come back equal."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import ipaddress
import math
import pathlib
import re
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import accumulate
from operator import eq
from reprlib import Repr
from typing import Any

import msgspec

from rxjobs.errors import BadPayload, InvalidArguments
from rxjobs.secret import MARK, Secret, inner_type, is_secret, storing, unmarked

MAX_DEPTH = 100
SCALARS = frozenset({str, int, float, bool, type(None)})
TEXT_FORMS = (
    pathlib.PurePath,
    ipaddress.IPv4Address,
    ipaddress.IPv6Address,
    ipaddress.IPv4Network,
    ipaddress.IPv6Network,
)

_TEXT_ONLY = frozenset({str})
_STEPS = {"[": 1, "{": 1, "]": -1, "}": -1, '"': 0}
_NOT_BRACKETS = re.compile(r'(?:"(?:[^"\\]++|\\.)*+"|[^\[\]{}"]++)++', re.DOTALL)
_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 40


@dataclasses.dataclass(frozen=True, slots=True)
class Refusal:
    """Why a value cannot be stored, and where in it: `path` as in `user.tags[3]`."""

    path: str
    reason: str

    def under(self, step: str) -> Refusal:
        return Refusal(step + self.path, self.reason)


class Misfit(ValueError):
    """A JSON value that is no form of a class; `path` is where in it, for classes that say so."""

    def __init__(self, text: str, path: str = "") -> None:
        super().__init__(text)
        self.path = path


def load_untyped(payload: str) -> Any:
    """Read plain JSON; raises BadPayload."""
    try:
        refuse_depth(payload)
        return PLAIN.decode(payload)
    except Exception as error:
        raise BadPayload(f"the stored JSON cannot be read: {complaint(error)}") from None


def dump_untyped(value: Any, what: str, max_bytes: int) -> str:
    """Write plain JSON, such as meta or a result; raises InvalidArguments, which says `what` could not be stored."""
    try:
        text = ENCODER.encode(value)
        refusal = find_oversize(text, max_bytes) or find_unstorable(text) or find_loss(value, PLAIN.decode(text))
    except Exception as error:
        refusal = find_unwritable(value) or Refusal("", complaint(error))
    if refusal:
        raise InvalidArguments(f"{what}{refusal.path}: {refusal.reason}")
    return text.decode()


def is_model(kind: Any) -> bool:
    """Whether a class is a pydantic model; pydantic is never imported for it: who made the class has done so."""
    base = getattr(sys.modules.get("pydantic"), "BaseModel", None)
    return base is not None and isinstance(kind, type) and issubclass(kind, base)


def has_form(kind: Any) -> bool:
    """Whether a class that msgspec does not know has a JSON form here."""
    return kind is object or is_secret(kind) or (isinstance(kind, type) and issubclass(kind, TEXT_FORMS)) or is_model(kind)


def to_form(value: Any) -> Any:
    """The JSON form of a value whose class msgspec does not know."""
    if isinstance(value, Secret):
        return {MARK: value.get()}
    if isinstance(value, TEXT_FORMS):
        return str(value)
    # a subclass, whose own str() may say something else
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__pos__(value)
    if isinstance(value, float):
        return float.__pos__(value)
    if is_model(type(value)):
        with storing():
            return msgspec.Raw(value.model_dump_json(round_trip=True, warnings="error").encode())
    raise TypeError(f"{type(value).__qualname__} has no JSON form")


def from_form(kind: Any, form: Any) -> Any:
    """The value of a class that msgspec does not know, from its JSON form."""
    if kind is object:
        return form
    if is_secret(kind):
        return _from_secret_form(kind, form)
    if is_model(kind):
        return _from_model_form(kind, form)
    if not isinstance(form, str):
        raise Misfit(f"expected {kind.__name__}, got `{type(form).__name__}`")
    try:
        return kind(form)
    except ValueError:
        raise Misfit(f"expected {kind.__name__}, got `str`") from None


def _from_secret_form(kind: Any, form: Any) -> Any:
    try:
        return Secret(_decoder_of(inner_type(kind)).decode(ENCODER.encode(unmarked(form))))
    except Exception:
        # what is wrong with it may be told in words that hold it
        raise Misfit("expected another type than that of the secret here") from None


@lru_cache(maxsize=1024)
def _decoder_of(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind, dec_hook=from_form)


def _from_model_form(model: Any, form: Any) -> Any:
    try:
        # names, since that is how it was written, and aliases, since that is how other programs write it
        return model.model_validate_json(ENCODER.encode(form), by_name=True, by_alias=True)
    except ValueError as error:
        errors: Callable[..., list[Any]] | None = getattr(error, "errors", None)
        if errors is None:
            raise
        first = errors(include_url=False, include_context=False, include_input=False)[0]
        raise Misfit(first["msg"], "".join(map(spell_step, first["loc"]))) from error


ENCODER = msgspec.json.Encoder(enc_hook=to_form)
PLAIN: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


def show(value: Any) -> str:
    """A value for an error's text: its class and at most 40 characters of it."""
    return "None" if value is None else f"{type(value).__name__} ({_brief(value)})"


def spell_step(step: Any) -> str:
    """One step of a path: `.name`, `[3]` or `['odd key']`."""
    return f".{step}" if isinstance(step, str) and step.isidentifier() and len(step) < 40 else f"[{_brief(step)}]"


def _brief(value: Any) -> str:
    try:
        return _SHORT.repr(value)[:40]
    except Exception:
        return f"of {value.bit_length()} bits" if isinstance(value, int) else "not printable"


def complaint(error: Exception) -> str:
    """An exception for an error's text."""
    if isinstance(error, RecursionError):
        return f"expected at most {MAX_DEPTH} levels, got more, or a value that contains itself"
    try:
        text = str(error).replace("`", "")
    except Exception:
        text = ""
    known = isinstance(error, msgspec.MsgspecError | Misfit | InvalidArguments)
    text = text[:200]
    return (text[:1].lower() + text[1:] if text[:2].istitle() else text) if known else f"{type(error).__name__}: {text:.200}"


def refuse_depth(text: str) -> None:
    """Raise BadPayload for JSON of more than 100 levels, which other readers of the row could not take."""
    if len(text) > 2 * MAX_DEPTH and text.count("[") + text.count("{") > MAX_DEPTH and depth_of(text) > MAX_DEPTH:
        raise BadPayload(f"expected at most {MAX_DEPTH} levels, got more")


def depth_of(text: str) -> int:
    """How many levels of arrays and objects JSON text has."""
    return max(accumulate(map(_STEPS.__getitem__, _NOT_BRACKETS.sub("", text))), default=0)


def find_oversize(text: bytes, max_bytes: int) -> Refusal | None:
    """Whether the JSON takes more bytes than are allowed."""
    if len(text) <= max_bytes:
        return None
    advice = "store the data elsewhere and pass a reference"
    return Refusal("", f"expected at most {max_bytes} bytes as JSON, got {len(text)}; {advice}")


def find_unstorable(text: bytes) -> Refusal | None:
    """What PostgreSQL cannot hold in JSON, or other readers cannot take: NUL, and more than 100 levels."""
    if len(text) > 2 * MAX_DEPTH and text.count(b"[") + text.count(b"{") > MAX_DEPTH:
        depth = depth_of(text.decode())
        if depth > MAX_DEPTH:
            return Refusal(_deepest_key(text), f"expected at most {MAX_DEPTH} levels, got {depth}")
    # a backslash followed by u0000 looks the same here, so that a closer look is due; `in` would take five times as long
    return _find_nul(PLAIN.decode(text)) if text.find(b"\\u0000") >= 0 else None


def _deepest_key(text: bytes) -> str:
    document = PLAIN.decode(text)
    if not isinstance(document, dict):
        return ""
    return spell_step(max(document, key=lambda key: depth_of(ENCODER.encode(document[key]).decode())))


def _find_nul(value: Any) -> Refusal | None:
    if isinstance(value, str):
        return Refusal("", f"expected text without NUL, got {show(value)}") if "\0" in value else None
    if not isinstance(value, dict | list):
        return None
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        found = (isinstance(key, str) and _find_nul(key)) or _find_nul(item)
        if found:
            return found.under(spell_step(key))
    return None


def find_unwritable(value: Any, levels: int = MAX_DEPTH) -> Refusal | None:
    """The innermost part that cannot be written as JSON, and why."""
    try:
        ENCODER.encode(value)
    except Exception as error:
        # only the first level of a value that never ends is worth a look, to name the argument
        endless = isinstance(error, RecursionError)
        if not levels or (endless and levels < MAX_DEPTH):
            return Refusal("", complaint(RecursionError()))
        for step, part in _parts(value):
            if found := find_unwritable(part, levels - 1):
                return found.under(step)
        return Refusal("", _why_unwritable(value, error))
    return None


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield from ((spell_step(key), part) for key, part in value.items())
        yield from ((spell_step(key), key) for key in value)
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((spell_step(at), part) for at, part in enumerate(value))
    else:
        yield from ((spell_step(name), getattr(value, name, None)) for name in field_names(type(value)))


def holds_secret(value: Any) -> bool:
    """Whether there is a secret in a value."""
    todo, seen = [value], dict[int, Any]()
    while todo:
        if type(value := todo.pop()) is Secret:
            return True
        if id(value) not in seen:
            seen[id(value)] = value
            todo.extend(part for _, part in _parts(value))
    return False


def _why_unwritable(value: Any, error: Exception) -> str:
    match error:
        case UnicodeEncodeError():
            return f"expected text that UTF-8 can hold, got {show(value)}, a lone surrogate; use bytes for raw data"
        case ValueError() if isinstance(value, int):
            return f"expected an int of at most 4300 digits, got {show(value)}"
        case TypeError() if isinstance(value, dict):
            return f"expected keys that are text, got {show(next((k for k in value if not isinstance(k, str)), None))}"
        case TypeError():
            return f"expected a value with a JSON form, got {show(value)}; convert it first"
        case _:
            return f"{show(value)} could not be written: {complaint(error)}"


def field_names(kind: type) -> tuple[str, ...]:
    """The fields of a struct, dataclass, attrs class or pydantic model; none for any other class."""
    if is_model(kind):
        return tuple(kind.model_fields)  # type: ignore[attr-defined]  # pydantic is not imported here, see is_model
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    attributes = getattr(kind, "__attrs_attrs__", ())
    return tuple(getattr(kind, "__struct_fields__", ())) or tuple(field.name for field in attributes)


def find_loss(given: Any, arrived: Any) -> Refusal | None:
    """Where a value would not come back as it was given; the JSON form of a typed value may stand for it."""
    if type(arrived) is Secret:
        return find_loss(given.get() if type(given) is Secret else given, arrived.get())
    kind = type(given)
    if kind is Secret:
        return Refusal("", "expected a secret only where it is annotated as Secret[...], got one")
    if kind is float and not math.isfinite(given):
        return Refusal("", f"expected a finite number, got {show(given)}")
    if kind in SCALARS:
        return None if kind is type(arrived) else _find_loss_of_scalar(given, arrived)
    if isinstance(given, dict):
        return _find_loss_in_dict(given, arrived)
    if isinstance(given, list) or (isinstance(given, tuple) and not hasattr(given, "_fields")):
        return _find_loss_in_list(given, arrived)
    if kind is type(arrived) and (names := field_names(kind) or getattr(kind, "_fields", ())):
        found = ((name, find_loss(getattr(given, name), getattr(arrived, name))) for name in names)
        return next((loss.under(spell_step(name)) for name, loss in found if loss), None)
    return None if _is_kept(given, arrived) else _changed(given, arrived)


def _find_loss_of_scalar(given: Any, arrived: Any) -> Refusal | None:
    if isinstance(arrived, decimal.Decimal) and not arrived.is_finite():
        return Refusal("", f"expected a finite number, got {show(given)}")
    # an int may be too long for a float; what arrives as text was no text, such as a key
    return _changed(given, arrived) if type(arrived) in (float, str) and given != arrived else None


def _find_loss_in_list(given: Any, arrived: Any) -> Refusal | None:
    if isinstance(arrived, list | tuple) and len(given) == len(arrived):
        if SCALARS.issuperset(map(type, given)) and all(map(eq, given, arrived)):
            return None
        found = ((at, find_loss(*pair)) for at, pair in enumerate(zip(given, arrived, strict=True)))
        return next((loss.under(f"[{at}]") for at, loss in found if loss), None)
    if isinstance(arrived, set | frozenset) and _are_members(given, arrived):
        return None
    return _find_loss_as_plain(given)


def _are_members(given: Any, arrived: Any) -> bool:
    try:
        # a NaN is in a set that holds it, and yet unequal to itself
        return all(_is_kept(member, member) and member in arrived for member in given)
    except TypeError:
        return False


def _find_loss_as_plain(given: Any) -> Refusal | None:
    # it stands for a value of another shape: nothing in it says what its own typed parts were taken for
    return find_loss(given, PLAIN.decode(ENCODER.encode(given)))


def _find_loss_in_dict(given: Any, arrived: Any) -> Refusal | None:
    if not isinstance(arrived, dict):
        return _find_loss_in_object(given, arrived)
    if len(given) != len(arrived):
        unknown = next((key for key in given if key not in arrived and isinstance(key, str)), None)
        what = "keys that stay apart as text" if unknown is None else "no other keys than the annotated ones"
        return Refusal("", f"expected {what}, got {show(given if unknown is None else unknown)}")
    if _TEXT_ONLY.issuperset(map(type, given)) and SCALARS.issuperset(map(type, given.values())) and given == arrived:
        return None
    for (key, value), (key_arrived, value_arrived) in zip(given.items(), arrived.items(), strict=True):
        if type(key) is not str and (loss := find_loss(key, key_arrived)):
            return Refusal("", f"key: {loss.reason}")
        if loss := find_loss(value, value_arrived):
            return loss.under(spell_step(key))
    return None


def _find_loss_in_object(given: Any, arrived: Any) -> Refusal | None:
    """A dict stands for an object: each key for the field of that name, or of that name in JSON."""
    kind = type(arrived)
    fields = field_names(kind) or getattr(kind, "_fields", ())
    names = dict(zip(getattr(kind, "__struct_encode_fields__", fields), fields, strict=True))
    tag = getattr(getattr(kind, "__struct_config__", None), "tag_field", None)
    for key, value in given.items():
        if key not in names and key != tag and not is_model(kind):
            return Refusal("", f"expected the fields of {kind.__name__}, got {show(key)}")
        loss = find_loss(value, getattr(arrived, names[key])) if key in names else _find_loss_as_plain(value)
        if loss:
            return loss.under(spell_step(key))
    return None


def _is_kept(given: Any, arrived: Any) -> bool:
    if isinstance(given, decimal.Decimal) and not given.is_finite():
        return False
    if isinstance(given, enum.Enum) and not isinstance(arrived, enum.Enum):
        return False
    if given == arrived:
        return True
    if isinstance(given, datetime.datetime) and isinstance(arrived, datetime.datetime):
        # in the hour that a clock repeats or skips, Python calls equal instants of two zones unequal
        return given.utcoffset() == arrived.utcoffset() and given.replace(tzinfo=None) == arrived.replace(tzinfo=None)
    # JSON forms of its members are unequal to them
    both_are_sets = isinstance(given, set | frozenset) and isinstance(arrived, set | frozenset)
    return both_are_sets and not _find_loss_as_plain(list(given))


def _changed(given: Any, arrived: Any) -> Refusal:
    advice = "convert it first, or annotate its parameter"
    became = f"got {show(given)}, which would arrive as {show(arrived)}"
    return Refusal("", f"expected a value that JSON keeps, {became}: {advice}")
