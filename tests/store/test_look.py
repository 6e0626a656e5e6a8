from datetime import UTC, datetime, timedelta

import pytest

from rxjobs.source import Control
from rxjobs.store.store import FROM_THE_START, LONG_AGO, PRIORITIES
from tests.store.ground import a_node, a_row

MAIL, OTHER = ("mail", FROM_THE_START), ("other", FROM_THE_START)


async def ready(store, *sources, types=("work",)):
    return (await store.look([], [], sources, types)).ready


async def test_it_sees_for_which_sources_a_job_is_ready(connection, store):
    assert await ready(store, MAIL, OTHER) == set()
    for state in ("scheduled", "executing", "retryable"):
        await a_row(connection, queue="mail", state=state)
    assert await ready(store, MAIL, OTHER) == set()
    await a_row(connection, queue="mail", priority=9)
    assert await ready(store, MAIL, OTHER) == {0}
    assert await ready(store, OTHER, MAIL, MAIL) == {1, 2}
    assert await ready(store, MAIL, types=("unknown", "of no row")) == set()
    assert await ready(store, MAIL, types=()) == set()


@pytest.mark.parametrize("priority", [0, 5, 9])
async def test_each_source_sees_from_its_own_marks_on(connection, store, priority):
    at = datetime(2026, 1, 1, tzinfo=UTC)
    id_ = await a_row(connection, queue="mail", priority=priority, scheduled_at=at)
    before, beyond = at - timedelta(seconds=1), at + timedelta(seconds=1)

    def marks(instant, id_=0):
        """Beyond everything in all priorities but this one."""
        instants, ids = [beyond] * PRIORITIES, [0] * PRIORITIES
        instants[priority], ids[priority] = instant, id_
        return "mail", (tuple(instants), tuple(ids))

    assert await ready(store, marks(beyond), marks(before), marks(at, id_), marks(at, id_ + 1), MAIL) == {1, 2, 4}


async def test_it_says_when_the_next_is_due_and_from_when_on_it_looked(connection, store):
    assert (await store.look([], [], since=LONG_AGO)).next is None
    look = await store.look([], [], since=LONG_AGO)
    await a_row(connection, state="scheduled", scheduled_at=look.at + timedelta(hours=1))
    assert 3500 < (await store.look([], [], since=LONG_AGO)).next < 3600
    await a_row(connection, state="retryable", scheduled_at=look.at - timedelta(hours=1))
    assert -3700 < (await store.look([], [], since=LONG_AGO)).next < -3600
    assert 3500 < (await store.look([], [], since=look.at)).next < 3600
    assert (await store.look([], [])).next is None, "who does not lead need not know"
    assert 0 <= look.seconds < 60


async def test_it_says_whether_a_lease_ran_out_to_whom_it_concerns(connection, store):
    await a_node(connection)
    assert (await store.look([], [], since=LONG_AGO)).is_a_node_gone is False
    await a_node(connection, seconds=-1)
    assert (await store.look([], [], since=LONG_AGO)).is_a_node_gone is True
    assert (await store.look([], [])).is_a_node_gone is False


async def test_what_is_asked_of_several_queues_comes_with_the_rest(connection, store):
    await connection.execute(
        "INSERT INTO rxjobs.queues (queue, paused_at, max_demand) VALUES ('mail', now(), 3), ('other', NULL, 4)"
    )
    await a_row(connection, queue="other")
    look = await store.look(["mail", "other", "third"], [], [MAIL, OTHER], ["work"])
    assert look.asked == {"mail": Control(is_paused=True, max_demand=3), "other": Control(max_demand=4)}
    assert look.ready == {1}
