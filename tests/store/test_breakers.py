"""The rows that breakers share, as several nodes write them."""

from __future__ import annotations

import asyncio

import pytest

import rxjobs as rj
from rxjobs.store.standing import Report, Standing
from tests.store.ground import a_node

NOTHING = Report(0, None, 0.0, 0, False, 0, 0, 0, 0)


async def report(store, node, how=None, **seen) -> Standing:
    return await store.report_breaker("work", node, NOTHING._replace(**seen), how or rj.Breaker(fail_max=10))


async def opened(connection, store, node, *, ago=100.0, version=1):
    """One that has been open for so many seconds."""
    await report(store, node)
    await connection.execute(
        "UPDATE rxjobs.breakers SET state = 'open', version = $1, opened_at = now() - $2::float8 * interval '1 second'",
        version, ago,
    )  # fmt: skip


async def test_failures_of_several_nodes_open_it_together_and_the_opening_is_told(connection, store, node):
    heard = []
    await connection.add_listener("rxjobs", lambda *told: heard.append(told[-1]))
    others = [node, await a_node(connection), await a_node(connection)]
    standings = [await report(store, one, failures=4) for one in others]
    assert [(one.state, one.failures, one.version) for one in standings] == [("closed", 4, 0), ("closed", 8, 0), ("open", 0, 1)]
    assert standings[-1].wait == pytest.approx(30, abs=1)
    await connection.execute("SELECT 1")
    assert heard == ["!"]


async def test_a_success_on_one_node_takes_back_what_all_had_counted(connection, store, node):
    other = await a_node(connection)
    await report(store, node, failures=9)
    assert (await report(store, other, has_succeeded=True, failures=2)).failures == 2
    assert (await report(store, node, failures=7)).state == "closed"


async def test_failures_before_it_had_moved_count_no_more(connection, store, node):
    await opened(connection, store, node)
    await store.close_breaker("work")
    assert (await report(store, node, version=1, failures=50)).failures == 0
    assert (await report(store, node, version=1, moved="open")).state == "closed"
    assert (await report(store, node, version=2, failures=5)).failures == 5


async def test_it_opens_at_a_rate_of_failures_of_all_nodes_in_a_window(connection, store, node):
    how = rj.Breaker(fail_max=10**6, failure_rate=0.5, min_calls=20, window=1000)
    other = await a_node(connection)
    assert (await report(store, node, how, calls=10, failed=9, has_succeeded=True)).state == "closed"
    assert (await report(store, other, how, calls=9, failed=0)).state == "closed"
    standing = await report(store, other, how, calls=1, failed=1)
    assert (standing.state, standing.calls) == ("open", 0)


async def test_calls_of_a_window_long_ago_count_no_more(connection, store, node):
    how = rj.Breaker(fail_max=10**6, failure_rate=0.5, min_calls=20, window=1000)
    await report(store, node, how, calls=19, failed=19)
    await connection.execute("UPDATE rxjobs.breakers SET half = half - 1")
    assert (await report(store, node, how)).calls == 19
    await connection.execute("UPDATE rxjobs.breakers SET half = half - 2")
    standing = await report(store, node, how, calls=1, failed=1)
    assert (standing.state, standing.calls, standing.failed) == ("closed", 1, 1)


@pytest.mark.parametrize("probes", [1, 3])
async def test_however_many_nodes_ask_at_once_only_the_probes_are_given(connection, store, node, probes):
    await opened(connection, store, node)
    nodes = [await a_node(connection) for _ in range(20)]
    answers = await asyncio.gather(*(store.take_probes("work", one, 2, 0, probes) for one in nodes))
    assert sum(given for _, given in answers) == probes
    assert {standing.state for standing, _ in answers} == {"half-open"}
    assert {standing.version for standing, _ in answers} == {2}


async def test_none_is_given_before_its_time_nor_while_it_is_open_by_hand(connection, store, node):
    await opened(connection, store, node, ago=29)
    standing, given = await store.take_probes("work", node, 1, 0, 1)
    assert (standing.state, given) == ("open", 0)
    await store.open_breaker("work")
    await connection.execute("UPDATE rxjobs.breakers SET opened_at = now() - interval '1 day'")
    standing, given = await store.take_probes("work", node, 1, 0, 1)
    assert (standing.state, standing.is_by_hand, given) == ("open", True, 0)


async def test_where_the_servers_clock_was_set_back_nobody_waits_longer_for_it(connection, store, node):
    await opened(connection, store, node, ago=-3600)
    assert await store.take_probes("work", node, 1, 0, 1) == (
        Standing("work", 2, "half-open", probing=1, wait=pytest.approx(3630, abs=5)), 1,
    )  # fmt: skip


async def test_a_question_whose_answer_was_lost_costs_no_probe(connection, store, node):
    await opened(connection, store, node)
    await store.take_probes("work", node, 1, 0, 1)
    _, given = await store.take_probes("work", node, 1, 0, 1)
    assert given == 1
    other = await a_node(connection)
    assert (await store.take_probes("work", other, 1, 0, 1))[1] == 0


@pytest.mark.parametrize("left", ["lease ran out", "left"])
async def test_the_probes_of_a_node_that_is_no_more_are_given_to_another(connection, store, node, left):
    await opened(connection, store, node)
    await store.take_probes("work", node, 1, 0, 1)
    other = await a_node(connection)
    assert (await store.take_probes("work", other, 1, 0, 1))[1] == 0
    if left == "left":
        await store.leave(node)
    else:
        await connection.execute("UPDATE rxjobs.nodes SET expires_at = now() - interval '1 second' WHERE id = $1", node)
    assert (await store.take_probes("work", other, 1, 0, 1))[1] == 1
    (seen,) = (await store.look([], [])).breakers
    assert seen.probing == 1


async def test_good_probes_of_several_nodes_close_it_together_and_one_bad_one_opens_it(connection, store, node):
    other, how = await a_node(connection), rj.Breaker(probes=2)
    await opened(connection, store, node)
    for one in (node, other):
        assert (await store.take_probes("work", one, 1, 0, 2))[1] == 1
    assert (await report(store, node, how, version=2, successes=1)).state == "half-open"
    assert (await report(store, other, how, version=2, successes=1)).state == "closed"
    await opened(connection, store, node, version=5)
    await store.take_probes("work", node, 1, 0, 2)
    standing = await report(store, node, how, version=6, moved="open")
    assert (standing.state, standing.version, standing.probing) == ("open", 7, 0)


async def test_a_look_sees_breakers_that_are_not_closed_or_have_counted_failures_and_those_it_asks_for(connection, store, node):
    assert (await store.look([], [])).breakers == ()
    await report(store, node)
    assert (await store.look([], [])).breakers == ()
    assert [one.type for one in (await store.look([], [], breakers=["work"])).breakers] == ["work"]
    await report(store, node, failures=3)
    assert [one.failures for one in (await store.look([], [])).breakers] == [3]
    await store.open_breaker("work")
    (one,) = (await store.look([], [])).breakers
    assert (one.state, one.is_by_hand, one.version) == ("open", True, 1)
