"""The laws, as functions to await in a test: each raises an AssertionError that names the law which was broken.

1. Conservation: every job that enters leaves as exactly one acked Finished.
2. Failure is a value: `on_error` means that the machinery broke.
3. Demand: never more held than max_demand, never asked for more than is free, one fetch at a time.
4. Stop completes, kill disposes.
5. A hot signal is a hint: a lost wake costs time, never a job.
6. One bridge: what a stage emits, it emits on the pipeline's event loop.
"""

from rxjobs.testing.conformance_executor import executor
from rxjobs.testing.conformance_operator import operator
from rxjobs.testing.conformance_source import source

__all__ = ["executor", "operator", "source"]
