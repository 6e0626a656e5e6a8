"""What is found out about one source file: plain functions of a job, which run in threads and in other processes."""

from __future__ import annotations

import ast
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

from rxjobs.job import Job
from rxjobs.outcome import Discard

BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
"""Where a statement keeps others."""


def measure(job: Job) -> dict[str, Any]:
    """The size of the job's file: bytes and lines."""
    source = job.args["path"].read_bytes()
    return {"bytes": len(source), "lines": len(source.splitlines())}


def parse(job: Job) -> dict[str, Any] | Discard:
    """What the job's file defines; source that does not parse never will, and is no reason to try again."""
    try:
        return count_definitions(job.args["path"].read_bytes(), job.args["name"])
    except (SyntaxError, ValueError, RecursionError) as error:
        return Discard(str(error), exception=error)


def count_definitions(source: bytes, name: str) -> dict[str, int]:
    """How many functions, classes and imports there are in Python source; raises SyntaxError or ValueError for what is none."""
    with warnings.catch_warnings():
        # the library has files that are there to be warned about
        warnings.simplefilter("ignore")
        tree = ast.parse(source, name)
    kinds = Counter(map(type, walk_statements(tree)))
    return {
        "functions": kinds[ast.FunctionDef] + kinds[ast.AsyncFunctionDef],
        "classes": kinds[ast.ClassDef],
        "imports": kinds[ast.Import] + kinds[ast.ImportFrom],
    }


def walk_statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Every statement at any depth, and what holds them; expressions, which are most of a tree, define nothing."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        for block in BLOCKS:
            waiting.extend(getattr(node, block, ()))
        yield node
