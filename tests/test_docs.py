"""What the pages say is there: links lead somewhere, and the tables of faults name tests."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
LINK = re.compile(r"\[([^\]]+)\]\((?!\w+:)([^)#]+)(?:#[^)]*)?\)")
FAULTS = ROOT / "docs" / "faults.md"
MADE = {ROOT / "docs" / "reference" / "commands.md", ROOT / "docs" / "reference" / "signals.md"}
"""Pages that docs/building.py makes of the code."""
STREAMS = ROOT / "docs" / "streams.md"
KNOWN = "For those who know GenStage and Broadway"


def rows(page: Path, section: str | None = None) -> list[list[str]]:
    """The rows of the tables of a page, or of one of its sections, without those that are heads."""
    text = page.read_text("utf-8")
    if section is not None:
        text = text.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    heads = {place - 1 for place, line in enumerate(lines) if set(line) <= set("|- ")}
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for place, line in enumerate(lines)
        if place not in heads and place - 1 not in heads
    ]


def functions(path: Path) -> set[str]:
    """The functions that a file defines at its top level, or in a class there."""
    tree = ast.parse(path.read_text("utf-8"))
    bodies = [tree.body, *(node.body for node in tree.body if isinstance(node, ast.ClassDef))]
    return {node.name for body in bodies for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def missing(page: Path) -> list[str]:
    """Where links of a page lead to nothing: to no file, or to a test that the file does not define, whatever its parameters."""
    found = []
    for words, target in LINK.findall(page.read_text("utf-8")):
        path = page.parent / target
        if path in MADE:
            continue
        if not path.exists():
            found.append(target)
        elif words.startswith("test_") and not words.endswith(".py") and words.partition("[")[0] not in functions(path):
            found.append(f"{target}::{words}")
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_what_they_name(page):
    assert missing(page) == []


def test_a_link_to_no_file_and_one_to_no_test_are_found(tmp_path):
    (tmp_path / "test_it.py").write_text("def test_one(): ...\n\n\nclass TestMore:\n    async def test_two(self): ...\n")
    page = tmp_path / "page.md"
    page.write_text(
        "[test_one](test_it.py) [test_two](test_it.py) [test_it.py](test_it.py) [elsewhere](https://example.org/x)\n"
        "[test_three](test_it.py) [a page](other.md#place)\n"
    )
    assert missing(page) == ["test_it.py::test_three", "other.md"]


@pytest.mark.parametrize("row", rows(FAULTS), ids=lambda row: row[0])
def test_every_fault_names_a_test(row):
    """Of both tables: a fault, what is to be known of it, and at least one test."""
    named = [words for cell in row for words, _ in LINK.findall(cell) if words.startswith("test_")]
    assert named
    assert all(row[:3])


def test_there_are_two_tables_of_faults():
    ids = [row[0] for row in rows(FAULTS)]
    assert sum(re.fullmatch(r"F\d+(, F\d+)*", id_) is not None for id_ in ids) > 30
    assert sum("#" in id_ for id_ in ids) > 40
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("row", rows(STREAMS, KNOWN), ids=lambda row: row[0][:60])
def test_every_term_of_others_has_ours_and_tests(row):
    """Theirs, ours, and tests that show it: nothing else in the last column."""
    theirs, ours, shown = row
    assert theirs
    assert ours
    assert LINK.sub("", shown).strip(", ") == ""
    assert all(words.startswith("test_") for words, _ in LINK.findall(shown))


def test_the_terms_of_both_are_there():
    text = " ".join(row[0] for row in rows(STREAMS, KNOWN))
    genstage = (
        "max_demand min_demand handle_demand buffer_size DemandDispatcher BroadcastDispatcher PartitionDispatcher producer_consumer"
    )
    broadway = "processors batchers partition_by rate_limiting acknowledgers shutdown"
    modes = ":permanent :transient :temporary"
    assert [term for term in f"{genstage} {broadway} {modes}".split() if term not in text] == []


def test_the_tests_that_streams_shows_to_users_pass():
    section = STREAMS.read_text("utf-8").partition("\n## Testing a pipeline\n")[2].partition("\n## ")[0]
    code = "\n".join(re.findall(r"```python\n(.*?)```", section, re.DOTALL))
    names = {"__name__": "streams"}
    exec(compile(ast.parse(code), "docs/streams.md", "exec"), names)  # noqa: S102 - it is our own page
    tests = [one for name, one in names.items() if name.startswith("test_")]
    assert len(tests) == 2
    for test in tests:
        test()
