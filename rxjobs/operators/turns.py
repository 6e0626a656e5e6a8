"""Whose turn it is: the jobs of each key, in the order in which they were claimed, through restarts of what runs them."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import NamedTuple, TypeVar

from reactivex import abc
from reactivex.disposable import Disposable

from rxjobs.awaiting import LoopScheduler
from rxjobs.hold import Keeper
from rxjobs.job import Job
from rxjobs.ledger import Ledger
from rxjobs.log_lines import logger
from rxjobs.outcome import Finished, Outcome, Release, Retry, Snooze

log = logger("rxjobs.partition")

MOST_AWAY = 10_000
"""How many jobs a partition remembers that are to come back, in all its keys."""
PATIENCE = 60.0
"""Seconds that a job which is to come back is waited for once it is due: it may have been cancelled, or have ended elsewhere."""
SHORTEST, LONGEST = 1.0, 60.0
"""Seconds for which a job is given back that others of its key are to end before."""

Ident = tuple[Keeper | None, int]
"""A job by its pull and its id: two sources may use the same ids."""
V = TypeVar("V")


class _Away(NamedTuple):
    place: int
    due: float


class Turns:
    """The jobs of each key that are held, by the order of their claims; with `strict` also those that are to come back."""

    def __init__(self, by: Callable[[Job], Hashable], scheduler: LoopScheduler, *, strict: bool) -> None:
        self.busy: set[Hashable] = set()
        """Keys of which a job is with a branch."""
        self._by = by
        self._scheduler = scheduler
        self._strict = strict
        self._places = itertools.count()
        self._keys: dict[Ident, Hashable] = {}
        self._lines: dict[Hashable, OrderedDict[Ident, int]] = {}
        self._away: dict[Hashable, OrderedDict[Ident, _Away]] = {}
        self._away_count = 0
        self._listeners: tuple[Callable[[Hashable], object], ...] = ()

    def watch(self, ledger: Ledger) -> None:
        """Know the jobs of a pull from their claim on: stages on the way may change their order."""
        if self not in ledger.watchers:
            ledger.watchers = (*ledger.watchers, self)

    def listen(self, listener: Callable[[Hashable], object]) -> abc.DisposableBase:
        """Have somebody told of keys for which it may be another job's turn."""
        self._listeners = (*self._listeners, listener)
        return Disposable(lambda: self._leave(listener))

    @property
    def held(self) -> int:
        """How many jobs it knows that are held."""
        return len(self._keys)

    @property
    def away(self) -> int:
        """How many jobs it knows that are to come back."""
        return self._away_count

    @property
    def is_shared(self) -> bool:
        """Whether several listen."""
        return len(self._listeners) > 1

    def tell(self, key: Hashable) -> None:
        """It may be another job's turn."""
        for listener in self._listeners:
            listener(key)

    def claimed(self, keeper: Keeper, job: Job) -> None:
        """A pull took a job. Its key may depend on what stages add to it: then its turn begins when it arrives."""
        try:
            key = self._by(job)
            hash(key)
        except Exception:
            return
        self._enter((keeper, job.id), key)

    def arrived(self, job: Job, key: Hashable) -> None:
        """A job is here, with this key."""
        ident = ident_of(job)
        if ident not in self._keys or self._keys[ident] != key:
            self._forget(ident)
            self._enter(ident, key)

    def wait(self, job: Job, key: Hashable) -> float | None:
        """0 when it is a job's turn, None where that is to be waited for, or for how many seconds it is to be given back."""
        ident = ident_of(job)
        line: Mapping[Ident, int] = self._lines.get(key, {})
        if ident not in line:
            return 0.0  # somebody had a copy, and has settled it
        if (first := self._first_away(key)) is not None and first.place < line[ident]:
            return min(LONGEST, max(SHORTEST, first.due - self._now + SHORTEST))
        return 0.0 if next(iter(line)) == ident else None

    def left(self, job: Job, outcome: Outcome | None) -> None:
        """A job is here no more, and how it ended, where it has."""
        ident = ident_of(job)
        if outcome is not None or not self._strict or not self._is_watched(ident[0]):
            self._end(ident, outcome)

    def ended(self, keeper: Keeper, finished: Finished) -> None:
        """A job that a pull took has ended, wherever that was."""
        ident = keeper, finished.job.id
        if ident in self._keys:
            key = self._keys[ident]
            self._end(ident, finished.outcome)
            if key in self._lines:
                self._scheduler.later(0, lambda: self.tell(key))  # what ends it is in the middle of something

    def _is_watched(self, keeper: Keeper | None) -> bool:
        return isinstance(keeper, Ledger) and self in keeper.watchers

    @property
    def _now(self) -> float:
        return self._scheduler.loop.time()

    def _leave(self, listener: Callable[[Hashable], object]) -> None:
        self._listeners = tuple(one for one in self._listeners if one != listener)

    def _enter(self, ident: Ident, key: Hashable) -> None:
        self._keys[ident] = key
        back = self._pop_away(ident, key)
        place = next(self._places) if back is None else back.place
        _insert(self._lines.setdefault(key, OrderedDict()), ident, place)

    def _forget(self, ident: Ident) -> int | None:
        """Take it out of its line; gives its place there."""
        if ident not in self._keys:
            return None
        key = self._keys.pop(ident)
        line = self._lines[key]
        place = line.pop(ident)
        if not line:
            del self._lines[key]
        return place

    def _end(self, ident: Ident, outcome: Outcome | None) -> None:
        key = self._keys.get(ident)
        place = self._forget(ident)
        if place is None or not self._strict:
            return
        match outcome:
            case Retry(delay=delay) | Snooze(seconds=delay) | Release(delay=delay):
                self._expect(ident, key, _Away(place, self._now + (delay or 0.0)))
            case _:
                pass

    def _expect(self, ident: Ident, key: Hashable, away: _Away) -> None:
        if self._away_count >= MOST_AWAY:
            self._forget_overdue()
        if self._away_count >= MOST_AWAY:
            log.warning("more than %d jobs are to come back: job %d no longer keeps later ones of its key", MOST_AWAY, ident[1])
            return
        self._away_count += 1
        _insert(self._away.setdefault(key, OrderedDict()), ident, away)

    def _first_away(self, key: Hashable) -> _Away | None:
        while line := self._away.get(key):
            ident = next(iter(line))
            if line[ident].due + PATIENCE >= self._now:
                return line[ident]
            log.info("job %d was due %g s ago and has not come back: it no longer keeps later ones of its key", ident[1], PATIENCE)
            self._pop_away(ident, key)
        return None

    def _forget_overdue(self) -> None:
        now = self._now
        late = [(ident, key) for key, line in self._away.items() for ident, one in line.items() if one.due + PATIENCE < now]
        for ident, key in late:
            self._pop_away(ident, key)

    def _pop_away(self, ident: Ident, key: Hashable) -> _Away | None:
        line = self._away.get(key)
        away = line.pop(ident, None) if line is not None else None
        if away is not None:
            self._away_count -= 1
            if not line:
                del self._away[key]
        return away


def ident_of(job: Job) -> Ident:
    """Which job it is, also in a branch of a branch."""
    return None if job.hold is None else job.hold.root, job.id


def _insert(line: OrderedDict[Ident, V], ident: Ident, value: V) -> None:
    """Put it into a line that is in order."""
    is_last = not line or line[next(reversed(line))] < value  # type: ignore[operator]  # places, or what begins with one
    line[ident] = value
    if not is_last:
        for one in sorted(line, key=line.__getitem__):  # type: ignore[arg-type]
            line.move_to_end(one)
