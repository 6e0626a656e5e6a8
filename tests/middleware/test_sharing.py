"""Circuits that several nodes share, each with its own clock and counts, on a real PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from uuid import UUID

import pytest

import rxjobs as rj
from rxjobs.decide import raised
from rxjobs.demand import now
from rxjobs.middleware.circuits import Circuits
from rxjobs.perform import Next
from rxjobs.store.database import Database
from rxjobs.store.store import Store
from rxjobs.testing import a_job
from tests.proxy import Proxy
from tests.store.ground import a_node, migrated
from tests.waiting import until

DOWN = ValueError("down")


class Node:
    """A node as far as it shares circuits, with one job type."""

    def __init__(self, store: Store, id: UUID, how: rj.Breaker) -> None:
        self.store = store
        self.woken = 0
        self.events: list[str] = []
        self.circuits = Circuits(lambda event: self.events.append(event.name))
        self._middleware = self.circuits.middleware("work", how)
        self.circuits.share(store, id, self._wake, AsyncExitStack())

    def _wake(self) -> None:
        self.woken += 1

    @property
    def state(self) -> str:
        return self.circuits.states()["work"]

    async def run(self, *outcomes: rj.Outcome | BaseException, seconds: float = 0.0) -> list[rj.Outcome]:
        def ending(outcome: rj.Outcome | BaseException) -> Next:
            async def end(job: rj.Job) -> rj.Outcome:
                await asyncio.sleep(seconds)
                return outcome if isinstance(outcome, rj.Outcome) else raised(job, outcome)

            return end

        return [await self._middleware(a_job(attempt=1), ending(outcome)) for outcome in outcomes]

    async def look(self) -> bool:
        """See how it stands for all, as the node does again and again."""
        asked_at = now()
        self.circuits.learn((await self.store.look([], [], breakers=self.circuits.unsure)).breakers, asked_at)
        return True

    async def comes_to_be(self, state: str) -> None:
        async def is_so() -> bool:
            return await self.look() and self.state == state

        await until(is_so)


@pytest.fixture
async def connection(dsn):
    connection = await migrated(dsn)
    yield connection
    await connection.close()


@pytest.fixture
async def nodes(dsn, connection):
    """Make nodes that share a circuit."""
    database, made = Database(dsn), []
    await database.open()

    async def make(count, **how):
        made.extend([Node(Store(database, "rxjobs"), await a_node(connection), rj.Breaker(**how)) for _ in range(count)])
        return made

    yield make
    for node in made:
        await node.circuits.finish()
    await database.close()


async def counted(connection, name="failures"):
    return await connection.fetchval(f"SELECT {name} FROM rxjobs.breakers WHERE type = 'work'")


async def test_what_goes_well_is_told_to_nobody(nodes, connection):
    one, _ = await nodes(2, fail_max=3)
    await one.run(*[rj.Complete()] * 100)
    await one.run(DOWN, rj.Complete())  # over before it is told
    await one.circuits.finish()
    assert await connection.fetchval("SELECT count(*) FROM rxjobs.breakers") == 0


async def test_failures_are_counted_across_nodes_and_told_in_batches(nodes, connection):
    one, other = await nodes(2, fail_max=10)
    await one.run(*[DOWN] * 6)
    await until(lambda: is_count(connection, 6))
    assert other.state == "closed"
    await other.look()
    await other.run(*[DOWN] * 3)
    assert other.state == "closed"
    await other.run(DOWN)
    assert (other.state, one.state) == ("open", "closed")
    await one.comes_to_be("open")
    assert one.events == other.events == ["breaker.open"]
    assert await counted(connection, "version") == 1
    # by then both wait for one and the same moment
    assert [node.circuits.startable(["work", "else"]) for node in (one, other)] == [["else"], ["else"]]


async def is_count(connection, count):
    return await counted(connection) == count


async def test_a_success_on_one_node_is_a_success_for_all(nodes, connection):
    one, other = await nodes(2, fail_max=10)
    await one.run(*[DOWN] * 9)
    await until(lambda: is_count(connection, 9))
    await other.look()
    await other.run(rj.Complete())
    await until(lambda: is_count(connection, 0))
    await one.look()
    await one.run(DOWN)
    assert one.state == "closed"


@pytest.mark.parametrize("probes", [1, 3])
async def test_of_many_nodes_at_once_exactly_the_probes_run_and_their_ends_hold_for_all(nodes, connection, probes):
    team = await nodes(5, fail_max=1, reset_timeout=0.3, probes=probes)
    await team[0].run(DOWN)
    for node in team:
        await node.comes_to_be("open")
    await until(lambda: all(node.circuits.due(["work"]) for node in team))
    outcomes = await asyncio.gather(*(node.run(rj.Complete(), seconds=0.3) for node in team for _ in range(10)))
    assert sum(isinstance(outcome, rj.Complete) for (outcome,) in outcomes) == probes
    for node in team:
        await node.comes_to_be("closed")
        await until(lambda node=node: node.woken)
    assert {node.events[-1] for node in team} == {"breaker.close"}


async def test_a_probe_whose_end_says_nothing_gives_its_turn_to_any_node(nodes, connection):
    one, other = await nodes(2, fail_max=1, reset_timeout=0.1, exclude=(LookupError,))
    await one.run(DOWN)
    await other.comes_to_be("open")
    for node in (one, other, one, other):
        await until(lambda node=node: ran(node, KeyError("no such user")))
    await until(lambda: ran(other, rj.Complete()))
    await one.comes_to_be("closed")


async def ran(node, outcome):
    """Whether it was let through."""
    await node.look()
    (end,) = await node.run(outcome)
    return not isinstance(end, rj.Snooze)


async def test_a_probe_that_was_fetched_and_never_begins_gives_its_turn_back(nodes, connection):
    one, other = await nodes(2, fail_max=1, reset_timeout=0.1)
    await one.run(DOWN)
    await other.comes_to_be("open")
    await until(lambda: one.circuits.due(["work"]))
    assert await until(lambda: one.circuits.permits("work", "default", 5)) == 1
    one.circuits.fetched("work", "default", 1, [7])
    assert await other.circuits.permits("work", "default", 5) == 0
    one.circuits.settled([6, 7, 8])
    await until(lambda: has_permit(other))


async def has_permit(node):
    await node.look()
    await node.circuits.look_for(["work"], "default", ready)
    return await node.circuits.permits("work", "default", 1) == 1


async def ready(names):
    return True


async def test_where_no_job_is_there_to_probe_its_place_is_given_back_and_asked_for_later(nodes, connection):
    (one,) = await nodes(1, fail_max=1, reset_timeout=0.1)
    await one.run(DOWN)
    await until(lambda: one.circuits.due(["work"]))
    assert await one.circuits.permits("work", "other", 5) == 0, "where none was seen is not asked for"
    # PostgreSQL says when the time has come, and heard of the failure a moment later than this node
    assert await until(lambda: one.circuits.permits("work", "default", 5)) == 1
    one.circuits.fetched("work", "default", 1, [])
    woken = one.woken
    await until(lambda: counted(connection, "cardinality(probing) = 0"))
    await until(lambda: one.woken > woken)
    await until(lambda: has_permit(one))


async def test_where_no_job_was_ever_seen_is_looked_at_before_a_place_is_asked_for(nodes, connection):
    (one,) = await nodes(1, fail_max=1, reset_timeout=0.1)
    await one.run(DOWN)
    await until(lambda: one.circuits.due(["work"]))
    looks = []

    async def is_there(names):
        looks.append(names)
        return len(looks) > 2

    async def is_found():
        await one.circuits.look_for(["work"], "other", is_there)
        return len(looks) > 2

    await until(is_found)
    assert looks == [["work"]] * 3
    assert one.woken
    assert await until(lambda: one.circuits.permits("work", "other", 5)) == 1


async def test_a_rate_of_failures_is_one_of_all_nodes(nodes, connection):
    one, other = await nodes(2, fail_max=1000, failure_rate=0.5, min_calls=20)
    await one.run(*[DOWN, rj.Complete()] * 5)
    await until(lambda: is_calls(connection, 10))
    await other.look()
    await other.run(*[rj.Complete(), DOWN] * 4)
    assert other.state == "closed"
    await other.run(rj.Complete(), DOWN)
    assert other.state == "open"
    await one.comes_to_be("open")


async def is_calls(connection, calls):
    return await counted(connection, "calls + calls_before") == calls


async def test_a_few_failures_among_many_successes_of_other_nodes_are_no_high_rate(nodes, connection):
    one, other = await nodes(2, fail_max=1000, failure_rate=0.5, min_calls=20)
    await one.run(DOWN)
    await until(lambda: is_calls(connection, 1))
    await other.look()
    await other.run(*[rj.Complete()] * 200)
    await until(lambda: is_calls(connection, 201))
    await one.look()
    await one.run(*[DOWN] * 100)
    assert one.state == "closed"


async def test_opened_by_hand_it_stays_so_and_closed_by_hand_it_begins_anew(nodes, connection):
    one, other = await nodes(2, fail_max=2, reset_timeout=0.05)
    await one.store.open_breaker("work")
    await one.comes_to_be("open")
    await other.comes_to_be("open")
    await asyncio.sleep(0.1)  # twice its reset time
    (outcome,) = await one.run(rj.Complete())
    assert isinstance(outcome, rj.Snooze)
    await one.store.close_breaker("work")
    await one.comes_to_be("closed")
    await one.run(DOWN)
    assert one.state == "closed"


@pytest.fixture
async def proxied(dsn, connection) -> Iterator[tuple[Proxy, Node]]:
    """A node that reaches the database through a proxy."""
    async with Proxy(dsn) as proxy:
        database = Database(proxy.dsn, acquire_timeout=0.5)
        await database.open()
        node = Node(Store(database, "rxjobs"), await a_node(connection), rj.Breaker(fail_max=2, reset_timeout=0.2))
        yield proxy, node
        await node.circuits.finish()
        await database.close()


async def test_while_the_database_is_away_a_node_is_on_its_own_and_tells_when_it_is_back(proxied, connection, nodes):
    proxy, one = proxied
    (other,) = await nodes(1, fail_max=2, reset_timeout=0.2)
    await one.run(DOWN, DOWN)
    await other.comes_to_be("open")
    proxy.refuse()
    await until(lambda: ran_alone(one, DOWN))  # once it has noticed
    assert one.state == "open"
    await until(lambda: ran_alone(one, rj.Complete()))
    assert (one.state, other.state) == ("closed", "open")
    proxy.heal()
    await other.comes_to_be("closed")
    proxy.refuse()
    await one.run(DOWN, DOWN)
    assert (one.state, other.state) == ("open", "closed")
    proxy.heal()
    await other.comes_to_be("open")


async def ran_alone(node, outcome):
    (end,) = await node.run(outcome)
    return not isinstance(end, rj.Snooze)
