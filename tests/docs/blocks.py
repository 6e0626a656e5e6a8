"""The code blocks of the pages: where each stands, what it is of, and what it is to be saved as."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]
FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>```+)(?P<info>[^\n`]*)\n(?P<code>.*?)^(?P=indent)(?P=ticks)$", re.M | re.S)
TITLE = re.compile(r'title="([^"]+)"')


@dataclass(frozen=True)
class Block:
    """One block: `title` is the file that a reader saves it as."""

    page: str
    line: int
    language: str
    title: str
    code: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(page: str, text: str) -> list[Block]:
    """The blocks of a page, in order."""
    found = []
    for fence in FENCE.finditer(text):
        language, _, more = fence["info"].strip().partition(" ")
        title = TITLE.search(more)
        code = re.sub(rf"^{fence['indent']}", "", fence["code"], flags=re.MULTILINE)
        found.append(Block(page, text.count("\n", 0, fence.start()) + 1, language, title[1] if title else "", code))
    return found


def all_blocks() -> dict[str, list[Block]]:
    """The blocks of each page that has any."""
    read = {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in PAGES}
    return {page: found for page, text in read.items() if (found := blocks_of(page, text))}
