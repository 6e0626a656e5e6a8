"""A log that what fails over and over does not flood."""

from __future__ import annotations

import logging

from rxjobs.telemetry.sparing import Sparing


def test_one_record_a_minute_comes_through_as_one_line_that_counts_the_others():
    now = 0.0
    sparing = Sparing(lambda: now)

    def heard(text, error=None):
        info = (type(error), error, None) if error is not None else None
        record = logging.LogRecord("x", logging.ERROR, "", 0, text, ("a",), info)
        return logging.Formatter().format(record) if sparing.filter(record) else None

    assert heard("no collector at %s\nnow", OSError("refused")) == "no collector at a now: OSError: refused"
    assert [heard("again %s") for _ in range(3)] == [None] * 3
    now = 59.9
    assert heard("again %s") is None
    now = 60.0
    assert heard("again %s") == "again a (4 more like this since the last)"
    now = 120.0
    assert heard("again %s") == "again a"
