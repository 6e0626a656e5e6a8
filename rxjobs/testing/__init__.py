"""What tests of jobs, pipelines, stages, executors and sources are made with. Of rxjobs itself only the bench imports it."""

from rxjobs.sources.memory import MemorySource
from rxjobs.testing import conformance
from rxjobs.testing.jobs import a_job, job_type
from rxjobs.testing.marbles import marbles
from rxjobs.testing.rows import count, fill
from rxjobs.testing.virtual_time import VirtualLoop, virtually

__all__ = ["MemorySource", "VirtualLoop", "a_job", "conformance", "count", "fill", "job_type", "marbles", "virtually"]
