"""Keep the circuits of a node in step with the others: it tells in batches what happens here, and follows what they saw."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from uuid import UUID

from rxjobs.demand import now
from rxjobs.log_lines import logger
from rxjobs.middleware.breaker import Circuit
from rxjobs.middleware.shared_storage import CLOSED, HALF_OPEN
from rxjobs.store.patience import passes
from rxjobs.store.standing import Standing
from rxjobs.store.store import Store

log = logger("rxjobs.breaker")

GATHER_SECONDS = 0.2
"""What happens in this time is told together; only that a circuit has moved, or a probe has ended, is told at once."""
TRY_AGAIN = 0.2, 2.0
"""Seconds between tries to tell, where the database is away: the first, and the longest."""
AWAY_SECONDS = 2.0
"""After so long without an answer a node is on its own."""
FRUITLESS = 0.25, 2.0
"""Seconds until another job is looked for that may probe, where there was none: the first time, and at most."""
SHARE = 0.05
"""The part of the time that looking may take in queues where none was ever seen: much may lie there."""
LAST_SECONDS = 1.0
A_MOMENT = 0.002
"""Seconds by which a loop may be early."""


class Sharing:
    """The gate of a node's circuits while it runs. `wake` has jobs fetched that may start by now."""

    def __init__(self, store: Store, node: UUID, wake: Callable[[], object]) -> None:
        self._store = store
        self._node = node
        self._wake = wake
        self._loop = asyncio.get_running_loop()
        self._locks: dict[Circuit, asyncio.Lock] = {}
        self._answered_at: dict[Circuit, int] = {}
        self._timers: dict[Circuit, asyncio.TimerHandle] = {}
        self._asking: dict[Circuit, dict[str, tuple[float, float]]] = {}
        """In which queues jobs are looked for that may probe, of each from when on, and how long that is from the last time."""
        self._news: set[Circuit] = set()
        self._is_urgent = asyncio.Event()
        self._telling: asyncio.Task[None] | None = None
        self._failures = 0
        self._failing_since: float | None = None

    @property
    def is_away(self) -> bool:
        """Whether the database has not answered for so long that each node is on its own."""
        return self._failing_since is not None and self._loop.time() - self._failing_since > AWAY_SECONDS

    def news(self, circuit: Circuit, *, at_once: bool) -> None:
        """A circuit has something to tell."""
        self._news.add(circuit)
        if at_once:
            self._is_urgent.set()
        if self._telling is None or self._telling.done():
            self._telling = self._loop.create_task(self._tell())

    async def permits(self, circuit: Circuit, n: int) -> int:
        """Have up to n more probes of a circuit out; gives how many."""
        lock = self._lock(circuit)
        if lock.locked():  # the answer to who asks says whether it is worth asking again
            return 0
        async with lock:
            try:
                standing, given = await self._store.take_probes(circuit.name, self._node, n, circuit.probing, circuit.how.probes)
            except BaseException as error:
                circuit.unsure_of_probes()
                if not isinstance(error, Exception):
                    raise
                self._failed(error, "asking for probes")
                return 0
            self._answered(circuit)
            circuit.given(given, standing)
            self.schedule(circuit)
            return given

    def may_ask(self, circuit: Circuit, queue: str) -> bool:
        """Whether it is worth looking now for jobs of a queue that may probe."""
        if circuit.shut_for:
            return False
        return self._loop.time() >= self._asking.setdefault(circuit, {}).setdefault(queue, (0.0, 0.0))[0]

    def probed(self, circuit: Circuit, queue: str, *, is_fruitless: bool, took: float = 0.0) -> None:
        """Jobs of a queue were looked for that might probe, for so many seconds."""
        asking = self._asking.setdefault(circuit, {})
        first, longest = FRUITLESS
        seconds = max(min(longest, max(first, 2 * asking.get(queue, (0.0, 0.0))[1])), took / SHARE) if is_fruitless else 0.0
        asking[queue] = self._loop.time() + seconds, seconds
        self.schedule(circuit)

    def learn(self, circuits: Iterable[tuple[Circuit, Standing]], asked_at: int) -> None:
        """So it stands with these, as a look says that was asked then (ns)."""
        self._failing_since = None
        for circuit, standing in circuits:
            if not self._lock(circuit).locked() and asked_at > self._answered_at.get(circuit, 0):
                circuit.follow(standing)
                self.schedule(circuit)

    def schedule(self, circuit: Circuit) -> None:
        """Have jobs fetched as soon as the circuit lets them start."""
        if (timer := self._timers.pop(circuit, None)) is not None:
            timer.cancel()
        wait = circuit.shut_for
        if circuit.state == CLOSED or (circuit.state == HALF_OPEN and wait):  # until somebody else's probe has ended
            return
        if asking := self._asking.get(circuit):
            wait = max(wait, min(since for since, _ in asking.values()) - self._loop.time())
        self._timers[circuit] = self._loop.call_later(wait + A_MOMENT, self._wake)

    def moved(self, circuit: Circuit) -> None:
        """A circuit has moved."""
        self._asking.pop(circuit, None)
        if circuit.state == CLOSED:
            self._loop.call_soon(self._wake)
        self._loop.call_soon(self.schedule, circuit)

    async def finish(self) -> None:
        """Tell what is still to be told, for a moment, and no more from then on."""
        for timer in self._timers.values():
            timer.cancel()
        self._is_urgent.set()
        if self._telling is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._telling, LAST_SECONDS)

    async def _tell(self) -> None:
        while self._news:
            if self._failures:
                first, longest = TRY_AGAIN
                await asyncio.sleep(min(longest, first * 2 ** min(self._failures - 1, 10)))
            else:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._is_urgent.wait(), GATHER_SECONDS)
            self._is_urgent.clear()
            told, self._news = self._news, set()
            for circuit in told:
                await self._report(circuit)

    async def _report(self, circuit: Circuit) -> None:
        async with self._lock(circuit):
            report = circuit.take_report()
            if report is None:
                return
            try:
                standing = await self._store.report_breaker(circuit.name, self._node, report, circuit.how)
            except BaseException as error:
                circuit.put_back(report)
                self._news.add(circuit)
                if not isinstance(error, Exception):
                    raise
                self._failed(error, "telling other nodes of a breaker")
                return
            self._answered(circuit)
            circuit.arrived(report, standing)
        circuit.tell()
        self.schedule(circuit)

    def _lock(self, circuit: Circuit) -> asyncio.Lock:
        """Whoever holds it is the only one to ask about a circuit."""
        return self._locks.setdefault(circuit, asyncio.Lock())

    def _answered(self, circuit: Circuit) -> None:
        self._answered_at[circuit] = now()
        self._failing_since = None
        self._failures = 0

    def _failed(self, error: Exception, what: str) -> None:
        self._failures += 1
        if self._failing_since is None:
            self._failing_since = self._loop.time()
        if self._failures & (self._failures - 1) == 0:
            told = None if passes(error) else error
            log.warning("%s failed, and is tried again: %s: %s", what, type(error).__name__, error, exc_info=told)
