"""Settle every job as done, without running it."""

from __future__ import annotations

from rxjobs.counted import Counted
from rxjobs.operators.stage import Operator, each, finish
from rxjobs.outcome import COMPLETE


def complete(*, name: str = "complete") -> Operator:
    """Complete each job: for pipelines whose stages have done the work.

    ──a──b──
    ──A──B──      A: Finished(a, Complete)
    """
    return each("complete", lambda job: finish(job, COMPLETE), Counted(name))
