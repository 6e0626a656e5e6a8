"""Give each job to the branch that has most room."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from reactivex import abc

from rxjobs.operators.dispatch import Branching
from rxjobs.operators.dispatching import Dispatching
from rxjobs.operators.stage import Operator
from rxjobs.scope import Scope


def balance(*branches: Operator, name: str = "balance") -> Branching:
    """Give the next job to the branch with most free demand: its `max_demand` minus the jobs that it has and has not settled.

    So a fast branch gets more than a slow one. A job waits while no branch has room. `.add(branch)` and `.remove(branch)` change
    the branches while it runs.

        ──a─b─c─d──────────
          balance(slow, fast)
        ────────B─C─D───A──      b, c and d went to the fast branch
    """
    return _Balance("balance", name, branches)


class _Balance(Branching):
    @property
    def concurrency(self) -> int:
        """As many jobs as all of its branches together."""
        return max(1, sum(branch.concurrency for branch in self.branches))

    def dispatching(self, observer: abc.ObserverBase[Any], scope: Scope, key: Hashable) -> Dispatching:
        return _Balancing(self.counted, observer, scope)


class _Balancing(Dispatching):
    def give(self) -> bool:
        if not self.waiting:
            return False
        lane = max(self.lanes, key=lambda lane: lane.free, default=None)
        if lane is None or lane.free <= 0:
            return False
        lane.lend(self.next())
        return True
