"""How much is told: the options of rj.Telemetry, and the variables that stand in for them."""

from __future__ import annotations

import pytest

import rxjobs as rj
from rxjobs.telemetry.histograms import HISTOGRAMS, Histograms
from rxjobs.telemetry.providers import How


def test_what_holds_where_nothing_is_said():
    assert rj.Telemetry().how({}) == How()


def test_variables_say_what_is_not_given():
    environ = {
        "RXJOBS_TELEMETRY_TRACE": "link",
        "RXJOBS_TELEMETRY_TRACE_MAX_AGE": "60",
        "RXJOBS_TELEMETRY_SPANS": "fetch=on, stage=off",
        "RXJOBS_TELEMETRY_CREATE_SPAN_LIMIT": "0",
        "RXJOBS_TELEMETRY_SPAN_NAME": "kind",
        "RXJOBS_TELEMETRY_METRICS": "kind=false,fast=true",
        "RXJOBS_TELEMETRY_BAGGAGE_ATTRIBUTES": "tenant.id, plan",
    }
    assert rj.Telemetry().how(environ) == How(
        trace="link", trace_max_age=60.0, fetch_spans=True, stage_spans="none", create_span_limit=0, names_kind=True,
        tells_kind=False, histograms=HISTOGRAMS, baggage_attributes=("tenant.id", "plan"),
    )  # fmt: skip


def test_what_is_given_wins_over_the_variables():
    own = Histograms()
    given = rj.Telemetry(trace="none", spans={"ack": True}, metrics={"fast": own}, baggage_attributes=["a"])
    how = given.how({"RXJOBS_TELEMETRY_TRACE": "link", "RXJOBS_TELEMETRY_SPANS": "fetch=on"})
    assert (how.trace, how.fetch_spans, how.ack_spans, how.histograms, how.baggage_attributes) == ("none", False, True, own, ("a",))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"trace": "follow"}, r"Telemetry\(trace=…\) is one of continue, link, none, not 'follow'"),
        ({"trace_max_age": -1}, r"Telemetry\(trace_max_age=…\) is a number of at least 0, not -1"),
        ({"create_span_limit": True}, r"Telemetry\(create_span_limit=…\) is a number of at least 0, not True"),
        ({"spans": {"fetsh": True}}, r"Telemetry\(spans=…\) has no 'fetsh'; it has fetch, ack, stage"),
        ({"spans": {"fetch": 1}}, r"Telemetry\(spans=…\): fetch is one of True, False, not 1"),
        ({"spans": {"stage": True}}, r"stage is one of 'slow', 'traced', False, not True"),
        ({"spans": "fetch"}, r"Telemetry\(spans=…\) is a mapping of fetch, ack, stage, not 'fetch'"),
        ({"span_name": "job"}, r"Telemetry\(span_name=…\) is one of queue, kind, not 'job'"),
        ({"metrics": {"quick": True}}, r"Telemetry\(metrics=…\) has no 'quick'; it has kind, fast"),
        ({"metrics": 7}, r"Telemetry\(metrics=…\) is a mapping of kind, fast, not 7"),
        ({"baggage_attributes": "tenant.id"}, r"are names of baggage, such as \('tenant.id',\), not 'tenant.id'"),
    ],
)
def test_an_option_that_cannot_be_is_refused(options, says):
    with pytest.raises(rj.InvalidOption, match=says):
        rj.Telemetry(**options)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("TRACE", "follow", "RXJOBS_TELEMETRY_TRACE is one of"),
        ("TRACE_MAX_AGE", "soon", "RXJOBS_TELEMETRY_TRACE_MAX_AGE='soon' cannot be read"),
        ("SPANS", "fetch", "RXJOBS_TELEMETRY_SPANS='fetch' cannot be read"),
        ("SPANS", "fetch=maybe", "RXJOBS_TELEMETRY_SPANS: fetch is one of True, False, not 'maybe'"),
    ],
)
def test_a_variable_that_cannot_be_is_refused_and_named(name, value, says):
    with pytest.raises(rj.InvalidOption, match=says):
        rj.Telemetry().how({f"RXJOBS_TELEMETRY_{name}": value})


def test_a_job_type_refuses_a_way_to_trace_that_there_is_not():
    with pytest.raises(rj.InvalidOption, match="work: trace is one of continue, link, none, not 'follow'"):
        rj.App("postgresql://nowhere").job(name="work", trace="follow")(lambda: None)
