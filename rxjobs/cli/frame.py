"""One picture of `rxjobs top`: pipelines with their stages, queues, nodes and the slowest job types, as tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from rxjobs.breakers import BreakerState
from rxjobs.cli.escaping import escape
from rxjobs.cli.printing import cell, count, instant
from rxjobs.job import State
from rxjobs.nodes import RegisteredNode, StageStatus
from rxjobs.overview import Flow, Overview, TypeDurations
from rxjobs.queues import Queue

MIB = 1024 * 1024
STATES = (State.AVAILABLE, State.EXECUTING, State.SCHEDULED, State.RETRYABLE, State.HELD)
SORTS: dict[str, Callable[[Overview, Queue], Any]] = {
    "name": lambda seen, queue: queue.name,
    "depth": lambda seen, queue: -sum(queue.jobs.values()),
    "rate": lambda seen, queue: -seen.rates.get(queue.name, 0.0),
    "oldest": lambda seen, queue: -(queue.waited or 0.0),
}
"""What queues are sorted by."""
BREAKER_STYLES = {"open": "bold red", "half-open": "yellow"}
MARK = "▶"


class Shown(NamedTuple):
    """How a picture is made: of which database, what the queues are sorted by, which one is selected, and in how many rows."""

    place: str
    sort: str = "name"
    selected: str | None = None
    rows: int | None = None
    keys: str = ""
    said: str = ""
    """What became of the last wish, or what is wrong."""


class Section(NamedTuple):
    """A table before it is drawn; `at` is the row that must be seen."""

    columns: Sequence[str]
    rows: list[Sequence[Any]]
    at: int = 0


def queues_in_order(seen: Overview, sort: str) -> list[Queue]:
    """The queues as they are shown."""
    return sorted(seen.queues, key=lambda queue: (SORTS[sort](seen, queue), queue.name))


def picture(seen: Overview, how: Shown) -> RenderableType:
    """What is shown."""
    sections = [_pipelines(seen), _queues(seen, how), _nodes(seen), _types(seen)]
    parts: list[RenderableType] = [_headline(seen, how)]
    for section, room in zip(sections, _rooms(sections, how.rows), strict=True):
        if room:
            parts += ["", _table(section, room)]
    if not any(section.rows for section in sections):
        parts += ["", Text("no node runs and no queue holds unfinished jobs: rxjobs run starts a node", style="dim")]
    if how.keys:
        said = (f"{escape(how.said)}   " if how.said else "", "bold yellow")
        parts += ["", Text.assemble(said, (how.keys, "dim"), no_wrap=True, overflow="ellipsis")]
    return Group(*parts)


def _headline(seen: Overview, how: Shown) -> Text:
    told = "" if seen.age is None else f" as of {seen.age:.0f} s ago"
    return Text.assemble(
        ("rxjobs top", "bold"),
        f"  {instant(seen.at)}  {count(len(seen.nodes), 'node')}{told}  ",
        (f"{rate(seen.rate)} jobs/s", "bold"),
        (f"  queues by {how.sort}  {escape(how.place)}", "dim"),
        no_wrap=True,
        overflow="ellipsis",
    )


def _pipelines(seen: Overview) -> Section:
    rows: list[Sequence[Any]] = []
    for flow in seen.flows:
        rows.append(_pipeline(flow))
        rows += [_stage(stage, is_last=place == len(flow.stages)) for place, stage in enumerate(flow.stages, 1)]
    return Section(["pipeline", "queues", "nodes", "jobs in it", "waiting", "demand", "rate/s", "failed", "breakers"], rows)


def _pipeline(flow: Flow) -> Sequence[Any]:
    name = Text(escape(flow.name), style="bold")
    if flow.is_paused:
        name.append(" paused", style="yellow")
    writing = Text(f"{flow.pending:,} to be written", style="dim") if flow.pending else None
    return [
        name, ", ".join(flow.queues), flow.nodes, Text(f"{flow.held:,}/{flow.max_demand:,}", style="bold"), writing,
        number(flow.demand), Text(rate(flow.rate), style="bold", justify="right"), _failed(flow.failed), _breakers(flow.breakers),
    ]  # fmt: skip


def _stage(stage: StageStatus, *, is_last: bool) -> Sequence[Any]:
    inside = f"{stage.running:,}/{stage.limit:,}" if stage.limit else ""
    name = Text(f"{'└' if is_last else '├'} {escape(stage.name)}")
    errors = _failed(stage.errors) if stage.errors else None
    return [name, None, None, inside, number(stage.waiting or None), None, Text(rate(stage.rate), justify="right"), errors, None]


def _failed(count: int) -> Text:
    return Text(f"{count:,}", style="red" if count else "dim", justify="right")


def _breakers(breakers: Iterable[BreakerState]) -> Text:
    text = Text()
    for one in breakers:
        text.append("  " if text else "")
        text.append(f"{escape(one.type)} ").append(one.state, style=BREAKER_STYLES.get(one.state, ""))
        wait = "by hand" if one.is_by_hand else "" if one.wait is None else f"{one.wait:.0f} s"
        text.append(f" {wait}" if wait else "")
    return text or Text("closed", style="dim")


def _queues(seen: Overview, how: Shown) -> Section:
    rows, at = list[Sequence[Any]](), 0
    for place, queue in enumerate(queues_in_order(seen, how.sort)):
        is_selected = queue.name == how.selected
        at = place if is_selected else at
        name = Text(escape(queue.name), style="bold reverse" if is_selected else "")
        if how.selected is not None:
            name = Text.assemble(f"{MARK} " if is_selected else "  ", name)
        rows.append([
            name, *(number(queue.jobs.get(state, 0)) for state in STATES), _seconds(queue.waited),
            Text(rate(seen.rates.get(queue.name)), justify="right"), _paused(queue), len(queue.nodes),
        ])  # fmt: skip
    return Section(["queue", *(state.value for state in STATES), "oldest", "rate/s", "paused", "nodes"], rows, at)


def _paused(queue: Queue) -> Text:
    where = [one.node for one in queue.asked if one.paused_at is not None]
    if None in where:
        return Text("on all nodes", style="yellow")
    return Text(escape(", ".join(f"on {node}" for node in where if node)), style="yellow")


def _nodes(seen: Overview) -> Section:
    return Section(
        ["node", "state", "lease", "running", "held", "done", "failed", "load", "memory", "loop delay", "host", "pid"],
        [_node(node) for node in seen.nodes],
    )


def _node(node: RegisteredNode) -> Sequence[Any]:
    state = Text("leads", style="bold") if node.is_leading else Text("lives" if node.state == "living" else node.state)
    return [
        node.label or node.id, state, _seconds(node.lease), number(node.running), number(sum(one.held for one in node.pipelines)),
        number(node.completed), _failed(node.failed),
        "" if node.load is None else f"{node.load[0]:.2f} of {node.cpus}",
        "" if node.memory is None else f"{node.memory / MIB:,.0f} MiB",
        "" if node.loop_delay is None else f"{node.loop_delay * 1000:,.0f} ms", node.host, node.pid,
    ]  # fmt: skip


def _types(seen: Overview) -> Section:
    return Section(["slowest job types", "jobs", "failed", "p50", "p95", "longest"], [_type(one) for one in seen.types])


def _type(one: TypeDurations) -> Sequence[Any]:
    return [one.type, number(one.jobs), number(one.failed), *(duration(took) for took in (one.p50, one.p95, one.longest))]


def rate(value: float | None) -> str:
    """Jobs a second; `-` where that is not known yet."""
    return "-" if value is None else f"{value:.1f}" if value < 10 else f"{value:,.0f}"


def duration(seconds: float) -> Text:
    """So long, in a unit that suits."""
    told = f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s" if seconds < 100 else f"{seconds / 60:,.0f} min"
    return Text(told, justify="right")


def number(value: int | None) -> Text:
    """A count, 0 no louder than it is."""
    return Text("" if value is None else f"{value:,}", style="" if value else "dim", justify="right")


def _seconds(value: float | None) -> Text:
    return Text("" if value is None else f"{value:,.0f} s", justify="right")


def _rooms(sections: Sequence[Section], rows: int | None) -> list[int]:
    """How many rows of each section are shown: what one does not need goes to the others."""
    wanted = [len(section.rows) for section in sections]
    if rows is None:
        return wanted
    left = rows - 3 - 2 * sum(map(bool, wanted))  # the headline, the keys, and a blank and a head for each
    rooms = [0] * len(wanted)
    while left > 0 and rooms != wanted:
        for place, want in enumerate(wanted):
            if left > 0 and rooms[place] < want:
                rooms[place] += 1
                left -= 1
    return rooms


def _table(section: Section, room: int) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold cyan", padding=(0, 2, 0, 0))
    begin = max(0, min(section.at - room // 2, len(section.rows) - room))
    hidden = len(section.rows) - room
    for place, column in enumerate(section.columns):
        more = f" ({room} of {len(section.rows)})" if hidden and not place else ""
        table.add_column(column + more, no_wrap=True, overflow="ellipsis")
    for row in section.rows[begin : begin + room]:
        table.add_row(*(value if isinstance(value, Text) else cell(value) for value in row))
    return table
