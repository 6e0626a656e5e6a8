from uuid import uuid4

from rxjobs.events import LeaderLost, LeaderWon
from rxjobs.services.lead import Leadership


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_leader_acts_only_for_a_part_of_the_time_it_was_given_counted_from_its_question():
    clock = Clock()
    leadership = Leadership(uuid4(), 10.0, lambda event: None, clock)
    assert leadership.term is None
    leadership.asked(7, at=997.0)  # the answer took three seconds
    assert leadership.term == 7
    clock.now = 1004.9
    assert leadership.term == 7
    clock.now = 1005.0
    assert leadership.term is None


def test_winning_and_losing_are_told_once_each():
    events, clock, node = [], Clock(), uuid4()
    leadership = Leadership(node, 10.0, events.append, clock)
    for term in (None, 3, 3, None, None, 5, 6):
        leadership.asked(term, clock())
    assert [(type(event), event.term) for event in events] == [
        (LeaderWon, 3), (LeaderLost, 3), (LeaderWon, 5), (LeaderWon, 6),
    ]  # fmt: skip
    assert {event.node for event in events} == {str(node)}
