"""What befell others whose `except` was too wide: deadlines that did not hold, stops that were swallowed. See docs/faults.md."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import rxjobs

FOLDER = Path(rxjobs.__file__).parent
WIDE = {"BaseException", "BaseExceptionGroup"}
"""What also catches the wish to stop; a handler that names CancelledError or KeyboardInterrupt means it."""


def too_wide(source: str) -> list[int]:
    """The lines of those handlers that catch everything, and neither raise it again nor give a reason."""
    lines = source.splitlines()
    return [
        handler.lineno
        for handler in ast.walk(ast.parse(source))
        if isinstance(handler, ast.ExceptHandler) and _is_wide(handler) and not _raises(handler) and not _has_reason(lines, handler)
    ]


def _is_wide(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    nodes = list(ast.walk(handler.type))
    names = {node.id for node in nodes if isinstance(node, ast.Name)} | {
        node.attr for node in nodes if isinstance(node, ast.Attribute)
    }
    return not names.isdisjoint(WIDE)


def _raises(handler: ast.ExceptHandler) -> bool:
    return any(isinstance(node, ast.Raise) for statement in handler.body for node in ast.walk(statement))


def _has_reason(lines: list[str], handler: ast.ExceptHandler) -> bool:
    """Whether there is a comment on its line, or at the head of its body."""
    head = lines[handler.lineno - 1 : handler.body[0].lineno]
    return any("#" in line for line in head)


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.py")), ids=lambda path: str(path.relative_to(FOLDER)))
def test_an_except_that_catches_everything_raises_it_again_or_says_why_not(path):
    """As psycopg#1401: a loop that caught everything caught the wish to stop it as well."""
    assert too_wide(path.read_text("utf-8")) == []


@pytest.mark.parametrize(
    ("handler", "lines"),
    [
        ("except:\n    pass", [3]),
        ("except BaseException:\n    pass", [3]),
        ("except (ValueError, builtins.BaseException) as error:\n    log(error)", [3]),
        ("except asyncio.CancelledError:\n    pass", []),
        ("except BaseException:\n    clean()\n    raise", []),
        ("except BaseException as error:\n    raise RuntimeError from error", []),
        ("except BaseException:  # it is a user's\n    pass", []),
        ("except BaseException:\n    # it is a user's\n    pass", []),
        ("except Exception:\n    pass", []),
    ],
)
def test_the_rule_finds_what_it_is_for(handler, lines):
    """As psycopg#1401, on code that breaks the rule and code that keeps it."""
    assert too_wide(f"try:\n    work()\n{handler}\n") == lines
