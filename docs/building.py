"""What the site is made of beside its pages: the rest of the navigation, the commands, the signals, and links into the code.

MkDocs calls these functions (`hooks` in mkdocs.yml); what they warn of fails a strict build.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

import rxjobs
import rxjobs.errors
from rxjobs.cli import commands, import_all

log = logging.getLogger("mkdocs.hooks.building")

ROOT = Path(__file__).parents[1]
OUTSIDE = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+(?:\w+/)*[\w.-]*)(?:#[^)]*)?\)")
OTHERS = "reference/others.md"


def on_config(config: Any) -> Any:
    """Put each page that mkdocs.yml does not name below "How to"."""
    pages = {str(path.relative_to(config.docs_dir)) for path in Path(config.docs_dir).glob("**/*.md")}
    left = pages - set(_named(config.nav))
    for entry in config.nav:
        if isinstance(entry, dict) and "How to" in entry:
            entry["How to"] = [*entry["How to"], *sorted(left)]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made of the code."""
    files.append(File.generated(config, "reference/commands.md", content=_commands()))
    signals = (ROOT / "observability/signals.md").read_text("utf-8").replace("(../docs/", "(../")
    files.append(File.generated(config, "reference/signals.md", content=signals))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Make links into the code words, since the site has only pages; and name whatever the reference names nowhere else."""
    here = Path(config.docs_dir, page.file.src_uri).parent

    def worded(link: re.Match[str]) -> str:
        path = (here / link[2]).resolve()
        if path.is_relative_to(config.docs_dir):
            return link[0]
        if not path.exists():
            log.warning("%s links to %s, which is not there", page.file.src_uri, link[2])
        words = link[1] if link[1].startswith("`") else f"`{link[1]}`"
        return f'{words}{{ title="{path.relative_to(ROOT)}" }}' if path.is_relative_to(ROOT) else words

    if page.file.src_uri == OTHERS:
        markdown += "".join(f"\n::: rxjobs.{name}\n" for name in _left_out(Path(config.docs_dir)))
    return OUTSIDE.sub(worded, markdown)


def _left_out(docs: Path) -> list[str]:
    """The public names that no page of the reference has."""
    text = "\n".join(path.read_text("utf-8") for path in docs.glob("reference/*.md"))
    errors = {name for name in vars(rxjobs.errors) if not name.startswith("_")}  # they have a page of their module
    return [name for name in rxjobs.__all__ if name not in errors and f"::: rxjobs.{name}\n" not in f"{text}\n"]


def _commands() -> str:
    """What each command says of itself."""
    import_all()
    return f"# Commands\n\n{commands.generate_docs(output_format='markdown', heading_level=2, include_hidden=False)}"


def _named(nav: Any) -> list[str]:
    match nav:
        case str():
            return [nav]
        case dict():
            return [page for part in nav.values() for page in _named(part)]
        case list():
            return [page for part in nav for page in _named(part)]
    return []
