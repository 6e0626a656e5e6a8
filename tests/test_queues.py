"""What is asked of queues: for all nodes or one, by whom, and of which."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import asyncpg
import pytest

import rxjobs as rj
from rxjobs.events import QueuePaused, QueueResumed, QueueScaled
from rxjobs.source import Control
from rxjobs.store.limit_statements import NONE, Limits, Rate
from rxjobs.testing import fill
from tests.store.ground import a_node, a_shared_database, emptied


@pytest.fixture(scope="module")
def ground(databases):
    yield from a_shared_database(databases)


@pytest.fixture
async def connection(ground):
    connection = await asyncpg.connect(await emptied(ground))
    yield connection
    await connection.close()


@pytest.fixture
async def app(ground, connection):
    app = rj.App(ground)
    app.job(name="send", queue="mail")(lambda: None)
    async with app:
        yield app


async def asked(app, queue="mail"):
    """What is asked of a queue, by node."""
    (found,) = [one for one in await app.queues.list() if one.name == queue]
    return {one.node: (one.paused_at is not None, one.max_demand) for one in found.asked}


async def test_a_pause_stands_in_the_table_until_it_is_taken_back(app):
    assert await asked(app) == {}
    assert await app.queues.pause("mail") is True
    (paused,) = (await app.queues.list())[0].asked
    assert await app.queues.pause("mail") is False
    assert (await app.queues.list())[0].asked == (paused,)  # it is paused since then
    assert await app.queues.resume("mail") is True
    assert await app.queues.resume("mail") is False
    assert await asked(app) == {}


async def test_to_resume_for_all_is_to_resume_on_each_node(app, connection):
    await a_node(connection, label="one")
    id_ = await a_node(connection)
    await app.queues.pause("mail", node="one")
    await app.queues.pause("mail", node=id_)
    assert await asked(app) == {"one": (True, None), str(id_): (True, None)}
    await app.queues.pause("mail")
    await app.queues.resume("mail")
    assert await asked(app) == {}


async def test_a_node_cannot_go_on_by_itself_while_all_are_paused(app, connection):
    await a_node(connection, label="one")
    await app.queues.pause("mail")
    with pytest.raises(rj.InvalidOption, match="'mail' is paused for all nodes, and so for 'one'"):
        await app.queues.resume("mail", node="one")
    await app.queues.pause("mail", node="one")
    assert await app.queues.resume("mail", node="one") is True
    assert await asked(app) == {None: (True, None)}


async def test_what_was_asked_of_a_node_that_is_gone_is_shown_as_such_and_can_be_taken_back(app, connection):
    id_ = await a_node(connection)
    await app.queues.pause("mail", node=id_)
    await connection.execute("DELETE FROM rxjobs.nodes")
    assert [one.is_living for one in (await app.queues.list())[0].asked] == [False]
    assert await app.queues.resume("mail", node=id_) is True
    assert await asked(app) == {}


async def test_a_number_for_all_nodes_replaces_those_for_single_ones(app, connection):
    await a_node(connection, label="one")
    assert await app.queues.scale("mail", max_demand=5, node="one") is True
    assert await app.queues.scale("mail", max_demand=5, node="one") is False
    assert await app.queues.scale("mail", max_demand=7) is True
    assert await asked(app) == {None: (False, 7)}
    assert await app.queues.scale("mail", max_demand=9, node="one") is True
    assert await asked(app) == {None: (False, 7), "one": (False, 9)}
    assert await app.queues.scale("mail", max_demand=None, node="one") is True
    assert await asked(app) == {None: (False, 7)}
    assert await app.queues.scale("mail", max_demand=None) is True
    assert await app.queues.scale("mail", max_demand=None) is False
    assert await asked(app) == {}


async def test_a_node_takes_its_own_number_before_that_of_all(app, connection):
    await a_node(connection, label="one")
    await app.queues.scale("mail", max_demand=7)
    await app.queues.scale("mail", max_demand=9, node="one")
    await app.queues.pause("mail")
    mine = await app.store.look(["mail", "other"], ["one", "id"])
    other = await app.store.look(["mail", "other"], ["two", "id"])
    assert mine.asked == {"mail": Control(is_paused=True, max_demand=9)}
    assert other.asked == {"mail": Control(is_paused=True, max_demand=7)}
    assert (await app.store.look(["other"], ["one"])).asked == {}


async def test_a_queue_that_nothing_knows_of_is_refused(app, connection):
    """A slip of the pen must not pass for a pause."""
    for change in (app.queues.pause, app.queues.resume, lambda queue: app.queues.scale(queue, max_demand=1)):
        with pytest.raises(rj.UnknownQueue, match=r"no queue 'mial' is known.*; known are mail$"):
            await change("mial")
        with pytest.raises(rj.InvalidOption, match="a queue's name is"):
            await change("!")
    assert await connection.fetchval("SELECT count(*) FROM rxjobs.queues") == 0


async def test_a_queue_is_known_by_a_job_type_a_pipeline_a_job_or_a_node(app, connection):
    app.source("taken")
    await fill(connection, "send", 1, queue="filled")
    node = await a_node(connection)
    await connection.execute('UPDATE rxjobs.nodes SET serves = \'{"served": ["send"]}\' WHERE id = $1', node)
    for queue in ("mail", "taken", "filled", "served"):
        assert await app.queues.pause(queue)
    assert [(one.name, one.nodes) for one in await app.queues.list()] == [
        ("filled", ()), ("mail", ()), ("served", (str(node),)), ("taken", ()),
    ]  # fmt: skip


async def test_a_node_that_nobody_knows_is_refused(app, connection):
    await a_node(connection, label="one")
    await a_node(connection, label="dead", seconds=-1)
    for name in ("two", "dead", "", uuid4()):
        with pytest.raises(rj.InvalidOption, match=f"no living node has the label or id '{name}'; there are one"):
            await app.queues.pause("mail", node=name)


@pytest.mark.parametrize("number", [0, -1, True, 1.5, "5", 10**9])
async def test_a_number_that_cannot_be_is_refused(app, number):
    with pytest.raises(rj.InvalidOption, match="queue mail: max_demand is a whole number from 1 to"):
        await app.queues.scale("mail", max_demand=number)


async def limits(app, queue="mail"):
    """What a queue is limited to."""
    (found,) = [one.limits for one in await app.queues.list() if one.name == queue]
    return found


async def test_limits_stand_in_a_table_until_they_are_lifted(app):
    assert await limits(app) == NONE
    assert await app.queues.limit("mail", concurrency=10) is True
    assert await app.queues.limit("mail", concurrency=10) is False
    assert await app.queues.rate("mail", 60, per=30) is True
    assert await limits(app) == Limits(concurrency=10, rate=Rate(60, 30.0))
    assert await app.queues.rate("mail", 5, per=1, burst=20) is True
    assert await limits(app) == Limits(concurrency=10, rate=Rate(5, 1.0, 20))
    assert await app.queues.limit("mail", concurrency=None) is True
    assert await app.queues.rate("mail", None) is True
    assert await app.queues.rate("mail", None) is False
    assert await limits(app) == NONE


async def test_a_limit_for_each_key_stands_beside_that_for_all_and_none_without_a_key_lifts_both(app):
    await app.queues.limit("mail", concurrency=10)
    await app.queues.limit("mail", concurrency=2, by="args.tenant")
    await app.queues.rate("mail", 7, per=1, by="args.tenant")
    assert await limits(app) == Limits(concurrency=10, each_concurrency=2, each_rate=Rate(7, 1.0), by="args.tenant")
    await app.queues.limit("mail", concurrency=5)
    assert (await limits(app)).each_concurrency == 2
    await app.queues.limit("mail", concurrency=None, by="args.tenant")
    assert await limits(app) == Limits(concurrency=5, each_rate=Rate(7, 1.0), by="args.tenant")
    await app.queues.limit("mail", concurrency=2, by="args.tenant")
    await app.queues.limit("mail", concurrency=None)
    await app.queues.rate("mail", None)
    assert await limits(app) == NONE


async def test_keys_share_until_that_is_lifted(app):
    assert await app.queues.share("mail", by="args.tenant", weights={"acme": 3}) is True
    assert await limits(app) == Limits(by="args.tenant", weights={"acme": 3.0}, is_shared=True)
    assert await app.queues.share("mail", by=None) is True
    assert await limits(app) == NONE


async def test_a_queue_has_one_kind_of_keys(app):
    await app.queues.limit("mail", concurrency=2, by="args.tenant")
    for change in (
        app.queues.share("mail", by="args.user.id"),
        app.queues.rate("mail", 5, by="args.user.id"),
        app.queues.limit("mail", concurrency=None, by="args.user.id"),
    ):
        with pytest.raises(rj.InvalidOption, match=r"is limited by args\.tenant, and a queue has one kind of keys"):
            await change
    await app.queues.limit("mail", concurrency=None)
    assert await app.queues.share("mail", by="args.user.id") is True


async def test_a_limit_that_cannot_be_is_refused(app, connection):
    for change, named in (
        (app.queues.limit("mail", concurrency=0), "concurrency is a whole number from 1"),
        (app.queues.limit("mail", concurrency=True), "concurrency is a whole number"),
        (app.queues.limit("mail", concurrency=2, by="tenant"), "by names an argument, such as \"args.tenant\".*not 'tenant'"),
        (app.queues.limit("mail", concurrency=2, by=["args.tenant"]), "by names an argument"),
        (app.queues.rate("mail", 1.5), "n is a whole number"),
        (app.queues.rate("mail", 5, per=float("nan")), "per is a number from 0.1"),
        (app.queues.rate("mail", 5, per=0), "per is a number from 0.1"),
        (app.queues.rate("mail", 5, burst=0), "burst is a whole number"),
        (app.queues.share("mail", by="args.tenant", weights={"acme": 0}), "the weight of 'acme' is a number from 0.001"),
        (app.queues.share("mail", by="args.tenant", weights={7: 1}), "weights are by the text of a key"),
        (app.queues.share("mail", by=None, weights={"acme": 1}), "say what the key is"),
    ):
        with pytest.raises(rj.InvalidOption, match=named):
            await change
    with pytest.raises(rj.UnknownQueue):
        await app.queues.limit("mial", concurrency=1)
    assert await connection.fetchval("SELECT count(*) FROM rxjobs.limits") == 0


async def test_whoever_asks_for_limits_at_once_gets_all_of_them(app):
    await asyncio.gather(
        *(app.queues.limit("mail", concurrency=number) for number in range(1, 6)),
        app.queues.limit("mail", concurrency=2, by="args.tenant"),
        app.queues.rate("mail", 7),
        app.queues.share("mail", by="args.tenant"),
    )
    found = await limits(app)
    assert found.concurrency in range(1, 6)
    assert (found.each_concurrency, found.rate, found.is_shared) == (2, Rate(7, 60.0), True)


async def test_the_oldest_job_that_may_run_says_how_long_it_has_waited(app, connection):
    await fill(connection, "send", 2, queue="mail")
    await fill(connection, "send", 1, queue="later", state="scheduled")
    await connection.execute("UPDATE rxjobs.live_jobs SET scheduled_at = now() - interval '90 seconds' WHERE id = 1")
    later, mail = await app.queues.list()
    assert 90 <= mail.waited < 150
    assert later.waited is None


async def test_whoever_asks_hears_what_has_changed_for_it(app):
    heard = []
    app.events.subscribe(heard.append)
    await app.queues.pause("mail")
    await app.queues.pause("mail")
    await app.queues.scale("mail", max_demand=5)
    await app.queues.resume("mail")
    assert [(type(event), event.queue) for event in heard] == [
        (QueuePaused, "mail"), (QueueScaled, "mail"), (QueueResumed, "mail"),
    ]  # fmt: skip


async def test_whoever_asks_for_opposites_at_once_gets_one_of_them_and_no_deadlock(app, connection):
    """F14: what is asked of one queue is changed by one at a time."""
    for number in range(5):
        await a_node(connection, label=f"n{number}")

    async def toggle(number):
        await app.queues.pause("mail", node=f"n{number % 5}")
        await app.queues.scale("mail", max_demand=number + 1, node=f"n{number % 5}")
        await app.queues.resume("mail")
        await app.queues.scale("mail", max_demand=number + 1)

    await asyncio.gather(*(toggle(number) for number in range(40)))
    await app.queues.resume("mail")
    await app.queues.scale("mail", max_demand=None)
    assert await asked(app) == {}
