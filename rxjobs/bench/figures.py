"""What the bench finds: figures by the round, each beside the one that it is held against, and what was not to be measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median

import msgspec

Values = Mapping[str, float]
"""What was found of one case in one round, by the names of MEASURES."""


class Measure(msgspec.Struct, frozen=True):
    """A kind of figure: its unit, digits behind the point, and whether its ratio to another says something."""

    unit: str
    digits: int
    has_ratio: bool = False


MEASURES: Mapping[str, Measure] = {
    "rate": Measure("jobs/s", 0, has_ratio=True),
    "cpu": Measure("CPU µs/job", 1, has_ratio=True),
    "p50": Measure("p50 ms", 2, has_ratio=True),
    "p95": Measure("p95 ms", 2, has_ratio=True),
    "p99": Measure("p99 ms", 2, has_ratio=True),
    "peak": Measure("peak MB", 1),
    "growth": Measure("growth MB", 1),
    "before": Measure("MB before", 1),
    "after": Measure("MB after", 1),
    "per_job": Measure("KB/job", 2),
    "hop": Measure("µs", 0),
}


class Key(msgspec.Struct, frozen=True):
    """Which case of a scenario: its name, and who ran it."""

    scenario: str
    case: str
    runner: str

    @property
    def short(self) -> str:
        """What it is called beside others of its scenario: of several that run one case, who it is."""
        return self.case if self.runner == "rxjobs" else self.runner


class Found(msgspec.Struct, frozen=True):
    """One figure over the rounds; None for a round in which it was not to be measured."""

    rounds: Sequence[float | None]
    median: float
    least: float
    most: float

    def told(self, digits: int) -> str:
        """The median, and the range if there were rounds to range over."""
        median = f"{self.median:,.{digits}f}"
        return median if len(self.rounds) == 1 else f"{median} ({self.least:,.{digits}f}-{self.most:,.{digits}f})"


class Ratio(Found, frozen=True):
    """A figure divided by that of another case in the same round."""

    of: str


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A figure; `x` is the number that the cases of its scenario differ by, if there is one."""

    scenario: str
    case: str
    x: int | None
    runner: str
    measure: str
    unit: str
    found: Found
    ratio: Ratio | None


class Missing(msgspec.Struct, frozen=True):
    """What was not to be measured, and why."""

    scenario: str
    case: str
    runner: str
    round: int
    reason: str


class Subject(msgspec.Struct, frozen=True):
    """What figures are asked of: a case, the number it stands for, and the case that it is held against."""

    key: Key
    x: int | None = None
    base: Key | None = None


Rounds = Mapping[Key, Sequence[Values | None]]
"""What was found of each case, round by round; None where it was not to be measured."""


def figures(subjects: Iterable[Subject], rounds: Rounds) -> Iterator[Figure]:
    """All that was found, in the order of the cases."""
    for subject in subjects:
        for name, measure in MEASURES.items():
            values = _values(rounds, subject.key, name)
            found = _over(values)
            if found is not None:
                yield Figure(
                    scenario=subject.key.scenario,
                    case=subject.key.case,
                    x=subject.x,
                    runner=subject.key.runner,
                    measure=name,
                    unit=measure.unit,
                    found=found,
                    ratio=_ratio(values, rounds, subject.base, name) if measure.has_ratio and subject.base else None,
                )


def _values(rounds: Rounds, key: Key, name: str) -> list[float | None]:
    return [None if values is None else values.get(name) for values in rounds.get(key, ())]


def _over(values: Sequence[float | None]) -> Found | None:
    known = [value for value in values if value is not None]
    return Found(values, median(known), min(known), max(known)) if known else None


def _ratio(values: Sequence[float | None], rounds: Rounds, base: Key, name: str) -> Ratio | None:
    pairs = zip(values, _values(rounds, base, name), strict=False)
    over = _over([None if value is None or not other else value / other for value, other in pairs])
    return None if over is None else Ratio(over.rounds, over.median, over.least, over.most, base.short)
