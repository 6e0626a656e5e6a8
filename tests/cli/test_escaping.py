from __future__ import annotations

import json

import pytest

from rxjobs.cli.escaping import escape, escape_json, on_one_line


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("plain", "plain"),
        ("a\nb\r\t", r"a\nb\r\t"),
        ("\x1b]0;owned\x07", r"\x1b]0;owned\x07"),
        ("\x7f\x9b31m", r"\x7f\x9b31m"),
        ("user\u202egnp.exe", r"user\u202egnp.exe"),
        ("a\u2028b\ud800", r"a\u2028b\ud800"),
        ("žluťoučký 日本語\u3000\u00a0🦄", "žluťoučký 日本語\u3000\u00a0🦄"),
    ],
)
def test_what_is_not_seen_as_itself_is_written_out(text, seen):
    assert escape(text) == seen


def test_a_message_of_several_lines_becomes_one():
    assert on_one_line("first\n   second\x1b[2J\n\nthird\n") == r"first second\x1b[2J third"


def test_a_json_document_keeps_its_meaning_and_obeys_nobody():
    document = json.dumps({"text": "a\x9b\u202eb\u2066 ž"}, ensure_ascii=False)
    escaped = escape_json(document)
    assert json.loads(escaped) == json.loads(document)
    assert escaped == '{"text": "a\\u009b\\u202eb\\u2066 ž"}'
