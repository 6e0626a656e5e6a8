"""The rows as they ought to be: the simplest thing that does what the statements of rxjobs.store are meant to do."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

from rxjobs.job import Job, State
from rxjobs.outcome import Finished
from rxjobs.store.encoding import Written

EPOCH = datetime(2030, 1, 1, tzinfo=UTC)
TICK = timedelta(milliseconds=1)
TERMINAL = frozenset({"completed", "discarded", "cancelled"})
SECOND_RESCUE = 40.0
"""Seconds that a job waits which was rescued before: the machine puts this in the place of a time with jitter."""


@dataclass(frozen=True)
class Row:
    """A job. `rescues` counts the attempts that were written off."""

    id: int
    state: str
    scheduled_at: datetime
    max_attempts: int
    priority: int = 0
    attempt: int = 0
    attempted_at: datetime | None = None
    node: UUID | None = None
    rescues: int = 0
    is_marked: bool = False
    """Whether it was asked to be cancelled while it ran."""

    @property
    def is_terminal(self) -> bool:
        return self.state in TERMINAL


@dataclass
class Rows:
    """All jobs, nodes and the leader, by a clock that the test turns."""

    now: datetime = EPOCH
    jobs: dict[int, Row] = field(default_factory=dict)
    nodes: dict[UUID, datetime | None] = field(default_factory=dict)
    """When each lease ends; None where it was taken away."""
    leader: tuple[UUID, int, datetime] | None = None
    paused: set[UUID | None] = field(default_factory=set)
    """The nodes that the queue is paused for; None is all of them."""

    def is_paused(self, node: UUID) -> bool:
        return not self.paused.isdisjoint((None, node))

    def pause(self, node: UUID | None) -> bool:
        is_new = node not in self.paused
        self.paused.add(node)
        return is_new

    def resume(self, node: UUID | None) -> bool:
        ended = self.paused if node is None else self.paused & {node}
        self.paused = self.paused - ended
        return bool(ended)

    def tick(self) -> None:
        """Two things never happen at one instant."""
        self.now += TICK

    def insert(self, id: int, max_attempts: int, priority: int, delay: float) -> None:
        due = self.now + timedelta(seconds=delay)
        self.jobs[id] = Row(id, "scheduled" if delay else "available", due, max_attempts, priority)

    def claim(self, node: UUID, n: int) -> list[Job]:
        if not self._is_alive(node) or self.is_paused(node):
            return []
        ready = sorted((row for row in self.jobs.values() if row.state == "available"), key=_urgency)[:n]
        for row in ready:
            self._put(row, state="executing", attempt=row.attempt + 1, attempted_at=self.now, node=node)
        return [_job(self.jobs[row.id]) for row in ready]

    def ack(self, node: UUID, finished: Sequence[Finished]) -> set[int]:
        written = Written.of(finished, "")
        done = set()
        for one, state, delay, given_back in zip(finished, written.states, written.delays, written.given_back, strict=True):
            row = self.jobs[one.job.id]
            if (row.state, row.node, row.attempt, row.attempted_at) != ("executing", node, one.job.attempt, one.job.attempted_at):
                continue
            done.add(row.id)
            if row.is_marked and state not in TERMINAL:
                self._put(row, state="cancelled")
                continue
            due = row.scheduled_at if delay is None or state in TERMINAL else self.now + timedelta(seconds=delay)
            self._put(row, state=state, attempt=row.attempt - given_back, scheduled_at=due)
        return done

    def lost_claims(self, node: UUID, held: Collection[int], before: datetime | None) -> set[int]:
        lost = {
            row.id
            for row in self.jobs.values()
            if row.state == "executing" and row.node == node and row.id not in held
            and before is not None and row.attempted_at is not None and row.attempted_at < before
        }  # fmt: skip
        for id_ in lost:
            row = self.jobs[id_]
            self._put(row, state="cancelled" if row.is_marked else "available", attempt=row.attempt - 1, node=None)
        return lost

    def take_lease(self, node: UUID, seconds: float) -> None:
        self.nodes[node] = self.now + timedelta(seconds=seconds)

    def renew_lease(self, node: UUID, seconds: float) -> bool:
        if self.nodes.get(node) is None:
            return False
        self.nodes[node] = self.now + timedelta(seconds=seconds)
        return True

    def leave(self, node: UUID) -> None:
        if not self._executing(node):
            self.nodes.pop(node, None)

    def lead(self, node: UUID, seconds: float) -> int | None:
        until = self.now + timedelta(seconds=seconds)
        if self.leader is None:
            self.leader = node, 1, until
            return 1
        before, term, ends = self.leader
        if before != node and ends >= self.now:
            return None
        self.leader = node, term if before == node and ends > self.now else term + 1, until
        return self.leader[1]

    def stage(self, leader: UUID, term: int) -> int:
        due = [row for row in self.jobs.values() if row.state in ("scheduled", "retryable") and row.scheduled_at <= self.now]
        if not self._leads(leader, term):
            return 0
        for row in due:
            self._put(row, state="available")
        return len(due)

    def expired(self) -> set[UUID]:
        return {node for node in self.nodes if not self._is_alive(node)}

    def rescue(self, node: UUID, leader: UUID, term: int, limit: int) -> set[int]:
        if not self._leads(leader, term) or node not in self.expired():
            return set()
        self.nodes[node] = None
        lost = sorted(self._executing(node), key=lambda row: row.id)[:limit]
        for row in lost:
            if row.is_marked:
                self._put(row, state="cancelled", node=None, rescues=row.rescues + 1)
            elif row.attempt >= row.max_attempts:
                self._put(row, state="discarded", node=None, rescues=row.rescues + 1)
            elif row.rescues:
                due = self.now + timedelta(seconds=SECOND_RESCUE)
                self._put(row, state="retryable", scheduled_at=due, node=None, rescues=row.rescues + 1)
            else:
                self._put(row, state="available", scheduled_at=self.now, node=None, rescues=1)
        return {row.id for row in lost}

    def bury(self, node: UUID) -> None:
        if node in self.expired() and not self._executing(node):
            del self.nodes[node]

    def cancel(self, ids: Collection[int]) -> set[int]:
        waiting = {id_ for id_ in ids if self.jobs[id_].state in ("available", "scheduled", "retryable")}
        for id_ in waiting:
            self._put(self.jobs[id_], state="cancelled")
        marked = {id_ for id_ in ids if self.jobs[id_].state == "executing"}
        for id_ in marked:
            self._put(self.jobs[id_], is_marked=True)
        return waiting | marked

    def retry(self, ids: Collection[int]) -> set[int]:
        back = {id_ for id_ in ids if self.jobs[id_].state in ("scheduled", "retryable", "discarded", "cancelled")}
        for id_ in back:
            row = self.jobs[id_]
            node = None if row.is_terminal else row.node
            most = max(row.max_attempts, row.attempt + 1)
            self._put(row, state="available", scheduled_at=self.now, max_attempts=most, node=node, is_marked=False)
        return back

    def _put(self, row: Row, **changes: object) -> None:
        self.jobs[row.id] = replace(row, **changes)  # type: ignore[arg-type]

    def _executing(self, node: UUID) -> list[Row]:
        return [row for row in self.jobs.values() if row.state == "executing" and row.node == node]

    def _is_alive(self, node: UUID) -> bool:
        ends = self.nodes.get(node)
        return ends is not None and ends > self.now

    def _leads(self, node: UUID, term: int) -> bool:
        return self.leader is not None and self.leader[:2] == (node, term) and self.leader[2] > self.now


def _urgency(row: Row) -> tuple[int, datetime, int]:
    return row.priority, row.scheduled_at, row.id


def _job(row: Row) -> Job:
    return Job(
        id=row.id, type="work", state=State.EXECUTING, attempt=row.attempt, max_attempts=row.max_attempts, node=row.node,
        attempted_at=row.attempted_at, scheduled_at=row.scheduled_at, priority=row.priority,
    )  # fmt: skip
