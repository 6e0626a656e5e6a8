"""What metrics read of a running node: plain numbers, asked for by the thread that collects, while the node goes on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol


class QueueVitals(NamedTuple):
    """A queue on this node: how many of its jobs run at once at most, and how it stands with its demand."""

    queue: str
    limit: int
    is_paused: bool
    outstanding: int
    pending: int


class StageVitals(NamedTuple):
    """A stage: what went in, what became of it, and how many items wait in it, of how many that may."""

    stage: str
    went_in: int
    went_out: int
    dropped: int
    errors: int
    waiting: int
    limit: int


class ExecutorVitals(NamedTuple):
    """An executor: places that are taken, places there are (None where nobody knows), and calls that wait for one."""

    type: str
    usage: int
    limit: int | None
    waiting: int


class PoolVitals(NamedTuple):
    """A pool of connections."""

    pool: str
    idle: int
    used: int
    most: int
    waiting: int
    timeouts: int


class NotifyVitals(NamedTuple):
    """The connection that listens."""

    channel: str
    is_connected: bool
    reconnects: int
    messages: int


class ServerVitals(NamedTuple):
    """The server as the leader saw it last: the part of its room for notifications that is taken, and its horizon's age, s."""

    notifications: float
    horizon: float


class Vitals(Protocol):
    """A running node."""

    @property
    def is_leading(self) -> bool: ...

    @property
    def queues(self) -> Iterable[QueueVitals]: ...

    @property
    def stages(self) -> Iterable[StageVitals]: ...

    @property
    def executors(self) -> Iterable[ExecutorVitals]: ...

    @property
    def pools(self) -> Iterable[PoolVitals]: ...

    @property
    def notify(self) -> NotifyVitals | None: ...

    @property
    def server(self) -> ServerVitals | None: ...

    @property
    def breakers(self) -> Mapping[str, str]: ...

    @property
    def listener_failures(self) -> Mapping[str, int]: ...
