"""The plans of the hot statements, as a long-lived connection runs them: prepared, and generic."""

import json

import asyncpg
import pytest

from rxjobs.definition import NewJob
from rxjobs.failure import Failure
from rxjobs.job import Job
from rxjobs.outcome import Complete, Discard, Finished, Retry, Snooze
from rxjobs.store.encoding import NewRows, Written, instant, one_columns
from rxjobs.store.statements import statement
from rxjobs.store.store import FROM_THE_START, LONG_AGO, PRIORITIES
from tests.store.ground import a_leader, a_node, emptied

READY, FINISHED, BATCH, RUNS = 60_000, 20_000, 500, 12
DEAD = 20_000


async def fill(connection):
    await connection.execute(
        f"""
        INSERT INTO rxjobs.live_jobs (type, queue, priority, args)
        SELECT 'work', 'mail', n % 3, json_build_object('n', n) FROM generate_series(1, {READY}) AS n;
        INSERT INTO rxjobs.finished_jobs (id, inserted_at, scheduled_at, state, attempt, max_attempts, priority, type, queue, args)
        SELECT -n, now(), now(), 'completed', 1, 20, 0, 'work', 'mail', '{{}}' FROM generate_series(1, {FINISHED}) AS n;
        """
    )


@pytest.fixture(params=["never analyzed", "analyzed while full", "analyzed while empty"])
async def filled(ground, request):
    connection = await asyncpg.connect(await emptied(ground))
    await connection.execute("SET plan_cache_mode = force_generic_plan")
    if request.param == "analyzed while empty":
        await connection.execute("VACUUM ANALYZE rxjobs.live_jobs, rxjobs.finished_jobs, rxjobs.nodes")
    await fill(connection)
    if request.param == "analyzed while full":
        await connection.execute("VACUUM ANALYZE rxjobs.live_jobs, rxjobs.finished_jobs")
    yield connection
    await connection.close()


async def plan(connection, name, *arguments):
    """The generic plan of a statement, run with these arguments: its nodes, as one list."""
    await connection.execute("LOAD 'auto_explain'")
    prepared = await connection.prepare(statement(name, "rxjobs"))
    messages = []

    def heard(_, message):
        messages.append(message.message)

    connection.add_log_listener(heard)
    await connection.execute(
        "SET auto_explain.log_min_duration = 0; SET auto_explain.log_format = json; SET auto_explain.log_analyze = on; "
        "SET auto_explain.log_buffers = on; SET client_min_messages = log"
    )
    rows = await prepared.fetch(*arguments)
    await connection.execute("SET client_min_messages = warning; SET auto_explain.log_min_duration = -1")
    connection.remove_log_listener(heard)
    (text,) = [message for message in messages if "Query Text" in message]
    return list(nodes(json.loads(text[text.index("{") :])["Plan"])), rows


def nodes(tree):
    yield tree
    for child in tree.get("Plans", ()):
        yield from nodes(child)


def tables_read_in_full(plan):
    return {node["Relation Name"] for node in plan if node["Node Type"] == "Seq Scan"} & {"live_jobs", "finished_jobs"}


def assert_is_a_claim_by_the_index(plan, *, begins_at="(queue = "):
    """A TID scan on the outside, and inside an index scan that ends at the last row it needs."""
    assert not tables_read_in_full(plan)
    assert all("Sort" not in one["Node Type"] for one in plan), "the claim sorts the whole queue"
    assert [one["Node Type"] for one in plan if one.get("Relation Name") == "live_jobs"] == [
        "ModifyTable",
        "Index Scan",
        "Tid Scan",
    ]
    (inside,) = [one for one in plan if one.get("Index Name") == "live_jobs_ready"]
    assert begins_at in inside["Index Cond"]
    assert inside["Actual Rows"] * inside["Actual Loops"] <= BATCH


def as_text(values):
    return [str(value) for value in values]


def blocks(node):
    return node["Shared Hit Blocks"] + node["Shared Read Blocks"]


async def test_a_lone_job_is_inserted_in_one_step(filled):
    inserting, (row,) = await plan(filled, "insert_one", *one_columns(NewJob(type="work", queue="new", payload="{}")), "rxjobs")
    assert [one["Node Type"] for one in inserting] == ["ModifyTable", "Result"]
    assert row["id"]


async def test_the_hot_statements_never_read_a_table_in_full(filled):
    node = await a_node(filled)
    inserting, rows = await plan(
        filled, "insert_jobs", *NewRows.of([NewJob(type="work", queue="new", payload="{}")] * BATCH).columns(), "rxjobs"
    )
    assert len(rows) == BATCH
    assert not tables_read_in_full(inserting)

    fetching, claimed = await plan(filled, "fetch_jobs", "mail", BATCH, ["work"], node, 4096)
    assert len(claimed) == BATCH
    assert_is_a_claim_by_the_index(fetching)

    completing, rows = await plan(filled, "ack_completed", [row["id"] for row in claimed], node, 1)
    assert len(rows) == BATCH
    assert not tables_read_in_full(completing)

    for name, narrowed in (("exchange_jobs", ()), ("exchange_jobs_where", ([], "{}"))):
        _, claimed = await plan(filled, "fetch_jobs", "mail", BATCH, ["work"], node, 4096)
        marks = FROM_THE_START if narrowed else ()
        claim = "mail", BATCH, ["work"], node, *narrowed, 4096, *marks
        exchanging, rows = await plan(filled, name, *claim, [row["id"] for row in claimed], 1)
        assert (len(rows), {row["written"] for row in rows}) == (BATCH, {BATCH})
        assert not tables_read_in_full(exchanging)
        assert all("Sort" not in one["Node Type"] for one in exchanging)

    _, claimed = await plan(filled, "fetch_jobs", "mail", BATCH, ["work"], node, 4096)
    kinds = [Complete(), Retry(30.0, "bad", Failure("E", "m")), Snooze(5), Discard()]
    ended = [
        Finished(Job(id=row["id"], type="work", attempt=1, attempted_at=instant(row["attempted_at"])), kinds[place % 4])
        for place, row in enumerate(claimed)
    ]
    acking, rows = await plan(filled, "ack_jobs", node, *Written.of(ended, "").columns(), "rxjobs")
    assert len(rows) == BATCH
    assert not tables_read_in_full(acking)


async def test_a_claim_that_is_narrowed_goes_by_the_same_index(filled):
    node = await a_node(filled)
    narrowed = "mail", BATCH, ["work"], node, [], '{"n": 5000}', 4096
    fetching, claimed = await plan(filled, "fetch_jobs_where", *narrowed, *FROM_THE_START)
    assert len(claimed) == 1
    assert_is_a_claim_by_the_index(fetching, begins_at="ROW(scheduled_at, id) >= ")


async def test_staging_reads_nothing_but_what_waits(filled):
    await filled.execute("UPDATE rxjobs.live_jobs SET state = 'scheduled' WHERE id <= 100")
    found, _ = await plan(filled, "stage_jobs", 50, None, *await a_leader(filled), LONG_AGO)
    assert not tables_read_in_full(found)


@pytest.mark.parametrize("mode", ["auto", "force_generic_plan"])
async def test_ageing_reads_by_the_index_what_it_raises_and_no_more(filled, mode):
    await filled.execute(f"SET plan_cache_mode = {mode}")
    leader = await a_leader(filled)
    for after, raised in (("", -1), 0), (("mail", 0), 200), (("mail", 1), 200):
        found, ((queue, priority, jobs, _),) = await plan(filled, "age_jobs", *after, 200, 0.0, *leader, None)
        assert (queue, priority, jobs) == ("mail", after[1] + 1, raised)
        assert not tables_read_in_full(found)
        assert all("Sort" not in one["Node Type"] for one in found)
        reading = [one for one in found if one["Node Type"] == "Index Scan" and one["Relation Name"] == "live_jobs"]
        assert {one["Index Name"] for one in reading} == {"live_jobs_ready"}
        assert sum(one["Actual Rows"] * one["Actual Loops"] for one in reading) <= 201
    found, rows = await plan(filled, "age_jobs", "mail", 2, 200, 0.0, *leader, None)
    assert rows == []
    assert not tables_read_in_full(found)


async def test_a_look_of_an_idle_node_reads_a_few_pages_for_each_queue_however_much_others_have(filled):
    await filled.execute("SET plan_cache_mode = auto")
    await filled.execute(
        "UPDATE rxjobs.live_jobs SET state = 'scheduled', scheduled_at = now() + interval '1 hour' WHERE id % 2 = 0"
    )
    queues, node = ["default", "other", "third"], await a_node(filled)
    instants, ids = (as_text(marks) * len(queues) for marks in FROM_THE_START)
    for _ in range(RUNS):
        found, rows = await plan(filled, "look", queues, instants, ids, ["work"], queues, [""], LONG_AGO, node, [])
        assert (len(rows), rows[0]["ready"], rows[0]["queue"]) == (1, [], None)
        assert rows[0]["next"] > 3000
        assert not tables_read_in_full(found)
        assert all(blocks(one) < 12 * len(queues) * PRIORITIES for one in found)
    found, rows = await plan(filled, "look", ["other", "mail"], instants[:20], ids[:20], ["work"], queues, [""], LONG_AGO, node, [])
    assert rows[0]["ready"] == ["2"]
    assert not tables_read_in_full(found)


async def test_to_look_for_lost_claims_the_first_time_reads_no_job(filled):
    """It only learns what time it is."""
    found, _ = await plan(filled, "lost_claims", await a_node(filled), [], None, None)
    assert sum(blocks(one) for one in found if one.get("Relation Name") == "live_jobs") == 0


async def test_jobs_are_cancelled_and_their_progress_is_written_by_their_ids(filled):
    ids = list(range(1, BATCH + 1))
    node = await a_node(filled)
    await filled.execute("UPDATE rxjobs.live_jobs SET state = 'executing', node = $2 WHERE id = ANY ($1)", ids[::2], node)
    columns = ids, [0] * BATCH, [LONG_AGO] * BATCH, ['{"fraction": 0.5, "message": ""}'] * BATCH
    for name, arguments in [("cancel_jobs", (ids, None)), ("save_progress", (node, *columns)), ("ended_jobs", (ids,))]:
        found, _ = await plan(filled, name, *arguments)
        assert not tables_read_in_full(found), name


async def test_pruning_finds_the_old_by_their_place_in_a_table_that_grows_at_its_end(filled):
    await filled.execute("VACUUM ANALYZE rxjobs.finished_jobs")  # autovacuum does so for every tenth of growth
    found, _ = await plan(filled, "prune_jobs", 3600.0, 1000, *await a_leader(filled), 7200.0, None)
    assert not tables_read_in_full(found)


async def test_pruning_does_not_read_the_dead_letters_again_that_are_kept_for_longer(filled):
    await filled.execute(
        "UPDATE rxjobs.finished_jobs SET state = 'discarded', finished_at = now() - interval '2 hours' + id * interval '1 ms'"
    )
    await filled.execute("VACUUM (FULL, ANALYZE) rxjobs.finished_jobs")
    leader, since = await a_leader(filled), None
    pages = []
    for _ in range(RUNS):
        found, rows = await plan(filled, "prune_jobs", 3600.0, 1000, *leader, 86400.0, since)
        ((state, _, since),) = rows
        assert state is None
        assert not tables_read_in_full(found)
        pages.append(sum(blocks(one) for one in found if one.get("Relation Name") == "finished_jobs"))
    assert pages[0] > 100, "there was nothing in the way, so that this proves nothing"
    assert max(pages[1:]) < 20


async def test_the_cost_of_a_claim_and_its_ack_does_not_grow_with_what_was_done_before(filled):
    """As a pooled connection does it: the planner may choose a generic plan from the sixth run on, and dead rows pile up."""
    await filled.execute("SET plan_cache_mode = auto")
    node = await a_node(filled)
    pages = []
    for _ in range(RUNS):
        fetching, claimed = await plan(filled, "fetch_jobs", "mail", BATCH, ["work"], node, 4096)
        completing, rows = await plan(filled, "ack_completed", [row["id"] for row in claimed], node, 1)
        assert len(rows) == BATCH
        assert not tables_read_in_full(completing)
        assert_is_a_claim_by_the_index(fetching)
        pages.append(sum(blocks(plan[0]) for plan in (fetching, completing)))
    assert max(pages) < 30 * BATCH  # to claim one row and to move it takes 21 pages, indexes included
    assert pages[-1] < pages[0] * 1.25


@pytest.mark.parametrize("history", [50_000, pytest.param(1_000_000, marks=pytest.mark.long)])
async def test_a_long_history_adds_nothing_to_a_claim_and_next_to_nothing_to_an_ack(ground, history):
    """An ack adds to the end of the table and of its indexes, which are a level deeper for some hundred times as many jobs."""
    connection = await asyncpg.connect(await emptied(ground))
    node = await a_node(connection)
    await connection.execute("INSERT INTO rxjobs.live_jobs (type, queue) SELECT 'work', 'mail' FROM generate_series(1, 4000)")

    async def read():
        claiming, claimed = await plan(connection, "fetch_jobs", "mail", 100, ["work"], node, 4096)
        acking, rows = await plan(connection, "ack_completed", [row["id"] for row in claimed], node, 1)
        assert len(rows) == 100
        return [blocks(one[0]) for one in (claiming, acking)]

    async def settled():
        await connection.execute("VACUUM ANALYZE rxjobs.live_jobs, rxjobs.finished_jobs")
        return [await read() for _ in range(RUNS)]

    before = await settled()
    await connection.execute(
        f"""
        INSERT INTO rxjobs.finished_jobs
            (id, inserted_at, scheduled_at, finished_at, state, attempt, max_attempts, priority, type, queue, args)
        SELECT -n, now(), now(), now() - ({history} - n) * interval '30 s', 'completed', 1, 20, 0, 'work', 'mail', '{{}}'
        FROM generate_series(1, {history}) AS n
        """
    )
    after = await settled()
    (claims, acks), (claims_then, acks_then) = zip(*before, strict=True), zip(*after, strict=True)
    print(f"pages, of {history} finished jobs: a claim {claims_then}, an ack {acks_then}; without: {claims}, {acks}")
    assert max(claims_then) <= 1.1 * max(claims)
    assert max(acks_then) <= 1.1 * max(acks) + 100
    await connection.close()


@pytest.fixture
async def pinned(ground):
    """A session with an old snapshot: what is deleted from now on stays where it is."""
    connection = await asyncpg.connect(ground)
    await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM pg_class LIMIT 1")
    yield connection
    await connection.close()


@pytest.mark.parametrize("mode", ["auto", "force_generic_plan"])
async def test_a_look_for_what_is_due_does_not_step_over_what_an_old_transaction_keeps(ground, pinned, mode):
    connection = await asyncpg.connect(await emptied(ground))
    await connection.execute(f"SET plan_cache_mode = {mode}")
    leader = await a_leader(connection)
    await connection.execute(
        f"""
        INSERT INTO rxjobs.live_jobs (type, state, scheduled_at)
        SELECT 'work', 'retryable', now() - interval '1 hour' FROM generate_series(1, {DEAD});
        UPDATE rxjobs.live_jobs SET state = 'executing';
        DELETE FROM rxjobs.live_jobs;
        """
    )
    since = await connection.fetchval("SELECT now()")

    async def read(since):
        """The blocks that are read to find one that is due, and the next."""
        await connection.execute(
            "INSERT INTO rxjobs.live_jobs (type, state, scheduled_at) "
            "VALUES ('work', 'scheduled', now()), ('work', 'scheduled', now() + interval '1 hour')"
        )
        found, ((staged, *_),) = await plan(connection, "stage_jobs", 100, None, *leader, since)
        assert staged == 1
        return sum(blocks(one) for one in found if one.get("Index Name") == "live_jobs_pending")

    for _ in range(RUNS):
        assert await read(since) < 20
    assert await read(LONG_AGO) > 200, "nothing dead was in the way, so that this proves nothing"
    await connection.close()


DEAD_ROWS = f"""
INSERT INTO rxjobs.live_jobs (type, queue, priority) SELECT 'work', 'mail', n % 2 FROM generate_series(1, {DEAD}) AS n;
UPDATE rxjobs.live_jobs SET state = 'executing';
DELETE FROM rxjobs.live_jobs;
"""
OF_ANOTHER_TYPE = f"INSERT INTO rxjobs.live_jobs (type, queue) SELECT 'fragile', 'mail' FROM generate_series(1, {DEAD})"


@pytest.mark.parametrize("mode", ["auto", "force_generic_plan"])
@pytest.mark.parametrize("behind", [DEAD_ROWS, OF_ANOTHER_TYPE], ids=["what an old transaction keeps", "jobs of another type"])
async def test_a_claim_from_the_marks_does_not_step_over_what_lies_behind(ground, pinned, mode, behind):
    """Jobs of another type are those of one whose breaker is open."""
    connection = await asyncpg.connect(await emptied(ground))
    await connection.execute(f"SET plan_cache_mode = {mode}")
    await connection.execute(behind)
    marks = (await connection.fetchval("SELECT now()"),) * PRIORITIES, (0,) * PRIORITIES
    await connection.execute(
        f"INSERT INTO rxjobs.live_jobs (type, queue) SELECT 'work', 'mail' FROM generate_series(1, {3 * RUNS})"
    )
    node = await a_node(connection)

    async def read(name, *arguments):
        """The blocks that are read to find what is asked for."""
        found, rows = await plan(connection, name, *arguments)
        return sum(blocks(one) for one in found if one.get("Index Name") == "live_jobs_ready"), len(rows)

    for _ in range(RUNS):
        blocks_read, rows = await read("fetch_jobs_where", "mail", 1, ["work"], node, [], "{}", 4096, *marks)
        assert rows == 1
        assert blocks_read < 10
        blocks_read, _ = await read("look", ["mail"], *map(as_text, marks), ["unknown"], ["mail"], [""], None, node, [])
        assert blocks_read < 5 * PRIORITIES
    blocks_read, _ = await read("look", ["mail"], *map(as_text, FROM_THE_START), ["unknown"], ["mail"], [""], None, node, [])
    assert blocks_read > 10 * PRIORITIES, "nothing was in the way, so that this proves nothing"
    found, rows = await plan(connection, "fetch_jobs", "mail", 1, ["work"], node, 4096)
    assert len(rows) == 1
    # by whatever index: where most are known to be of another type, each is as good
    assert max(map(blocks, found)) > 200, "nothing was in the way, so that this proves nothing"
    blocks_read, _ = await read("ready_behind", "mail", ["work"], [], "{}", *marks)
    assert 100 < blocks_read < 2 * DEAD
    await connection.close()
