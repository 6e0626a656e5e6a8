"""The .sql files of this folder, with the schema's name put in."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

FOLDER: Traversable = files("rxjobs.store")


@cache
def statement(name: str, schema: str) -> str:
    """One statement. The schema's name is checked where settings enter, and quoted here."""
    return with_schema(FOLDER.joinpath(f"{name}.sql").read_text("utf-8"), schema)


def with_schema(sql: str, schema: str) -> str:
    """SQL text for a schema."""
    return sql.replace("{schema}", f'"{schema}"')
