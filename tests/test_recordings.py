"""The recordings that docs/operating.md shows are pictures that anything can show, and of what they say."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pyte
import pytest

from docs.recordings.drawing import frame_of, svg

FOLDER = Path(__file__).parents[1] / "docs" / "recordings"
NAMESPACE = "{http://www.w3.org/2000/svg}"
SHOWN = {
    "top": [
        "rxjobs top",
        "└ execute",
        "queue media paused on all nodes",
        "queue media resumed on all nodes",
        "queues by depth",
        "demand",
    ],
    "demo": ["rxjobs demo", "dead letters", "breakers"],
}


@pytest.mark.parametrize("name", SHOWN)
def test_a_recording_is_a_picture_without_code_that_shows_what_it_is_of(name):
    root = ElementTree.parse(FOLDER / f"{name}.svg").getroot()  # noqa: S314 - our own
    assert {element.tag.removeprefix(NAMESPACE) for element in root.iter()} <= {"svg", "title", "rect", "g", "animate", "text"}
    lines = "\n".join(text.text for text in root.iter(f"{NAMESPACE}text"))
    assert [words for words in SHOWN[name] if words not in lines] == []
    shown = [group.get("visibility") for group in root.iter(f"{NAMESPACE}g")]
    assert len(shown) > 5
    assert shown.count("visible") == 1


def test_a_screen_is_drawn_cell_by_cell():
    screen = pyte.Screen(20, 3)
    pyte.Stream(screen).feed("ab \x1b[1;31m<c>\x1b[0m\r\n\x1b[7m d \x1b[0m")
    root = ElementTree.fromstring(svg([(0.0, frame_of(screen))], 20, "a & b"))  # noqa: S314 - our own
    texts = [(text.text, text.get("font-weight")) for text in root.iter(f"{NAMESPACE}text")]
    assert texts == [("ab", None), ("<c>", "bold"), (" d ", None)]
    assert len(list(root.iter(f"{NAMESPACE}rect"))) == 2  # the background, and that of what is reversed
    assert root.find(f"{NAMESPACE}title").text == "a & b"
