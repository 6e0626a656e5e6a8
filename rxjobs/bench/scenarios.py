"""What there is to measure: the cases of each scenario, and how many jobs each takes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import msgspec

from rxjobs.bench import measure
from rxjobs.bench.figures import Key, Subject, Values
from rxjobs.bench.ground import Ground
from rxjobs.bench.said import Level, Runner, Way

Scenario = Literal["throughput", "backlog", "enqueue", "latency", "telemetry", "memory", "processes"]
SHORT: Sequence[Scenario] = ("throughput", "enqueue", "latency")
"""What is measured where nothing is said: about a minute."""
LEVELS: Sequence[Level] = ("off", "metrics", "sampled-10", "all")
RUNNERS: Sequence[Runner] = ("raw", "rxjobs")
CONCURRENCIES = (10, 50, 200, 1000)
AT_ONCE = (50, 1000)
"""Jobs at once in each of several worker processes."""
WAYS: Mapping[Way, str] = {"bulk": "enqueue_many", "single": "one at a time", "together": "twenty callers"}
LEAST = 20
"""Fewer jobs than this measure nothing."""


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs each scenario takes."""

    throughput: int = 20_000
    backlogs: Sequence[int] = (1_000, 100_000)
    of_backlog: int = 10_000
    bulk: int = 40_000
    single: int = 2_000
    together: int = 10_000
    paced: int = 100
    memory: int = 100_000
    in_flight: int = 1_000
    """So many at first, and then ten times as many."""
    workers: int = 60_000
    computing: int = 200
    hops: int = 1_000

    def scaled(self, factor: float) -> Sizes:
        """So many times as many; never so few that there is nothing to measure."""

        def scale(size: Any) -> Any:
            return tuple(map(scale, size)) if isinstance(size, tuple) else max(LEAST, round(size * factor))

        return Sizes(**{name: scale(size) for name, size in msgspec.structs.asdict(self).items()})


FULL = Sizes(
    throughput=100_000,
    backlogs=(1_000, 100_000, 1_000_000),
    bulk=200_000,
    single=10_000,
    together=50_000,
    paced=300,
    memory=1_000_000,
    workers=200_000,
    computing=1_000,
    hops=5_000,
)


def sizes(jobs: int | None, *, full: bool) -> Sizes:
    """The sizes at which `jobs` jobs are those of `throughput`, and all others in proportion."""
    given = FULL if full else Sizes()
    return given if jobs is None else given.scaled(jobs / given.throughput)


Measuring = Callable[..., Awaitable[Values]]


class Case(msgspec.Struct, frozen=True):
    """One thing to measure, again in each round."""

    subject: Subject
    measure: Callable[[Ground], Awaitable[Values]]


def cases(scenario: Scenario, sizes: Sizes, levels: Sequence[Level] = LEVELS) -> list[Case]:
    """The cases of a scenario, in the order they are measured in."""
    match scenario:
        case "throughput":
            return _throughput(sizes)
        case "backlog":
            return _backlog(sizes)
        case "enqueue":
            return _enqueue(sizes)
        case "latency":
            return _latency(sizes)
        case "telemetry":
            return _telemetry(sizes, levels)
        case "memory":
            return _memory(sizes)
        case "processes":
            return _processes(sizes)


def _throughput(sizes: Sizes) -> list[Case]:
    return [
        _raced("throughput", f"concurrency {limit:,}", runner, measure.throughput, limit, jobs=sizes.throughput, concurrency=limit)
        for limit in CONCURRENCIES
        for runner in RUNNERS
    ]


def _backlog(sizes: Sizes) -> list[Case]:
    return [
        _raced("backlog", f"{depth:,} queued", runner, measure.backlog, depth, jobs=sizes.of_backlog, depth=depth)
        for depth in dict.fromkeys(sizes.backlogs)
        for runner in RUNNERS
    ]


def _enqueue(sizes: Sizes) -> list[Case]:
    counts: Mapping[Way, int] = {"bulk": sizes.bulk, "single": sizes.single, "together": sizes.together}
    return [
        _raced("enqueue", WAYS[way], runner, measure.enqueue, way=way, count=count)
        for way, count in counts.items()
        for runner in RUNNERS
    ]


def _latency(sizes: Sizes) -> list[Case]:
    return [_raced("latency", "20 jobs/s, idle worker", runner, measure.latency, count=sizes.paced) for runner in RUNNERS]


def _telemetry(sizes: Sizes, levels: Sequence[Level]) -> list[Case]:
    # nothing is dear or cheap by itself: what is off is always measured too
    asked = [level for level in LEVELS if level == "off" or level in levels]
    return [
        _ours("telemetry", level, measure.telemetry, base=None if level == "off" else "off", jobs=sizes.throughput, level=level)
        for level in asked
    ]


def _memory(sizes: Sizes) -> list[Case]:
    few, many = sizes.in_flight, 10 * sizes.in_flight
    return [
        _ours("memory", f"{sizes.memory:,} jobs", measure.memory, jobs=sizes.memory),
        _ours("memory", f"{few:,}, then {many:,} in flight", measure.in_flight, few=few, many=many),
    ]


def _processes(sizes: Sizes) -> list[Case]:
    here, alone = "CPU-bound, in the worker", "CPU-bound, one bare process"
    return [
        *(case for limit in AT_ONCE for runner in RUNNERS for case in _one_and_two(sizes, limit, runner)),
        _ours("processes", here, measure.compute, jobs=sizes.computing, children=0),
        _ours("processes", "CPU-bound, in_processes(2)", measure.compute, base=here, jobs=sizes.computing, children=2),
        _ours("processes", alone, measure.bare, jobs=sizes.computing, processes=1),
        _ours("processes", "CPU-bound, two bare processes", measure.bare, base=alone, jobs=sizes.computing, processes=2),
        _ours("processes", "call into a child process", measure.hop, count=sizes.hops),
    ]


def _one_and_two(sizes: Sizes, limit: int, runner: Runner) -> list[Case]:
    """One worker process, and two held against it; so many jobs at once in each."""
    kind, kinds = ("worker process", "worker processes") if runner == "rxjobs" else ("raw loop", "raw loops")
    one, two = f"one {kind}, {limit:,} at once", f"two {kinds}, {limit:,} at once in each"
    options: dict[str, Any] = {"runner": runner, "jobs": sizes.workers, "concurrency": limit}
    return [
        _ours("processes", one, measure.workers, count=1, **options),
        _ours("processes", two, measure.workers, base=one, count=2, **options),
    ]


def _raced(scenario: Scenario, case: str, runner: Runner, how: Measuring, x: int | None = None, **options: Any) -> Case:
    """A case that both runners are measured in."""
    key = Key(scenario, case, runner)
    base = None if runner == "raw" else Key(scenario, case, "raw")
    return Case(Subject(key, x, base), partial(how, runner=runner, **options))


def _ours(scenario: Scenario, case: str, how: Measuring, base: str | None = None, **options: Any) -> Case:
    """A case of rxjobs alone, held against another one by name."""
    against = None if base is None else Key(scenario, base, "rxjobs")
    return Case(Subject(Key(scenario, case, "rxjobs"), None, against), partial(how, **options))
