from __future__ import annotations

import json
import logging
import sys

from rxjobs.cli.logs import Lines, Objects

EVIL = "bad\n2026-01-01T00:00:00.000Z CRITICAL [1] root: forged \x1b[2J\u202e\ud800"


def a_record(message: str) -> logging.LogRecord:
    try:
        raise ValueError(EVIL)
    except ValueError:
        return logging.LogRecord("shop", logging.ERROR, __file__, 1, message, None, sys.exc_info())


def test_no_line_of_the_log_can_be_forged():
    first, *rest = Lines().format(a_record(EVIL)).split("\n")
    assert first.endswith(r"shop: bad\n2026-01-01T00:00:00.000Z CRITICAL [1] root: forged \x1b[2J\u202e\ud800")
    assert rest[0] == "    Traceback (most recent call last):"
    assert all(line.startswith("    ") and line.isprintable() for line in rest)


def test_a_record_in_json_is_one_line():
    text = Objects().format(a_record(EVIL))
    assert text.isprintable()
    record = json.loads(text)
    assert record["level"] == "error"
    assert record["logger"] == "shop"
    assert record["message"].startswith("bad\n2026")
    assert "ValueError: bad" in record["traceback"]
