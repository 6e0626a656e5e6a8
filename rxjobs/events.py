"""The facts that a running app makes known: frozen values."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import msgspec

from rxjobs.failure import Failure
from rxjobs.job import Job
from rxjobs.outcome import Outcome


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened. Times and durations are nanoseconds; `monotonic_time` is this process's own clock."""

    name: ClassVar[str]
    system_time: int = msgspec.field(default_factory=time.time_ns)
    monotonic_time: int = msgspec.field(default_factory=time.monotonic_ns)


class JobEvent(Event, frozen=True, kw_only=True):
    """Something that happened to a job."""

    job: Job


class JobsEnqueued(Event, frozen=True, kw_only=True):
    """Jobs were inserted: how many of one type into one queue, in one statement."""

    name = "job.enqueue"
    type: str
    queue: str
    count: int


class JobStarted(JobEvent, frozen=True, kw_only=True):
    """An attempt began; `queue_time` is how long the job could have run before it did."""

    name = "job.start"
    queue_time: int


class JobStopped(JobEvent, frozen=True, kw_only=True):
    """An attempt ended without a failure."""

    name = "job.stop"
    duration: int
    queue_time: int
    outcome: Outcome


class JobFailed(JobEvent, frozen=True, kw_only=True):
    """An attempt ended in a failure."""

    name = "job.exception"
    duration: int
    queue_time: int
    outcome: Outcome
    error: Failure


class JobDiscarded(JobEvent, frozen=True, kw_only=True):
    """A job became a dead letter."""

    name = "job.discard"
    outcome: Outcome


class JobsRescued(Event, frozen=True, kw_only=True):
    """Jobs of a node that is gone were taken from it; `queues` says how many of each, `reason` is heartbeat_lost or worker_gone."""

    name = "job.rescue"
    node: str
    ids: list[int]
    queues: Mapping[str, int] = {}
    reason: str = "heartbeat_lost"


class JobsAcked(Event, frozen=True, kw_only=True):
    """Outcomes of a queue's jobs were written down together, or could not be, which is tried again."""

    name = "job.ack"
    queue: str
    jobs: Sequence[Job]
    duration: int
    error: Failure | None = None
    outcomes: Mapping[str, int] = {}
    """How many of the jobs ended how, by the names of outcomes: Complete, Retry, …"""


class JobStale(JobEvent, frozen=True, kw_only=True):
    """An outcome changed nothing, since the claim it belongs to is not the current one."""

    name = "job.stale"


class JobDropped(JobEvent, frozen=True, kw_only=True):
    """A pipeline let go of a job without settling it; it was given back to its queue."""

    name = "job.dropped"
    reason: str


class BreakerChanged(Event, frozen=True, kw_only=True):
    """A job type's circuit breaker moved: after so many failures in a row, as known here; not closed for so many seconds before."""

    type: str
    before: str
    after: str
    failures: int = 0
    open_seconds: float = 0.0


class BreakerOpened(BreakerChanged, frozen=True, kw_only=True):
    """Jobs of the type are not started until the reset time."""

    name = "breaker.open"


class BreakerHalfOpened(BreakerChanged, frozen=True, kw_only=True):
    """Probes are let through."""

    name = "breaker.half_open"


class BreakerClosed(BreakerChanged, frozen=True, kw_only=True):
    """Jobs of the type run again."""

    name = "breaker.close"


class BreakerRejected(JobEvent, frozen=True, kw_only=True):
    """A job was snoozed because its type's breaker is open."""

    name = "breaker.reject"


class NodeJoined(Event, frozen=True, kw_only=True):
    """This node took up its lease."""

    name = "node.join"
    node: str


class NodeLeft(Event, frozen=True, kw_only=True):
    """This node gave up its lease."""

    name = "node.leave"
    node: str


class NodeLost(Event, frozen=True, kw_only=True):
    """A node's lease ran out."""

    name = "node.lost"
    node: str


class NodeCutOff(Event, frozen=True, kw_only=True):
    """This node could not renew its lease, and gave up the jobs that it held."""

    name = "node.cut_off"
    node: str
    ids: list[int]


class LeaderWon(Event, frozen=True, kw_only=True):
    """This node leads from now on, in that term."""

    name = "leader.win"
    node: str
    term: int


class LeaderLost(Event, frozen=True, kw_only=True):
    """This node no longer leads."""

    name = "leader.lose"
    node: str
    term: int


class DatabasePinned(Event, frozen=True, kw_only=True):
    """For `age` seconds somebody has kept vacuum from removing dead rows, and still does; `holder` says who, for people to read."""

    name = "database.pinned"
    holder: str
    age: float


class DatabaseFreed(Event, frozen=True, kw_only=True):
    """The holder no longer does."""

    name = "database.freed"
    holder: str


class NotificationsFull(Event, frozen=True, kw_only=True):
    """So large a part of the server's room for notifications is taken (0 to 1) that jobs are found by the poll alone."""

    name = "notify.full"
    usage: float


class NotificationsResumed(Event, frozen=True, kw_only=True):
    """There is room for notifications again."""

    name = "notify.resumed"
    usage: float


class QueueFetched(Event, frozen=True, kw_only=True):
    """A queue was asked for so many jobs, and gave these; `trigger` is what caused it: notify, timer or demand."""

    name = "queue.fetch"
    queue: str
    requested: int
    jobs: Sequence[Job]
    trigger: str
    duration: int
    error: Failure | None = None


class StageWorked(JobEvent, frozen=True, kw_only=True):
    """A stage has worked on a job: told of one in sixteen, of what took long, and of all where a stage is traced.

    `disposition` is out, dropped or error; `reason` says why it went no further. `is_sample` is whether it is one of the sixteen.
    `others` are those that it worked on in the same call, which is told of each time, as is each list that a buffer lets go.
    """

    name = "stage.stop"
    stage: str
    duration: int
    disposition: str
    reason: str
    is_sample: bool
    is_traced: bool
    others: Sequence[Job] = ()


class MaintenanceEnded(Event, frozen=True, kw_only=True):
    """One round of what runs beside the queues: how many jobs it was about, and of which states, where that is known."""

    name = "maintenance.stop"
    task: str
    count: int
    duration: int
    states: Mapping[str, int] = {}
    error: Failure | None = None


class QueueControlled(Event, frozen=True, kw_only=True):
    """What is asked of a queue at run time has taken effect on this node."""

    queue: str
    node: str


class QueuePaused(QueueControlled, frozen=True, kw_only=True):
    """No job of the queue starts on this node."""

    name = "queue.pause"


class QueueResumed(QueueControlled, frozen=True, kw_only=True):
    """Jobs of the queue start on this node again."""

    name = "queue.resume"


class QueueScaled(QueueControlled, frozen=True, kw_only=True):
    """A pull of the queue holds at most so many jobs on this node; None is as many as it was declared with."""

    name = "queue.scale"
    max_demand: int | None


class QueueLimited(QueueControlled, frozen=True, kw_only=True):
    """The limits of the queue across all nodes are others than this node knew: for all its jobs, and for those of each key.

    Rates are told in words; None is no limit. `by` says what the key is, `is_shared` whether keys share the queue as was asked.
    """

    name = "queue.limit"
    concurrency: int | None
    rate: str | None
    by: str | None
    each_concurrency: int | None
    each_rate: str | None
    is_shared: bool


class AutoscaleStep(Event, frozen=True, kw_only=True):
    """The demand of a pull follows its load: what max_demand was and is, why, and what was seen.

    `source` is its queue; `ready` jobs were counted, where the source can say, the oldest of which has waited for `oldest_seconds`;
    the event loop was late by `loop_delay` seconds, and the process took a share `cpu` of one processor.
    """

    name = "autoscale.step"
    source: str
    before: int
    after: int
    reason: str
    ready: int | None
    oldest_seconds: float | None
    loop_delay: float
    cpu: float


class QueueStalled(Event, frozen=True, kw_only=True):
    """Jobs of a queue were ready, this node had room for them, and for so many seconds it fetched none."""

    name = "queue.stalled"
    queue: str
    seconds: float


class QueueUnserved(Event, frozen=True, kw_only=True):
    """So many jobs of a queue have been ready for minutes, and no living node takes jobs from it."""

    name = "queue.unserved"
    queue: str
    count: int


class QueueServed(Event, frozen=True, kw_only=True):
    """A queue has no more jobs that nobody takes."""

    name = "queue.served"
    queue: str


class JobsUnroutable(Event, frozen=True, kw_only=True):
    """So many jobs of one type have been ready for minutes, and no living node that takes jobs from their queue knows the type."""

    name = "job.unroutable"
    type: str
    queue: str
    count: int


class JobsRoutable(Event, frozen=True, kw_only=True):
    """A queue has no more jobs of that type that nobody takes."""

    name = "job.routable"
    type: str
    queue: str


class LoopBlocked(Event, frozen=True, kw_only=True):
    """The event loop of this process did not run for so many seconds; `job` is the id of the job that held it up, where known."""

    name = "loop.blocked"
    seconds: float
    job: int | None


class PipelineEvent(Event, frozen=True, kw_only=True):
    """Something that happened to a pipeline."""

    pipeline: str


class PipelineStarted(PipelineEvent, frozen=True, kw_only=True):
    """A pipeline was subscribed for the first time."""

    name = "pipeline.start"


class PipelineRestarted(PipelineEvent, frozen=True, kw_only=True):
    """A pipeline broke and is subscribed again after `delay` seconds."""

    name = "pipeline.restart"
    error: Failure
    delay: float


class BranchRestarted(PipelineEvent, frozen=True, kw_only=True):
    """A branch of a dispatcher broke, which its siblings do not notice, and is subscribed again after `delay` seconds."""

    name = "branch.restart"
    branch: str
    error: Failure
    delay: float


class PipelineStopped(PipelineEvent, frozen=True, kw_only=True):
    """A pipeline ended."""

    name = "pipeline.stop"


Emit = Callable[[Event], None]
"""Where a part of rxjobs tells what happened."""
