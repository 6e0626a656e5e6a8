"""Histograms as rxjobs records them: by OpenTelemetry's SDK, or as sums of its own that cost a fiftieth of that.

The SDK sorts and hashes the attributes of every single record. Here each set of attributes has its own place, found once.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.metrics import Meter

from rxjobs.telemetry.names import Metric

Attributes = Mapping[str, str]
Record = Callable[..., None]
"""Record a value, and as `context` the one that it was measured in, where that is not the current one."""


class Exemplar(NamedTuple):
    """One value, and the span that it was measured in."""

    value: float
    at: int
    trace_id: int
    span_id: int


class Sums:
    """What one set of attributes has been measured as: how often each bucket, the sum, the least and the most."""

    __slots__ = ("attributes", "bounds", "buckets", "exemplars", "least", "most", "sum")

    def __init__(self, attributes: Attributes, bounds: tuple[float, ...]) -> None:
        self.attributes = attributes
        self.bounds = bounds
        self.buckets = [0] * (len(bounds) + 1)
        self.sum = 0.0
        self.least, self.most = float("inf"), float("-inf")
        self.exemplars: dict[int, Exemplar] = {}

    def record(self, value: float, context: Context | None = None) -> None:
        """Take a value in."""
        if value != value:  # NaN: the sum would stay one for good
            return
        place = bisect_left(self.bounds, value)
        self.buckets[place] += 1
        self.sum += value
        if value < self.least:
            self.least = value
        if value > self.most:
            self.most = value
        if context is not None:
            span = trace.get_current_span(context).get_span_context()
            if span.trace_flags.sampled:
                self.exemplars[place] = Exemplar(value, time.time_ns(), span.trace_id, span.span_id)


class Histograms:
    """Sums of all histograms, for `rxjobs.telemetry.fast` to export."""

    def __init__(self) -> None:
        self.began = time.time_ns()
        self.is_exported = False
        """Whether something exports them: `rxjobs run` sees to that."""
        self._sums: dict[Metric, dict[frozenset[tuple[str, str]], Sums]] = {}

    def of(self, metric: Metric, attributes: Attributes) -> Sums:
        """The sums of one set of attributes."""
        sums = self._sums.setdefault(metric, {})
        key = frozenset(attributes.items())
        if key not in sums:
            sums[key] = Sums(attributes, metric.bounds)
        return sums[key]

    def all(self) -> dict[Metric, list[Sums]]:
        """The sums there are. Read by the thread that exports, while others go on."""
        return {metric: list(sums.values()) for metric, sums in list(self._sums.items())}


HISTOGRAMS = Histograms()
"""Those of this process."""


class Timing:
    """One histogram of a meter, or its sums in `histograms`; with neither given, whichever is exported when it is first used."""

    def __init__(self, metric: Metric, meter: Meter, histograms: Histograms | None, *, may_be_fast: bool) -> None:
        bounds: Any = metric.bounds
        self._metric = metric
        self._histogram = meter.create_histogram(
            metric.name, metric.unit, metric.description, explicit_bucket_boundaries_advisory=bounds
        )
        self._histograms = histograms
        self._may_be_fast = may_be_fast
        self._found: dict[tuple[str, ...], Record] = {}

    @property
    def sums(self) -> Histograms | None:
        """Where it is summed up, if not by the SDK."""
        return HISTOGRAMS if self._histograms is None and self._may_be_fast and HISTOGRAMS.is_exported else self._histograms

    def of(self, attributes: Attributes) -> Record:
        """What records values with these attributes: to be kept by whoever does so again and again."""
        sums = self.sums
        if sums is not None:
            return sums.of(self._metric, attributes).record
        record = self._histogram.record
        # a partial function with an argument by name takes twice as long to call
        return lambda value, context=None: record(value, attributes, context)

    def by(self, *values: str) -> Record:
        """The same by the values of the metric's attributes, in their order; an empty one is left out."""
        record = self._found.get(values)
        if record is None:
            told = {name: value for name, value in zip(self._metric.attributes, values, strict=True) if value}
            record = self._found[values] = self.of(told)
        return record
