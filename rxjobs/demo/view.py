"""What is shown while the demo runs: a live view on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from types import TracebackType
from typing import Protocol, Self, TextIO

import msgspec
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rxjobs.demo.witness import timed

LINES = 8
LINE_SECONDS = 1.0
"""How often a plain line of progress is written."""
COLOURS = {"closed": "green", "half-open": "yellow", "open": "red"}


class Moment(msgspec.Struct, frozen=True):
    """How far the demo is."""

    total: int
    ended: int
    in_flight: int
    rate: float
    retries: int
    dead_letters: int
    depths: Mapping[str, Mapping[str, int]]
    """Queue → state → jobs that are not finished."""
    breakers: Mapping[str, str]
    events: Mapping[str, int]
    """Event name → how often it was heard."""


class View(Protocol):
    """Where the demo shows what it does."""

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...

    def say(self, line: str) -> None:
        """Show something that happened."""

    def show(self, moment: Moment) -> None:
        """Show how far the demo is."""


def view_on(stream: TextIO) -> View:
    """The view that suits where the output goes."""
    console = Console(file=stream)
    # what is no terminal gets no control codes, whatever the environment says of colours
    return LiveView(console) if stream.isatty() and not console.is_dumb_terminal else PlainView(stream)


class PlainView:
    """Lines, for a log or a pipe."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_read = True
        self._next = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        pass

    def say(self, line: str) -> None:
        """Write something that happened."""
        if self._is_read:
            try:
                print(timed(line), file=self._stream, flush=True)
            except BrokenPipeError:
                self._is_read = False

    def show(self, moment: Moment) -> None:
        """Write how far the demo is, once a second."""
        now = time.monotonic()
        if now >= self._next or moment.ended == moment.total:
            self._next = now + LINE_SECONDS
            self.say(
                f"{moment.ended} of {moment.total} jobs ended, {moment.rate:.0f}/s, {moment.in_flight} in flight, "
                f"{moment.retries} retries, {moment.dead_letters} dead letters"
            )


class LiveView:
    """A picture that is drawn again and again, on a terminal."""

    def __init__(self, console: Console) -> None:
        self._lines: deque[str] = deque(maxlen=LINES)
        self._moment: Moment | None = None
        # drawn by the event loop, which also changes what is drawn: no thread may come between
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._live.stop()

    def say(self, line: str) -> None:
        """Add something that happened to the picture."""
        self._lines.append(timed(line))
        if self._moment is None:
            self._draw()

    def show(self, moment: Moment) -> None:
        """Draw how far the demo is."""
        self._moment = moment
        self._draw()

    def _draw(self) -> None:
        happened = Text("\n".join(self._lines), style="dim", no_wrap=True, overflow="ellipsis")
        parts: list[RenderableType] = [happened] if self._moment is None else [*_picture(self._moment), happened]
        self._live.update(Group(*parts), refresh=True)


def _picture(moment: Moment) -> list[RenderableType]:
    headline = Table.grid(padding=(0, 2))
    headline.add_row(
        "[bold]rxjobs demo[/]",
        ProgressBar(total=moment.total, completed=moment.ended, width=40),
        f"{moment.ended} of {moment.total} jobs",
        f"[bold]{moment.rate:.0f}[/]/s",
    )
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim")
    for queue, states in moment.depths.items():
        facts.add_row(f"queue {escape(queue)}", "  ".join(f"{state} {jobs}" for state, jobs in states.items()) or "empty")
    facts.add_row("in flight", str(moment.in_flight))
    facts.add_row("retries", str(moment.retries))
    facts.add_row("dead letters", f"[red]{moment.dead_letters}[/]" if moment.dead_letters else "0")
    facts.add_row(
        "breakers",
        "  ".join(f"{escape(name)} [{COLOURS.get(state, 'red')}]{state}[/]" for name, state in moment.breakers.items()),
    )
    facts.add_row("events", "  ".join(f"{name} {count}" for name, count in sorted(moment.events.items())))
    return [headline, "", facts, ""]
