"""The comparison with peers, as far as it needs none of them: they have environments of their own, made when it is asked for."""

from __future__ import annotations

import io
import sys

from rxjobs.bench.figures import Key
from rxjobs.bench.ground import prepared
from rxjobs.bench.program import NotMeasured
from rxjobs.bench.run import Run
from rxjobs.bench.scenarios import LEAST
from rxjobs.bench.view import Lines
from tests.peers.__main__ import BEST, LIMIT_SECONDS, SIZES, cases, held_against, table
from tests.peers.environments import is_at_least

TINY = SIZES.scaled(LEAST / SIZES.throughput)
CASE = "each at its best"


async def test_rxjobs_is_held_against_raw_and_a_peer_that_cannot_be_there_is_named(dsn: str):
    async with prepared(dsn, "rxjobs_bench_peers") as ground:
        grounds = {"raw": ground, "rxjobs": ground, "oban": NotMeasured("it is not here")}
        chosen = [case for case in cases(grounds, TINY) if case.subject.key.case == CASE]
        run = Run(chosen, ground, Lines(io.StringIO()), limit=LIMIT_SECONDS)
        await run.measure(1)
    assert [(one.runner, one.reason) for one in run.missing] == [("oban", "it is not here")]
    figures = list(held_against(run))
    (ratio,) = [one.ratio for one in figures if one.measure == "rate" and one.ratio]
    raw, ours = (run.rounds[Key("throughput", CASE, runner)][0] for runner in ("raw", "rxjobs"))
    assert (ratio.of, ratio.median) == ("raw", ours["rate"] / raw["rate"])
    head, _, rate, *_ = table(figures, grounds).splitlines()
    assert head == "|  | raw | rxjobs | oban | rxjobs ÷ raw | rxjobs ÷ oban |"
    said = f"| throughput, {CASE}: jobs/s | {raw['rate']:,.0f} | {ours['rate']:,.0f} |  | {ratio.median:,.2f} |  |"
    assert rate == said


def test_all_of_them_are_measured_by_turns():
    grounds = {runner: NotMeasured("it is not here") for runner in BEST}
    keys = [case.subject.key for case in cases(grounds, SIZES)]
    assert [key.runner for key in keys] == [*BEST] * 6
    assert len({(key.scenario, key.case) for key in keys}) == 6


def test_a_python_that_is_too_old_or_not_there_is_not_taken(tmp_path):
    assert is_at_least(sys.executable, (3, 11))
    assert not is_at_least(sys.executable, (4, 0))
    assert not is_at_least(str(tmp_path / "python"), (3, 11))
