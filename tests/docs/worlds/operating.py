# a shop on one node: letters that go through four stages, a picture, and a bank that does not answer
import importlib

from tests.waiting import until

ground.reader.write(
    "shop.py",
    f"""
import rxjobs as rj

app = rj.App({dsn!r}, migrate=True, node="worker-1", heartbeat_seconds=0.2, poll_seconds=0.1)


@app.job(name="send_letter", queue="mail", max_attempts=5, backoff=lambda attempt, error: 3600)
async def send_letter(n: int) -> None:
    if n % 40 == 0:
        raise ValueError(f"letter {{n}} has no address")


@app.job(name="render", queue="media")
async def render(n: int) -> None: ...


@app.job(name="charge", queue="payments", breaker=rj.Breaker(fail_max=1, reset_timeout=3600), backoff=lambda attempt, error: 3600)
async def charge(n: int) -> None:
    raise ConnectionError("the bank does not answer")


async def look_up(job):
    return {{"name": "Ada"}}


app.pipeline(
    app.source("mail", max_demand=200).pipe(
        rj.enrich(look_up, concurrency=20, name="look up"), rj.rate_limit(90), rj.execute(concurrency=40), rj.ack()
    ),
    "mail",
)
app.pipeline(app.source("media", max_demand=16).pipe(rj.execute(concurrency=6), rj.ack()), "media")
app.pipeline(app.source("payments", max_demand=16).pipe(rj.execute(concurrency=4), rj.ack()), "payments")
""",
)
shop = importlib.import_module("shop")
await enter(shop.app.running())
for new in (*map(shop.send_letter.new, (1, 2, 3, 40)), shop.render.new(1), shop.charge.new(1)):
    await shop.app.enqueue(new)


async def are_seen() -> bool:
    """Whether all have been run and written down, and the node has told of that."""
    [node] = await shop.app.nodes.list()
    breakers = await shop.app.breakers.list()
    held = sum(pipeline.held for pipeline in node.pipelines)
    has_told = (node.completed, node.failed, len(node.pipelines), held) == (4, 2, 3, 0) and node.loop_delay is not None
    return has_told and any(one.state == "open" for one in breakers)


await until(are_seen)
