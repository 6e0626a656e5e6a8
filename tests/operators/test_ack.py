"""Writing outcomes down, on the time of a TestScheduler that the source takes its time by."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from reactivex import operators as ops
from reactivex.notification import OnCompleted, OnNext
from reactivex.testing import TestScheduler

import rxjobs as rj
from rxjobs.testing import MemorySource, a_job, marbles, virtually
from rxjobs.testing.watched import runs


class TwoSecondsToWrite(MemorySource):
    """A source that takes two seconds to write outcomes down, and fails at times."""

    def __init__(self, *failures: int) -> None:
        super().__init__()
        self.writes: list[str] = []
        """The letters of the jobs that were written together."""
        self._failures = set(failures)

    async def settle(self, finished: list[rj.Finished]) -> None:
        self.writes.append("".join(one.job.args["letter"] for one in finished))
        await asyncio.sleep(2)
        if len(self.writes) in self._failures:
            raise ConnectionError("no database")
        await super().settle(finished)


def acked(source: TwoSecondsToWrite, *, end: float, **pushed: float) -> list[tuple[float, str]]:
    """What comes out of `rj.ack()`, and when: jobs are pushed, by letter, at a time, and the source is closed at another."""
    time = TestScheduler()
    seen = time.create_observer()

    def at(seconds: float, action: Callable[[], object]) -> None:
        time.schedule_absolute(seconds, lambda scheduler, state: action() and None)

    async def main() -> None:
        for letter, seconds in pushed.items():
            at(seconds, partial(source.push, a_job(args={"letter": letter})))
        at(end, source.close)
        pipeline = rj.pull(source, max_demand=9).pipe(rj.complete(), rj.ack(), ops.do(seen))
        async with runs(pipeline) as observed:
            await observed.running.wait()

    virtually(main(), scheduler=time)
    came = list[tuple[float, str]]()
    for one in seen.messages:
        match one.value:
            case OnNext(value=finished):
                came.append((round(one.time, 3), finished.job.args["letter"].upper()))
            case OnCompleted():
                came.append((round(one.time, 3), "|"))
    return came


def test_what_is_finished_goes_on_once_it_is_written_and_what_gathers_meanwhile_goes_into_the_next_write():
    source = TwoSecondsToWrite()
    assert acked(source, a=1, b=2, c=2.5, end=9) == [(3, "A"), (5, "B"), (5, "C"), (9, "|")]
    assert source.writes == ["a", "bc"]


def test_it_ends_after_its_last_write():
    assert acked(TwoSecondsToWrite(), a=1, end=1.5) == [(3, "A"), (3, "|")]


def test_what_could_not_be_written_goes_on_once_it_is_with_what_gathered_meanwhile():
    source = TwoSecondsToWrite(1)
    assert acked(source, a=1, b=2, end=2) == [(5.1, "A"), (5.1, "B"), (5.1, "|")]
    assert source.writes == ["a", "ab"]


def test_what_no_source_waits_for_passes_at_once_and_so_does_what_is_not_finished():
    marbles(rj.ack(), "-a-B-[cD]|", "-a-B-(cD)|")


def test_what_is_acked_once_passes_a_second_ack():
    pipeline = rj.pull(MemorySource(), max_demand=2).pipe(rj.complete(), rj.ack(), ops.delay(1), rj.ack())
    marbles(pipeline, "-a-b|", "--A-B|")


def test_an_outcome_that_was_acked_is_the_one_that_is_written():
    source = MemorySource([a_job()])
    source.close()

    async def main() -> None:
        again = ops.map(lambda one: rj.Finished(one.job, rj.Discard("too late")))
        async with runs(rj.pull(source, max_demand=1).pipe(rj.complete(), rj.ack(), again, rj.ack())) as observed:
            await observed.running.wait()

    virtually(main())
    assert [type(one.outcome) for one in source.settled] == [rj.Complete]
