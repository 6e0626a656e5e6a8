"""A source of your own that limits itself: at most so many jobs a second, whatever is asked for.

It has a source in it, whose jobs it gives as it may. What it was asked for and has not given is not forgotten: the
pipeline knows that there is room, and asks again when the source wakes it. No database is needed.

python examples/06_a_source_that_limits_itself.py
"""

import asyncio
import time

import reactivex as rx

import rxjobs as rj


class LimitedSource:
    """Gives at most `n` jobs of another source in every period of `per` seconds."""

    def __init__(self, source: rj.Source, n: int, per: float) -> None:
        self.source = source
        self.n = n
        self.per = per
        self.period = 0
        self.given = 0

    @property
    def wakes(self):
        """Whatever wakes the source inside, and the beginning of each period; it ends when the source inside does."""
        inside = self.source.wakes.pipe(rx.operators.share())
        ended = inside.pipe(rx.operators.ignore_elements(), rx.operators.materialize())
        return rx.merge(inside, rx.interval(self.per).pipe(rx.operators.take_until(ended)))

    async def fetch(self, n: int) -> list[rj.Job]:
        period = int(time.monotonic() / self.per)
        if period != self.period:
            self.period, self.given = period, 0
        jobs = await self.source.fetch(min(n, self.n - self.given)) if self.given < self.n else []
        self.given += len(jobs)
        return jobs

    async def settle(self, finished: list[rj.Finished]) -> None:
        await self.source.settle(finished)


def event(n: int) -> rj.Job:
    return rj.Job(id=n, type="event", args={"n": n})


async def main() -> None:
    limited = LimitedSource(rj.IterableSource(range(1, 13), event), 3, per=0.2)
    times = []
    await rj.pull(limited, max_demand=10).pipe(
        rj.tap(lambda job: times.append(time.monotonic())),
        rj.complete(),
        rj.ack(),
        rx.operators.to_future(),
    )
    print(len(times), "jobs")
    periods = {int(at / 0.2) for at in times}
    print("in four periods or more:", len(periods) >= 4)


if __name__ == "__main__":
    asyncio.run(main())
