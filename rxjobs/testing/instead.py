"""A declared pipeline in a test: jobs of the test's own come instead of those of its sources."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

from rxjobs.awaiting import LoopScheduler
from rxjobs.demand import Demand
from rxjobs.ledger import Ledger
from rxjobs.scope import Scope
from rxjobs.source import Source
from rxjobs.sources.memory import MemorySource

ANY = ""
"""The name of jobs that are for the one source there is, whatever its queue."""


class LineSource(MemorySource):
    """A source that gives what a test says, when it says so, and may fail."""

    def fail(self, error: Exception) -> None:
        """Have the stream of its jobs end with an error."""
        self._wakes.on_error(error)


class Instead(Scope):
    """The surroundings of a pipeline in which every source is replaced, by the name of its queue."""

    def __init__(self, scheduler: LoopScheduler, names: Iterable[str]) -> None:
        super().__init__(scheduler, lambda event: None, supervised=False)
        self.sources = {name: LineSource() for name in names}
        self._replaced: dict[Hashable, str] = {}

    def ledger(self, key: Hashable, source: Source, demand: Callable[[], Demand]) -> Ledger:
        if key not in self._replaced:
            self._replaced[key] = str(getattr(source, "queue", repr(source)))
        name = ANY if ANY in self.sources else self._replaced[key]
        return super().ledger(key, self.sources.get(name, _NOTHING), demand)

    def check(self) -> None:
        """Raise ValueError unless each of its sources has a line of jobs, and each line a source."""
        queues = sorted(set(self._replaced.values()))
        if queues == sorted(self.sources) or (ANY in self.sources and len(queues) == 1):
            return
        given = "one line of jobs" if ANY in self.sources else f"lines of jobs for {', '.join(sorted(self.sources)) or 'none'}"
        wanted = ", ".join(queues) or "none"
        raise ValueError(
            f"the pipeline has sources of the queues {wanted}, and there is {given}; name a line for each: jobs={{queue: line}}"
        )


_NOTHING = MemorySource()
