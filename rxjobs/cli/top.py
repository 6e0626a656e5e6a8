"""`rxjobs top`"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Annotated, Literal

import asyncpg
from cyclopts import Parameter
from cyclopts.validators import Number
from rich.console import Console
from rich.live import Live

from rxjobs.app import App
from rxjobs.cli.asking import answer, refusals_told
from rxjobs.cli.escaping import on_one_line
from rxjobs.cli.frame import SORTS, Shown, picture, queues_in_order
from rxjobs.cli.keys import pressed
from rxjobs.cli.printing import print_json, show
from rxjobs.cli.target import HERE, Target
from rxjobs.errors import RxJobsError
from rxjobs.overview import WINDOW_SECONDS, Overview, look
from rxjobs.signals import taking
from rxjobs.store.advice import masked

KEYS = "↑ ↓ choose a queue   p pause it   r resume it   s sort   q quit"
SHARE = 10
"""Looking takes at most one part in so many of the time: a database that answers late is asked less often."""


def top(
    *,
    once: Annotated[bool, Parameter(help="Show one picture, and end.", show_default=False)] = False,
    interval: Annotated[float, Parameter(help="Seconds between two looks.", validator=Number(gte=0.1, lte=3600))] = 1.0,
    sort: Annotated[Literal["name", "depth", "rate", "oldest"], Parameter(help="What the queues are sorted by.")] = "name",
    window: Annotated[
        float, Parameter(help="Types are told by the jobs that ended in so many seconds.", validator=Number(gt=0, lte=86400))
    ] = WINDOW_SECONDS,
    target: Target = HERE,
) -> None:
    """Watch pipelines as they flow: their stages, the queues, the nodes, and the slowest job types, from any machine.

    What nodes tell is as old as their last heartbeat; queues are as they are now. Where the output is no terminal, one picture is
    shown.

    Example: rxjobs top --sort depth

    Example: rxjobs top --once --json
    """
    app = target.app()
    is_live = not once and not target.json and sys.stdout.isatty() and not Console().is_dumb_terminal
    answer(Top(app, interval, sort, window).run(is_live=is_live, as_json=target.json))


SAID_SECONDS = 4.0
"""What became of a wish is shown for so long."""


class Top:
    """What is looked at again and again, and what whoever looks wishes."""

    def __init__(self, app: App, interval: float, sort: str, window: float) -> None:
        self._app = app
        self._interval = interval
        self._sort = sort
        self._window = window
        self._seen: Overview | None = None
        self._selected: str | None = None
        self._said, self._said_at = "", 0.0
        self._wishes: asyncio.Queue[str] = asyncio.Queue()

    async def run(self, *, is_live: bool, as_json: bool) -> None:
        """Show one picture, or many until `q` is pressed."""
        async with self._app:
            self._seen = await look(self._app, window=self._window)
            if as_json:
                print_json(self._seen)
            elif is_live:
                await self._watch()
            else:
                show(picture(self._seen, Shown(self._place, self._sort)))

    @property
    def _place(self) -> str:
        return f"{masked(self._app.dsn)} {self._app.settings.schema}"

    async def _watch(self) -> None:
        console = Console(highlight=False)
        # drawn by the event loop, which also changes what is drawn: no thread may come between
        with (
            Live(console=console, auto_refresh=False, screen=True, vertical_overflow="crop") as live,
            pressed(self._wishes.put_nowait) as has_keys,
            # as `q` does, so that the terminal is as it was before
            taking((signal.SIGTERM, signal.SIGHUP), lambda _: self._wishes.put_nowait("q")),
        ):
            self._select(0)
            due = time.monotonic() + self._interval
            while True:
                self._draw(live, console, has_keys=has_keys)
                with suppress(TimeoutError):
                    wish = await asyncio.wait_for(self._wishes.get(), max(0.0, due - time.monotonic()))
                    if wish == "q":
                        return
                    if await self._grant(wish):
                        continue
                due = await self._look()

    def _draw(self, live: Live, console: Console, *, has_keys: bool) -> None:
        assert self._seen is not None  # noqa: S101 - looked at before it is drawn
        keys = KEYS if has_keys else "Ctrl-C ends"
        how = Shown(self._place, self._sort, self._selected, console.height, keys, self._said)
        live.update(picture(self._seen, how), refresh=True)

    async def _look(self) -> float:
        """Look anew; gives when to look again."""
        began = time.monotonic()
        with self._told():
            self._seen = await look(self._app, window=self._window, is_watching=True)
            self._select(0)
            if time.monotonic() > self._said_at + SAID_SECONDS:
                self._said = ""
        now = time.monotonic()
        return now + max(self._interval, (now - began) * SHARE)

    async def _grant(self, wish: str) -> bool:
        """Do what a key asks for; gives whether what is seen is still as it was."""
        match wish:
            case "up" | "down":
                self._select(1 if wish == "down" else -1)
            case "s":
                sorts = list(SORTS)
                self._sort = sorts[(sorts.index(self._sort) + 1) % len(sorts)]
            case "p" | "r" if self._selected is not None:
                queue, is_pause = self._selected, wish == "p"
                with self._told():
                    is_new = await (self._app.queues.pause(queue) if is_pause else self._app.queues.resume(queue))
                    done = "paused" if is_pause else "resumed"
                    self._say(f"queue {queue} {done} on all nodes" if is_new else f"queue {queue} was {done} already")
                return False
        return True

    def _select(self, step: int) -> None:
        assert self._seen is not None  # noqa: S101 - looked at before anything is selected
        names = [queue.name for queue in queues_in_order(self._seen, self._sort)]
        at = names.index(self._selected) if self._selected in names else 0
        self._selected = names[max(0, min(len(names) - 1, at + step))] if names else None

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Show what the database says no with in place of the keys: it may be back soon."""
        try:
            with refusals_told():
                yield
        except (RxJobsError, TimeoutError, asyncpg.PostgresError) as error:
            self._say(on_one_line(str(error) or "the database does not answer in time"))

    def _say(self, text: str) -> None:
        self._said, self._said_at = text, time.monotonic()
