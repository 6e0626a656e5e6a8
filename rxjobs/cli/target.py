"""What every command takes: which database it works on, and how it answers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any

from cyclopts import Parameter

from rxjobs.app import App
from rxjobs.cli.loading import load_app


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The options of every command; they win over the settings of the app."""

    dsn: Annotated[str | None, Parameter(help="The PostgreSQL to use: a DSN, or `embedded`. Otherwise RXJOBS_DSN.")] = None
    schema: Annotated[str | None, Parameter(help="The schema to use. Otherwise RXJOBS_SCHEMA, or rxjobs.")] = None
    json: Annotated[bool, Parameter(help="Answer in JSON.", show_default=False)] = False

    def app(self) -> App:
        """An app without job types, for what needs only the database."""
        return App(self.dsn, schema=self.schema)

    def load(self, path: str) -> App:
        """The user's app at MODULE:APP, on this database; raises InvalidOption."""
        app = load_app(path)
        app.settings = replace(app.settings, **self._given())
        return app

    def options(self) -> list[str]:
        """As they stand on a command line."""
        given = [f"--{name}={value}" for name, value in self._given().items()]
        return [*given, "--json"] if self.json else given

    def _given(self) -> dict[str, Any]:
        return {name: value for name, value in (("dsn", self.dsn), ("schema", self.schema)) if value is not None}


HERE = Target()
"""What a command works on when nothing is said."""
