import json
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from rxjobs.failure import Failure
from rxjobs.job import Job
from rxjobs.outcome import Cancel, Complete, Discard, Finished, Release, Retry, Snooze
from rxjobs.store.encoding import Written, instant
from tests.store.ground import CLAIMED_AT, a_claimed_row, a_row, states, the_row

LATER = datetime.now(UTC) + timedelta(days=1)
FAILURE = Failure("ValueError", "bad", "Traceback …", 0.25, "0af7651916cd43dd8448eb211c80319c")


def written(*ended, attempt=1, attempted_at=CLAIMED_AT):
    return Written.of(
        [Finished(Job(id=id_, type="work", attempt=attempt, attempted_at=attempted_at), outcome) for id_, outcome in ended],
        "node-a",
    )


async def test_each_outcome_of_one_batch_does_what_it_says(store, connection, node):
    outcomes = [
        Complete(),
        Retry(60.0, "bad", FAILURE),
        Retry(0.0, "again"),
        Snooze(60),
        Snooze(0),
        Release(),
        Release(5.0),
        Cancel("unwanted"),
        Discard("hopeless", FAILURE),
    ]
    ids = [await a_claimed_row(connection, node, attempt=3) for _ in outcomes]
    assert await store.ack_jobs(node, written(*zip(ids, outcomes, strict=True), attempt=3)) == set(ids)
    rows = [await the_row(connection, id_) for id_ in ids]
    assert [row["state"] for row in rows] == [
        "completed", "retryable", "available", "scheduled", "available", "available", "scheduled", "cancelled", "discarded",
    ]  # fmt: skip
    assert [row["attempt"] for row in rows] == [3, 3, 3, 2, 2, 2, 2, 3, 3]
    assert [len(json.loads(row["errors"])) for row in rows] == [0, 1, 1, 0, 0, 0, 0, 1, 1]
    waits = await connection.fetch(
        "SELECT round(extract(epoch FROM scheduled_at - now())) FROM rxjobs.live_jobs WHERE id = ANY ($1) ORDER BY id", ids
    )
    assert [int(row[0]) for row in waits] == [60, 0, 60, 0, 0, 5]
    assert [row["finished_at"] is not None for row in rows] == [True] + [False] * 6 + [True] * 2


async def test_errors_are_appended_with_all_that_is_known(store, connection, node):
    id_ = await a_claimed_row(connection, node)
    await store.ack_jobs(node, written((id_, Retry(0.0, "bad", FAILURE))))
    (row,) = await store.fetch_jobs("default", 1, ["work"], node)
    await store.ack_jobs(
        node,
        written(
            (id_, Discard("worse", Failure("a.Worse", 'q"\\ü', ""))),
            attempt=row["attempt"],
            attempted_at=instant(row["attempted_at"]),
        ),
    )
    first, second = json.loads((await the_row(connection, id_))["errors"])
    at = first.pop("at")
    assert await connection.fetchval("SELECT now() - $1::text::timestamptz < interval '1 minute'", at)
    assert first == {
        "attempt": 1, "type": "ValueError", "message": "bad", "traceback": "Traceback …", "node": "node-a", "duration": 0.25,
        "trace_id": "0af7651916cd43dd8448eb211c80319c",
    }  # fmt: skip
    assert (second["attempt"], second["type"], second["message"], second["duration"]) == (2, "a.Worse", 'q"\\ü', None)


@pytest.mark.parametrize("outcome", [Complete(), Retry(0.0), Snooze(1), Discard()], ids=lambda outcome: type(outcome).__name__)
async def test_an_ack_that_is_not_of_the_current_claim_changes_nothing(store, connection, node, outcome):
    wrong_attempt = await a_claimed_row(connection, node, attempt=2)
    wrong_node = await a_claimed_row(connection, uuid4(), attempt=1)
    waiting = await a_row(connection, attempt=1, node=node, state="retryable")
    ids = [wrong_attempt, wrong_node, waiting]
    before = [await the_row(connection, id_) for id_ in ids]
    assert await store.ack_jobs(node, written(*((id_, outcome) for id_ in [*ids, 999_999]))) == set()
    assert await store.ack_completed([*ids, 999_999], node, 1) == set()
    assert [await the_row(connection, id_) for id_ in ids] == before


async def test_completed_ones_are_written_down_together(store, connection, node):
    ids = [await a_claimed_row(connection, node, args='{"n": 1e2}', tags=["t"], meta='{"m": 1}') for _ in range(3)]
    before = [dict(await the_row(connection, id_)) for id_ in ids]
    assert await store.ack_completed(ids, node, 1) == set(ids)
    for id_, live in zip(ids, before, strict=True):
        finished = dict(await the_row(connection, id_))
        assert finished.pop("finished_at") is not None
        assert finished == {**{key: value for key, value in live.items() if key != "finished_at"}, "state": "completed"}
    assert await connection.fetchval("SELECT count(*) FROM rxjobs.live_jobs") == 0


async def test_an_ack_whose_answer_was_lost_is_known_again(store, connection, node):
    outcomes = [Complete(), Retry(60.0), Snooze(60), Release(), Discard(), Cancel()]
    ids = [await a_claimed_row(connection, node) for _ in outcomes]
    ack = written(*zip(ids, outcomes, strict=True))
    assert await store.ack_jobs(node, ack) == set(ids)
    after = [await the_row(connection, id_) for id_ in ids]
    assert await store.ack_jobs(node, ack) == set()
    assert await store.find_acked(node, ids, [1] * len(ids), [CLAIMED_AT] * len(ids)) == set(ids)
    assert [await the_row(connection, id_) for id_ in ids] == after


async def test_what_another_node_or_attempt_did_is_not_taken_for_ones_own_ack(store, connection, node):
    elsewhere = await a_claimed_row(connection, node, attempt=1)
    other = uuid4()
    await connection.execute("UPDATE rxjobs.live_jobs SET node = $1, attempt = 2", other)
    assert await store.ack_completed([elsewhere], other, 2) == {elsewhere}
    assert await store.find_acked(node, [elsewhere], [1], [CLAIMED_AT]) == set()
    assert await store.find_acked(other, [elsewhere], [1], [CLAIMED_AT]) == set()
    running = await a_claimed_row(connection, node, attempt=1)
    assert await store.find_acked(node, [running], [1], [CLAIMED_AT]) == set()


async def test_an_ack_that_gave_the_attempt_back_does_not_end_the_next_claim_of_the_same_node(store, connection, node):
    """Its answer was lost, so it is sent again; meanwhile the node has claimed the job anew, under the same attempt number."""
    id_ = await a_row(connection)
    (claimed,) = await store.fetch_jobs("default", 1, ["work"], node)
    ack = written((id_, Release()), attempted_at=instant(claimed["attempted_at"]))
    assert await store.ack_jobs(node, ack) == {id_}
    (again,) = await store.fetch_jobs("default", 1, ["work"], node)
    assert again["attempt"] == claimed["attempt"]
    assert await store.ack_jobs(node, ack) == set()
    assert await states(connection, [id_]) == ["executing"]


async def test_what_ended_by_a_later_claim_of_the_same_number_is_not_taken_for_the_end_of_an_earlier_one(store, connection, node):
    """The first was given back and is sent again; the second, also attempt 1 of the same node, has completed meanwhile."""
    id_ = await a_row(connection)
    first, second = [(await store.fetch_jobs("default", 1, ["work"], node), await store.lost_claims(node, set(), LATER))[0][0]
                     for _ in range(2)]  # fmt: skip
    assert first["attempt"] == second["attempt"] == 1
    (third,) = await store.fetch_jobs("default", 1, ["work"], node)
    assert await store.ack_completed([id_], node, 1) == {id_}
    assert await store.find_acked(node, [id_], [1], [instant(third["attempted_at"])]) == {id_}
    assert await store.find_acked(node, [id_], [1], [instant(first["attempted_at"])]) == set()


async def test_queues_are_woken_for_what_may_run_at_once(store, connection, node):
    heard = []
    await connection.add_listener("rxjobs", lambda *notified: heard.append(notified[3]))
    outcomes = {"a": Release(), "b": Retry(0.0), "c": Retry(5.0), "d": Complete(), "e": Snooze(3)}
    ids = [await a_claimed_row(connection, node, queue=queue) for queue in outcomes]
    await store.ack_jobs(node, written(*zip(ids, outcomes.values(), strict=True)))
    await connection.execute("SELECT pg_notify('rxjobs', 'end')")
    assert sorted(heard) == ["a", "b", "end"]
