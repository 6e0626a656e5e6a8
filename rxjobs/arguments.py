"""The arguments of a job type: bound and checked against its signature, written as JSON, read back typed."""

from __future__ import annotations

import inspect
import re
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec
from msgspec.structs import asdict, astuple

from rxjobs.errors import BadPayload, InvalidArguments, InvalidOption
from rxjobs.payload import (
    ENCODER,
    PLAIN,
    SCALARS,
    Refusal,
    complaint,
    dump_untyped,
    find_loss,
    find_oversize,
    find_unstorable,
    find_unwritable,
    from_form,
    has_form,
    holds_secret,
    is_model,
    load_untyped,
    refuse_depth,
    show,
    spell_step,
)
from rxjobs.secret import inner_type, is_secret

MAX_KEYS = 10_000

_signature: Callable[..., inspect.Signature] = inspect.signature
if sys.version_info >= (3, 14):
    import annotationlib

    # a name that only type checkers know must not stop the other parameters from being read
    _signature = partial(inspect.signature, annotation_format=annotationlib.Format.FORWARDREF)

__all__ = ["Arguments", "dump_untyped", "load_untyped"]

_RAW = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ABSENT: Any = msgspec.UNSET
_NOT_IN_ENUM = "Invalid enum value"
_KEY = "Expected key"
_MODULES = re.compile(r"('[^']*')|(?:\w+\.)+(?=\w)")
_STEP = re.compile(r"\.([^.\[`]+)|\[(\d+)\]|(\[\.\.\.\])")

Kind = inspect.Parameter


class Arguments:
    """The arguments of one job type: bound and checked against its signature, written as JSON, read back typed.

    They are stored as one flat JSON object, without what the caller left out: defaults apply when the job runs.
    """

    def __init__(self, function: Callable[..., Any], name: str, *, typed: bool = True) -> None:
        self._name = name
        parameters = _parameters_of(function, name)
        self.parameters = {p.name: p for p in parameters if p.kind is not Kind.VAR_KEYWORD}
        self._positional = [p.name for p in parameters if p.kind in (Kind.POSITIONAL_ONLY, Kind.POSITIONAL_OR_KEYWORD)]
        self.nameless = {p.name for p in parameters if p.kind in (Kind.POSITIONAL_ONLY, Kind.VAR_POSITIONAL)}
        self._rest = next((p.name for p in parameters if p.kind is Kind.VAR_POSITIONAL), None)
        self._optional = [p.name for p in self.parameters.values() if _is_optional(p)]
        self._types = {p.name: _type_of(p, function, name) if typed else Any for p in parameters}
        self._secret = {p for p, kind in self._types.items() if _may_hold_secret(kind)}
        self._decoders = {p: msgspec.json.Decoder(kind, dec_hook=from_form) for p, kind in self._types.items()}
        self.extra = next((p.name for p in parameters if p.kind is Kind.VAR_KEYWORD), None)
        self._decode = self._build_decoder().decode

    def _build_decoder(self) -> msgspec.json.Decoder[msgspec.Struct]:
        defaults = dict.fromkeys(self._optional, _ABSENT)
        fields = [(name, self._types[name], defaults.get(name, msgspec.NODEFAULT)) for name in self.parameters]
        struct = msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=self.extra is None)
        return msgspec.json.Decoder(struct, dec_hook=from_form)

    def dump(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], max_bytes: int) -> str:
        """Bind the arguments of a call and write them as JSON; raises InvalidArguments, which names the argument."""
        given = self.bind(args, kwargs) if args or self.nameless else kwargs
        try:
            text = ENCODER.encode(given)
            is_short = len(text) <= MAX_KEYS and len(text) <= max_bytes
            refusal = None if is_short else find_oversize(text, max_bytes) or _find_too_many_keys(text)
            if refusal is None:
                text, refusal = self._settle(given, text)
            if refusal is None:
                return text.decode()
        except Exception as error:
            refusal = self._why_refused(given, error)
        where = f"argument {refusal.path.removeprefix('.')}" if refusal.path else "arguments"
        raise InvalidArguments(f"{self._name}: {where}: {refusal.reason}")

    def _settle(self, given: Mapping[str, Any], text: bytes) -> tuple[bytes, Refusal | None]:
        """The JSON to be stored, and why not."""
        if refusal := find_unstorable(text):
            return text, self._conceal(refusal, given)
        arrived = self._read(text)
        refusal = _find_loss(given, arrived)
        if not self._secret:
            return text, refusal and self._conceal(refusal, given)
        # from what arrived: a secret that was given as a plain value is marked as one
        text = ENCODER.encode(arrived)
        refusal = refusal or find_unstorable(text)
        return text, refusal and self._conceal(refusal, given)

    def load(self, payload: str) -> dict[str, Any]:
        """Read stored arguments back, typed; raises BadPayload, which names the argument and shows no value."""
        try:
            refuse_depth(payload)
            return self._read(payload)
        except Exception as error:
            refusal = self._why_unreadable(payload, error)
        where = f"stored argument {refusal.path.removeprefix('.')}" if refusal.path else "stored arguments"
        raise BadPayload(f"{self._name}: {where}: {refusal.reason}")

    def spread(self, values: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """How to call the function with values that `load` gave."""
        if not self.nameless:
            return (), values  # type: ignore[return-value]  # a copy would cost more than the rest of the call
        named = dict(values)
        rest = named.pop(self._rest, ()) if self._rest else ()
        leading = [name for name in self._positional if rest or name in self.nameless]
        # a default stands in for what was left out before a later argument, as in a row that another program wrote
        positional = [named.pop(name, self.parameters[name].default) for name in leading]
        return (*positional, *rest), named

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a call by their names; raises InvalidArguments."""
        most = len(self._positional)
        if len(args) > most and self._rest is None:
            raise InvalidArguments(f"{self._name}: expected at most {most} positional arguments, got {len(args)}")
        given = dict(zip(self._positional, args, strict=False))
        if self._rest and args[most:]:
            given[self._rest] = list(args[most:])
        for name, value in kwargs.items():
            if name in given:
                raise InvalidArguments(f"{self._name}: argument {name}: expected it once, got it twice")
            if name in self.nameless:
                raise InvalidArguments(f"{self._name}: argument {name}: expected it by position, got it by name")
            given[name] = value
        return given

    def _read(self, text: bytes | str) -> dict[str, Any]:
        values: dict[str, Any] = asdict(self._decode(text))
        if self._optional:
            values = {name: value for name, value in values.items() if value is not _ABSENT}
        if self.extra:
            more = {name: raw for name, raw in _RAW.decode(text).items() if name not in self.parameters}
            values |= {name: self._decoders[self.extra].decode(raw) for name, raw in more.items()}
        return values

    def _why_refused(self, given: Mapping[str, Any], error: Exception) -> Refusal:
        try:
            if refusal := self.find_wrong_name(given):
                return refusal
            found = find_unwritable(dict(given))
            texts = {} if found else {name: ENCODER.encode(value) for name, value in given.items()}
            refusal = found or self._find_misfits(texts, given) or Refusal("", complaint(error))
        except Exception:
            refusal = Refusal("", complaint(error))
        return self._conceal(refusal, given)

    def _conceal(self, refusal: Refusal, given: Mapping[str, Any]) -> Refusal:
        """A refusal without a word of what is in an argument that holds a secret."""
        unfit = "got what does not fit or cannot be stored, and is not shown"
        for name in given:
            step = spell_step(name)
            if refusal.path == step or refusal.path.startswith((f"{step}.", f"{step}[")):
                parameter = name if name in self.parameters or not self.extra else self.extra
                if parameter in self._secret:
                    return Refusal(step, f"expected {_spell(self._types[parameter])}, {unfit}")
                misplaced = Refusal(step, "expected a secret only where it is annotated as Secret[...], got one")
                return misplaced if holds_secret(given[name]) else refusal
        is_open = not self._secret and not holds_secret(dict(given))
        return refusal if is_open else Refusal("", f"expected what fits the signature, {unfit}")

    def _why_unreadable(self, payload: str, error: Exception) -> Refusal:
        try:
            stored = _RAW.decode(payload)
            return self.find_wrong_name(stored) or self._find_misfits(stored, {}) or Refusal("", complaint(error))
        except Exception:
            return Refusal("", complaint(error))

    def find_wrong_name(self, given: Mapping[str, Any]) -> Refusal | None:
        """An argument that the signature has not, or that is missing."""
        for name in given:
            if name not in self.parameters and not self.extra:
                return Refusal(spell_step(name), f"expected only {', '.join(self.parameters) or 'none'}, got this one")
        for name in self.parameters:
            if name not in given and name not in self._optional:
                return Refusal(spell_step(name), f"expected {_spell(self._types[name])}, got nothing")
        return None

    def _find_misfits(self, texts: Mapping[str, Any], given: Mapping[str, Any]) -> Refusal | None:
        """The first argument whose JSON does not fit its type; `given` is what the caller passed, to be shown."""
        for name, text in texts.items():
            if misfit := self._find_misfit(name, text, given.get(name, _ABSENT)):
                return misfit.under(spell_step(name))
        return None

    def _find_misfit(self, name: str, text: Any, given: Any) -> Refusal | None:
        parameter = name if name in self.parameters or not self.extra else self.extra
        decoder = self._decoders[parameter]
        try:
            decoder.decode(text)
            return None
        except msgspec.ValidationError as error:
            path, found, said = _locate(decoder, text, given, error)
        expected, _, came = said.partition(", got ")
        if isinstance(found, float) and came == "`null`":
            expected = "expected a finite number"
        elif not path and (came or expected == _NOT_IN_ENUM) and not said.startswith(_KEY):
            expected = f"expected {_spell(self._types[parameter])}"
        came = came if found is _ABSENT else show(found)
        reason = f"{expected}, got {came}" if came else expected
        return Refusal(path, reason[:1].lower() + reason[1:].replace("`", ""))


def _find_too_many_keys(text: bytes) -> Refusal | None:
    """Whether JSON has more keys than a reader should have to take."""
    if text.count(b":") <= MAX_KEYS or (count := _count_keys(PLAIN.decode(text))) <= MAX_KEYS:
        return None
    return Refusal("", f"expected at most {MAX_KEYS} keys, got {count}; pass lists, or a reference")


def _count_keys(value: Any) -> int:
    if isinstance(value, dict):
        return len(value) + sum(map(_count_keys, value.values()))
    return sum(map(_count_keys, value)) if isinstance(value, list) else 0


def _find_loss(given: Mapping[str, Any], arrived: Mapping[str, Any]) -> Refusal | None:
    for name, value in given.items():
        kind = type(value)
        if kind not in SCALARS or kind is not type(arrived[name]):
            loss = find_loss(value, arrived[name])
            if loss:
                return loss.under(spell_step(name))
    return None


def _locate(decoder: Any, text: Any, given: Any, error: Exception) -> tuple[str, Any, str]:
    """Where in one argument's JSON an error is, what was given there, and what msgspec says about it."""
    said, _, place = str(error).partition(" - at `")
    # the rest of these words is the value
    said = _NOT_IN_ENUM if said.startswith(_NOT_IN_ENUM) else said
    document: Any = PLAIN.decode(text) if place else None
    here = document
    path, found = "", given
    for field, index, any_key in _STEP.findall(place.partition("$")[2]):
        step = _first_wrong_key(decoder, document, here, str(error)) if any_key else int(index) if index else field
        at = step if index else list(here).index(step)
        path, found, here = path + spell_step(step), _part(found, step, at), here[step]
    if place.startswith("key"):
        at = list(here).index(_first_wrong_key(decoder, document, here, str(error)))
        return path, _ABSENT if found is _ABSENT else list(found)[at], said.replace("Expected", _KEY)
    inner = getattr(error.__cause__, "path", "")
    return path + inner, _ABSENT if inner else found, said


def _first_wrong_key(decoder: Any, document: Any, here: dict[str, Any], said: str) -> str:
    """msgspec names no keys: the wrong one ends the shortest beginning of the object that fails with the same words."""
    items = list(here.items())

    def fails(count: int) -> bool:
        here.clear()
        here.update(items[:count])
        try:
            decoder.decode(ENCODER.encode(document))
        except Exception as error:
            return str(error) == said
        return False

    count = bisect_left(range(len(items)), True, lo=1, key=fails)
    here.update(items)
    return items[count - 1][0]


def _part(value: Any, step: Any, at: Any) -> Any:
    if isinstance(value, dict):
        return list(value.values())[at]
    if isinstance(value, list | tuple | set | frozenset):
        return list(value)[at]
    return getattr(value, str(step), _ABSENT)


def _parameters_of(function: Callable[..., Any], name: str) -> list[inspect.Parameter]:
    try:
        parameters = list(_signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise InvalidOption(f"{name}: {function!r} has no signature to check arguments against; use a def") from error
    for parameter in parameters:
        if parameter.name.startswith("__"):
            raise InvalidOption(f"{name}: parameter {parameter.name}: begins with two underscores; rename it")
    return parameters


def _is_optional(parameter: inspect.Parameter) -> bool:
    return parameter.default is not parameter.empty or parameter.kind is parameter.VAR_POSITIONAL


def _type_of(parameter: inspect.Parameter, function: Callable[..., Any], name: str) -> Any:
    """The type that the JSON of a parameter is read as; raises InvalidOption where JSON cannot hold it."""
    owner = f"{name}: parameter {parameter.name}"
    try:
        kind = _resolve(parameter.annotation, _definition_of(function))
        kind = list[kind] if parameter.kind is parameter.VAR_POSITIONAL else kind  # type: ignore[valid-type]
        strangers: list[Any] = []
        for part in (kind, *_types_in_secrets(kind)):
            strangers += [custom for custom in _custom_types(msgspec.inspect.type_info(part)) if not has_form(custom)]
            msgspec.json.Decoder(part)
    except NameError as error:
        raise InvalidOption(f"{owner}: {error}; import it where the code runs, not only for type checking") from error
    except Exception as error:
        advice = "annotate one of them" if "unions" in str(error) else "annotate a type that JSON can hold"
        raise InvalidOption(f"{owner}: {str(error).replace('`', '')}; {advice}") from error
    if strangers:
        raise InvalidOption(
            f"{owner}: {getattr(strangers[0], '__qualname__', strangers[0])} has no JSON form; annotate a dataclass, "
            "a msgspec struct, a pydantic model or a plain type, or pass an id and load the object in the job"
        )
    return kind


def _definition_of(function: Any) -> Any:
    """The def behind partials, methods, wrappers and callable objects."""
    while not inspect.isclass(function):
        if isinstance(function, partial):
            function = function.func
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        elif inspect.ismethod(function):
            function = function.__func__
        elif inspect.isroutine(function):
            return function
        else:
            function = type(function).__call__
    return function


def _resolve(annotation: Any, definition: Any) -> Any:
    if annotation is inspect.Parameter.empty:
        return Any

    def probe() -> None: ...

    # one parameter at a time: the error names it, and a return type that only type checkers know does no harm
    probe.__annotations__ = {"value": annotation}
    names = getattr(definition, "__globals__", None) or vars(sys.modules[definition.__module__])
    generics = {generic.__name__: generic for generic in getattr(definition, "__type_params__", ())}
    return get_type_hints(probe, names, generics or None, include_extras=True)["value"]


def _types_in_secrets(annotation: Any) -> Iterator[Any]:
    """What the secrets of an annotation hold, which msgspec does not look at."""
    if is_secret(annotation):
        yield inner_type(annotation)
    for part in get_args(annotation):
        yield from _types_in_secrets(part)


def _may_hold_secret(kind: Any, seen: frozenset[Any] = frozenset()) -> bool:
    """Whether there is a secret in a type, as far as can be told."""
    try:
        custom = set(_custom_types(msgspec.inspect.type_info(kind))) - seen
    except Exception:  # a model may have fields of types that msgspec does not know
        return True
    if any(map(is_secret, custom)):
        return True
    fields = [field.annotation for model in filter(is_model, custom) for field in model.model_fields.values()]
    return any(_may_hold_secret(field, seen | custom) for field in fields)


def _custom_types(info: Any) -> Iterator[Any]:
    """Every class in a type that msgspec leaves to us."""
    seen: set[int] = set()
    todo = [info]
    while todo:
        info = todo.pop()
        if isinstance(info, msgspec.inspect.CustomType):
            yield info.cls
        elif isinstance(info, tuple):
            todo.extend(info)
        elif isinstance(info, msgspec.inspect.Type | msgspec.inspect.Field) and id(info) not in seen:
            seen.add(id(info))
            todo.extend(astuple(info))


def _spell(annotation: Any) -> str:
    plain = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
    return _MODULES.sub(lambda found: found[1] or "", inspect.formatannotation(plain))
