"""The facts that the demo finds out about a file."""

from __future__ import annotations

import ast
import sysconfig
from pathlib import Path

import rxjobs as rj
from rxjobs.demo.parsing import count_definitions, measure, parse

SOURCE = b"""
import os
from pathlib import Path

class Outer:
    class Inner:
        def method(self): ...

async def coroutine():
    def nested(): return lambda: 1
"""


def job_of(path: Path) -> rj.Job:
    return rj.Job(id=1, type="index_file", args={"name": path.name, "path": path})


def test_definitions_are_counted_at_any_depth():
    assert count_definitions(SOURCE, "x.py") == {"functions": 3, "classes": 2, "imports": 2}


def test_no_statement_of_the_library_is_overlooked():
    for name in ("ast.py", "typing.py", "asyncio/base_events.py", "socket.py"):
        source = Path(sysconfig.get_path("stdlib"), name).read_bytes()
        nodes = list(ast.walk(ast.parse(source)))
        assert count_definitions(source, name) == {
            "functions": sum(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in nodes),
            "classes": sum(isinstance(node, ast.ClassDef) for node in nodes),
            "imports": sum(isinstance(node, ast.Import | ast.ImportFrom) for node in nodes),
        }


def test_a_file_without_a_last_newline_has_its_last_line(tmp_path: Path):
    path = tmp_path / "two.py"
    path.write_bytes(b"a = 1\r\nb = 2")
    assert measure(job_of(path)) == {"bytes": 12, "lines": 2}


def test_source_is_read_in_the_encoding_that_it_declares(tmp_path: Path):
    path = tmp_path / "latin.py"
    path.write_bytes("# coding: latin-1\ndef größe(): ...\n".encode("latin-1"))
    assert parse(job_of(path)) == {"functions": 1, "classes": 0, "imports": 0}


def test_what_python_would_warn_about_is_parsed_in_silence(tmp_path: Path):
    path = tmp_path / "escape.py"
    path.write_bytes(b'def f(): return "\\d"\n')
    # a warning would be an error here
    assert parse(job_of(path)) == {"functions": 1, "classes": 0, "imports": 0}


def test_source_that_does_not_parse_is_a_dead_letter_that_says_why(tmp_path: Path):
    for name, source in {"old.py": b"print 'hello'\n", "nul.py": b"a = '\x00'\n"}.items():
        path = tmp_path / name
        path.write_bytes(source)
        outcome = parse(job_of(path))
        assert isinstance(outcome, rj.Discard)
        assert isinstance(outcome.exception, SyntaxError | ValueError)
        assert str(outcome.exception) == outcome.reason
