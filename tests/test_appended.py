"""What is read of a file while others write to it."""

from __future__ import annotations

from tests.appended import whole_lines
from tests.journeys.conftest import Line, Worker


def test_a_line_that_is_written_in_part_is_left_for_the_next_look(tmp_path):
    path = tmp_path / "file"
    assert whole_lines(path) == []
    path.write_text("sta")
    assert whole_lines(path) == []
    path.write_text("start 1\nend 1\nsta")
    assert whole_lines(path) == ["start 1", "end 1"]


def test_a_ledger_is_read_so(tmp_path):
    worker = Worker.__new__(Worker)
    worker._ledger = tmp_path / "ledger"
    worker._ledger.write_text("start 1 1 2.5\nend 1")
    assert worker.lines() == [Line("start", 1, 1, 2.5)]
