"""What is shown while the bench runs: a bar on a terminal, a line for each thing measured elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text


class View(Protocol):
    """Where the bench shows what it does."""

    def expect(self, steps: int) -> None:
        """So many things are measured in all."""

    def begin(self, what: str) -> None:
        """The next one is being measured."""

    def end(self, what: str) -> None:
        """It was measured, or could not be."""


@contextmanager
def view_on(stream: TextIO) -> Iterator[View]:
    """The view that suits where the output goes."""
    console = Console(file=stream)
    if not stream.isatty() or console.is_dumb_terminal:
        yield Lines(stream)
        return
    # drawn a few times a second: the bench is not to take the cores away from what it measures
    columns = (
        TextColumn("[bold]rxjobs bench"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console, transient=True, refresh_per_second=4) as progress:
        yield Bar(progress)


class Bar:
    """A bar, and above it what was found."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=None)

    def expect(self, steps: int) -> None:
        """Set the length of the bar."""
        self._progress.update(self._task, total=steps)

    def begin(self, what: str) -> None:
        """Name what is being measured beside the bar."""
        self._progress.update(self._task, description=what)

    def end(self, what: str) -> None:
        """Move on."""
        self._progress.console.print(Text(what, style="dim"))
        self._progress.advance(self._task)


class Lines:
    """Lines, for a log or a pipe."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_read = True

    def expect(self, steps: int) -> None:
        """Nothing: each line speaks for itself."""

    def begin(self, what: str) -> None:
        """Nothing yet."""

    def end(self, what: str) -> None:
        """Write what was found."""
        if self._is_read:
            try:
                print(what, file=self._stream, flush=True)
            except BrokenPipeError:
                self._is_read = False
