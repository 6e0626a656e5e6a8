"""The machine: what may happen, what seldom happens by chance, and what must hold after every step."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from rxjobs.decide import returned
from rxjobs.outcome import Finished
from tests.model.steps import ENDS, LEADER, LEASE, MOST_HELD, STEPS, Actor, Steps, limits, places
from tests.model.worlds import MOST


class Nodes(Steps):
    """The machine, in memory; a subclass may name another world."""

    # what takes many steps, and so is seldom met by chance

    @precondition(lambda self: self._acting)
    @rule(place=places, end=st.sampled_from(ENDS), is_answered=st.booleans())
    def work(self, place: int, end: object, is_answered: bool) -> None:
        """Claim, run one to its end, write it down, and claim again, maybe before it is known that it was written."""
        actor = self._one(place)
        self._be_well(place)
        self.claim(place, True)
        if actor.running:
            self._end(actor, place, end)
            self.world.ack(actor.id, actor.ended)
            if is_answered:
                actor.demand.held -= len(actor.ended)
                actor.ended = []
            self.claim(place, True)
            if actor.ended:
                self.world.ack(actor.id, actor.ended)

    @precondition(lambda self: self._acting)
    @rule(place=places, looks=st.integers(1, 3))
    def lose_a_claim(self, place: int, looks: int) -> None:
        """Its answer is lost, and the node looks for what it does not know of."""
        self._be_well(place)
        self.claim(place, False)
        for _ in range(looks):
            self.look_for_lost_claims(place)

    @rule(seconds=st.sampled_from(STEPS))
    def wait_while_all_renew(self, seconds: float) -> None:
        step = min(seconds, LEADER)
        for _ in range(int(seconds / step)):
            self.wait(step)
            for place in range(len(self._acting)):
                self.renew(place, True)

    @precondition(lambda self: len(self._acting) > 1)
    @rule(
        place=places, wakes=st.sampled_from((True, False, None)), is_claimed=st.booleans(), end=st.sampled_from(ENDS), limit=limits
    )
    def fall_silent(self, place: int, wakes: bool | None, is_claimed: bool, end: object, limit: int) -> None:
        """The leader dies, or stops and may wake; another leads and takes its jobs, which may be claimed; old orders come late."""
        self._be_well(place)
        self.claim(place, True)
        self.lead(place, True)
        victim = self._one(place)
        if len(victim.running) > 1:
            self._end(victim, 0, end)
        if wakes is None:
            self.crash(place)
        else:
            self.freeze(place)
        self.wait_while_all_renew(2 * LEASE)
        self.lead(place, True)
        for term in victim.terms:
            self.world.stage(victim.id, term)
            self._rescue(victim, term)
        self._rescue(self._one(place), self._one(place).leadership.term, limit)
        if is_claimed:
            self.claim(place + 1, True)
        if wakes:
            self._wake(victim)

    @precondition(lambda self: self._acting)
    @rule(place=places)
    def lead_twice(self, place: int) -> None:
        """A leader that was silent for too long begins a new term, and its orders of the old one come late."""
        self.world.insert(3, 0, STEPS[0])
        self.lead(place, True)
        self.wait_while_all_renew(2 * LEADER)
        self.lead(place, True)
        actor = self._one(place)
        for term in actor.terms:
            self.world.stage(actor.id, term)

    def _wake(self, victim: Actor) -> None:
        """It takes its lease anew, and claims, before it writes down what it had done when it was stopped."""
        victim.is_frozen = False
        here = self._acting.index(victim)
        self.renew(here, True)
        self.claim(here, True)
        if victim.ended:
            self.world.ack(victim.id, victim.ended)

    # what holds after every step

    @invariant()
    def no_acknowledged_job_is_lost(self) -> None:
        assert self.acknowledged <= self.rows.jobs.keys()

    @invariant()
    def every_row_has_ended_or_may_run_or_is_held_by_a_node_that_is_known(self) -> None:
        for row in self.rows.jobs.values():
            assert row.state in ("available", "scheduled", "retryable") or row.is_terminal or row.node in self.rows.nodes, row

    @invariant()
    def attempts_are_counted(self) -> None:
        for row in self.rows.jobs.values():
            assert 0 <= row.attempt <= row.max_attempts, row

    @invariant()
    def what_has_ended_never_changes(self) -> None:
        for id_, row in self.terminal.items():
            assert self.rows.jobs[id_] == row
        self.terminal |= {id_: row for id_, row in self.rows.jobs.items() if row.is_terminal}

    @invariant()
    def no_node_holds_more_than_its_demand(self) -> None:
        for actor in self.actors:
            assert len(actor.running) + len(actor.ended) == actor.demand.held <= MOST_HELD or not actor.is_alive

    @invariant()
    def one_leads_at_most(self) -> None:
        leading = [actor.leadership.term for actor in self._acting if not actor.slept]
        assert sum(term is not None for term in leading) <= 1

    @invariant()
    def the_worlds_agree(self) -> None:
        self.world.agree()

    def teardown(self) -> None:
        """Whatever happened, one node that is well brings everything to its end."""
        try:
            if self.actors:
                self._settle()
        finally:
            self.world.close()

    def _settle(self) -> None:
        for actor in self._acting:
            actor.is_alive = False
            for attempt in actor.running:
                attempt.to = self.rows.now
        for actor in self.actors:  # frozen ones never wake
            actor.is_alive = False
        last = self._actor()
        self.world.resume(None)
        self.world.take_lease(last.id, LEASE)
        for _ in range(20):
            if all(row.is_terminal for row in self.rows.jobs.values()):
                break
            for _ in range(4):
                self.world.wait(LEASE / 5)
                assert self.world.renew_lease(last.id, LEASE)
                last.leadership.asked(self.world.lead(last.id, LEADER), self._clock(last))
            self._serve(last)
        self.world.agree()
        assert all(row.is_terminal for row in self.rows.jobs.values())

    def _serve(self, last: Actor) -> None:
        term = last.leadership.term
        if term is None:
            return
        for node in sorted(self.world.expired()):
            self.world.rescue(node, last.id, term, MOST)
            self.world.bury(node)
        self.world.stage(last.id, term)
        while jobs := self.world.claim(last.id, MOST_HELD):
            assert self.world.ack(last.id, [Finished(job, returned(job, None)) for job in jobs]) == {job.id for job in jobs}
