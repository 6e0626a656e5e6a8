"""Jobs that call any function by its name, and arguments of any values."""

from __future__ import annotations

import asyncio
import base64
import json
import math

import asyncpg
import pytest

import rxjobs as rj
from tests import called
from tests.called import Point
from tests.store.ground import a_shared_database, emptied

KEY, OTHER = b"k" * 32, b"o" * 32


@pytest.fixture(scope="module")
def ground(databases):
    yield from a_shared_database(databases)


@pytest.fixture
async def dsn(ground):
    called.seen.clear()
    return await emptied(ground)


async def until_ended(app, *ids, states=("completed", "discarded", "cancelled")):
    async with asyncio.timeout(60):
        for id_ in ids:
            while (await app.jobs.get(id_)).state not in states:  # noqa: ASYNC110 - the fact is in the database
                await asyncio.sleep(0.02)


async def test_a_function_is_called_by_its_name(dsn):
    app = rj.App(dsn, callables=["tests.called.*"])
    async with app:
        one = await app.enqueue(rj.call(called.note, 1, who="Ada"))
        two = await app.enqueue(rj.call(called.note_later, [2]))
        (three,) = await app.enqueue_many([rj.call(called.note, None)])
        async with app.running():
            await until_ended(app, one.id, two.id, three.id)
    assert sorted(called.seen, key=repr) == [
        ((1,), {"who": "Ada"}, "rxjobs.call"),
        ((None,), {}, "rxjobs.call"),
        (([2],), {}, "rxjobs.call_async"),
    ]


async def test_what_is_not_allowed_is_refused_when_it_is_made_and_when_it_runs(dsn):
    generous, app = rj.App(dsn, callables=["tests.*"]), rj.App(dsn, callables=["tests.called.note"])
    async with app, generous:
        with pytest.raises(rj.NotAllowed, match=r"lets no job call 'tests\.called\.where': its callables are tests\.called\.note"):
            await app.enqueue(rj.call(called.where, 1))
        with pytest.raises(rj.NotAllowed, match="its callables are none"):
            await rj.App(dsn).client().enqueue(rj.call(called.note))
        forged = await generous.enqueue(rj.call(called.where, 1))
        async with app.running():
            await until_ended(app, forged.id, states=["retryable"])
        (error,) = (await app.jobs.get(forged.id)).errors
        assert (error["type"], called.seen) == ("rxjobs.errors.NotAllowed", [])


@pytest.mark.parametrize("name", [f"tests.called.{name}" for name in ("os.system", "rj.App", "seen", "Point.nothing")])
async def test_a_name_that_leads_elsewhere_is_not_followed(dsn, name):
    """What a module has imported matches its pattern, and is not its own."""
    app = rj.App(dsn, callables=["tests.called.*"])
    async with app:
        row = await app.enqueue(app.definitions["rxjobs.call"].new(function=name, args=["true"], kwargs={}))
        async with app.running():
            await until_ended(app, row.id, states=["retryable"])
        (error,) = (await app.jobs.get(row.id)).errors
        assert error["type"] in ("rxjobs.errors.NotAllowed", "AttributeError")


def test_what_a_worker_could_not_import_is_refused():
    def nested(): ...

    for function in (nested, lambda: None, Point(1, 2).__eq__, math.sin if math.sin.__module__ is None else nested):
        with pytest.raises(rj.InvalidArguments, match=r"rj\.call: a worker imports the function by its name"):
            rj.call(function)
    nested.__module__, nested.__qualname__ = "__main__", "nested"
    with pytest.raises(rj.InvalidArguments, match="is part of the program itself"):
        rj.call(nested)
    assert rj.call(Point.origin).function == "tests.called.Point.origin"


@pytest.mark.parametrize("pattern", ["*", "os", ".x", 7])
def test_a_pattern_that_allows_anything_is_refused(pattern):
    with pytest.raises(rj.InvalidOption, match="patterns of dotted names"):
        rj.App("postgresql://nowhere/nothing", callables=[pattern])


@pytest.fixture
async def app(dsn):
    app = rj.App(dsn, codec=rj.PickleCodec(keys={"k1": KEY}), callables=["tests.called.*"])

    @app.job(name="take")
    async def take(value, *, more=(1, 2)) -> None:
        called.seen.append((value, more))

    async with app:
        yield app


async def test_values_of_any_kind_arrive_as_they_were(app):
    take = app.definitions["take"]
    values = [Point(1, 2), {1, 2}, {(1, 2): b"\x00\xff"}, math.inf, 2**100, (1, [2]), "\x00", None]
    rows = await app.enqueue_many([take.new(value) for value in values])
    async with app.running():
        await until_ended(app, *(row.id for row in rows))
    assert [value for value, _ in called.seen] == values
    assert called.seen[0] == (Point(1, 2), (1, 2))
    assert (await app.jobs.get(rows[0].id)).args == {"value": Point(1, 2)}


async def test_a_child_process_is_handed_them(app):
    where = app.job(name="where", executor=rj.in_processes(1))(called.where)
    row = await app.enqueue(where.new(Point(1, 2)))
    async with app.running():
        await until_ended(app, row.id, states=["completed", "retryable"])
    job = await app.jobs.get(row.id)
    assert (job.state, list(job.errors)) == ("completed", [])
    assert called.seen == []  # it was noted elsewhere


async def test_a_call_takes_them_too(app):
    row = await app.enqueue(rj.call(called.note, Point(1, 2)))
    async with app.running():
        await until_ended(app, row.id)
    assert called.seen == [((Point(1, 2),), {}, "rxjobs.call")]


class Bomb:
    def __reduce__(self):
        return called.seen.append, ("it went off",)


def of_another_key():
    return rj.PickleCodec({"k1": OTHER}).pack({"value": Bomb()}, "take", 10**6)


def forge(stored, **changes):
    return json.dumps({**json.loads(stored), **changes})


@pytest.mark.parametrize(
    "change",
    [
        lambda codec, stored: forge(stored, data=json.loads(of_another_key())["data"]),
        lambda codec, stored: of_another_key(),
        lambda codec, stored: codec.pack({"value": Bomb()}, "other", 10**6),
        lambda codec, stored: forge(stored, mac=""),
        lambda codec, stored: forge(stored, mac="no base64"),
        lambda codec, stored: forge(stored, data=base64.b64encode(b"cos\nsystem\n(S'true'\ntR.").decode()),
    ],
)
async def test_what_does_not_verify_is_never_unpickled(app, change):
    take = app.definitions["take"]
    row = await take.enqueue(7)
    connection = await asyncpg.connect(app.dsn)
    stored = await connection.fetchval("SELECT args FROM rxjobs.live_jobs WHERE id = $1", row.id)
    await connection.execute("UPDATE rxjobs.live_jobs SET args = $1 WHERE id = $2", change(app.codec, stored), row.id)
    await connection.close()
    async with app.running():
        await until_ended(app, row.id, states=["retryable"])
    job = await app.jobs.get(row.id)
    assert job.errors[0]["type"] == "rxjobs.errors.BrokenSeal"
    assert "do not verify with key 'k1'" in job.errors[0]["message"]
    assert called.seen == []


async def test_keys_are_rotated_and_a_missing_one_is_named(dsn):
    def an_app(keys):
        app = rj.App(dsn, codec=rj.PickleCodec(keys))

        @app.job(name="take")
        async def take(value) -> None:
            called.seen.append(value)

        return app, take

    old, take = an_app({"k1": KEY})
    async with old:
        row = await take.enqueue({1})
    new, _ = an_app({"k2": OTHER})
    async with new, new.running():
        await until_ended(new, row.id, states=["retryable"])
        assert "signed with key 'k1', and this node has the keys k2" in (await new.jobs.get(row.id)).errors[0]["message"]
    both, _ = an_app({"k2": OTHER, "k1": KEY})
    async with both, both.running():
        await both.jobs.retry(row.id)
        await until_ended(both, row.id)
    assert called.seen == [{1}]


@pytest.mark.parametrize("keys", [{}, None, {"k1": b"short"}, {"k1": "text"}, {"no id": KEY}])
def test_what_is_no_key_is_refused(keys):
    with pytest.raises(rj.InvalidOption):
        rj.PickleCodec(keys)
    assert "kkkk" not in repr(rj.PickleCodec({"k1": KEY}))


def test_what_cannot_be_pickled_or_does_not_fit_is_refused_when_it_is_made():
    app = rj.App("postgresql://nowhere/nothing", codec=rj.PickleCodec({"k1": KEY}), max_args_bytes=1000)

    @app.job(name="take")
    async def take(value) -> None: ...

    with pytest.raises(rj.InvalidArguments, match="cannot be pickled"):
        take.new(lambda: None)
    with pytest.raises(rj.InvalidArguments, match="at most 1000 bytes, got 10"):
        take.new("x" * 1000)
    with pytest.raises(rj.InvalidArguments, match="argument value: expected"):
        take.new()
    with pytest.raises(rj.InvalidArguments, match="argument other: expected only value"):
        take.new(1, other=2)
