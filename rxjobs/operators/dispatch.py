"""What rj.balance, rj.broadcast and rj.partition give: operators with branches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import Any
from weakref import WeakSet

from reactivex import Observable, abc

from rxjobs.counted import Passing
from rxjobs.errors import InvalidOption
from rxjobs.operators.branch import Branch, as_branch
from rxjobs.operators.dispatching import Dispatching
from rxjobs.operators.lane import Way
from rxjobs.operators.stage import Operator, Stream, behind
from rxjobs.scope import Scope, scope_here


class Dispatch(ABC):
    """An operator with branches."""

    def __init__(self, name: str, branches: list[Branch]) -> None:
        self.name = name
        self.counted = Passing(name)
        """What passes through it, and waits there for a branch with room."""
        self._branches = branches
        self._applied: WeakSet[_Applied] = WeakSet()

    @property
    def branches(self) -> tuple[Branch, ...]:
        """Its branches now."""
        return tuple(self._branches)

    @property
    @abstractmethod
    def concurrency(self) -> int:
        """How many jobs its branches work on at once."""

    @abstractmethod
    def dispatching(self, observer: abc.ObserverBase[Any], scope: Scope, key: Hashable) -> Dispatching:
        """One subscription of it; `key` stands for its place in a pipeline, through restarts."""

    def __call__(self, source: Observable[Any]) -> Observable[Any]:
        applied = _Applied(self._branches, source.most_held if isinstance(source, Stream) else None)
        self._applied.add(applied)

        def subscribe(observer: abc.ObserverBase[Any], scheduler: abc.SchedulerBase | None = None) -> abc.DisposableBase:
            return applied.start(self.dispatching(observer, scope_here(scheduler), applied), source)

        return behind(source, subscribe)

    def __repr__(self) -> str:
        return f"<{self.name} of {len(self._branches)} branches>"


class Branching(Dispatch):
    """An operator whose branches may change while it runs."""

    def __init__(self, kind: str, name: str, branches: tuple[Operator, ...]) -> None:
        if not branches:
            raise InvalidOption(f"rj.{kind}: give at least one branch, such as rj.{kind}(rj.execute(), rj.execute())")
        super().__init__(name, [as_branch(kind, given) for given in branches])
        self._kind = kind
        self._given: list[Any] = list(branches)

    def add(self, branch: Operator) -> None:
        """Give jobs to one more branch from now on; may be called from any thread."""
        added = as_branch(self._kind, branch)
        for applied in tuple(self._applied):
            applied.add(added)
        self._given.append(branch)
        self._branches.append(added)

    def remove(self, branch: Operator) -> None:
        """Give no more jobs to a branch that was given or added; what it has it finishes. Raises InvalidOption for what is none."""
        if branch not in self._given:
            raise InvalidOption(f"rj.{self._kind}: {branch!r} is no branch of {self.name}; remove one that was given or added")
        place = self._given.index(branch)
        del self._given[place]
        removed = self._branches.pop(place)
        for applied in tuple(self._applied):
            applied.remove(removed)


class _Applied:
    """A dispatcher in one pipeline: what it leads to is made once, and subscribed again with the pipeline."""

    def __init__(self, branches: list[Branch], most_held: int | None) -> None:
        self._most_held = most_held
        self._ways = [Way(branch, most_held) for branch in branches]
        self._running: WeakSet[Dispatching] = WeakSet()

    def start(self, dispatching: Dispatching, source: Observable[Any]) -> abc.DisposableBase:
        self._running.add(dispatching)
        return dispatching.start(source, tuple(self._ways))

    def add(self, branch: Branch) -> None:
        way = Way(branch, self._most_held)
        self._ways.append(way)
        for dispatching in tuple(self._running):
            _open(dispatching, way)

    def remove(self, branch: Branch) -> None:
        way = next(way for way in self._ways if way.branch is branch)
        self._ways.remove(way)
        for dispatching in tuple(self._running):
            _close(dispatching, way)


def _open(dispatching: Dispatching, way: Way) -> None:
    dispatching.scope.scheduler.here(lambda: dispatching.open(way))


def _close(dispatching: Dispatching, way: Way) -> None:
    dispatching.scope.scheduler.here(lambda: dispatching.close(way))
