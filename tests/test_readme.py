"""What the README shows is there; tests/docs runs its code."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
LINK = re.compile(r"\[([^\]]+)\]\((?!https?:)([^)#]+)\)")


@pytest.mark.parametrize(("words", "target"), LINK.findall(README))
def test_a_link_leads_to_what_it_names(words: str, target: str) -> None:
    path = ROOT / target
    assert path.exists()
    if words.startswith("test_") and not words.endswith(".py"):
        assert f"def {words}(" in path.read_text("utf-8")


def test_every_promise_names_a_test() -> None:
    table = README.partition("## Promises")[2].partition("What is not promised")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 10
    assert all("](tests/" in row for row in rows)
