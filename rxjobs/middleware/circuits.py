"""The circuits of an app's job types."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING
from uuid import UUID

from rxjobs.definition import Breaker
from rxjobs.demand import now
from rxjobs.events import Emit
from rxjobs.middleware.breaker import Circuit
from rxjobs.middleware.shared_storage import CLOSED
from rxjobs.perform import Middleware
from rxjobs.store.standing import Standing

if TYPE_CHECKING:
    from rxjobs.middleware.sharing import Sharing
    from rxjobs.store.store import Store


class Circuits:
    """The circuits of an app's job types: each node's own, and shared with the other nodes while it runs."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._circuits: dict[str, Circuit] = {}
        self._shut: set[str] = set()
        """Those that are not closed."""
        self._fetched: dict[int, Circuit] = {}
        """The jobs that were fetched as probes, until they begin or are settled."""
        self._sharing: Sharing | None = None

    def middleware(self, name: str, how: Breaker, queue: str | None = None) -> Middleware:
        """The middleware of one job type's circuit; `queue` is where its jobs mostly are."""
        circuit = self._circuits[name] = Circuit(name, how, self._emit)
        circuit.queues.update(() if queue is None else (queue,))
        circuit.on_move, circuit.gate = self._moved, self._sharing
        return circuit.middleware

    @property
    def names(self) -> Iterable[str]:
        """The job types that have one."""
        return self._circuits.keys()

    def startable(self, names: Iterable[str]) -> list[str]:
        """Those of the job types whose jobs may start now: the only ones worth fetching."""
        if not self._shut:
            return list(names)
        return [name for name in names if name not in self._shut or self._may_start(self._circuits[name])]

    def forget(self) -> None:
        """Take every circuit for closed, as in a process that has just begun."""
        for circuit in self._circuits.values():
            queues = circuit.queues
            Circuit.__init__(circuit, circuit.name, circuit.how, self._emit)
            circuit.queues, circuit.on_move, circuit.gate = queues, self._moved, self._sharing
        self._shut.clear()
        self._fetched.clear()

    def states(self) -> dict[str, str]:
        """The state of each circuit."""
        return {name: circuit.state for name, circuit in self._circuits.items()}

    # probes, where circuits are shared

    def due(self, names: Iterable[str]) -> list[str]:
        """Those of the job types of which a probe may be let through, if the other nodes have not done so."""
        if not self._shut or self._sharing is None:
            return []
        return [name for name in names if name in self._shut and not self._circuits[name].shut_for]

    async def look_for(self, names: Iterable[str], queue: str, is_there: Callable[[Sequence[str]], Awaitable[bool]]) -> None:
        """Learn which of the job types have jobs in a queue where none was ever seen; `is_there` says whether any of several has.

        To ask for a place among the probes first would keep it from others meanwhile, who may have such jobs.
        """
        sharing = self._sharing
        if sharing is None:
            return
        known = self._circuits
        asked = [name for name in names if queue not in known[name].queues and sharing.may_ask(known[name], queue)]
        if not asked:
            return
        began, there = now(), set[str]()
        if await is_there(asked):
            there = {name for name in asked if len(asked) == 1 or await is_there([name])}
        took = (now() - began) / 1e9
        for name in asked:
            if name in there:
                known[name].queues.add(queue)
            sharing.probed(known[name], queue, is_fruitless=name not in there, took=took)

    async def permits(self, name: str, queue: str, n: int) -> int:
        """Be let have up to n more probes of a job type out, from a queue; gives how many. Each is to be begun, or given back."""
        sharing, circuit = self._sharing, self._circuits[name]
        if sharing is None or queue not in circuit.queues or not sharing.may_ask(circuit, queue):
            return 0
        return await sharing.permits(circuit, n)

    def fetched(self, name: str, queue: str, permits: int, ids: Sequence[int]) -> None:
        """These jobs were fetched from a queue for so many permits; those that are left over are given back."""
        circuit = self._circuits[name]
        circuit.permitted.update(ids)
        self._fetched |= dict.fromkeys(ids, circuit)
        if self._sharing is not None:
            self._sharing.probed(circuit, queue, is_fruitless=not ids)
        if permits > len(ids):
            circuit.give_back(permits - len(ids))

    def settled(self, ids: Iterable[int]) -> None:
        """These jobs have ended: a probe among them that never began gives its turn to another."""
        if not self._fetched:
            return
        for id_ in ids:
            circuit = self._fetched.pop(id_, None)
            if circuit is not None and id_ in circuit.permitted:
                circuit.permitted.discard(id_)
                circuit.give_back()

    # what the nodes know of each other

    def share(self, store: Store, node: UUID, wake: Callable[[], object], stack: AsyncExitStack) -> None:
        """Share them with the other nodes until the stack is closed; `wake` has jobs fetched."""
        import rxjobs.middleware.machine  # noqa: F401 - it takes a moment: not when the first job fails
        from rxjobs.middleware.sharing import Sharing

        self._set_gate(Sharing(store, node, wake))
        stack.push_async_callback(self.finish)

    async def finish(self) -> None:
        """Share them no longer."""
        sharing = self._sharing
        self._set_gate(None)
        if sharing is not None:
            await sharing.finish()

    @property
    def unsure(self) -> list[str]:
        """The job types of which one must be told how they stand for all nodes, also where that is well."""
        return sorted(name for name, circuit in self._circuits.items() if circuit.is_unsure)

    def learn(self, standings: Iterable[Standing], asked_at: int) -> None:
        """So it stands with these for all nodes, as a look says that was asked then (ns)."""
        if self._sharing is not None:
            known = ((self._circuits[one.type], one) for one in standings if one.type in self._circuits)
            self._sharing.learn(known, asked_at)

    def _may_start(self, circuit: Circuit) -> bool:
        return self._sharing is None and not circuit.shut_for

    def _set_gate(self, sharing: Sharing | None) -> None:
        self._sharing = sharing
        for circuit in self._circuits.values():
            circuit.gate = sharing

    def _moved(self, circuit: Circuit) -> None:
        if circuit.state == CLOSED:
            self._shut.discard(circuit.name)
        else:
            self._shut.add(circuit.name)
        if self._sharing is not None:
            self._sharing.moved(circuit)
