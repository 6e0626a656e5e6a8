from __future__ import annotations

from rxjobs.store import migrate

STEPS = [name for _, name, _ in migrate.steps()]


def test_migrate_makes_the_schema_and_twice_does_no_harm(bare):
    first, second = bare("migrate"), bare("migrate")
    assert (first.code, first.out) == (0, f"schema rxjobs: {len(STEPS)} migrations applied: {', '.join(STEPS)}\n")
    assert (second.code, second.out) == (0, "schema rxjobs is up to date\n")
    assert bare.states() == {}


def test_migrate_answers_in_json(bare):
    assert bare("migrate", "--schema", "other", "--json").document == {"schema": "other", "applied": STEPS}
    assert bare("migrate", "--schema", "other", "--json").document == {"schema": "other", "applied": []}


def test_the_printed_sql_makes_the_same_schema_and_needs_no_database(bare):
    ran = bare("migrate", "--print", environment={"RXJOBS_DSN": "postgresql://127.0.0.1:1/none"})
    assert ran.code == 0
    assert bare("migrate", "--print", "--json").document == {"schema": "rxjobs", "sql": ran.out}
    run_script(bare.dsn, ran.out)
    assert bare("migrate").out == "schema rxjobs is up to date\n"


def run_script(dsn, sql):
    import asyncio

    import asyncpg

    async def run():
        connection = await asyncpg.connect(dsn)
        await connection.execute(sql)
        await connection.close()

    asyncio.run(run())
