"""Declare a job, enqueue it, run it.

python examples/01_hello.py
"""

import asyncio

from reactivex import operators as ops

import rxjobs as rj

app = rj.App()  # RXJOBS_DSN, or else an embedded PostgreSQL


@app.job(name="hello.greet", queue="hello")
async def greet(name: str) -> None:
    print(f"Hello, {name}! This is attempt {rj.current_job().attempt}.")


async def main() -> None:
    async with app.running():
        ended = app.events.pipe(ops.filter(lambda event: event.name == "job.stop"), ops.first(), ops.to_future())
        row = await greet.enqueue(name="Ada")
        print(f"job {row.id} is {row.state}")
        await ended
    async with app:
        print(f"job {row.id} is {(await app.jobs.get(row.id)).state}")


if __name__ == "__main__":
    asyncio.run(main())
