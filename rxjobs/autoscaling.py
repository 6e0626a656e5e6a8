"""How a pull's demand follows its load: what was seen, and what to do about it, as a function of nothing else."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec

from rxjobs.errors import InvalidOption

MOST = 1_000_000
Steps = tuple[tuple[int, int], ...]


class Depth(msgspec.Struct, frozen=True):
    """How many jobs a source could give now, at least, and for how many seconds the oldest of them has waited (None: not known)."""

    ready: int
    oldest_seconds: float | None = None


@runtime_checkable
class Measured(Protocol):
    """A source that can say how much waits in it; it need not count further than `most`."""

    async def depth(self, most: int) -> Depth: ...


class Autoscale(msgspec.Struct, frozen=True, kw_only=True):
    """How demand follows load: what `rj.autoscale` makes. A step is added to max_demand at a look, one every so many seconds."""

    min: int
    max: int
    above: Steps
    """Jobs that are ready, and the step where there are more: the highest first."""
    below: Steps
    """Jobs that are ready, and the step where there are fewer: the lowest first."""
    latency: float | None
    loop_delay: float | None
    cpu: float | None
    every: float

    @property
    def most(self) -> int:
        """As many ready jobs as make a difference."""
        return max((ready for ready, _ in (*self.above, *self.below)), default=0) + 1


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What is seen at a look.

    `depth` is None for a source that cannot say; then `came_back_full` tells whether a fetch since the last look gave all that was
    asked for. `loop_delay` is by how many seconds the event loop is late, `cpu` how much of one processor this process takes.
    """

    demand: int
    held: int = 0
    depth: Depth | None = None
    came_back_full: bool = False
    loop_delay: float = 0.0
    cpu: float = 0.0


class Step(msgspec.Struct, frozen=True):
    """What max_demand is to be, and why."""

    demand: int
    reason: str


def autoscale(
    min: int = 1,
    max: int = 10,
    preset: Literal["genstage"] | None = None,
    *,
    above: Mapping[int, int] | None = None,
    below: Mapping[int, int] | None = None,
    latency: float | None = None,
    loop_delay: float | None = None,
    cpu: float | None = None,
    every: float = 5.0,
) -> Autoscale:
    """A `max_demand` between `min` and `max` that follows load: `app.source("mail", max_demand=rj.autoscale(10, 200))`.

    Every `every` seconds it is looked how many jobs are ready, how long the oldest has waited, by how much this node's event loop
    is late, and how much of a processor it takes. `above={1000: 2}` adds 2 where more than 1000 are ready, `below={10: -1}` takes 1
    where fewer than 10 are; the oldest having waited longer than `latency` seconds counts like the smallest of `above`. While the
    loop is later than `loop_delay` seconds, or `cpu` is exceeded, demand only falls. Of a source that does not know how many are
    ready, it rises while fetches give all that was asked for, and falls while half of the places are free.

    By default demand rises by a tenth of its range with more than `max` jobs ready, or one that has waited 5 s; by a quarter with
    ten times as many; and falls by a tenth when there are fewer than `min`; above 0.1 s of delay or 90 % of a processor it falls.
    `preset="genstage"`: above 1000 jobs 2 more, above 100 one more, below 10 one fewer, whatever else is seen.
    """
    _check_whole("min", min, 1)
    _check_whole("max", max, min)
    if preset not in (None, "genstage"):
        raise InvalidOption(f'rj.autoscale: preset is "genstage" or None, not {preset!r}')
    for name, seconds in (("latency", latency), ("loop_delay", loop_delay), ("cpu", cpu), ("every", every)):
        _check_above_0(name, seconds, may_be_none=name != "every")
    tenth, quarter = _share(max - min, 10), _share(max - min, 4)
    if preset == "genstage":
        usual = Autoscale(
            min=min, max=max, above=((1000, 2), (100, 1)), below=((10, -1),), latency=None, loop_delay=None, cpu=None, every=every
        )
    else:
        usual = Autoscale(
            min=min, max=max, above=((10 * max, quarter), (max, tenth)), below=((min, -tenth),),
            latency=5.0, loop_delay=0.1, cpu=0.9, every=every,
        )  # fmt: skip
    given: dict[str, Any] = {
        name: value for name, value in (("latency", latency), ("loop_delay", loop_delay), ("cpu", cpu)) if value
    }
    if above is not None:
        given["above"] = _steps("above", above, 1)
    if below is not None:
        given["below"] = _steps("below", below, -1)
    return msgspec.structs.replace(usual, **given)


def decide(how: Autoscale, load: Load) -> Step:
    """What max_demand is to be after this look, and why."""
    wanted, reason = _wanted(how, load)
    busy = _busy(how, load)
    if busy is not None and wanted >= 0:
        wanted, reason = -_smallest(how.below), busy
    return Step(max(how.min, min(how.max, load.demand + wanted)), reason)


def _wanted(how: Autoscale, load: Load) -> tuple[int, str]:
    if load.depth is None:
        return _wanted_unseen(how, load)
    ready, oldest = load.depth.ready, load.depth.oldest_seconds
    for least, step in how.above:
        if ready > least:
            return step, f"more than {least} jobs are ready"
    if how.latency is not None and oldest is not None and oldest > how.latency:
        return _smallest(how.above), f"the oldest job has waited {oldest:.1f} s"
    for most, step in how.below:
        if ready < most:
            return step, f"fewer than {most} jobs are ready"
    return 0, f"{ready} jobs are ready"


def _wanted_unseen(how: Autoscale, load: Load) -> tuple[int, str]:
    if load.came_back_full:
        return _smallest(how.above), "fetches give all that was asked for"
    if load.held <= load.demand // 2:
        return -_smallest(how.below), "half of the places are free"
    return 0, "fetches give less than was asked for"


def _busy(how: Autoscale, load: Load) -> str | None:
    if how.loop_delay is not None and load.loop_delay > how.loop_delay:
        return f"the event loop of this node is late by {load.loop_delay:.2f} s"
    if how.cpu is not None and load.cpu > how.cpu:
        return f"this node takes {load.cpu:.0%} of a processor"
    return None


def _smallest(steps: Steps) -> int:
    return min((abs(step) for _, step in steps), default=1)


def _share(span: int, parts: int) -> int:
    return max(1, span // parts)


def _steps(name: str, given: Mapping[int, int], sign: int) -> Steps:
    good = isinstance(given, Mapping) and all(
        _is_whole(ready) and ready >= 0 and _is_whole(step) and step * sign > 0 for ready, step in given.items()
    )
    if not good:
        example = "{1000: 2, 100: 1}" if sign > 0 else "{10: -1}"
        raise InvalidOption(f"rj.autoscale: {name} maps how many jobs are ready to a step, such as {example}, not {given!r:.200}")
    return tuple(sorted(given.items(), reverse=sign > 0))


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check_whole(name: str, value: Any, least: int) -> None:
    if not _is_whole(value) or not least <= value <= MOST:
        raise InvalidOption(f"rj.autoscale: {name} is a whole number from {least} to {MOST}, not {value!r:.100}")


def _check_above_0(name: str, value: Any, *, may_be_none: bool) -> None:
    if value is None and may_be_none:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise InvalidOption(f"rj.autoscale: {name} is a number above 0{', or None' if may_be_none else ''}, not {value!r:.100}")
