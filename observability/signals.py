"""Write signals.md: the table of all that rxjobs tells, from rxjobs/telemetry/names.py and rxjobs/events.py.

python -m observability.signals            (with --check: say whether it is up to date)
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from observability.generated import write_or_check
from observability.naming import metric_name
from rxjobs import events
from rxjobs.telemetry import names

PAGE = Path(__file__).with_name("signals.md")

KINDS = {
    "counter": "Counter",
    "updown": "UpDownCounter",
    "gauge": "Gauge",
    "histogram": "Histogram",
}


def page() -> str:
    """The page."""
    return "\n".join(
        [
            "# Signals",
            "",
            "Written by `python -m observability.signals` from `rxjobs/telemetry/names.py` and `rxjobs/events.py`; do not edit.",
            "What they are for and how to read them: [docs/telemetry.md](../docs/telemetry.md).",
            "",
            "## Metrics",
            "",
            "In Prometheus a histogram has `_bucket`, `_sum` and `_count`, and each dot of an attribute is an underscore. Which",
            "process a series comes from is the resource's `service.instance.id`: the label `instance`.",
            "",
            *_table(["name", "in Prometheus", "kind", "unit", "attributes", "what"], _metrics()),
            "",
            "## Buckets",
            "",
            *_table(["histogram", "upper bounds"], _buckets()),
            "",
            "## Values",
            "",
            "Attributes of metrics with a closed set of values. Queues, job types, stages and breakers are an app's own names; a",
            f"job type that is not registered, and an error beyond the first {names.ERROR_TYPES} of a type, is `{names.OTHER}`.",
            "",
            *_table(["attribute", "values"], _values()),
            "",
            "## Spans",
            "",
            *_table(["name", "kind", "attributes", "what"], _spans()),
            "",
            f"Events on a span: `{names.EXCEPTION_EVENT}` with `{names.EXCEPTION_TYPE}`, `{names.EXCEPTION_MESSAGE}` and",
            f"`{names.EXCEPTION_STACKTRACE}`; `{names.SPAN_HEARTBEAT_LOST}`; `{names.SPAN_TIMEOUT}`; `{names.SPAN_BREAKER}`.",
            f"Links say in `{names.LINK_KIND}` what they lead to: {_listed(names.VALUES[names.LINK_KIND])}.",
            "",
            "## Log events",
            "",
            *_table(["name", "severity", "attributes", "what"], _log_events()),
            "",
            "## Events",
            "",
            "Frozen values on `app.events`, in one process. Each has `system_time` and `monotonic_time` too, in nanoseconds.",
            "",
            *_table(["name", "class in rxjobs.events", "fields", "what"], _events()),
            "",
        ]
    )


def _metrics() -> Iterator[list[str]]:
    for metric in names.METRICS:
        yield [
            f"`{metric.name}`",
            f"`{metric_name(metric)}`",
            KINDS[metric.kind],
            f"`{metric.unit}`",
            _listed(metric.attributes),
            metric.description,
        ]


def _buckets() -> Iterator[list[str]]:
    for metric in names.METRICS:
        if metric.bounds:
            yield [f"`{metric.name}`", " ".join(f"{bound:g}" for bound in metric.bounds)]


def _values() -> Iterator[list[str]]:
    told = {attribute for metric in names.METRICS for attribute in metric.attributes}
    for attribute, values in names.VALUES.items():
        if attribute in told:
            yield [f"`{attribute}`", _listed(values)]


def _spans() -> Iterator[list[str]]:
    for span in names.SPANS:
        yield [f"`{span.name}`", span.kind.upper(), _listed(span.attributes), span.description]


def _log_events() -> Iterator[list[str]]:
    for event in names.LOG_EVENTS:
        yield [f"`{event.name}`", event.severity, _listed(event.attributes), event.description]


def _events() -> Iterator[list[str]]:
    hidden = set(events.Event.__struct_fields__)
    found = [value for value in vars(events).values() if isinstance(value, type) and issubclass(value, events.Event)]
    for event in found:
        if hasattr(event, "name"):  # the others are what events have in common
            fields = [field for field in event.__struct_fields__ if field not in hidden]
            yield [f"`{event.name}`", f"`{event.__name__}`", _listed(fields), " ".join((event.__doc__ or "").split())]


def _listed(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def _table(head: list[str], rows: Iterable[list[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


if __name__ == "__main__":
    sys.exit(write_or_check({PAGE: page()}, "observability.signals"))
