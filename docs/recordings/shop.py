"""What runs while `rxjobs top` is recorded: letters through five stages, pictures that take long, and a bank that is away."""

import asyncio
import random
import time

import rxjobs as rj

app = rj.App()


@app.job(name="send_letter", queue="mail", max_attempts=5, backoff=lambda attempt, error: 2, breaker=rj.Breaker(fail_max=50))
async def send_letter(n: int) -> None:
    await asyncio.sleep(random.uniform(0.05, 0.3))  # noqa: S311 - no secret
    if n % 40 == 0:
        raise ValueError(f"letter {n} has no address")


@app.job(name="render", queue="media")
def render(n: int) -> None:
    time.sleep(random.uniform(0.2, 1.2))  # noqa: S311


@app.job(name="charge", queue="payments", breaker=rj.Breaker(fail_max=3, reset_timeout=60), backoff=lambda attempt, error: 5)
async def charge(n: int) -> None:
    raise ConnectionError("the bank does not answer")


async def look_up(job: rj.Job) -> dict[str, str]:
    await asyncio.sleep(0.04)
    return {"name": "Ada"}


app.pipeline(
    app.source("mail", max_demand=200).pipe(
        rj.filter(lambda job: job.args["n"] % 9 > 0, otherwise=rj.Cancel("unsubscribed"), name="subscribed"),
        rj.enrich(look_up, concurrency=20, name="look up"),
        rj.rate_limit(90, name="90 a second"),
        rj.execute(concurrency=40),
        rj.ack(),
    ),
    name="mail",
)
app.pipeline(app.source("media", max_demand=16).pipe(rj.execute(concurrency=6), rj.ack()), name="media")
app.pipeline(app.source("payments", max_demand=16).pipe(rj.execute(concurrency=4), rj.ack()), name="payments")


async def fill() -> None:
    """Enqueue work for a minute or two."""
    async with app:
        await app.enqueue_many([send_letter.new(n) for n in range(12_000)])
        await app.enqueue_many([render.new(n) for n in range(900)])
        await app.enqueue_many([charge.new(n) for n in range(40)])


if __name__ == "__main__":
    asyncio.run(fill())
