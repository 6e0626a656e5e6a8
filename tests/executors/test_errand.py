import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from rxjobs.calls import Start, starting
from rxjobs.errors import ChildDied
from rxjobs.executors import errand
from rxjobs.executors.child import Child
from rxjobs.executors.in_processes import InProcesses, in_processes
from rxjobs.outcome import Release
from rxjobs.testing.conformance_executor import call_of, caught, until
from tests.appended import whole_lines
from tests.executors import jobs


@pytest.fixture
def sizes(monkeypatch):
    """How many calls a child was given at once, each time."""
    sizes: list[int] = []

    def send(child, requests):
        sizes.append(len(requests))
        real(child, requests)

    real = Child.send
    monkeypatch.setattr(Child, "send", send)
    return sizes


@pytest.fixture
def patient(monkeypatch):
    """Calls go together however long they take, and stay so: what is slow on a busy machine does not matter."""
    monkeypatch.setattr(errand, "TOGETHER_SECONDS", 3600.0)
    monkeypatch.setattr(errand, "BACK_SECONDS", 3600.0)


class Gate:
    """Keeps a child busy until it is opened, so that calls gather."""

    def __init__(self, executor: InProcesses, folder: Path, name: str) -> None:
        self._executor = executor
        self._mark, self._release = folder / f"{name}-mark", folder / f"{name}-release"

    async def shut(self) -> asyncio.Task[BaseException | None]:
        task = asyncio.create_task(caught(self._executor, call_of(jobs.wait_for, str(self._mark), str(self._release))))
        await until(self._mark.exists)
        return task

    def open(self) -> None:
        self._release.touch()


class Batch:
    """Calls of jobs.note that a child is given together."""

    def __init__(self, executor: InProcesses, folder: Path) -> None:
        self.executor = executor
        self._folder = folder
        self._log = folder / "log"

    @property
    def ran(self) -> list[int]:
        """The numbers of those that ran, in order."""
        return [int(line) for line in whole_lines(self._log)]

    def call(self, number: int, how: str = "end") -> asyncio.Task[BaseException | None]:
        return asyncio.create_task(caught(self.executor, call_of(jobs.note, str(self._log), number, how)))

    async def of(self, *hows: str) -> list[asyncio.Task[BaseException | None]]:
        """One for each way to end, numbered from 1; they are on their way when this returns."""
        assert await self.call(0) is None  # from here on it is known how long one takes
        gate = Gate(self.executor, self._folder, "gate")
        await gate.shut()
        tasks = [self.call(number, how) for number, how in enumerate(hows, 1)]
        await asyncio.sleep(0)
        gate.open()
        await until(lambda: self.ran[:2] == [0, 1])
        return tasks

    async def behind(self, *calls: Callable[[], asyncio.Task[Any]]) -> tuple[Gate, asyncio.Task[Any], list[asyncio.Task[Any]]]:
        """Have calls go together, the first of which runs until its gate is opened."""
        assert await self.call(0) is None
        known, gate, inner = (Gate(self.executor, self._folder, name) for name in ("known", "gate", "inner"))
        known.open()
        assert await (await known.shut()) is None
        await gate.shut()
        shutting = asyncio.create_task(inner.shut())
        await asyncio.sleep(0)
        tasks = [call() for call in calls]
        await asyncio.sleep(0)
        gate.open()
        return inner, await shutting, tasks


@pytest.fixture
async def batch(tmp_path):
    executor = in_processes(1)
    yield Batch(executor, tmp_path)
    await executor.close()


async def test_quick_calls_that_wait_go_together_and_are_answered_each(batch, sizes, patient):
    tasks = await batch.of("end", "raise", "end")
    errors = await asyncio.gather(*tasks)
    assert [str(error) for error in errors] == ["None", "2", "None"]
    assert sizes == [1, 1, 3]
    assert batch.ran == [0, 1, 2, 3]


async def test_a_call_that_nothing_is_known_of_goes_alone(batch, sizes):
    await asyncio.gather(*(batch.executor.run(call_of(jobs.pid)) for _ in range(2)))
    assert sizes[0] == 1


async def test_one_that_kills_their_process_is_charged_alone(batch, sizes, patient):
    tasks = await batch.of("end", "exit", "end", "end")
    first, killer, *others = await asyncio.gather(*tasks)
    assert first is None
    assert isinstance(killer, ChildDied)
    assert "exited with code 9" in str(killer)
    assert others == [None, None]
    assert sizes[2] == 4
    assert batch.ran == [0, 1, 2, 3, 4], "one that had ended ran again, or one that had not begun did not"


async def test_one_that_does_not_end_holds_up_none_of_those_behind_it(tmp_path, sizes, monkeypatch):
    monkeypatch.setattr(errand, "TOGETHER_SECONDS", 3600.0)
    executor = in_processes(2)
    batch = Batch(executor, tmp_path)
    try:
        assert await batch.call(0) is None
        gates = Gate(executor, tmp_path, "one"), Gate(executor, tmp_path, "two")
        for gate in gates:
            await gate.shut()
        slow, *others = [batch.call(1, "hang"), batch.call(2), batch.call(3)]
        await asyncio.sleep(0)
        gates[0].open()
        await until(lambda: 1 in batch.ran)
        assert sizes[3] == 2, "nothing was behind it"
        gates[1].open()
        assert await asyncio.gather(*others) == [None, None]
        assert not slow.done()
        slow.cancel()
        assert sorted(batch.ran) == [0, 1, 2, 3]
    finally:
        await executor.close()


async def test_one_that_is_cancelled_while_it_runs_leaves_those_behind_it_unharmed(batch, sizes, patient):
    slow, *others = await batch.of("hang", "end", "end")
    slow.cancel()
    assert await asyncio.gather(*others) == [None, None]
    assert sizes[2] == 3
    assert batch.ran == [0, 1, 2, 3]


async def test_one_that_is_cancelled_before_it_begins_never_does_and_nobody_is_killed(batch, sizes, patient):
    gate, running, (dropped, kept) = await batch.behind(lambda: batch.call(1), lambda: batch.call(2))
    dropped.cancel()
    assert isinstance(await dropped, asyncio.CancelledError)
    gate.open()
    assert await running is None
    assert await kept is None
    assert sizes[-1] == 3
    assert batch.ran == [0, 2]


async def test_each_begins_when_it_is_its_turn(batch, sizes, patient):
    start = Start(0)

    def call() -> asyncio.Task[Any]:
        asked = call_of(jobs.pid)
        start.job_id = asked.job.id
        starting.set(start)
        return asyncio.create_task(caught(batch.executor, asked))

    await batch.executor.run(call_of(jobs.pid))
    gate, running, [second] = await batch.behind(call)
    assert start.at is None
    gate.open()
    assert await running is None
    assert await second is None
    assert sizes[-1] == 2
    assert start.at


async def test_one_that_writes_into_the_pipe_is_charged_and_no_other(batch, tmp_path, patient):
    assert await batch.call(0) is None
    gate = Gate(batch.executor, tmp_path, "gate")
    assert isinstance(await caught(batch.executor, call_of(jobs.write_garbage)), ChildDied)
    assert await batch.call(1) is None
    await gate.shut()
    garbage = asyncio.create_task(caught(batch.executor, call_of(jobs.write_garbage)))
    await asyncio.sleep(0)
    other = batch.call(2)
    await asyncio.sleep(0)
    gate.open()
    assert isinstance(await garbage, ChildDied)
    error = await other
    assert error is None or isinstance(error, Release), f"it was charged: {error!r}"


@pytest.mark.parametrize("deaths", [1, 2])
async def test_a_process_that_dies_before_a_call_begins_is_charged_to_nobody_until_it_happens_again(batch, monkeypatch, deaths):
    monkeypatch.setattr(errand, "DEATHS", deaths)
    pid = await batch.executor.run(call_of(jobs.pid))
    child = psutil.Process(pid)
    child.suspend()
    await until(lambda: child.status() == psutil.STATUS_STOPPED)
    sent: list[int] = []
    real = Child.send
    monkeypatch.setattr(Child, "send", lambda child, requests: (real(child, requests), sent.append(1)))
    task = asyncio.create_task(caught(batch.executor, call_of(jobs.pid)))
    await until(lambda: bool(sent))
    os.kill(pid, signal.SIGKILL)
    error = await task
    assert isinstance(error, ChildDied) if deaths == 1 else error is None


async def test_a_call_ends_also_where_to_see_to_its_process_fails(batch, monkeypatch, caplog):
    real = Child.end

    def fail(child: Child, *_: Any) -> str:
        real(child)
        raise MemoryError("none left")

    monkeypatch.setattr(Child, "end", fail)
    error = await caught(batch.executor, call_of(jobs.exit_now, 3))
    assert isinstance(error, ChildDied)
    assert "none left" in str(error)
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    monkeypatch.undo()
    assert await batch.call(1) is None
