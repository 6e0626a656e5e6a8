"""What is refused wherever it is given: a number out of its range, a time that is none, a name that is no text."""

from __future__ import annotations

from typing import Any

from rxjobs.errors import InvalidOption


def check_number(owner: str, name: str, value: Any, least: float, most: float, kind: Any = int) -> None:
    """Refuse a number outside its range, or of another kind than it is to be."""
    if isinstance(value, bool) or not isinstance(value, kind) or not least <= value <= most:
        number = "a whole number" if kind is int else "a number"
        raise InvalidOption(f"{owner}: {name} is {number} from {least} to {most}, not {value!r:.100}")


def check_timeout(owner: str, value: Any) -> None:
    """Refuse what is no number of seconds above 0, nor None."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 10**9):
        raise InvalidOption(f"{owner}: timeout is a number of seconds above 0, or None, not {value!r:.100}")


def checked_name(what: str, name: Any) -> str:
    """The name that was given; raises InvalidOption for what is no text."""
    if not isinstance(name, str):
        raise InvalidOption(f"the name of {what} is text, such as name='mail', not {name!r:.100}")
    return name
