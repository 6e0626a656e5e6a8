from __future__ import annotations

import pytest
from reactivex.testing import ReactiveTest, TestScheduler

from rxjobs.cli.standing import PROBATION, standing
from rxjobs.events import NodeJoined, PipelineRestarted, PipelineStarted, PipelineStopped
from rxjobs.failure import describe

S, E = PipelineStarted(pipeline="mail"), PipelineStopped(pipeline="mail")
R = PipelineRestarted(pipeline="mail", error=describe(OSError("gone")), delay=2.0)
N = NodeJoined(node="n")


@pytest.mark.parametrize(
    ("told", "when"),
    [
        ([(300, S)], 300 + PROBATION),
        ([(300, S), (300.5, N)], 300 + PROBATION),
        ([(300, S), (300.5, R)], 300.5 + 2 + PROBATION),
        ([(300, S), (300, R), (302, R)], 302 + 2 + PROBATION),
        # one of two has come to its end
        ([(300, S), (300, S), (300.5, E)], 300.5 + PROBATION),
        ([(300, S), (300, E)], None),
        ([(300, N)], None),
    ],
)
def test_a_process_stands_when_its_pipelines_have_gone_on_for_a_while(told, when):
    scheduler = TestScheduler()
    events = scheduler.create_hot_observable(*(ReactiveTest.on_next(at, event) for at, event in told))
    messages = scheduler.start(lambda: standing(events, scheduler)).messages
    assert [(message.time, message.value.kind) for message in messages] == ([] if when is None else [(when, "N"), (when, "C")])
