"""Files that other processes append lines to while a test reads them."""

from __future__ import annotations

from pathlib import Path


def whole_lines(path: Path) -> list[str]:
    """The lines that are there to their end. A write that crosses a page can be seen half done; the next look sees it whole."""
    return path.read_text().rpartition("\n")[0].splitlines() if path.exists() else []
