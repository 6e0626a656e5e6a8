"""Names with quotes, semicolons, NUL and worse are refused, or are data: they never become SQL."""

import asyncpg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rxjobs as rj
from rxjobs.definition import NAME, QUEUE, Options, check_queue, tags_of
from rxjobs.settings import SCHEMA, Settings
from rxjobs.store.encoding import NewRows

NASTY = [
    '"', "'", ";", "--", "$1", "{schema}", "a\0b", "x" * 65, "x" * 130, "\N{PILE OF POO}", "a\"; DROP SCHEMA public CASCADE; --",
    "'; SELECT pg_sleep(10); --", "a\nb", "\\", "{}", '{"a"}', "NULL", "pg_catalog.x", "\u202eabc", "\ud800", "%s", "ö", " ", "",
]  # fmt: skip


@pytest.mark.parametrize("schema", [one for one in NASTY if one != "x" * 65] + ["A", "1a", "x" * 49, "rxjobs ", "a-b"])
def test_a_schema_is_a_plain_name(schema):
    with pytest.raises(rj.InvalidOption):
        Settings(schema=schema)


@given(st.text() | st.from_regex(SCHEMA))
def test_a_schema_that_is_taken_needs_no_quoting(schema):
    try:
        Settings(schema=schema)
    except rj.InvalidOption:
        return
    assert schema.isascii()
    assert schema.replace("_", "a").isalnum()
    assert schema == schema.lower()
    assert len(schema) <= 48


@given(st.text() | st.from_regex(QUEUE) | st.from_regex(NAME))
def test_queues_and_types_that_are_taken_are_printable_ascii_on_one_line(name):
    for check in (check_queue, lambda name: Options(name=name)):
        try:
            check(name)
        except rj.InvalidOption:
            continue
        assert name.isascii()
        assert name.isprintable()
        assert not set(name) & set("\"'; $\\{}%")
        assert len(name) <= 128


@pytest.mark.parametrize("name", [name for name in NASTY if name not in ("x" * 65, "NULL", "pg_catalog.x")])
def test_nasty_queues_and_types_are_refused(name):
    with pytest.raises(rj.InvalidOption):
        check_queue(name)
    with pytest.raises(rj.InvalidOption):
        Options(name=name)


@pytest.fixture
async def app(dsn):
    app = rj.App(dsn, migrate=True)

    @app.job(name="work")
    async def work() -> None: ...

    async with app:
        yield app


async def test_tags_and_filters_are_data(app):
    work = app.definitions["work"]
    tags = [tag for tag in NASTY if 0 < len(tag) <= 64 and "\0" not in tag and "\ud800" not in tag]
    for tag in tags:
        id_ = (await work.options(tags=[tag, "x"]).enqueue()).id
        assert [job.id for job in await app.jobs.list(tags=tag)] == [id_]
        (job,) = await app.jobs.list(tags=[tag, "x"])
        assert job.tags == [tag, "x"]
    for filters in ({"queue": tag} for tag in tags):
        assert await app.jobs.list(**filters) == []
        assert await app.jobs.count(**filters) == {}
        assert await app.jobs.delete(**filters) == await app.jobs.cancel(**filters) == await app.jobs.retry(**filters) == 0
    for type_ in tags:
        assert await app.jobs.list(type=type_) == []
    assert await app.jobs.count() == {"available": len(tags)}


@pytest.mark.parametrize("name", ["a\0b", "\ud800", 5, b"a", None])
async def test_what_postgresql_cannot_hold_is_refused_as_a_tag_and_as_a_filter(app, name):
    with pytest.raises(rj.InvalidOption):
        app.definitions["work"].options(tags=[name])
    with pytest.raises(rj.InvalidOption):
        app.source("default", where={"tags": [name]})
    if name is not None:
        for by in ("queue", "type", "tags", "state"):
            with pytest.raises(rj.InvalidOption):
                await app.jobs.list(**{by: [name]})


async def test_random_tags_come_back_as_they_were_given(app):
    connection = await asyncpg.connect(app.dsn)

    @settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.lists(st.text(min_size=1, max_size=64), max_size=8))
    def look(tags):
        try:
            tags_of("work", tags)
        except rj.InvalidOption:
            return
        kept.append(tags)

    kept: list[list[str]] = []
    look()
    assert len(kept) > 20
    news = [app.definitions["work"].options(tags=tags).new() for tags in kept]
    literals = NewRows.of(news).tags
    back = await connection.fetch(
        "SELECT tag::text[] AS tags FROM unnest($1::text[]) WITH ORDINALITY AS t (tag, n) ORDER BY n", literals
    )
    await connection.close()
    assert [row["tags"] or [] for row in back] == kept


async def test_what_where_names_is_data(app):
    await app.definitions["work"].options(tags=["'"]).enqueue()
    store, node = app.store, await a_node(app.dsn)
    assert await store.fetch_jobs_where("'; --", 1, ["' OR true"], node, ["'"], '{"a\'": ["$1"]}') == []
    assert await store.fetch_jobs_where("default", 1, ["work"], node, ["'"], '{"a\'; --": 1}') == []
    assert len(await store.fetch_jobs_where("default", 1, ["work"], node, ["'"], "{}")) == 1


async def a_node(dsn):
    connection = await asyncpg.connect(dsn)
    node = await connection.fetchval(
        "INSERT INTO rxjobs.nodes (id, label, pid, expires_at) "
        "VALUES (gen_random_uuid(), '', 1, now() + interval '1 h') RETURNING id"
    )
    await connection.close()
    return node
