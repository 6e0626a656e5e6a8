"""rxjobs: a reactive-streams job runner for Python, on reactivex and PostgreSQL."""

from rxjobs.app import App
from rxjobs.autoscaling import autoscale
from rxjobs.breakers import BreakerState
from rxjobs.callables import NewCall, call
from rxjobs.codec import Codec, EncryptedCodec
from rxjobs.completing import complete_in
from rxjobs.cron import CronEntry
from rxjobs.definition import Breaker, Definition, NewJob
from rxjobs.enqueued import Enqueued
from rxjobs.errors import (
    BadPayload,
    BrokenSeal,
    ChildDied,
    DuplicateJob,
    DuplicateJobType,
    InvalidArguments,
    InvalidDSN,
    InvalidOption,
    JobFailed,
    MissingKey,
    NoDatabase,
    NotAllowed,
    NotMigrated,
    NotOpen,
    PipelineBroken,
    PoolBroken,
    RxJobsError,
    SchemaTooNew,
    StaleClaim,
    UnknownCron,
    UnknownJobType,
    UnknownQueue,
    WornOut,
)
from rxjobs.executors.in_pool import in_pool
from rxjobs.executors.in_processes import in_processes
from rxjobs.executors.in_threads import in_threads
from rxjobs.executors.on_loop import on_loop
from rxjobs.job import Job, State, current_job
from rxjobs.middleware.stack import Middleware
from rxjobs.nodes import RegisteredNode
from rxjobs.operators.ack import ack
from rxjobs.operators.balance import balance
from rxjobs.operators.branch import Branch, branch
from rxjobs.operators.broadcast import broadcast
from rxjobs.operators.buffer import buffer
from rxjobs.operators.complete import complete
from rxjobs.operators.enqueue import enqueue
from rxjobs.operators.enrich import enrich, map
from rxjobs.operators.execute import execute
from rxjobs.operators.execute_batch import execute_batch
from rxjobs.operators.filter import filter
from rxjobs.operators.partition import partition
from rxjobs.operators.rate_limit import rate_limit
from rxjobs.operators.tap import tap
from rxjobs.outcome import Cancel, Complete, Discard, Finished, Outcome, Release, Retry, Snooze
from rxjobs.pickle_codec import PickleCodec
from rxjobs.secret import Secret
from rxjobs.source import Source
from rxjobs.sources.async_iterable import AsyncIterableSource
from rxjobs.sources.iterable import IterableSource
from rxjobs.sources.memory import MemorySource
from rxjobs.sources.postgres import PostgresSource
from rxjobs.sources.pull import pull
from rxjobs.telemetry.logs import JobLogFilter
from rxjobs.telemetry.providers import Telemetry
from rxjobs.unique import Unique

__all__ = [
    "App",
    "AsyncIterableSource",
    "BadPayload",
    "Branch",
    "Breaker",
    "BreakerState",
    "BrokenSeal",
    "Cancel",
    "ChildDied",
    "Codec",
    "Complete",
    "CronEntry",
    "Definition",
    "Discard",
    "DuplicateJob",
    "DuplicateJobType",
    "EncryptedCodec",
    "Enqueued",
    "Finished",
    "InvalidArguments",
    "InvalidDSN",
    "InvalidOption",
    "IterableSource",
    "Job",
    "JobFailed",
    "JobLogFilter",
    "MemorySource",
    "Middleware",
    "MissingKey",
    "NewCall",
    "NewJob",
    "NoDatabase",
    "NotAllowed",
    "NotMigrated",
    "NotOpen",
    "Outcome",
    "PickleCodec",
    "PipelineBroken",
    "PoolBroken",
    "PostgresSource",
    "RegisteredNode",
    "Release",
    "Retry",
    "RxJobsError",
    "SchemaTooNew",
    "Secret",
    "Snooze",
    "Source",
    "StaleClaim",
    "State",
    "Telemetry",
    "Unique",
    "UnknownCron",
    "UnknownJobType",
    "UnknownQueue",
    "WornOut",
    "ack",
    "autoscale",
    "balance",
    "branch",
    "broadcast",
    "buffer",
    "call",
    "complete",
    "complete_in",
    "current_job",
    "enqueue",
    "enrich",
    "execute",
    "execute_batch",
    "filter",
    "in_pool",
    "in_processes",
    "in_threads",
    "map",
    "on_loop",
    "partition",
    "pull",
    "rate_limit",
    "tap",
]
