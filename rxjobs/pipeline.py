"""The path of a job when nobody declares another: read this first."""

from __future__ import annotations

from typing import Any

from reactivex import Observable

from rxjobs.declared import CONCURRENCY
from rxjobs.job import Job
from rxjobs.operators.ack import ack
from rxjobs.operators.execute import execute


def default_pipeline(source: Observable[Job], concurrency: int = CONCURRENCY) -> Observable[Any]:
    """Pull jobs, run them, write down how they ended."""
    return source.pipe(
        execute(concurrency=concurrency),
        ack(),
    )
