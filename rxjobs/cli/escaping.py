"""Text of jobs and errors on a terminal: nothing in it may move the cursor, turn the direction of writing or start a line."""

from __future__ import annotations

import re
import unicodedata

UNSEEN_IN_JSON = re.compile(r"[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
"""What JSON leaves as it is, and a terminal may obey."""


def escape(text: str) -> str:
    """The text with everything that is not seen as itself written out: a newline becomes the two characters `\\n`."""
    if text.isprintable():
        return text
    return "".join(character if _is_seen(character) else _spelled(character) for character in text)


def on_one_line(text: str) -> str:
    """The text with its lines joined by a space, and escaped."""
    return escape(" ".join(line.strip() for line in text.splitlines() if line.strip()))


def escape_json(text: str) -> str:
    """A JSON document of the same meaning, in which all is seen."""
    return UNSEEN_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _is_seen(character: str) -> bool:
    # str.isprintable leaves out all spaces but one
    return character.isprintable() or unicodedata.category(character) == "Zs"


def _spelled(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
