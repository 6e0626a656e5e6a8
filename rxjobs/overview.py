"""All that a database tells of a running system in one look: for `rxjobs top` and `rxjobs web`, from any machine."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from rxjobs.app import App
from rxjobs.breakers import BreakerState
from rxjobs.nodes import PipelineStatus, RegisteredNode, StageStatus
from rxjobs.queues import Queue

WINDOW_SECONDS = 300.0
"""Types are told by the jobs that ended since then."""
MOST_ENDED, MOST_TYPES = 20_000, 20
"""So many of those are looked at, and so many types told of."""


LIVING = "living"


class TypeDurations(msgspec.Struct, frozen=True):
    """How long jobs of a type took of late, from their claim to their end, in seconds; `failed` were discarded."""

    type: str
    jobs: int
    failed: int
    p50: float
    p95: float
    longest: float


class Flow(msgspec.Struct, frozen=True, kw_only=True):
    """A pipeline on all nodes that run it, added up; its rates are those of the nodes' last heartbeats."""

    name: str
    queues: tuple[str, ...]
    nodes: int
    held: int
    max_demand: int
    demand: int
    """How many more jobs it would take."""
    running: int
    pending: int
    failed: int
    """Attempts that failed in its queues since the nodes' starts."""
    rate: float | None
    is_paused: bool
    stages: tuple[StageStatus, ...]
    breakers: tuple[BreakerState, ...]
    """Those that are not closed, of the job types that declare its queues."""


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """One look. `rates` are jobs a second that ended, by queue; `age` is how old what nodes tell is at most, in seconds."""

    at: datetime
    queues: tuple[Queue, ...]
    rates: Mapping[str, float]
    flows: tuple[Flow, ...]
    nodes: tuple[RegisteredNode, ...]
    breakers: tuple[BreakerState, ...]
    types: tuple[TypeDurations, ...]
    age: float | None
    are_counted: bool = True
    """Whether the queues could be counted in time."""

    @property
    def rate(self) -> float:
        """Jobs a second that end, in all queues."""
        return sum(self.rates.values())


async def look(
    app: App, *, window: float = WINDOW_SECONDS, is_watching: bool = False, count_seconds: float | None = None
) -> Overview:
    """Look at everything, in the app's database. Who is watching goes on to look: nodes tell of themselves more often meanwhile.

    Queues that cannot be counted within `count_seconds` are left out, and that is told.
    """
    if is_watching:
        await app.nodes.watch()
    server = await app.store.describe_server()
    nodes = await app.nodes.list(gone=0)
    living = [node for node in nodes if node.state == LIVING]
    breakers = await app.breakers.list()
    types = await app.store.durations(window, MOST_ENDED, MOST_TYPES)
    queues = await _counted(app, count_seconds)
    return Overview(
        at=server["now"],
        queues=queues or (),
        are_counted=queues is not None,
        rates=_rates(living),
        flows=flows(living, breakers),
        nodes=tuple(nodes),
        breakers=tuple(breakers),
        types=tuple(TypeDurations(**row) for row in types),
        age=max((node.age for node in nodes if node.age is not None), default=None),
    )


async def _counted(app: App, seconds: float | None) -> tuple[Queue, ...] | None:
    try:
        async with asyncio.timeout(seconds):
            return tuple(await app.queues.list())
    except TimeoutError:
        if seconds is None:
            raise
        return None


def flows(nodes: Iterable[RegisteredNode], breakers: Iterable[BreakerState]) -> tuple[Flow, ...]:
    """The pipelines of nodes, those of one name and the same queues added up."""
    found: dict[tuple[str, tuple[str, ...]], list[PipelineStatus]] = {}
    for node in nodes:
        for pipeline in node.pipelines:
            found.setdefault((pipeline.name, pipeline.queues), []).append(pipeline)
    unwell = [one for one in breakers if one.state != "closed"]
    return tuple(_flow(name, queues, same, unwell) for (name, queues), same in sorted(found.items()))


def _flow(name: str, queues: tuple[str, ...], pipelines: Sequence[PipelineStatus], unwell: Sequence[BreakerState]) -> Flow:
    return Flow(
        name=name,
        queues=queues,
        nodes=len(pipelines),
        held=sum(one.held for one in pipelines),
        max_demand=sum(one.max_demand for one in pipelines),
        demand=sum(one.demand for one in pipelines),
        running=sum(one.running for one in pipelines),
        pending=sum(one.pending for one in pipelines),
        failed=sum(one.failed for one in pipelines),
        rate=_sum(one.rate for one in pipelines),
        is_paused=all(one.is_paused for one in pipelines),
        stages=_stages(pipelines),
        breakers=tuple(one for one in unwell if one.queue in queues),
    )


def _stages(pipelines: Sequence[PipelineStatus]) -> tuple[StageStatus, ...]:
    """The stages of one pipeline on several nodes: those at the same place and of the same name are one."""
    found: dict[tuple[int, str], list[StageStatus]] = {}
    for pipeline in pipelines:
        for place, stage in enumerate(pipeline.stages):
            found.setdefault((place, stage.name), []).append(stage)
    return tuple(
        StageStatus(
            name=name,
            rate=_sum(one.rate for one in same),
            running=sum(one.running for one in same),
            waiting=sum(one.waiting for one in same),
            limit=sum(one.limit for one in same),
            errors=sum(one.errors for one in same),
            dropped=sum(one.dropped for one in same),
        )
        for (_, name), same in sorted(found.items())
    )


def _rates(nodes: Iterable[RegisteredNode]) -> dict[str, float]:
    rates: dict[str, float] = {}
    for node in nodes:
        for pipeline in node.pipelines:
            for queue, rate in pipeline.rates.items():
                rates[queue] = rates.get(queue, 0.0) + rate
    return rates


def _sum(rates: Iterable[float | None]) -> float | None:
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known else None
