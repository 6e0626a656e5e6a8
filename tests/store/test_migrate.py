import asyncio
import hashlib
from pathlib import Path

import asyncpg
import pytest

from rxjobs import errors
from rxjobs.store import migrate as migrations
from rxjobs.store.statements import with_schema
from rxjobs.store.store import Store

SCHEMAS = Path(__file__).parent / "schemas"

RELEASED = {
    "jobs": "5e8dd07ec51c6b2a01883770f62ea97699ba75b93f8971c4a879e64f3129730c",
    "catch_up": "82b4eff5a5e7faab4732218636d00680edbdc3ce2b8fb2e684c6c6e86e87b3e7",
    "unique": "e1e202880bd5642428d3255b810ed7bf271cf8d80d5e6edf2ccf2ebd36771741",
    "cron": "bfe0f48e7874075aa89061d9a6a353b880afd62da9c6a0b43b8dfe50caecd96c",
    "results": "6246b7c05cb893fd7afbd15ea6cdd826fe3c75fb600d9c061a0c668f498a37e8",
    "limits": "da1c57762570d1953b23ebd0c2ac926c2c74d9f35aa46de54d3af794084f0834",
    "breakers": "d08a11a35992dc846b5e7ec4d38a6869fbfa11afbda1a7987f574eb89cd0a77e",
    "enqueue": "84611d68fd5db9a7043646f2f99ff97651d76023b5319a026822d4fbfd8f05d6",
    "nodes": "92a14dec995bc13341a5425a38879d3cbed2fb6f6a0a823a09154afa96eebe62",
    "keys": "e2bd7399b688ae1bb10b52b47f4d8d2520437a4d401f35d392b9b11575959859",
    "turns": "914d4dc56fbaccb56877358ae22a38fff826c8b785c65ec2838611273b657cc9",
    "limited": "85075eb934d02c9f55c1333d172c899cfe2dbadaf41d440ff32fd78957000cb9",
}
"""What others may have run already: steps whose text must not change any more; whatever is missing goes into a new one."""

SHAPE = """
SELECT 'column' AS kind, format('%s.%s %s %s %s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
       pg_get_expr(d.adbin, d.adrelid)) AS what
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE c.relnamespace = $1::regnamespace AND a.attnum > 0
UNION ALL
SELECT 'class', format('%s %s %s', relname, relkind, reloptions) FROM pg_class WHERE relnamespace = $1::regnamespace
UNION ALL
SELECT 'constraint', format('%s %s', conname, pg_get_constraintdef(oid)) FROM pg_constraint WHERE connamespace = $1::regnamespace
UNION ALL
SELECT 'index', indexdef FROM pg_indexes WHERE schemaname = $1
UNION ALL
SELECT 'view', definition FROM pg_views WHERE schemaname = $1
UNION ALL
SELECT 'type', format('%s %s', t.typname, e.enumlabel) FROM pg_type t JOIN pg_enum e ON e.enumtypid = t.oid
WHERE t.typnamespace = $1::regnamespace
UNION ALL
SELECT 'function', pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = $1::regnamespace
UNION ALL
SELECT 'comment', description FROM pg_description
ORDER BY 1, 2
"""


@pytest.fixture
async def bare(dsn):
    connection = await asyncpg.connect(dsn)
    yield connection
    await connection.close()


async def shape(connection, schema):
    """All that pg_catalog knows of a schema, its own name left out."""
    rows = await connection.fetch(SHAPE.replace("$1", f"'{schema}'"))
    return [(row["kind"], row["what"].replace(schema, "S")) for row in rows if row["what"] is not None]


async def test_a_second_run_does_nothing(bare):
    assert await migrations.migrate(bare, "rxjobs") == [name for _, name, _ in migrations.steps()]
    before = await shape(bare, "rxjobs")
    assert await migrations.migrate(bare, "rxjobs") == []
    assert await shape(bare, "rxjobs") == before
    await migrations.check(bare, "rxjobs")


async def test_of_many_at_once_one_does_it_and_the_others_wait(dsn):
    connections = [await asyncpg.connect(dsn) for _ in range(5)]
    done = await asyncio.gather(*(migrations.migrate(connection, "rxjobs") for connection in connections))
    assert sorted(map(len, done)) == [0, 0, 0, 0, len(migrations.steps())]
    here = "database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    assert not await connections[0].fetch(f"SELECT FROM pg_locks WHERE locktype = 'advisory' AND {here}")
    for connection in connections:
        await connection.close()


async def test_the_script_makes_what_migrate_makes(bare, databases):
    await migrations.migrate(bare, "rxjobs")
    other = await asyncpg.connect(by_hand := databases.take())
    await other.execute(migrations.script("rxjobs"))
    await migrations.check(other, "rxjobs")
    assert await migrations.migrate(other, "rxjobs") == []
    assert await shape(other, "rxjobs") == await shape(bare, "rxjobs")
    await other.close()
    databases.give_back(by_hand)


async def test_it_works_under_any_name_it_takes_and_touches_nothing_else(bare):
    await migrations.migrate(bare, "rxjobs")
    for name in ("order", "order_", "_", "a" * 48, "jobs2"):
        await migrations.migrate(bare, name)
        await migrations.check(bare, name)
    assert await shape(bare, "jobs2") == await shape(bare, "order_")
    assert await shape(bare, "public") == [row for row in await shape(bare, "public") if row[0] == "comment"]


async def test_a_step_that_fails_leaves_nothing(bare, monkeypatch):
    broken = (9000, "broken", "CREATE TABLE {schema}.half (); SELECT 1 / 0;")
    steps = [*migrations.steps(), broken]
    monkeypatch.setattr(migrations, "steps", lambda: steps)
    with pytest.raises(asyncpg.DivisionByZeroError):
        await migrations.migrate(bare, "rxjobs")
    assert not await bare.fetchval("SELECT count(*) FROM pg_namespace WHERE nspname = 'rxjobs'")


async def test_a_schema_is_brought_up_from_any_older_version(bare, databases):
    steps = migrations.steps()
    await migrations.migrate(bare, "rxjobs")
    for already in range(len(steps)):
        connection = await asyncpg.connect(dsn := databases.take())
        await connection.execute(with_schema(migrations._GROUND, "rxjobs"))
        for number, name, sql in steps[:already]:
            await connection.execute(with_schema(sql + migrations._done(number, name), "rxjobs"))
        with pytest.raises(errors.NotMigrated, match=f"version {already} and this .* needs {steps[-1][0]}: run `rxjobs migrate`"):
            await migrations.check(connection, "rxjobs")
        assert await migrations.migrate(connection, "rxjobs") == [name for _, name, _ in steps[already:]]
        assert await shape(connection, "rxjobs") == await shape(bare, "rxjobs")
        await connection.close()
        databases.give_back(dsn)


@pytest.mark.parametrize("version", [9, 10])
async def test_a_queue_that_was_limited_by_keys_before_its_claims_were_made_anew_is_claimed_from(bare, version):
    await bare.execute(with_schema(migrations._GROUND, "rxjobs"))
    for number, name, sql in migrations.steps():
        if number <= version:
            await bare.execute(with_schema(sql + migrations._done(number, name), "rxjobs"))
    await bare.execute("INSERT INTO rxjobs.limits (queue, path, key_concurrency) VALUES ('mail', '{tenant}', 2)")
    await bare.execute("SELECT rxjobs.index_keys('mail', '{tenant}')")
    await bare.execute(
        "INSERT INTO rxjobs.live_jobs (type, queue, args) SELECT 'work', 'mail', '{\"tenant\": 7}' FROM generate_series(1, 3)"
    )
    await bare.execute(
        "INSERT INTO rxjobs.nodes (id, label, pid, expires_at) VALUES (gen_random_uuid(), '', 1, now() + interval '1 h')"
    )
    claim = (
        "SELECT count(*) FROM rxjobs.claim_limited('mail', $1, '{work}', (SELECT id FROM rxjobs.nodes), '{}', '{}', "
        "array_fill('-infinity'::timestamptz, '{10}'), array_fill(0, '{10}'))"
    )
    assert await bare.fetchval(claim, 1) == 1
    await migrations.migrate(bare, "rxjobs")
    assert [await bare.fetchval(claim, 9) for _ in range(2)] == [1, 0]
    made = await bare.fetch("SELECT proname FROM pg_proc WHERE proname ~ '[0-9a-f]{32}$'")
    assert [row["proname"][:9] for row in made] == ["claim_of_"]


async def test_a_schema_that_the_first_step_made_before_it_was_finished_catches_up(bare, databases):
    """Also that of the first day, when an embedded server may have kept it since: its jobs stay."""
    await migrations.migrate(bare, "rxjobs")
    old = await asyncpg.connect(dsn := databases.take())
    await old.execute(with_schema(migrations._GROUND, "rxjobs"))
    await old.execute(with_schema((SCHEMAS / "first.sql").read_text("utf-8") + migrations._done(1, "jobs"), "rxjobs"))
    await old.execute("INSERT INTO rxjobs.live_jobs (type) VALUES ('old')")
    await migrations.migrate(old, "rxjobs")
    assert await shape(old, "rxjobs") == await shape(bare, "rxjobs")
    assert await old.fetchval("SELECT type FROM rxjobs.live_jobs") == "old"
    await old.close()
    databases.give_back(dsn)


def test_a_step_that_others_may_have_run_is_as_it_was():
    text = {name: hashlib.sha256(sql.encode()).hexdigest() for _, name, sql in migrations.steps()}
    assert {name: text.get(name) for name in RELEASED} == RELEASED


async def test_a_schema_that_is_not_there_is_refused_with_advice(bare):
    for schema in ("rxjobs", "public"):
        with pytest.raises(errors.NotMigrated, match=f"'{schema}' is not there: run `rxjobs migrate`"):
            await migrations.check(bare, schema)


async def test_a_schema_of_a_newer_rxjobs_is_refused_and_not_touched(bare):
    await migrations.migrate(bare, "rxjobs")
    await bare.execute("INSERT INTO rxjobs.migrations (version, name) VALUES (9999, 'later')")
    before = await shape(bare, "rxjobs")
    for refuse in (migrations.check, migrations.migrate):
        with pytest.raises(errors.SchemaTooNew, match=r"version 9999.*upgrade rxjobs"):
            await refuse(bare, "rxjobs")
    assert await shape(bare, "rxjobs") == before


async def test_a_schema_that_was_only_added_to_serves_the_code_of_before(bare):
    """F33: in a deployment the old nodes go on, and may be started again, when the first new one has migrated."""
    await migrations.migrate(bare, "rxjobs")
    newest = migrations.steps()[-1][0]
    await bare.execute("INSERT INTO rxjobs.migrations (version, name) VALUES ($1, 'expand')", newest + 1)
    await migrations.check(bare, "rxjobs")
    assert await migrations.migrate(bare, "rxjobs") == []
    await bare.execute("INSERT INTO rxjobs.migrations (version, name) VALUES ($1, 'contract')", (newest // 1000 + 1) * 1000)
    with pytest.raises(errors.SchemaTooNew, match="upgrade rxjobs on this node"):
        await migrations.check(bare, "rxjobs")


async def test_a_lock_that_somebody_keeps_is_not_waited_for_without_end(bare, dsn, monkeypatch):
    """F33: whoever asks for the table meanwhile waits behind the one who waits, so that it is short and then tried again."""
    assert migrations.LOCK_TIMEOUT == "3s"
    monkeypatch.setattr(migrations, "LOCK_TIMEOUT", "100ms")
    monkeypatch.setattr(migrations, "BACK_OFF", (0.01, 0.02))
    other = await asyncpg.connect(dsn)
    async with other.transaction():
        await other.execute("SELECT pg_advisory_xact_lock(hashtextextended('rxjobs.' || 'rxjobs', 0))")
        with pytest.raises(asyncpg.LockNotAvailableError):
            await migrations.migrate(bare, "rxjobs")
        monkeypatch.setattr(migrations, "BACK_OFF", (0.1,) * 100)
        migrating = asyncio.ensure_future(migrations.migrate(bare, "rxjobs"))
        await asyncio.sleep(0.3)
        assert not migrating.done()
    assert await migrating
    assert await other.fetchval("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 0
    await other.close()


async def test_running_statements_survive_an_altered_table(connection, store, node):
    """Cached plans and cached types are invalid then, and asyncpg says so of a connection that has used them."""
    for _ in range(2):
        await store.fetch_jobs("default", 1, ["work"], node)
        await store.get_jobs([1])
    await connection.execute("ALTER TABLE rxjobs.live_jobs ADD COLUMN later integer")
    try:
        assert await store.fetch_jobs("default", 1, ["work"], node) == []
        assert await Store.get_jobs(store, [1]) == []
    finally:
        await connection.execute("ALTER TABLE rxjobs.live_jobs DROP COLUMN later")
