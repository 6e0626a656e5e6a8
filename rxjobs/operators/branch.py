"""One of the ways that a dispatcher may give a job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from reactivex import Observable

from rxjobs.checks import checked_name
from rxjobs.errors import InvalidOption
from rxjobs.operators.stage import CONCURRENCY, Operator, check_count

DEFAULT_DEMAND = 10
"""How many jobs a branch takes at once where neither it nor a stage of it says."""


@dataclass(frozen=True, slots=True, eq=False)
class Branch:
    """Operators in a row, and how many jobs they are given at once. It is an operator itself."""

    operators: tuple[Operator, ...]
    max_demand: int | None = None
    name: str | None = None

    def __call__(self, source: Observable[Any]) -> Observable[Any]:
        return source.pipe(*self.operators)

    @property
    def concurrency(self) -> int:
        """How many jobs it is given at once: what was declared, or what the first of its stages that has a concurrency works on."""
        if self.max_demand is not None:
            return self.max_demand
        known = (getattr(operator, CONCURRENCY, None) for operator in self.operators)
        return next((found for found in known if found is not None), DEFAULT_DEMAND)


def branch(*operators: Operator, max_demand: int | None = None, name: str | None = None) -> Branch:
    """A branch for rj.balance, rj.broadcast or rj.partition: it is given at most `max_demand` jobs that it has not settled.

    Without `max_demand` it is the concurrency of the first of its stages that has one; of a buffer, its count.

        rj.balance(rj.branch(rj.enrich(look_up), rj.execute(concurrency=5), max_demand=20), rj.execute(concurrency=50))
    """
    if not operators:
        raise InvalidOption("rj.branch: give at least one operator, such as rj.branch(rj.execute(concurrency=5))")
    for one in operators:
        if not callable(one):
            raise InvalidOption(f"rj.branch: a branch is made of operators such as rj.execute(), not {one!r}")
    if max_demand is not None:
        check_count("branch", "max_demand", max_demand)
    return Branch(operators, max_demand, name if name is None else checked_name("a branch", name))


def as_branch(kind: str, given: Any) -> Branch:
    """What was given to a dispatcher for a branch; raises InvalidOption for what is none."""
    if isinstance(given, Branch):
        return given
    if callable(given):
        return Branch((given,))
    raise InvalidOption(f"rj.{kind}: a branch is an operator such as rj.execute(), or rj.branch(...), not {given!r}")
