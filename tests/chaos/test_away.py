"""The server is away, or takes nothing: who waits for it waits quietly, keeps what has ended, and is back by itself."""

from __future__ import annotations

import re
import time
from collections import Counter

import psutil
import pytest

from tests.chaos import away
from tests.chaos.faults import put
from tests.chaos.ground import LEASE
from tests.chaos.loaded import enqueuing_both, judge, load, lost_attempts, shown
from tests.numbers import HANG, at_most
from tests.servers import no_room_for_notifications
from tests.waiting import until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(240)]


class Watch:
    """What a worker takes of the machine, and what it logs, from now on."""

    def __init__(self, worker):
        self._worker = worker
        self._process = psutil.Process(worker.pid)
        self._began = time.monotonic()
        self._cpu = sum(self._process.cpu_times()[:2])
        self._memory = self._process.memory_info().rss
        self._logged = len(worker.log)

    @property
    def seconds(self):
        return time.monotonic() - self._began

    @property
    def cpu(self):
        """The part of one core's time."""
        return (sum(self._process.cpu_times()[:2]) - self._cpu) / self.seconds

    @property
    def memory(self):
        """How much more it takes, MB."""
        return (self._process.memory_info().rss - self._memory) / 1e6

    @property
    def lines(self):
        """How many lines each of its loops has logged."""
        new = self._worker.log[self._logged :].splitlines()
        return Counter(re.sub(r"( failed .*|:.*|\d+.*)", "", line) for line in new if line)


def is_quiet(watch):
    """What F5 asks of a node without a database: it takes next to nothing, and no loop logs more than a line in five seconds."""
    shown(
        "while the server was away",
        cpu=watch.cpu,
        memory=watch.memory,
        lines=max(watch.lines.values(), default=0),
        seconds=watch.seconds,
    )
    assert watch.cpu < 0.05
    assert watch.memory <= 10
    # first tries come close together, and up to four loops do the same, one or two for each of two queues
    assert max(watch.lines.values(), default=0) <= 4 * 6 + watch.seconds / 5, watch.lines


async def runs_again(ground, fault, random):
    """How long after the fault the next jobs ran, seconds."""
    took = await ground.started(5, seconds=HANG)
    shown(fault.__name__, five_jobs=took)
    at_most("five jobs after it", took, 3)


@pytest.mark.parametrize(
    ("fault", "seconds"),
    [(away.stopped, 20), (away.read_only, 5), (away.standing_by, 5), (away.unreachable, 10)],
    ids=["stopped", "read only", "standing by", "unreachable"],
)
async def test_a_server_that_takes_nothing_is_waited_for_quietly(ground, random, fault, seconds):
    """F5, F6, and rows 4, 34, 55: what ended meanwhile is kept, and written down afterwards; nothing runs twice."""
    worker, _ = await ground.start(2)
    async with enqueuing_both(ground):
        pass
    await ground.drained()
    # they end while nothing can be written down; a thread cannot be stopped, whatever becomes of the lease
    ids = [await put(ground, kind, key=kind, seconds=LEASE / 2) for kind in ("work", "thread") for _ in range(20)]
    await ground.running(*ids)
    watch = Watch(worker)
    await fault(ground, random, seconds=seconds)
    is_quiet(watch)
    async with enqueuing_both(ground):
        await runs_again(ground, fault, random)
    await judge(ground)
    assert await lost_attempts(ground) == 0
    ended = Counter(line.id for line in ground.lines if line.what == "end")
    assert {ended[id_] for id_ in ids} == {1}


async def test_nothing_depends_on_room_for_notifications(ground, random):
    """F41: jobs are enqueued, staged after a failure, and given back, although nobody can notify."""
    async with load(ground, 2) as busy:
        async with no_room_for_notifications(ground.dsn):
            before = busy.errors.copy()
            await ground.started(100)
            failed = await put(ground, "flaky", key="flaky")
            await ground.running(failed)
            await until(lambda: any((line.id, line.attempt, line.what) == (failed, 2, "end") for line in ground.lines))
        assert busy.errors == before
    assert await lost_attempts(ground) == 0
