"""Nodes that claim, run, write down, lead, rescue, stop and die, in every order that Hypothesis can think of.

What a node decides it decides by the functions that a real one uses: the retry rule, Demand, Leadership. What happens to
rows is the world's business. A message is a statement: it may be done and its answer lost, and it may come late.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from uuid import UUID

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from rxjobs.decide import raised, resolve, returned
from rxjobs.demand import Demand
from rxjobs.events import Event
from rxjobs.job import Job
from rxjobs.outcome import Cancel, Discard, Finished, Outcome, Release, Retry, Snooze
from rxjobs.services.lead import Leadership
from rxjobs.testing import job_type
from tests.model.rows import EPOCH, Row, Rows
from tests.model.worlds import MOST, Memory

LEASE, CUT_OFF, LEADER = 100.0, 80.0, 40.0
"""Seconds: a lease, after how many a node that could not renew it stops its jobs, and for a leader that fell silent.

All times are multiples of 20 s, so that the moments which a run of the test itself takes never decide anything.
"""
STEPS = (20.0, 40.0, 80.0, 160.0)
NODES = 3
MOST_HELD = 6


async def _work() -> None: ...


WORK = job_type(_work, backoff=lambda attempt, error: 20.0 * attempt)
ENDS: tuple[object, ...] = (
    None, "a value", ValueError("bad"), Retry(20.0), Retry(0.0), Retry(), Snooze(40.0), Snooze(0.0), Release(20.0), Release(),
    Cancel("unwanted"), Discard("hopeless"), Release(), Snooze(0.0), Release(),
)  # fmt: skip

places = st.integers(0, 11)
"""Which of those that come into question."""
limits = st.sampled_from((1, MOST))


@dataclass
class Attempt:
    """One run of a job, as an onlooker saw it who sees all nodes. `is_excused`: its node cannot know how late it is."""

    job: Job
    since: datetime
    to: datetime | None = None
    is_excused: bool = False


@dataclass
class Actor:
    """One node. What it holds it holds until an answer says that the outcome is written."""

    id: UUID
    leadership: Leadership
    renewed: datetime
    demand: Demand = field(default_factory=lambda: Demand(MOST_HELD, MOST_HELD - 1))
    running: list[Attempt] = field(default_factory=list)
    ended: list[Finished] = field(default_factory=list)
    terms: list[int] = field(default_factory=list)
    looked: datetime | None = None
    is_alive: bool = True
    is_frozen: bool = False
    slept: float = 0.0
    """Seconds that its own clock has missed."""

    @property
    def acts(self) -> bool:
        return self.is_alive and not self.is_frozen

    @property
    def held(self) -> set[int]:
        return {one.job.id for one in self.running} | {one.job.id for one in self.ended}


class Steps(RuleBasedStateMachine):
    """What may happen, one message or one fact at a time; the world is named by a subclass."""

    def world_here(self) -> Memory:
        return Memory()

    def __init__(self) -> None:
        super().__init__()
        self.world = self.world_here()
        self.actors: list[Actor] = []
        self.acknowledged: set[int] = set()
        self.attempts: list[Attempt] = []
        self.terminal: dict[int, Row] = {}
        self._ids = count(1)

    @property
    def rows(self) -> Rows:
        return self.world.rows

    # what an app does

    @rule(
        most=st.integers(1, 3), priority=st.integers(0, 2), delay=st.sampled_from((0.0, 0.0, 20.0, 60.0)), is_answered=st.booleans()
    )
    def enqueue(self, most: int, priority: int, delay: float, is_answered: bool) -> None:
        id_ = self.world.insert(most, priority, delay)
        if is_answered:
            self.acknowledged.add(id_)

    @precondition(lambda self: self.rows.jobs)
    @rule(place=places)
    def cancel(self, place: int) -> None:
        self.world.cancel([self._a_row(place)])

    @precondition(lambda self: self.rows.jobs)
    @rule(place=places)
    def retry(self, place: int) -> None:
        back = self.world.retry([self._a_row(place)])
        for id_ in back:  # the one who may have an ended job begin anew
            self.terminal.pop(id_, None)

    @rule(place=places, is_for_all=st.booleans())
    def pause(self, place: int, is_for_all: bool) -> None:
        """For all nodes, or for one, dead or alive. What runs may end."""
        self.world.pause(None if is_for_all or not self.actors else self.actors[place % len(self.actors)].id)

    @precondition(lambda self: self.rows.paused)
    @rule(place=places, is_for_all=st.booleans())
    def resume(self, place: int, is_for_all: bool) -> None:
        self.world.resume(None if is_for_all or not self.actors else self.actors[place % len(self.actors)].id)

    # what happens to a node

    @initialize(jobs=st.integers(1, 5))
    def begin(self, jobs: int) -> None:
        for _ in range(2):
            self.join()
        for _ in range(jobs):
            self.enqueue(3, 0, 0.0, True)

    @precondition(lambda self: sum(actor.is_alive for actor in self.actors) < NODES)
    @rule()
    def join(self) -> None:
        actor = self._actor()
        self.world.take_lease(actor.id, LEASE)
        actor.renewed = self.rows.now

    @precondition(lambda self: self._acting)
    @rule(place=places)
    def crash(self, place: int) -> None:
        actor = self._one(place)
        actor.is_alive = False
        for attempt in actor.running:
            attempt.to = self.rows.now

    @precondition(lambda self: self._acting)
    @rule(place=places)
    def freeze(self, place: int) -> None:
        """SIGSTOP, or a machine that sleeps."""
        self._one(place).is_frozen = True

    @precondition(lambda self: any(actor.is_frozen for actor in self.actors))
    @rule(place=places, renews=st.booleans())
    def thaw(self, place: int, renews: bool) -> None:
        frozen = [actor for actor in self.actors if actor.is_frozen]
        actor = frozen[place % len(frozen)]
        actor.is_frozen = False
        if renews:
            self.renew(self._acting.index(actor), True)

    @precondition(lambda self: self._acting)
    @rule(place=places, seconds=st.sampled_from(STEPS))
    def lose_time(self, place: int, seconds: float) -> None:
        """Its clock stood still, as that of a machine does that slept: it takes itself for younger than it is."""
        actor = self._one(place)
        actor.slept += seconds
        for attempt in actor.running:
            attempt.is_excused = True

    @rule(seconds=st.sampled_from(STEPS))
    def wait(self, seconds: float) -> None:
        """Time passes. Who could not renew stops what it runs in time; who is frozen cannot."""
        until = self.rows.now + timedelta(seconds=seconds)
        for actor in self.actors:
            cut_off = actor.renewed + timedelta(seconds=CUT_OFF + actor.slept)
            if actor.is_frozen:
                for attempt in actor.running:
                    attempt.is_excused = True
            elif actor.is_alive and cut_off < until:
                self._stop(actor, max(cut_off, self.rows.now))
        self.world.wait(seconds)

    # what a node does

    @precondition(lambda self: self._acting)
    @rule(place=places, is_answered=st.booleans())
    def claim(self, place: int, is_answered: bool) -> None:
        actor = self._one(place)
        if not actor.demand.free:
            return
        jobs = self.world.claim(actor.id, actor.demand.free)
        assert not jobs or not self.rows.is_paused(actor.id)
        if is_answered and self._is_in_time(actor):
            for job in jobs:
                self._start(actor, job)

    @rule(place=places)
    def claim_that_comes_late(self, place: int) -> None:
        """Of a node that is dead or frozen by the time it is done."""
        self.world.claim(self.actors[place % len(self.actors)].id, 1)

    @precondition(lambda self: any(actor.running for actor in self._acting))
    @rule(place=places, which=places, end=st.sampled_from(ENDS))
    def end(self, place: int, which: int, end: object) -> None:
        """A job ends, by the retry rule."""
        actors = [actor for actor in self._acting if actor.running]
        actor = actors[place % len(actors)]
        self._end(actor, which, end)

    @precondition(lambda self: any(actor.ended for actor in self._acting))
    @rule(place=places, is_answered=st.booleans())
    def ack(self, place: int, is_answered: bool) -> None:
        actors = [actor for actor in self._acting if actor.ended]
        actor = actors[place % len(actors)]
        self.world.ack(actor.id, actor.ended)
        if is_answered:
            actor.demand.held -= len(actor.ended)
            actor.ended = []

    @precondition(lambda self: any(actor.ended for actor in self.actors))
    @rule(place=places)
    def ack_that_comes_late(self, place: int) -> None:
        actors = [actor for actor in self.actors if actor.ended]
        actor = actors[place % len(actors)]
        self.world.ack(actor.id, actor.ended)

    @precondition(lambda self: self._acting)
    @rule(place=places, is_answered=st.booleans())
    def renew(self, place: int, is_answered: bool) -> None:
        actor = self._one(place)
        asked = self.rows.now
        is_ours = self.world.renew_lease(actor.id, LEASE)
        if not is_answered:
            return
        if not is_ours:
            self._stop(actor, self.rows.now)
            self.world.take_lease(actor.id, LEASE)
        actor.renewed, actor.slept = asked, 0.0

    @precondition(lambda self: self._acting)
    @rule(place=places)
    def look_for_lost_claims(self, place: int) -> None:
        actor = self._one(place)
        _, actor.looked = self.world.lost_claims(actor.id, actor.held, actor.looked)

    @precondition(lambda self: self._acting)
    @rule(place=places, is_answered=st.booleans())
    def lead(self, place: int, is_answered: bool) -> None:
        actor = self._one(place)
        asked = self._clock(actor)
        term = self.world.lead(actor.id, LEADER)
        if is_answered:
            actor.leadership.asked(term, asked)
            actor.terms += [] if term is None else [term]

    @precondition(lambda self: any(actor.terms for actor in self.actors))
    @rule(place=places, is_late=st.booleans())
    def stage(self, place: int, is_late: bool) -> None:
        actor, term = self._leader(place, is_late)
        if term is not None:
            self.world.stage(actor.id, term)

    @precondition(lambda self: any(actor.terms for actor in self.actors))
    @rule(place=places, is_late=st.booleans(), limit=limits)
    def rescue(self, place: int, is_late: bool, limit: int) -> None:
        self._rescue(*self._leader(place, is_late), limit)

    @precondition(lambda self: self._acting)
    @rule(place=places)
    def leave(self, place: int) -> None:
        """It ends in order: what it still ran is released, and written, and what it has claimed unknowingly is given back."""
        actor = self._one(place)
        self._stop(actor, self.rows.now)
        if actor.ended:
            self.world.ack(actor.id, actor.ended)
        self.world.lost_claims(actor.id, set(), None)
        self.world.leave(actor.id)
        actor.is_alive = False
        actor.ended = []

    # inside

    def _rescue(self, actor: Actor, term: int | None, limit: int = MOST) -> None:
        for node in sorted(self.world.expired() - {actor.id}):
            if term is not None:
                self.world.rescue(node, actor.id, term, limit)
                self.world.bury(node)

    @property
    def _acting(self) -> list[Actor]:
        return [actor for actor in self.actors if actor.acts]

    def _one(self, place: int) -> Actor:
        return self._acting[place % len(self._acting)]

    def _a_row(self, place: int) -> int:
        return sorted(self.rows.jobs)[place % len(self.rows.jobs)]

    def _actor(self) -> Actor:
        id_ = UUID(int=next(self._ids))
        actor = Actor(id_, Leadership(id_, LEADER, _unheard, lambda: self._clock(actor)), self.rows.now)
        self.actors.append(actor)
        return actor

    def _clock(self, actor: Actor) -> float:
        return (self.rows.now - EPOCH).total_seconds() - actor.slept

    def _leader(self, place: int, is_late: bool) -> tuple[Actor, int | None]:
        """One who leads as far as it knows; or one who did, and whose order comes late."""
        actors = [actor for actor in self.actors if actor.terms]
        actor = actors[place % len(actors)]
        return actor, actor.terms[place % len(actor.terms)] if is_late or not actor.acts else actor.leadership.term

    def _is_in_time(self, actor: Actor) -> bool:
        return self.rows.now < actor.renewed + timedelta(seconds=CUT_OFF + actor.slept)

    def _start(self, actor: Actor, job: Job) -> None:
        actor.demand.held += 1
        job = msgspec.structs.replace(job, definition=WORK)
        for other in self.attempts:
            if other.job.id == job.id and (other.to is None or other.to > self.rows.now):
                assert other.is_excused, f"{job.id} runs twice at once"
        attempt = Attempt(job, self.rows.now, is_excused=bool(actor.slept))
        actor.running.append(attempt)
        self.attempts.append(attempt)

    def _be_well(self, place: int) -> None:
        """Have its lease renewed, nothing paused, and something to do."""
        self.world.resume(None)
        self.renew(place, True)
        for most in (1, 2):
            self.enqueue(most, 0, 0.0, True)

    def _end(self, actor: Actor, which: int, end: object) -> None:
        attempt = actor.running.pop(which % len(actor.running))
        attempt.to = self.rows.now
        actor.ended.append(Finished(attempt.job, _outcome(attempt.job, end)))

    def _stop(self, actor: Actor, at: datetime) -> None:
        for attempt in actor.running:
            attempt.to = at
            actor.ended.append(Finished(attempt.job, Release(reason="its node could not renew its lease")))
        actor.running = []


def _outcome(job: Job, end: object) -> Outcome:
    if isinstance(end, Outcome):
        return resolve(job, end)
    return raised(job, end) if isinstance(end, BaseException) else returned(job, end)


def _unheard(event: Event) -> None: ...
