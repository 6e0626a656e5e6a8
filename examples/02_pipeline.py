"""A pipeline of stages: filter, enrich, buffer, and one call for many jobs.

python examples/02_pipeline.py
"""

import asyncio

from reactivex import operators as ops

import rxjobs as rj

app = rj.App()

NAMES = {1: "Ada", 2: "Grace", 3: "Edsger", 4: "Barbara", 5: "Alan"}


@app.job(name="welcome.send", queue="welcome")
async def send_welcome(user_id: int) -> None:
    """Jobs of this type are sent many at once, by the pipeline below."""


async def load_profile(job: rj.Job) -> dict[str, str]:
    return {"name": NAMES[job.args["user_id"]]}


async def send_all(jobs: list[rj.Job]) -> None:
    print("one mail for", ", ".join(job.assigns["name"] for job in jobs))


welcome = app.source("welcome", max_demand=200).pipe(
    rj.filter(lambda job: job.args["user_id"] > 0, otherwise=rj.Cancel("no such user")),
    rj.enrich(load_profile, concurrency=20),
    rj.buffer(3, 0.2),
    rj.execute_batch(send_all),
    rj.ack(),
    ops.do_action(lambda finished: print("acked:", finished.job.args, type(finished.outcome).__name__)),
)


async def main() -> None:
    async with app.running(welcome):
        acked = app.events.pipe(ops.filter(lambda event: event.name == "job.stop"), ops.take(len(NAMES)), ops.to_future())
        await app.enqueue_many([send_welcome.new(user_id=user_id) for user_id in [*NAMES, -1]])
        await acked


if __name__ == "__main__":
    asyncio.run(main())
