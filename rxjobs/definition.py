"""A job type: a function, how its jobs are made, and how they are to be run."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from functools import update_wrapper
from typing import Any, Generic, Literal, ParamSpec, Protocol, TypeVar

import msgspec

from rxjobs.arguments import Arguments, dump_untyped, load_untyped
from rxjobs.backoff import Backoff
from rxjobs.calls import checked_executor
from rxjobs.checks import check_number, check_timeout
from rxjobs.codec import Codec, ValueCodec, shown
from rxjobs.enqueued import Enqueued
from rxjobs.errors import InvalidArguments, InvalidOption
from rxjobs.failure import clean
from rxjobs.payload import ENCODER
from rxjobs.recording import Results
from rxjobs.settings import Settings
from rxjobs.unique import Unique, UniqueClaim

P = ParamSpec("P")
R = TypeVar("R")

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:<>-]{0,127}")
QUEUE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,127}")
TAG_LIMIT = (32, 64)
META_LIMIT = 64 * 1024
LONGEST_DELAY = timedelta(days=3660)
EARLIEST = datetime(1900, 1, 2, tzinfo=UTC)
"""Earlier instants a row does not take: the first of all is endless to PostgreSQL."""


class Breaker(msgspec.Struct, frozen=True, kw_only=True):
    """When a job type's circuit opens: after `fail_max` failures in a row; `reset_timeout` seconds later `probes` jobs may try.

    With `failure_rate` it also opens when that part of at least `min_calls` calls in the last `window` seconds has failed. A call
    that takes longer than `slow` seconds counts as one that failed. Exceptions of the classes in `exclude` are the job's own
    business and move nothing. All numbers are of all nodes together.
    """

    fail_max: int = 10
    reset_timeout: float = 30
    probes: int = 1
    exclude: tuple[type[BaseException], ...] = ()
    failure_rate: float | None = None
    window: float = 60
    min_calls: int = 20
    slow: float | None = None

    def __post_init__(self) -> None:
        check_number("Breaker", "fail_max", self.fail_max, 1, 10**9)
        check_number("Breaker", "probes", self.probes, 1, 10**6)
        classes = self.exclude
        if not isinstance(classes, Collection) or not all(
            isinstance(one, type) and issubclass(one, BaseException) for one in classes
        ):
            raise InvalidOption(f"Breaker: exclude is a tuple of exceptions' classes: (CardRefused,), not {classes!r:.100}")
        msgspec.structs.force_setattr(self, "exclude", tuple(classes))
        check_number("Breaker", "reset_timeout", self.reset_timeout, 0.001, 10**9, int | float)
        check_number("Breaker", "window", self.window, 0.1, 86400, int | float)
        check_number("Breaker", "min_calls", self.min_calls, 1, 10**9)
        if self.failure_rate is not None:
            check_number("Breaker", "failure_rate", self.failure_rate, 0.001, 1, int | float)
        if self.slow is not None:
            check_number("Breaker", "slow", self.slow, 0.001, 10**9, int | float)


DEFAULT_BREAKER = Breaker()

enqueuing_for: ContextVar[str | None] = ContextVar("rxjobs_enqueuing_for", default=None)
"""The entry of cron that jobs are being enqueued for."""


class NewJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that is not in the database yet: its arguments are bound, checked and written as JSON."""

    type: str
    queue: str
    payload: str
    priority: int = 0
    max_attempts: int = 20
    tags: tuple[str, ...] = ()
    meta: Mapping[str, Any] = {}
    delay: float = 0.0
    scheduled_at: datetime | None = None
    unique: UniqueClaim | None = None

    def __repr__(self) -> str:
        return msgspec.Struct.__repr__(msgspec.structs.replace(self, payload=shown(self.payload)))

    def __rich_repr__(self) -> Any:
        return msgspec.Struct.__rich_repr__(msgspec.structs.replace(self, payload=shown(self.payload)))


class Registry(Protocol):
    """What a job type asks of the app it belongs to."""

    @property
    def max_args_bytes(self) -> int: ...

    @property
    def codec(self) -> Codec: ...

    @property
    def settings(self) -> Settings: ...

    async def enqueue(self, new: NewJob, connection: Any = None) -> Enqueued: ...


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How a job type's jobs are made and run; `timeout` in seconds."""

    name: str
    queue: str = "default"
    priority: int = 0
    max_attempts: int = 20
    timeout: float | None = None
    backoff: Backoff | None = None
    executor: Any = None
    unique: Unique | None = None
    breaker: Breaker | None = DEFAULT_BREAKER
    record: bool = False
    tags: tuple[str, ...] = ()
    meta: Mapping[str, Any] = {}
    trace: Literal["continue", "link", "none"] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not NAME.fullmatch(self.name):
            raise InvalidOption(f"a job type's name is letters, digits and . : _ -, at most 128, not {self.name!r:.150}")
        check_queue(self.queue)
        check_number(self.name, "priority", self.priority, 0, 9)
        check_number(self.name, "max_attempts", self.max_attempts, 1, 1000)
        check_timeout(self.name, self.timeout)
        if not isinstance(self.record, bool):
            raise InvalidOption(f"{self.name}: record is True or False, not {self.record!r:.100}")
        if self.backoff is not None and not callable(self.backoff):
            raise InvalidOption(f"{self.name}: backoff is a function, `attempt, error -> seconds`, not {self.backoff!r:.100}")
        if not isinstance(self.breaker, Breaker | None):
            raise InvalidOption(f"{self.name}: breaker takes rj.Breaker(...) or None, not {self.breaker!r:.100}")
        if self.executor is not None:
            checked_executor(f"{self.name}: executor", self.executor)
        check_unique(self.name, self.unique)
        check_meta(self.name, self.meta)
        if self.trace not in (None, "continue", "link", "none"):
            raise InvalidOption(f"{self.name}: trace is one of continue, link, none, not {self.trace!r:.100}")


def options_of(function: Callable[..., Any], name: str | None = None, **options: Any) -> Options:
    """The options of a job type, as `@app.job` takes them; raises InvalidOption."""
    unknown = options.keys() - {*Options.__struct_fields__}
    if unknown:
        raise InvalidOption(f"@app.job takes no {', '.join(sorted(unknown))}; it takes {', '.join(Options.__struct_fields__)}")
    name = _own_name(function) if name is None else name
    options["tags"] = tags_of(name, options.get("tags") or ())
    options["meta"] = meta_of(name, options.get("meta") or {})
    return Options(name=name, **options)


def _own_name(function: Callable[..., Any]) -> str:
    qualname: str | None = getattr(function, "__qualname__", None)
    if qualname is None:
        raise InvalidOption(f"{function!r:.100} has no name of its own; give the job type one: app.job(name='…')(function)")
    return f"{function.__module__}.{qualname}".replace(".<locals>", "")


class Definition(Generic[P, R]):
    """A job type. Calling it just runs the function; `new` makes a job of it, `enqueue` inserts one."""

    def __init__(self, function: Callable[P, R], registry: Registry, options: Options) -> None:
        self.function = function
        self.name = options.name
        self.how = options
        # asked once: to hold a value against a protocol takes as long as all the rest that is done about a job
        self._carrier = registry.codec if isinstance(registry.codec, ValueCodec) else None
        # what a codec carries that JSON has no form for is not read as its type
        self.arguments = Arguments(function, options.name, typed=self._carrier is None)
        self.results = Results(function, options.name) if options.record else None
        """How what it returns is kept, if it is."""
        self.is_async = inspect.iscoroutinefunction(function)
        self.perform: Callable[[Any, Any], Awaitable[Any]] | None = None
        """One run of a job of this type with its middleware around it: set once the app is put together."""
        self.registry = registry
        self._check_unique(options.unique)
        update_wrapper(self, function)

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<job type {self.name}>"

    def new(self, /, *args: P.args, **kwargs: P.kwargs) -> NewJob:
        """A job of this type; raises InvalidArguments where the arguments do not fit or cannot be stored."""
        return self.make(args, kwargs, {}, self.how.unique)

    def make(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], changes: Mapping[str, Any], unique: Unique | None) -> NewJob:
        """A job of this type that differs from the rest in `changes`."""
        how = self.how
        stored, values = self._stored(args, kwargs)
        new = NewJob(
            type=self.name,
            queue=how.queue,
            payload=stored,
            priority=how.priority,
            max_attempts=how.max_attempts,
            tags=how.tags,
            meta=how.meta,
        )
        if changes:
            new = msgspec.structs.replace(new, **changes)
        if unique is None:
            return new
        return msgspec.structs.replace(new, unique=unique.claim(self.name, new.queue, self._defaults() | values(), new.meta))

    def _stored(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[str, Callable[[], dict[str, Any]]]:
        """Arguments as a row holds them, and how they look as plain JSON."""
        most = self.registry.max_args_bytes
        if self._carrier is None:
            payload = self.arguments.dump(args, kwargs, most)
            return self.registry.codec.seal(payload, self.name), lambda: load_untyped(payload)
        given = self.arguments.bind(args, kwargs)
        if (refusal := self.arguments.find_wrong_name(given)) is not None:
            raise InvalidArguments(f"{self.name}: argument {refusal.path.removeprefix('.')}: {refusal.reason}")
        return self._carrier.pack(given, self.name, most), lambda: load_untyped(self.arguments.dump(args, kwargs, most))

    def _defaults(self) -> dict[str, Any]:
        """The defaults of its arguments as they would be stored, where they could be."""
        found: dict[str, Any] = {}
        for parameter in self.arguments.parameters.values():
            if parameter.default is not inspect.Parameter.empty:
                with suppress(Exception):
                    found[parameter.name] = load_untyped(ENCODER.encode(parameter.default).decode())
        return found

    def _check_unique(self, unique: Unique | None) -> None:
        for name in unique.argument_names if unique is not None else ():
            if name not in self.arguments.parameters and not self.arguments.extra:
                known = ", ".join(self.arguments.parameters) or "none"
                raise InvalidOption(f"{self.name}: unique by args.{name}, and its arguments are {known}")

    def read(self, stored: str) -> tuple[dict[str, Any], str]:
        """Stored arguments, typed, and their JSON; raises BadPayload, or whatever the app's codec does."""
        payload = self.registry.codec.open(stored, self.name)
        if self._carrier is not None and (values := self._carrier.unpack(stored, self.name)) is not None:
            return values, payload
        return self.arguments.load(payload), payload

    @property
    def takes_any_values(self) -> bool:
        """Whether its arguments may be what JSON cannot hold."""
        return self._carrier is not None

    def unseal(self, stored: str) -> str:
        """The JSON of arguments as they are stored in a row of this type; raises whatever the app's codec does."""
        return self.registry.codec.open(stored, self.name)

    def seal_result(self, value: Any) -> str | None:
        """A return value as a row holds it; None is nothing. Raises InvalidArguments for one that cannot be kept."""
        if value is None or self.results is None:
            return None
        return self.registry.codec.seal(self.results.dump(value, self.registry.max_args_bytes), self.name)

    def open_result(self, stored: str) -> Any:
        """What `seal_result` has made of a return value, typed; as plain JSON where the type keeps results no more."""
        text = self.unseal(stored)
        return load_untyped(text) if self.results is None else self.results.load(text)

    @property
    def schema(self) -> str:
        """Where its jobs' rows are."""
        return self.registry.settings.schema

    async def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Enqueued:
        """Insert a job of this type; returns once its row is committed."""
        return await self.registry.enqueue(self.new(*args, **kwargs))

    def options(
        self,
        *,
        delay: float | None = None,
        scheduled_at: datetime | None = None,
        priority: int | None = None,
        queue: str | None = None,
        max_attempts: int | None = None,
        tags: Iterable[str] | None = None,
        meta: Mapping[str, Any] | None = None,
        unique: Unique | msgspec.UnsetType | None = msgspec.UNSET,
    ) -> Optioned[P]:
        """Jobs of this type that differ from the rest: to run after `delay` seconds or at `scheduled_at`, in another queue, …

        `unique=None` is for jobs of a type that is unique that need not be.
        """
        changes: dict[str, Any] = {}
        if delay is not None and scheduled_at is not None:
            raise InvalidOption(f"{self.name}: give delay or scheduled_at, not both")
        if delay is not None:
            check_number(self.name, "delay", delay, 0, LONGEST_DELAY.total_seconds(), int | float)
            changes["delay"] = float(delay)
        if scheduled_at is not None:
            check_instant(self.name, scheduled_at)
            changes["scheduled_at"] = scheduled_at
        if priority is not None:
            check_number(self.name, "priority", priority, 0, 9)
            changes["priority"] = priority
        if queue is not None:
            check_queue(queue)
            changes["queue"] = queue
        if max_attempts is not None:
            check_number(self.name, "max_attempts", max_attempts, 1, 1000)
            changes["max_attempts"] = max_attempts
        if tags is not None:
            changes["tags"] = tags_of(self.name, tags)
        if meta is not None:
            changes["meta"] = {**self.how.meta, **meta_of(self.name, meta)}
            check_meta(self.name, changes["meta"])
        if unique is msgspec.UNSET:
            unique = self.how.unique
        check_unique(self.name, unique)
        self._check_unique(unique)
        return Optioned(self, self.registry, changes, unique)


class Optioned(Generic[P]):
    """A job type with options of its own for the jobs made through it."""

    def __init__(
        self, definition: Definition[P, Any], registry: Registry, changes: Mapping[str, Any], unique: Unique | None
    ) -> None:
        self._definition = definition
        self.registry = registry
        self._changes = changes
        self._unique = unique

    def new(self, /, *args: P.args, **kwargs: P.kwargs) -> NewJob:
        """A job with these options."""
        return self._definition.make(args, kwargs, self._changes, self._unique)

    async def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Enqueued:
        """Insert a job with these options; returns once its row is committed."""
        return await self.registry.enqueue(self.new(*args, **kwargs))


def check_unique(owner: str, unique: Any) -> None:
    """Refuse what does not say how jobs are unique."""
    if unique is not None and not isinstance(unique, Unique):
        raise InvalidOption(f"{owner}: unique takes rj.Unique(...), not {unique!r:.100}")


def check_queue(queue: str) -> None:
    """Refuse a queue's name that could not be one."""
    if not isinstance(queue, str) or not QUEUE.fullmatch(queue):
        raise InvalidOption(f"a queue's name is letters, digits and . : / _ -, at most 128, not {str(queue)[:150]!r}")


def check_instant(owner: str, instant: Any) -> None:
    """Refuse an instant that is none, or too far away."""
    if not isinstance(instant, datetime):
        raise InvalidOption(f"{owner}: scheduled_at takes a datetime, not {instant!r:.100}")
    if instant.tzinfo is None:
        raise InvalidOption(f"{owner}: scheduled_at needs a time zone, {instant!r} has none; add tzinfo=UTC")
    if instant < EARLIEST or instant - datetime.now(UTC) > LONGEST_DELAY:
        raise InvalidOption(f"{owner}: scheduled_at is at most ten years away, and in no century before the last, not {instant}")


def meta_of(owner: str, meta: Any) -> dict[str, Any]:
    """The meta that was given."""
    if not isinstance(meta, Mapping):
        raise InvalidOption(f"{owner}: meta is a mapping, not {meta!r:.100}")
    return dict(meta)


def check_meta(owner: str, meta: Mapping[str, Any]) -> None:
    """Refuse meta that a row cannot hold."""
    try:
        dump_untyped(meta, f"{owner}: meta", META_LIMIT)
    except InvalidArguments as error:
        raise InvalidOption(str(error)) from None


def tags_of(owner: str, tags: Any) -> tuple[str, ...]:
    """Tags that were given; refuses those that are too many, too long, or no text."""
    if isinstance(tags, str) or not isinstance(tags, Iterable):
        raise InvalidOption(f"{owner}: tags are a list of text, not {tags!r:.100}")
    count, length = TAG_LIMIT
    given = tuple(tags)
    if len(given) > count or not all(
        isinstance(tag, str) and 0 < len(tag) <= length and clean(tag, length) == tag for tag in given
    ):
        raise InvalidOption(f"{owner}: at most {count} tags of 1 to {length} characters, not {list(given)!r:.200}")
    return given
