"""What a command answers: a table for people, or one JSON document for programs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from rxjobs.cli.escaping import escape, escape_json, on_one_line
from rxjobs.job import State
from rxjobs.store.encoding import to_json

WIDE = 1000
STYLES = {
    State.AVAILABLE: "cyan",
    State.EXECUTING: "blue",
    State.COMPLETED: "green",
    State.RETRYABLE: "yellow",
    State.DISCARDED: "red",
    State.CANCELLED: "dim",
}


def print_json(document: Any) -> None:
    """Print one JSON document; instants are ISO 8601."""
    print(escape_json(msgspec.json.format(to_json(document), indent=2).decode()))


def print_lines(*lines: str) -> None:
    """Print text, each line escaped by itself."""
    for line in lines:
        print(escape(line))


def print_note(text: str) -> None:
    """Tell the user something on stderr, in one line, that is no part of the answer."""
    print(f"rxjobs: {on_one_line(text)}", file=sys.stderr)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a table."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, no_wrap=True, overflow="ellipsis")
    for row in rows:
        table.add_row(*(cell(value) for value in row))
    show(table)


def show(what: RenderableType) -> None:
    """Print something of rich's: to a terminal in its width and colours, elsewhere plain and as wide as it comes."""
    is_narrow = sys.stdout.isatty() or "COLUMNS" in os.environ
    console = Console(width=None if is_narrow else WIDE, highlight=False)
    # captured, since rich answers a closed pipe with an exit code of its own
    sys.stdout.flush()  # here, where a closed pipe is an ordinary error: rich would end the process for it
    with console.capture() as captured:
        console.print(what)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()))


def cell(value: Any) -> Text:
    """A value as text for a terminal: never markup, never a control character."""
    match value:
        case None:
            return Text("")
        case State():
            return Text(value, style=STYLES.get(value, ""))
        case int():
            return Text(str(value), justify="right")
        case datetime():
            return Text(instant(value))
        case _:
            return Text(escape(str(value)))


def instant(moment: datetime) -> str:
    """An instant in UTC, to the second."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def count(number: int, noun: str) -> str:
    """`1 job`, `2 jobs`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
