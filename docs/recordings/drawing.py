"""A session on a terminal as one SVG that plays by itself: each frame is what stood on the screen, cell by cell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby
from typing import NamedTuple

import pyte

WIDTH, HEIGHT, SIZE, MARGIN = 7.8, 17, 13, 14
BACKGROUND, TEXT = "#14181f", "#d5dae2"
COLOURS = {
    "default": TEXT, "black": "#4b5363", "red": "#ff7b72", "green": "#56d364", "brown": "#e3b341", "blue": "#79b8ff",
    "magenta": "#d2a8ff", "cyan": "#56d4dd", "white": TEXT, "brightblack": "#8b949e",
}  # fmt: skip


class Run(NamedTuple):
    """Characters beside each other that look alike."""

    column: int
    text: str
    colour: str
    is_bold: bool
    is_reverse: bool


Frame = tuple[tuple[Run, ...], ...]
"""The lines of a screen."""


def frame_of(screen: pyte.Screen) -> Frame:
    """What stands on a screen."""
    return tuple(tuple(_runs(screen, line)) for line in range(screen.lines))


def svg(frames: Sequence[tuple[float, Frame]], columns: int, title: str) -> str:
    """Frames, each with the second at which it came, as an SVG; the last one stands for two seconds."""
    rows = max(place + 1 for _, frame in frames for place, line in enumerate(frame) if line)
    width, height = columns * WIDTH + 2 * MARGIN, rows * HEIGHT + 2 * MARGIN
    whole = frames[-1][0] + 2.0
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" '
        f'font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, monospace" font-size="{SIZE}">',
        f"<title>{escape(title)}</title>",
        f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>',
    ]
    for place, (at, frame) in enumerate(frames):
        until = frames[place + 1][0] if place + 1 < len(frames) else whole
        shown = "visible" if place == len(frames) // 2 else "hidden"  # where nothing plays, one of them is seen
        times = f"0;{at / whole:.4f};{min(1.0, until / whole):.4f}"
        parts.append(
            f'<g visibility="{shown}"><animate attributeName="visibility" values="hidden;visible;hidden" keyTimes="{times}" '
            f'calcMode="discrete" dur="{whole:.2f}s" repeatCount="indefinite"/>'
        )
        parts += [_drawn(run, line) for line, runs in enumerate(frame) for run in runs]
        parts.append("</g>")
    return "\n".join([*parts, "</svg>", ""])


def _runs(screen: pyte.Screen, line: int) -> Iterator[Run]:
    cells = [screen.buffer[line][column] for column in range(screen.columns)]
    for look, group in groupby(enumerate(cells), key=lambda at: (at[1].fg, at[1].bold, at[1].reverse)):
        run = list(group)
        text = "".join(cell.data for _, cell in run)
        colour, is_bold, is_reverse = look
        if text.strip() or is_reverse:
            yield Run(run[0][0], text if is_reverse else text.rstrip(), colour, is_bold, is_reverse)


def _drawn(run: Run, line: int) -> str:
    x, y = MARGIN + run.column * WIDTH, MARGIN + (line + 1) * HEIGHT - 5
    length = len(run.text) * WIDTH
    colour = COLOURS.get(run.colour, f"#{run.colour}" if len(run.colour) == 6 else TEXT)
    bold = ' font-weight="bold"' if run.is_bold else ""
    under = ""
    if run.is_reverse:
        under = f'<rect x="{x:.1f}" y="{y - 12:.1f}" width="{length:.1f}" height="{HEIGHT}" fill="{colour}"/>'
        colour = BACKGROUND
    return (
        f'{under}<text x="{x:.1f}" y="{y:.1f}" textLength="{length:.1f}" fill="{colour}"{bold} '
        f'xml:space="preserve">{escape(run.text, quote=False)}</text>'
    )
