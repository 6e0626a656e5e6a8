"""`rxjobs migrate`"""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from rxjobs.cli.asking import answer
from rxjobs.cli.printing import count, print_json
from rxjobs.cli.target import HERE, Target
from rxjobs.store.migrate import script


def migrate(
    *,
    print_only: Annotated[
        bool, Parameter(name="--print", help="Only print the SQL, and connect to nothing.", show_default=False)
    ] = False,
    target: Target = HERE,
) -> None:
    """Bring the schema up to date; to do it twice does no harm.

    Example: rxjobs migrate --dsn postgresql://localhost/shop
    """
    app = target.app()
    schema = app.settings.schema
    if print_only:
        _print_script(schema, as_json=target.json)
        return
    applied = answer(app.migrate())
    if target.json:
        print_json({"schema": schema, "applied": applied})
    elif applied:
        print(f"schema {schema}: {count(len(applied), 'migration')} applied: {', '.join(applied)}")
    else:
        print(f"schema {schema} is up to date")


def _print_script(schema: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"schema": schema, "sql": script(schema)})
    else:
        print(script(schema), end="")
