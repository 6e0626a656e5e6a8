"""Three networks fan in, one stage reads the posts, they are stored, and go on to a writer, to metrics and to a notifier, at the
pace of the slowest. The posts were recorded (posts.jsonl). No database is needed.

python examples/11_social_media.py
"""

import asyncio
import json
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import reactivex as rx
from reactivex import operators as ops

import rxjobs as rj

POSTS = Path(__file__).with_name("posts.jsonl")
GLAD, SAD = {"great", "love", "thank", "free"}, {"bad", "broken", "awful", "terrible", "lost"}

database = sqlite3.connect(":memory:", check_same_thread=False)
database.execute("CREATE TABLE post (id INTEGER PRIMARY KEY, network, author, text, mood)")
tags, letters, page = Counter[str](), list[str](), Path(tempfile.mkdtemp(prefix="rxjobs-example-"), "page.txt")


async def posts(network: str, pause: float) -> AsyncIterator[rj.Job]:
    """A network, as if it were listened to: each has its own pace."""
    for post in map(json.loads, POSTS.read_text("utf-8").splitlines()):
        if post["network"] == network:
            await asyncio.sleep(pause)
            yield rj.Job(id=post["id"], type="post", queue=network, args=post)


def read(job: rj.Job) -> dict[str, Any]:
    words = [word.strip(".,!?:").lower() for word in job.args["text"].split()]
    mood = sum(word in GLAD for word in words) - sum(word in SAD for word in words)
    return {"tags": [word for word in words if word.startswith("#")], "mood": mood}


def store(job: rj.Job) -> None:
    database.execute("INSERT INTO post VALUES (:id, :network, :author, :text, :mood)", {**job.args, "mood": job.assigns["mood"]})


def write(jobs: list[rj.Job]) -> None:
    with page.open("a", encoding="utf-8") as file:
        file.writelines(f"{job.args['author']}: {job.args['text']}\n" for job in jobs)


networks = [("harbour", 0.001), ("square", 0.002), ("meadow", 0.003)]
writer = rj.branch(rj.buffer(10, timespan=0.05), rj.execute_batch(write))
metrics = rj.branch(ops.do_action(lambda job: tags.update(job.assigns["tags"])), rj.complete())
notifier = rj.branch(
    rj.filter(lambda job: job.assigns["mood"] < 0, otherwise=rj.Complete()),  # the others are not for this branch
    rj.tap(lambda job: letters.append(f"{job.args['author']} is not glad: {job.args['text']}")),
    rj.complete(),
)
pipeline = rx.merge(*(rj.pull(rj.AsyncIterableSource(posts(*each)), max_demand=20) for each in networks)).pipe(
    rj.enrich(read, concurrency=4), rj.tap(store, concurrency=1), rj.broadcast(writer, metrics, notifier), rj.ack()
)


async def main() -> None:
    print("posts:", await pipeline.pipe(ops.count(), ops.to_future()))
    print("stored:", dict(database.execute("SELECT network, count(*) FROM post GROUP BY network ORDER BY network")))
    print("most talk is about", ", ".join(tag for tag, _ in tags.most_common(2)))
    print("letters:", len(letters), *sorted(letters)[:2], sep="\n")


if __name__ == "__main__":
    asyncio.run(main())
    print("written:", len(page.read_text("utf-8").splitlines()))
    shutil.rmtree(page.parent)
    database.close()
