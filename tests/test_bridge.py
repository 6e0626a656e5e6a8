"""The sixth law: one small file knows both Rx and asyncio."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import rxjobs

PACKAGE = Path(rxjobs.__file__).parent
FORBIDDEN = {
    "operators": {"asyncio", "asyncpg"},
    "sources": {"asyncio", "asyncpg"},
    "services": {"asyncio", "asyncpg"},
    "store": {"reactivex"},
    "middleware": {"reactivex"},
    "perform.py": {"reactivex"},
}
KNOWN = {
    ("sources/postgres.py", "asyncpg"): "the class of its rows",
    ("sources/outcomes.py", "asyncpg"): "the classes of its errors: an outcome that is refused is not a database that is away",
    ("services/lease.py", "asyncio"): "the heartbeat has a thread and an event loop of its own, so that no job can hold it up",
}
"""What is let be, and why."""


def files() -> Iterator[tuple[Path, set[str]]]:
    for part, forbidden in FORBIDDEN.items():
        place = PACKAGE / part
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            yield path, forbidden


def imports(path: Path) -> set[str]:
    """The packages that a file imports, also inside of functions."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add((node.module or "").partition(".")[0])
    return found


@pytest.mark.parametrize(("path", "forbidden"), [pytest.param(*each, id=str(each[0].relative_to(PACKAGE))) for each in files()])
def test_this_file_knows_one_side_of_the_bridge_only(path, forbidden):
    name = str(path.relative_to(PACKAGE))
    known = {package for file, package in KNOWN if file == name}
    assert imports(path) & forbidden == known, f"{name} imports what it may not, or an exception is not needed any more"


def test_every_part_is_there():
    assert {path.relative_to(PACKAGE).parts[0] for path, _ in files()} == set(FORBIDDEN)
