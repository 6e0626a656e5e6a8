from __future__ import annotations

from rxjobs.bench.figures import Found, Key, Ratio, Subject, figures

OURS, RAW = Key("throughput", "concurrency 10", "rxjobs"), Key("throughput", "concurrency 10", "raw")


def test_a_figure_is_held_against_the_other_of_its_round():
    rounds = {RAW: [{"rate": 100.0}, {"rate": 300.0}], OURS: [{"rate": 50.0, "peak": 40.0}, {"rate": 60.0, "peak": 41.0}]}
    raw, rate, peak = figures([Subject(RAW, 10), Subject(OURS, 10, RAW)], rounds)
    assert (raw.measure, raw.found, raw.ratio) == ("rate", Found([100.0, 300.0], 200.0, 100.0, 300.0), None)
    assert (rate.found, rate.ratio) == (Found([50.0, 60.0], 55.0, 50.0, 60.0), Ratio([0.5, 0.2], 0.35, 0.2, 0.5, "raw"))
    assert (peak.unit, peak.ratio) == ("peak MB", None)


def test_what_was_not_measured_is_no_figure_and_no_ratio():
    rounds = {RAW: [None, {"rate": 300.0}, None], OURS: [{"rate": 50.0}, {"rate": 60.0}, None]}
    _, rate = figures([Subject(RAW), Subject(OURS, None, RAW)], rounds)
    assert rate.found == Found([50.0, 60.0, None], 55.0, 50.0, 60.0)
    assert rate.ratio == Ratio([None, 0.2, None], 0.2, 0.2, 0.2, "raw")
    assert list(figures([Subject(OURS, None, RAW)], {RAW: [{"rate": 1.0}], OURS: [None]})) == []
