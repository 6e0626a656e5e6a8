import asyncio

import asyncpg
import pytest

import rxjobs as rj
from tests.waiting import until


async def test_an_app_may_be_opened_closed_and_opened_again(dsn):
    app = rj.App(dsn, migrate=True, poll_seconds=0.1)
    ran = []

    @app.job
    async def on_the_loop(n: int) -> None:
        ran.append(n)

    @app.job
    def in_a_thread(n: int) -> None:
        ran.append(n)

    for n in range(3):
        async with app:
            await on_the_loop.enqueue(n)
        async with app.running():
            await in_a_thread.enqueue(n + 10)
            await until(lambda n=n: {n, n + 10} <= {*ran})
    assert sorted(ran) == [0, 1, 2, 10, 11, 12]
    async with app:
        assert await app.jobs.count() == {"completed": 6}


async def test_whoever_enters_an_open_app_shares_it_and_the_last_one_closes_it(dsn):
    app = rj.App(dsn, migrate=True)
    async with app:
        store = app.store
        async with app:
            assert app.store is store
        assert app.store is store
    with pytest.raises(rj.NotOpen):
        _ = app.store


async def test_many_may_open_an_app_at_the_same_time(dsn):
    app = rj.App(dsn, migrate=True)

    async def use():
        async with app:
            return await app.jobs.count()

    assert await asyncio.gather(*(use() for _ in range(10))) == [{}] * 10


async def test_an_app_that_could_not_be_opened_may_be_tried_again(dsn):
    app = rj.App(dsn)
    for _ in range(2):
        with pytest.raises(rj.NotMigrated, match="rxjobs migrate"):
            async with app:
                pass
    assert await app.migrate()
    async with app:
        assert await app.jobs.count() == {}


async def test_migrate_needs_no_open_app_and_does_nothing_the_second_time(dsn):
    app = rj.App(dsn)
    assert await app.migrate()
    async with app:
        assert await app.migrate() == []
        assert app.dsn == dsn


async def test_two_apps_in_one_process_run_their_own_jobs(dsn):
    """Even on one queue of one schema: each fetches the types it knows."""
    ran = []
    apps = [rj.App(dsn, migrate=True, poll_seconds=0.1) for _ in range(2)]
    for place, app in enumerate(apps):
        app.job(name=f"work-{place}")(recorder(ran, place))
    async with apps[0].running(), apps[1].running():
        assert apps[0].id != apps[1].id
        for n in range(20):
            app = apps[n % 2]
            await app.enqueue(app.definitions[f"work-{n % 2}"].new(n))
        await until(lambda: len(ran) == 20)
    assert sorted(ran) == [(n % 2, n) for n in sorted(range(20), key=lambda n: (n % 2, n))]


def recorder(ran, place):
    async def work(n: int) -> None:
        ran.append((place, n))

    return work


async def test_two_schemas_in_one_database_never_meet(dsn):
    ran = []
    apps = [rj.App(dsn, migrate=True, schema=schema, poll_seconds=0.1) for schema in ("rxjobs", "order")]
    for place, app in enumerate(apps):
        app.job(name="work")(recorder(ran, place))
    async with apps[0].running(), apps[1]:
        await apps[0].definitions["work"].enqueue(1)
        await apps[1].definitions["work"].enqueue(2)
        await until(lambda: apps[0].jobs.count(state="completed"))
        assert await apps[1].jobs.count() == {"available": 1}
    assert ran == [(0, 1)]


async def test_an_app_that_runs_already_is_not_run_twice_at_once(dsn):
    """Its jobs would take each other's places: a second node of one process is a second app."""
    app = rj.App(dsn, migrate=True)

    @app.job
    async def work() -> None: ...

    async with app.running():
        with pytest.raises(rj.RxJobsError, match="runs already"):
            async with app.running():
                pass
        assert await work.enqueue()
    async with app.running():
        pass


async def test_a_node_leaves_nothing_behind(dsn):
    app = rj.App(dsn, migrate=True, heartbeat_seconds=0.1, lease_seconds=1)

    @app.job
    async def work() -> None: ...

    connection = await asyncpg.connect(dsn)
    async with app.running():
        (node,) = await connection.fetch("SELECT id, label, pid FROM rxjobs.nodes")
        assert node["id"] == app.id
    assert await connection.fetch("SELECT FROM rxjobs.nodes") == []
    ours = "datname = current_database() AND application_name = 'rxjobs'"
    await until(lambda: connection.fetchval(f"SELECT count(*) = 0 FROM pg_stat_activity WHERE {ours}"))
    await connection.close()


async def test_a_queue_no_job_type_names_is_an_error(dsn):
    app = rj.App(dsn, migrate=True)

    @app.job(queue="mail")
    async def work() -> None: ...

    with pytest.raises(rj.UnknownQueue, match="'post'; there are mail"):
        app.default_pipelines({"post": 5})


async def test_an_app_without_anything_to_run_says_so(dsn):
    with pytest.raises(rj.InvalidOption, match=r"nothing to run.*@app\.job"):
        async with rj.App(dsn, migrate=True).running():
            pass


def test_two_jobs_of_one_name_are_refused():
    app = rj.App("postgresql://nowhere")

    @app.job(name="send")
    async def one() -> None: ...

    with pytest.raises(rj.DuplicateJobType, match="two job types are named 'send'"):

        @app.job(name="send")
        async def two() -> None: ...


@pytest.mark.parametrize(
    "schema", ["", "Upper", "1st", "a" * 49, "a-b", 'a"b', "a;b", "a b", "ä", "a\n", "a\x00", "rxjobs.jobs", "$1"]
)
def test_a_schema_is_a_plain_name_or_refused(schema, monkeypatch):
    monkeypatch.delenv("RXJOBS_SCHEMA", raising=False)
    with pytest.raises(rj.InvalidOption, match="schema"):
        rj.App("postgresql://nowhere", schema=schema)
