"""rxjobs: a reactive-streams job runner for Python, on reactivex and PostgreSQL.

Each of its names is imported when it is first asked for: whoever imports rxjobs pays for what is used of it.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rxjobs.app import App as App
    from rxjobs.autoscaling import autoscale as autoscale
    from rxjobs.breakers import BreakerState as BreakerState
    from rxjobs.callables import NewCall as NewCall, call as call
    from rxjobs.codec import Codec as Codec, EncryptedCodec as EncryptedCodec
    from rxjobs.completing import complete_in as complete_in
    from rxjobs.cron import CronEntry as CronEntry
    from rxjobs.definition import Breaker as Breaker, Definition as Definition, NewJob as NewJob
    from rxjobs.enqueued import Enqueued as Enqueued
    from rxjobs.errors import (
        BadPayload as BadPayload,
        BrokenSeal as BrokenSeal,
        ChildDied as ChildDied,
        DuplicateJob as DuplicateJob,
        DuplicateJobType as DuplicateJobType,
        InvalidArguments as InvalidArguments,
        InvalidDSN as InvalidDSN,
        InvalidOption as InvalidOption,
        JobFailed as JobFailed,
        MissingKey as MissingKey,
        NoDatabase as NoDatabase,
        NotAllowed as NotAllowed,
        NotMigrated as NotMigrated,
        NotOpen as NotOpen,
        PipelineBroken as PipelineBroken,
        PoolBroken as PoolBroken,
        RxJobsError as RxJobsError,
        SchemaTooNew as SchemaTooNew,
        StaleClaim as StaleClaim,
        UnknownCron as UnknownCron,
        UnknownJobType as UnknownJobType,
        UnknownQueue as UnknownQueue,
        WornOut as WornOut,
    )
    from rxjobs.executors.in_pool import in_pool as in_pool
    from rxjobs.executors.in_processes import in_processes as in_processes
    from rxjobs.executors.in_threads import in_threads as in_threads
    from rxjobs.executors.on_loop import on_loop as on_loop
    from rxjobs.job import Job as Job, State as State, current_job as current_job
    from rxjobs.middleware.stack import Middleware as Middleware
    from rxjobs.nodes import RegisteredNode as RegisteredNode
    from rxjobs.operators.ack import ack as ack
    from rxjobs.operators.balance import balance as balance
    from rxjobs.operators.branch import Branch as Branch, branch as branch
    from rxjobs.operators.broadcast import broadcast as broadcast
    from rxjobs.operators.buffer import buffer as buffer
    from rxjobs.operators.complete import complete as complete
    from rxjobs.operators.enqueue import enqueue as enqueue
    from rxjobs.operators.enrich import enrich as enrich, map as map
    from rxjobs.operators.execute import execute as execute
    from rxjobs.operators.execute_batch import execute_batch as execute_batch
    from rxjobs.operators.filter import filter as filter
    from rxjobs.operators.partition import partition as partition
    from rxjobs.operators.rate_limit import rate_limit as rate_limit
    from rxjobs.operators.tap import tap as tap
    from rxjobs.outcome import (
        Cancel as Cancel,
        Complete as Complete,
        Discard as Discard,
        Finished as Finished,
        Outcome as Outcome,
        Release as Release,
        Retry as Retry,
        Snooze as Snooze,
    )
    from rxjobs.pickle_codec import PickleCodec as PickleCodec
    from rxjobs.secret import Secret as Secret
    from rxjobs.source import Source as Source
    from rxjobs.sources.async_iterable import AsyncIterableSource as AsyncIterableSource
    from rxjobs.sources.iterable import IterableSource as IterableSource
    from rxjobs.sources.memory import MemorySource as MemorySource
    from rxjobs.sources.postgres import PostgresSource as PostgresSource
    from rxjobs.sources.pull import pull as pull
    from rxjobs.telemetry.logs import JobLogFilter as JobLogFilter
    from rxjobs.telemetry.providers import Telemetry as Telemetry
    from rxjobs.unique import Unique as Unique
else:
    from importlib import import_module
    from sys import modules

    _NAMES = {
        "rxjobs.app": "App",
        "rxjobs.autoscaling": "autoscale",
        "rxjobs.breakers": "BreakerState",
        "rxjobs.callables": "NewCall call",
        "rxjobs.codec": "Codec EncryptedCodec",
        "rxjobs.completing": "complete_in",
        "rxjobs.cron": "CronEntry",
        "rxjobs.definition": "Breaker Definition NewJob",
        "rxjobs.enqueued": "Enqueued",
        "rxjobs.errors": (
            "BadPayload BrokenSeal ChildDied DuplicateJob DuplicateJobType InvalidArguments InvalidDSN InvalidOption "
            "JobFailed MissingKey NoDatabase NotAllowed NotMigrated NotOpen PipelineBroken PoolBroken RxJobsError "
            "SchemaTooNew StaleClaim UnknownCron UnknownJobType UnknownQueue WornOut"
        ),
        "rxjobs.executors.in_pool": "in_pool",
        "rxjobs.executors.in_processes": "in_processes",
        "rxjobs.executors.in_threads": "in_threads",
        "rxjobs.executors.on_loop": "on_loop",
        "rxjobs.job": "Job State current_job",
        "rxjobs.middleware.stack": "Middleware",
        "rxjobs.nodes": "RegisteredNode",
        "rxjobs.operators.ack": "ack",
        "rxjobs.operators.balance": "balance",
        "rxjobs.operators.branch": "Branch branch",
        "rxjobs.operators.broadcast": "broadcast",
        "rxjobs.operators.buffer": "buffer",
        "rxjobs.operators.complete": "complete",
        "rxjobs.operators.enqueue": "enqueue",
        "rxjobs.operators.enrich": "enrich map",
        "rxjobs.operators.execute": "execute",
        "rxjobs.operators.execute_batch": "execute_batch",
        "rxjobs.operators.filter": "filter",
        "rxjobs.operators.partition": "partition",
        "rxjobs.operators.rate_limit": "rate_limit",
        "rxjobs.operators.tap": "tap",
        "rxjobs.outcome": "Cancel Complete Discard Finished Outcome Release Retry Snooze",
        "rxjobs.pickle_codec": "PickleCodec",
        "rxjobs.secret": "Secret",
        "rxjobs.source": "Source",
        "rxjobs.sources.async_iterable": "AsyncIterableSource",
        "rxjobs.sources.iterable": "IterableSource",
        "rxjobs.sources.memory": "MemorySource",
        "rxjobs.sources.postgres": "PostgresSource",
        "rxjobs.sources.pull": "pull",
        "rxjobs.telemetry.logs": "JobLogFilter",
        "rxjobs.telemetry.providers": "Telemetry",
        "rxjobs.unique": "Unique",
    }
    _HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}
    __all__ = sorted(_HOMES)

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=modules[__name__])
        found = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return found

    def __dir__() -> list[str]:
        return [*globals(), *__all__]
