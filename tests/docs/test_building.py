"""The site: no page is left out of it, no public name of its reference, and links into the code lead somewhere."""

from __future__ import annotations

import importlib.util
import logging
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import yaml
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort
from mkdocs.plugins import BasePlugin

import rxjobs as rj
from tests.docs.blocks import ROOT

DOCS = ROOT / "docs"
SPEC = importlib.util.spec_from_file_location("building", DOCS / "building.py")
building = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(building)
NAV = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"]
MADE = {"reference/commands.md", "reference/signals.md"}


def config(docs=DOCS, nav=NAV):
    return SimpleNamespace(docs_dir=str(docs), nav=[*nav])


def written(markdown, page="new.md", docs=DOCS):
    return building.on_page_markdown(markdown, SimpleNamespace(file=SimpleNamespace(src_uri=page)), config(docs), None)


def test_each_page_is_in_the_navigation_also_one_that_nobody_named(tmp_path):
    named = building._named(building.on_config(config()).nav)
    assert sorted(named) == sorted({*MADE, *(str(path.relative_to(DOCS)) for path in DOCS.glob("**/*.md"))})
    (tmp_path / "new.md").write_text("# New\n")
    made = building.on_config(config(tmp_path, ["index.md", {"How to": []}]))
    assert made.nav == ["index.md", {"How to": ["new.md"]}]


def test_each_public_name_is_in_the_reference():
    pages = {path.name: written(path.read_text("utf-8"), f"reference/{path.name}") for path in DOCS.glob("reference/*.md")}
    text = "\n".join(pages.values())
    errors = {name for name in rj.__all__ if getattr(getattr(rj, name), "__module__", "") == "rxjobs.errors"}
    assert [name for name in rj.__all__ if name not in errors and f"::: rxjobs.{name}\n" not in text] == []
    assert errors
    assert "::: rxjobs.errors\n" in text


def test_links_into_the_code_become_words_and_those_to_nothing_are_told(caplog):
    with caplog.at_level(logging.WARNING):
        assert written("[pull.py](../rxjobs/sources/pull.py)") == '`pull.py`{ title="rxjobs/sources/pull.py" }'
        assert written("[cron](cron.md#expressions)") == "[cron](cron.md#expressions)"
    assert not caplog.records
    written("[gone](../rxjobs/gone.py)")
    assert "new.md links to ../rxjobs/gone.py, which is not there" in caplog.text  # which fails a strict build


def test_each_command_is_in_the_reference():
    page = building._commands()
    assert [name for name in ("rxjobs run", "rxjobs jobs retry", "rxjobs doctor", "rxjobs queues pause") if name not in page] == []


@pytest.mark.parametrize(
    ("page", "told"),
    [
        ("[a page](nowhere.md)", "nowhere.md"),
        ("[a place](index.md#nowhere)", "#nowhere"),
        ("[code](../rxjobs/nowhere.py)", "rxjobs/nowhere.py"),
        ("# Fine\n\n[here](index.md)", None),
    ],
)
def test_a_link_that_leads_nowhere_fails_the_build(page, told, tmp_path, caplog):
    """With the settings of the site, but for what takes its time: the theme, and the reference."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(page)
    found = load_config(
        str(ROOT / "mkdocs.yml"), docs_dir=str(tmp_path / "docs"), site_dir=str(tmp_path / "site"), plugins=[], theme="mkdocs",
        nav=["index.md"], hooks=[], markdown_extensions=["toc"],
    )  # fmt: skip
    found.plugins["building"] = Hooks()
    assert found.strict
    with nullcontext() if told is None else pytest.raises(Abort):
        build(found)
    assert told is None or told in caplog.text


class Hooks(BasePlugin):
    def on_page_markdown(self, markdown, page, config, files):
        return building.on_page_markdown(markdown, page, config, files)
