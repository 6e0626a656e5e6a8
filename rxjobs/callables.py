"""Jobs that call any function by its dotted name, if an app allows it: `rj.call`."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from functools import reduce
from typing import Any

import msgspec

from rxjobs.errors import InvalidArguments, InvalidOption, NotAllowed

CALL, CALL_ASYNC = "rxjobs.call", "rxjobs.call_async"
"""The job types of functions that block, and of those that are awaited."""


class NewCall(msgspec.Struct, frozen=True):
    """A call that is not in the database yet: what `rj.call` makes, and `app.enqueue` takes."""

    function: str
    type: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}


def call(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> NewCall:
    """A job that calls a function: `await app.enqueue(rj.call(shop.mail.send, 7, locale="de"))`.

    The app allows it by name: `rj.App(callables=["shop.mail.*"])`. Raises InvalidArguments for what a worker could not import.
    """
    name = f"{getattr(function, '__module__', None)}.{getattr(function, '__qualname__', None)}"
    if name.startswith("__main__."):
        raise InvalidArguments(f"rj.call: {name} is part of the program itself, which a worker does not import: put it in a module")
    try:
        is_it = find(name) is function
    except (ImportError, AttributeError):
        is_it = False
    if not is_it:
        raise InvalidArguments(
            f"rj.call: a worker imports the function by its name, and {name} does not lead to {function!r:.100}: "
            "use a function at the top level of a module, no lambda, nested or bound one"
        )
    return NewCall(name, CALL_ASYNC if inspect.iscoroutinefunction(function) else CALL, args, kwargs)


def find(name: str) -> Any:
    """What a dotted name leads to: raises ImportError or AttributeError."""
    module, *rest = name.split(".")
    found, path = importlib.import_module(module), [module]
    while rest and not hasattr(found, rest[0]):  # a submodule that nobody has imported
        path.append(rest.pop(0))
        found = importlib.import_module(".".join(path))
    return reduce(getattr, rest, found)


class Callables:
    """The functions that an app lets jobs call, by patterns of their dotted names."""

    def __init__(self, patterns: Iterable[str], job: Callable[..., Any]) -> None:
        if not isinstance(patterns, Iterable):
            raise InvalidOption(f"callables are patterns of dotted names, such as 'shop.mail.*', not {patterns!r:.100}")
        self.patterns = (patterns,) if isinstance(patterns, str) else tuple(patterns)
        for pattern in self.patterns:
            if not isinstance(pattern, str) or "." not in pattern or pattern.startswith(("*", ".")):
                raise InvalidOption(f"callables are patterns of dotted names, such as 'shop.mail.*', not {pattern!r:.100}")
        self._types = {}
        if self.patterns:
            self._types = {CALL: job(name=CALL)(self.call), CALL_ASYNC: job(name=CALL_ASYNC)(self.call_async)}

    def made(self, new: Any) -> Any:
        """The job of a call; whatever else is to be enqueued as it is. Raises NotAllowed."""
        if not isinstance(new, NewCall):
            return new
        self.check(new.function)
        definition = self._types[new.type]
        return definition.new(function=new.function, args=list(new.args), kwargs=new.kwargs)

    def check(self, name: str) -> None:
        """Raise NotAllowed for a name that no pattern matches."""
        if not any(fnmatchcase(name, pattern) for pattern in self.patterns):
            allowed = ", ".join(self.patterns) or "none"
            raise NotAllowed(f"this app lets no job call {name!r:.200}: its callables are {allowed}; see App(callables=[...])")

    def function(self, name: str) -> Callable[..., Any]:
        """An allowed function; raises NotAllowed, also where a name that is allowed leads to something that is not.

        `shop.os.system` matches `shop.*` where shop imports os: what counts is what a function calls itself.
        """
        self.check(name)
        found = find(name)
        own = f"{getattr(found, '__module__', None)}.{getattr(found, '__qualname__', None)}"
        if own != name or not callable(found):
            raise NotAllowed(f"{name!r:.200} leads to {own!r:.200}: a function is called by the name it has where it is defined")
        return found  # type: ignore[no-any-return]

    def call(self, function: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call an allowed function."""
        return self.function(function)(*args, **kwargs)

    async def call_async(self, function: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Await an allowed function."""
        return await self.function(function)(*args, **kwargs)
