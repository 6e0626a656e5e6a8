"""Whose providers are used, and how much is told of what happens: `rj.Telemetry`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import msgspec
from opentelemetry import _logs, metrics, trace
from opentelemetry._logs import Logger, LoggerProvider
from opentelemetry.metrics import Meter, MeterProvider
from opentelemetry.trace import Tracer, TracerProvider

from rxjobs.errors import InvalidOption
from rxjobs.telemetry.histograms import HISTOGRAMS, Histograms
from rxjobs.telemetry.names import SCHEMA_URL, SCOPE, VERSION

Mode = Literal["continue", "link", "none"]
"""How an attempt belongs to the trace of its enqueue: as a child, by a link, or not at all."""
MODES = ("continue", "link", "none")
SPANS: Mapping[str, tuple[Any, ...]] = {"fetch": (True, False), "ack": (True, False), "stage": ("slow", "traced", False)}
METRICS: Mapping[str, tuple[Any, ...]] = {"kind": (True, False), "fast": (True, False)}
"""What may be said of which spans and metrics are made."""
PREFIX = "RXJOBS_TELEMETRY_"
TRUE, FALSE = ("true", "1", "on", "yes"), ("false", "0", "off", "no")


class How(msgspec.Struct, frozen=True, kw_only=True):
    """How much is told: the options of Telemetry, with what holds where none is given."""

    trace: Mode = "continue"
    trace_max_age: float = 3600.0
    fetch_spans: bool = False
    ack_spans: bool = False
    stage_spans: Literal["slow", "traced", "none"] = "slow"
    create_span_limit: int = 64
    names_kind: bool = False
    tells_kind: bool = True
    histograms: Histograms | None = None
    """Where histograms are summed up by rxjobs itself; None where OpenTelemetry's SDK does."""
    baggage_attributes: tuple[str, ...] = ()


class Telemetry(msgspec.Struct, frozen=True, kw_only=True):
    """Where an app's traces, metrics and logs go, and how much is told. By default they go to the process's own providers.

    `trace` says how a job's attempts belong to the trace of its enqueue: "continue" it, "link" to it, or "none"; after
    `trace_max_age` seconds, and after five attempts, what would continue it links.

    `spans` says which are made beside those of enqueue and process: {"fetch": False, "ack": False, "stage": "slow"}. "slow" is
    work of a stage over 5 ms, and all of stages with traced=True; "traced" those alone; False none. A batch of at most
    `create_span_limit` has a span for each of its jobs. `span_name` is "queue" or "kind": what follows on `process`.

    `metrics` is {"kind": True, "fast": False}: whether job types are told apart, and whether rxjobs sums durations up itself, which
    `rxjobs.telemetry.fast` exports. `baggage_attributes` are keys of the baggage that spans tell.

    What is not given is taken from RXJOBS_TELEMETRY_TRACE, _TRACE_MAX_AGE, _SPANS ("fetch=on,ack=on"), _CREATE_SPAN_LIMIT,
    _SPAN_NAME, _METRICS ("kind=off") and _BAGGAGE_ATTRIBUTES ("tenant.id,plan"). Raises InvalidOption.
    """

    tracer_provider: TracerProvider | None = None
    meter_provider: MeterProvider | None = None
    logger_provider: LoggerProvider | None = None
    trace: Mode | None = None
    trace_max_age: float | None = None
    spans: Mapping[str, Any] | None = None
    create_span_limit: int | None = None
    span_name: Literal["queue", "kind"] | None = None
    metrics: Mapping[str, Any] | None = None
    baggage_attributes: Iterable[str] | None = None

    def __post_init__(self) -> None:
        self.how({})

    @property
    def tracer(self) -> Tracer:
        """The tracer of rxjobs."""
        return trace.get_tracer(SCOPE, VERSION, self.tracer_provider, SCHEMA_URL)

    @property
    def logger(self) -> Logger:
        """The logger of rxjobs, for events with a name."""
        return _logs.get_logger(SCOPE, VERSION, self.logger_provider, SCHEMA_URL)

    def how(self, environ: Mapping[str, str] = os.environ) -> How:
        """How much is told, by what is given here, or else by variables; raises InvalidOption, which says where it was set."""

        def given(name: str, read: Callable[[str], Any], fallback: Any) -> tuple[Any, str]:
            value = getattr(self, name)
            if value is not None:
                return value, f"Telemetry({name}=…)"
            variable = PREFIX + name.upper()
            text = environ.get(variable, "").strip()
            if not text:
                return fallback, variable
            try:
                return read(text), variable
            except ValueError:
                raise InvalidOption(f"{variable}={text!r} cannot be read") from None

        spans = _chosen(*given("spans", _pairs, {}), SPANS)
        metrics, where = given("metrics", _pairs, {})
        own = metrics.get("fast") if isinstance(metrics, Mapping) else None
        is_own = isinstance(own, Histograms)
        chosen = _chosen({**metrics, "fast": True} if is_own else metrics, where, METRICS)
        return How(
            trace=_one_of(*given("trace", str, "continue"), MODES),
            trace_max_age=_number(*given("trace_max_age", float, 3600.0)),
            fetch_spans=spans.get("fetch", False),
            ack_spans=spans.get("ack", False),
            stage_spans=spans.get("stage", "slow") or "none",
            create_span_limit=int(_number(*given("create_span_limit", int, 64))),
            names_kind=_one_of(*given("span_name", str, "queue"), ("queue", "kind")) == "kind",
            tells_kind=chosen.get("kind", True),
            histograms=own if is_own else HISTOGRAMS if chosen.get("fast", False) else None,
            baggage_attributes=_words(*given("baggage_attributes", _listed, ())),
        )


def meter_of(provider: MeterProvider | None) -> Meter:
    """The meter of rxjobs."""
    return metrics.get_meter(SCOPE, VERSION, provider, SCHEMA_URL)


def is_set(provider: Any) -> bool:
    """Whether somebody set this provider of the process: until then OpenTelemetry gives a proxy."""
    return "Proxy" not in type(provider).__name__


def _one_of(value: Any, where: str, choices: tuple[Any, ...]) -> Any:
    if value not in choices:
        raise InvalidOption(f"{where} is one of {', '.join(map(str, choices))}, not {value!r:.100}")
    return value


def _number(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 10**9:
        raise InvalidOption(f"{where} is a number of at least 0, not {value!r:.100}")
    return value


def _chosen(value: Any, where: str, choices: Mapping[str, tuple[Any, ...]]) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidOption(f"{where} is a mapping of {', '.join(choices)}, not {value!r:.100}")
    for name, one in value.items():
        if name not in choices:
            raise InvalidOption(f"{where} has no {name!r:.100}; it has {', '.join(choices)}")
        # True is 1, and 1 is no answer here
        if not any(one is choice or (isinstance(one, str) and one == choice) for choice in choices[name]):
            raise InvalidOption(f"{where}: {name} is one of {', '.join(map(repr, choices[name]))}, not {one!r:.100}")
    return dict(value)


def _words(value: Any, where: str) -> tuple[str, ...]:
    words = (value,) if isinstance(value, str) or not isinstance(value, Iterable) else tuple(value)
    if isinstance(value, str) or not all(isinstance(word, str) and word for word in words):
        raise InvalidOption(f"{where} are names of baggage, such as ('tenant.id',), not {value!r:.100}")
    return words


def _listed(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _pairs(text: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for one in _listed(text):
        name, is_given, value = (part.strip() for part in one.partition("="))
        if not is_given:
            raise ValueError(one)
        found[name] = True if value.lower() in TRUE else False if value.lower() in FALSE else value
    return found
