import inspect
import re
from contextlib import asynccontextmanager

import pytest

from rxjobs.store.statements import FOLDER, statement, with_schema
from rxjobs.store.store import Store

MAIL = "b83a886a5c437ccd9ac15473fd6f1788"
"""The MD5 of a queue's name."""
FILES = sorted(path.name.removesuffix(".sql") for path in FOLDER.iterdir() if path.name.endswith(".sql"))


@asynccontextmanager
async def nothing_kept(connection):
    transaction = connection.transaction()
    await transaction.start()
    yield
    await transaction.rollback()


@pytest.mark.parametrize("name", FILES)
async def test_every_statement_prepares_on_a_real_server(connection, name):
    async with nothing_kept(connection):
        await connection.execute("SELECT rxjobs.index_keys('mail', '{tenant}')")
        prepared = await connection.prepare(statement(name, "rxjobs").replace("{queue}", MAIL))
    comment = statement(name, "rxjobs").partition("\nWITH ")[0]
    named = {int(number) for number in re.findall(r"\$(\d+)", comment.split("\nUPDATE")[0].split("\nSELECT")[0])}
    assert all(number <= len(prepared.get_parameters()) for number in named)


@pytest.mark.parametrize("name", FILES)
def test_every_statement_has_a_method_of_its_name_and_says_what_it_is_for(name):
    assert inspect.iscoroutinefunction(getattr(Store, name))
    assert re.match(r"-- [A-Z]", statement(name, "rxjobs"))


@pytest.mark.parametrize("name", FILES)
def test_no_statement_names_a_table_outside_of_its_schema(name):
    sql = re.sub(r"--.*", "", FOLDER.joinpath(f"{name}.sql").read_text("utf-8"))
    assert not re.search(r"(?<!\{schema\}\.)\b(live_jobs|finished_jobs|nodes)\b", sql)
    assert not re.search(r"\brxjobs\.(?!(NodeLost|Cancel)\b)", sql)  # which are errors' names


def test_a_schema_is_put_in_quoted():
    assert with_schema("SELECT FROM {schema}.jobs", "order") == 'SELECT FROM "order".jobs'
