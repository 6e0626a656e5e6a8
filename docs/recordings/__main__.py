"""Record `rxjobs top` and `rxjobs demo` on a terminal, as docs/operating.md shows them: `make recordings`.

The DSN is of a server on which two databases may be made anew: RXJOBS_RECORDING_DSN, such as postgresql://postgres@localhost/postgres.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg

from docs.recordings.drawing import Frame, frame_of, svg
from tests.cli.terminal import Terminal

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
COLUMNS, ROWS = 132, 36
EVERY, DEMO_EVERY = 0.5, 2.0
"""Seconds between two frames."""
DEMO_SPEED = 4.0
"""The demo is played so much faster than it was."""
TOP_KEYS = [(5.0, "\x1b[B"), (6.0, "p"), (10.0, "r"), (13.0, "s"), (16.0, "q")]


def main() -> None:
    """Record both."""
    dsn = os.environ["RXJOBS_RECORDING_DSN"]
    parts = urlsplit(dsn)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PGPORT": str(parts.port or 5432), "RXJOBS_NODE": "worker-1"}
    # as a reader's own would be: the port is told beside it
    place = f"postgresql://{parts.username}@{parts.hostname}/shop"
    asyncio.run(made_anew(dsn, "shop"))
    environment["RXJOBS_DSN"] = place
    rxjobs = [sys.executable, "-m", "rxjobs"]
    subprocess.run([*rxjobs, "migrate"], env=environment, check=True, cwd=ROOT)
    workers = [
        subprocess.Popen([*rxjobs, "run", "docs.recordings.shop:app"], env={**environment, "RXJOBS_NODE": name}, cwd=ROOT)
        for name in ("worker-1", "worker-2")
    ]
    try:
        subprocess.run([sys.executable, "-m", "docs.recordings.shop"], env=environment, check=True, cwd=ROOT)
        time.sleep(11)  # two heartbeats
        write("top", record(["top"], environment, TOP_KEYS))
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.wait()
    demo = record(["demo", "--dsn", place], environment, [], DEMO_EVERY)
    write("demo", [(at / DEMO_SPEED, frame) for at, frame in demo])


async def made_anew(dsn: str, name: str) -> None:
    """Have an empty database of this name."""
    connection = await asyncpg.connect(dsn)
    await connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
    await connection.execute(f'CREATE DATABASE "{name}"')
    await connection.close()


def record(
    arguments: Sequence[str], environment: Mapping[str, str], keys: Sequence[tuple[float, str]], every: float = EVERY
) -> list[tuple[float, Frame]]:
    """What stood on the screen, when it was another than before, with keys pressed after so many seconds."""
    terminal = Terminal(arguments, ROOT, environment, columns=COLUMNS, rows=ROWS)
    frames, began, left = list[tuple[float, Frame]](), time.monotonic(), list(keys)
    due = 0.0
    while terminal.process.poll() is None:
        terminal.read(0.05)
        at = time.monotonic() - began
        if left and at >= left[0][0]:
            terminal.press(left.pop(0)[1])
        frame = frame_of(terminal.screen)
        if at >= due and any(frame) and (not frames or frame != frames[-1][1]):
            frames.append((at, frame))
            due = at + every
    while terminal.read(0.1):
        pass
    last = frame_of(terminal.screen)
    if any(last):  # a full screen is given back as it was: empty
        frames.append((time.monotonic() - began, last))
    terminal.close()
    begin = frames[0][0]
    return [(at - begin, frame) for at, frame in frames]


def write(name: str, frames: Sequence[tuple[float, Frame]]) -> None:
    """Write one recording."""
    path = HERE / f"{name}.svg"
    path.write_text(svg(frames, COLUMNS, f"rxjobs {name}"), "utf-8")
    print(f"{path.relative_to(ROOT)}: {len(frames)} frames, {frames[-1][0]:.0f} s, {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
