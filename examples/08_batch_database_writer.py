"""A sink that writes many jobs to a database by one statement. Each job still ends by itself: a bad row costs no other.

A job is acked after its row is committed, so that none is lost; should the process die in between, it comes again, and
`ON CONFLICT` makes that harmless.

python examples/08_batch_database_writer.py
"""

import asyncio

import asyncpg
from reactivex import operators as ops

import rxjobs as rj

app = rj.App()

TABLE = "CREATE TABLE IF NOT EXISTS reading (job bigint PRIMARY KEY, sensor text NOT NULL, celsius float8 NOT NULL)"
INSERT = """
INSERT INTO reading SELECT * FROM unnest($1::bigint[], $2::text[], $3::float8[])
ON CONFLICT (job) DO NOTHING
"""


@app.job(name="reading.store", queue="readings")
async def store(sensor: str, celsius: float) -> None:
    """Jobs of this type are stored many at once, by the pipeline below."""


async def write(jobs: list[rj.Job]) -> dict[int, rj.Outcome]:
    """Write those that can be written, and say of the others why not; what is raised here fails all, and they are tried again."""
    bad = {job.id: rj.Discard("below absolute zero") for job in jobs if job.args["celsius"] < -273.15}
    good = [job for job in jobs if job.id not in bad]
    connection = await asyncpg.connect(app.dsn)
    try:
        rows = zip(*((job.id, job.args["sensor"], job.args["celsius"]) for job in good), strict=True)
        await connection.execute(INSERT, *(list(column) for column in rows))
    finally:
        await connection.close()
    print("one statement for", len(good), "rows")
    return bad


readings = app.source("readings", max_demand=100).pipe(
    rj.buffer(20, timespan=0.2),
    rj.execute_batch(write, timeout=10),
    rj.ack(),
)


async def main() -> None:
    async with app:
        connection = await asyncpg.connect(app.dsn)
        await connection.execute(TABLE)
        before = await connection.fetchval("SELECT count(*) FROM reading")
        await app.enqueue_many([store.new(f"sensor {n % 3}", -300.0 if n == 7 else 20.0 + n / 10) for n in range(50)])
        async with app.running(readings):
            ended = app.events.pipe(ops.filter(lambda event: event.name in ("job.stop", "job.exception")))
            await ended.pipe(ops.take(50), ops.to_future())
        print("rows written:", await connection.fetchval("SELECT count(*) FROM reading") - before)
        (discarded,) = await app.jobs.list(queue="readings", state="discarded", limit=1)
        print("not written:", discarded.args, discarded.errors[0]["message"])
        await connection.close()


if __name__ == "__main__":
    asyncio.run(main())
