"""A source of your own that buffers: events come when they like, and wait in it until somebody has room for them.

Whoever publishes is told when the buffer is full, and decides himself: wait, or do without. No database is needed.

python examples/07_a_source_that_buffers.py
"""

import asyncio
from collections import deque

import reactivex as rx
from reactivex import operators as ops

import rxjobs as rj


class Mailbox:
    """Holds up to `size` events that nobody has asked for yet."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.waiting: deque[rj.Job] = deque()
        self.wakes = rx.subject.Subject()
        self.room = asyncio.Event()
        self.room.set()
        self.ids = 0

    def offer(self, text: str) -> bool:
        """Take an event, unless there is no room."""
        if len(self.waiting) == self.size:
            return False
        self.ids += 1
        self.waiting.append(rj.Job(id=self.ids, type="event", args={"text": text}))
        self.wakes.on_next(text)
        return True

    async def publish(self, text: str) -> None:
        """Take an event as soon as there is room."""
        while not self.offer(text):
            self.room.clear()
            await self.room.wait()

    async def fetch(self, n: int) -> list[rj.Job]:
        jobs = [self.waiting.popleft() for _ in range(min(n, len(self.waiting)))]
        if jobs:
            self.room.set()
        return jobs

    async def settle(self, finished: list[rj.Finished]) -> None:
        """An event that could not be worked on now comes first the next time; any other is done."""
        self.waiting.extendleft(one.job for one in finished if isinstance(one.outcome, rj.Release))


async def slowly(job: rj.Job) -> None:
    await asyncio.sleep(0.01)


async def main() -> None:
    mailbox, done = Mailbox(5), []
    print("taken without anybody listening:", sum(mailbox.offer(f"early {n}") for n in range(8)), "of 8")
    pipeline = rj.pull(mailbox, max_demand=2).pipe(rj.tap(slowly), rj.complete(), rj.ack(), ops.take(25))
    finished = pipeline.pipe(ops.do_action(lambda one: done.append(one.job.args["text"])), ops.to_future())
    for n in range(20):
        await mailbox.publish(f"event {n}")  # waits for the pipeline, which takes two at a time
    await finished
    print("worked on:", len(done), "the first", done[0], "the last", done[-1])


if __name__ == "__main__":
    asyncio.run(main())
