# the module shop of the README, a source, and what jobs are enriched with

from reactivex import Observable
from reactivex import operators as ops

import rxjobs.testing
from tests.docs.blocks import all_blocks

(shop,) = [block.code for block in all_blocks()["README.md"] if block.title == "shop.py"]
ground.environ["RXJOBS_DSN"] = dsn
ground.reader.write("shop.py", shop)
app = rj.App(dsn)


def MySource(n):
    return rj.MemorySource(rj.testing.a_job() for _ in range(n))


async def messages():
    yield "one"


async def handle(message): ...


async def acknowledge(finished): ...


async def load_customer(job):
    return {"customer": "Ada"}


@app.job(queue="mail")
async def send(domain: str) -> None: ...
