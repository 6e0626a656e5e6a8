# a node that runs, a job that has said how far it is, and one with the number that the page names
from dataclasses import dataclass

import asyncpg

app = rj.App(dsn, migrate=True)


@dataclass
class Picture:
    width: int


@app.job(queue="mail", name="shop.jobs.send_digest")
async def send_digest() -> None: ...


@app.job
def halfway() -> None:
    rj.current_job().progress(0.25, "converting")


def steps(path):
    return [(1, 4)]


await enter(app.running())
ran = await halfway.enqueue()
await ran.result(timeout=30)
job_id = ran.id
waits = await send_digest.options(delay=3600).enqueue()
pool = await enter(asyncpg.create_pool(dsn, min_size=1, max_size=2))
await pool.execute("CREATE TABLE orders (id int, paid bool)")
await pool.execute("UPDATE rxjobs.live_jobs SET id = 42 WHERE id = $1", waits.id)
