"""The .sql files of this folder, with the schema's name put in, and where a file names another one, the text of that."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

FOLDER: Traversable = files("rxjobs.store")


@cache
def statement(name: str, schema: str) -> str:
    """One statement. The schema's name is checked where settings enter, and quoted here."""
    return with_schema(_text(name), schema)


def _text(name: str) -> str:
    text = FOLDER.joinpath(f"{name}.sql").read_text("utf-8")
    return re.sub(r"^\{(fetch_\w+)\}$", lambda other: _text(other[1]).rstrip(), text, flags=re.MULTILINE)


def with_schema(sql: str, schema: str) -> str:
    """SQL text for a schema."""
    return sql.replace("{schema}", f'"{schema}"')
