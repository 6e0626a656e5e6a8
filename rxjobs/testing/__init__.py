"""What tests of jobs, pipelines, stages, executors and sources are made with. Of rxjobs itself only the bench imports it."""

from rxjobs.sources.memory import MemorySource
from rxjobs.testing import conformance
from rxjobs.testing.asserting import assert_enqueued, refute_enqueued
from rxjobs.testing.drain import drain, drain_sync
from rxjobs.testing.inline import Inline, inline
from rxjobs.testing.jobs import a_job, job_type
from rxjobs.testing.marbles import marbles
from rxjobs.testing.rows import count, fill
from rxjobs.testing.schemas import Database
from rxjobs.testing.virtual_time import VirtualLoop, virtually

__all__ = [
    "Database",
    "Inline",
    "MemorySource",
    "VirtualLoop",
    "a_job",
    "assert_enqueued",
    "conformance",
    "count",
    "drain",
    "drain_sync",
    "fill",
    "inline",
    "job_type",
    "marbles",
    "refute_enqueued",
    "virtually",
]
