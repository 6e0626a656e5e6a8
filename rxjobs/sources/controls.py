"""What is asked of queues at run time, as this node knows it. It is written in a table; a notification only says to look there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from uuid import UUID

from rxjobs.events import Emit, QueueLimited, QueuePaused, QueueResumed, QueueScaled
from rxjobs.log_lines import logger
from rxjobs.source import Control
from rxjobs.store.limit_statements import NONE, Limits, Rate

log = logger("rxjobs.queues")

AS_IS_DECLARED = Control()


class Controls:
    """What a node knows of the queues that it takes jobs from.

    A claim itself gives nothing while its queue is paused. What was claimed before and has not begun is given back once the pause
    is known.
    """

    def __init__(self, node: Callable[[], UUID], emit: Emit) -> None:
        self.queues: set[str] = set()
        """The queues of which anybody wants to know."""
        self.known: Mapping[str, Control] = {}
        self.limited: Mapping[str, float] = {}
        """The queues with limits across all nodes, and the seconds after which to ask again for what a claim was not given."""
        self.limits: dict[str, Limits] = {}
        """The limits of those queues, as far as they were read."""
        self._read_at: dict[str, datetime] = {}
        self._node = node
        self._emit = emit
        self._held: Counter[str] = Counter()

    @property
    def matter(self) -> bool:
        """Whether anything depends on them: a job is held, or something is asked."""
        return any(self._held.values()) or bool(self.limited) or any(control != AS_IS_DECLARED for control in self.known.values())

    def hold(self, queue: str, count: int) -> None:
        """So many jobs of a queue are held more than before, or fewer: what is asked of it matters as long as any is."""
        self._held[queue] += count

    def learn(self, queues: Iterable[str], asked: Mapping[str, Control], limited: Mapping[str, float]) -> None:
        """This is asked of these queues, and nothing of the others among them."""
        before = self.known
        self.limited = limited
        self.known = {**dict.fromkeys(queues, AS_IS_DECLARED), **asked}
        for queue, control in self.known.items():
            self._tell(queue, before.get(queue, AS_IS_DECLARED), control)

    def is_by_keys(self, queue: str) -> bool:
        """Whether a queue is known to be limited by keys."""
        return self.limits.get(queue, NONE).by is not None

    def changed_limits(self, limited_at: Mapping[str, datetime]) -> list[str]:
        """The queues whose limits may be others than they were when they were read, by when they were changed at the latest."""
        return sorted(queue for queue, at in limited_at.items() if self._read_at.get(queue) != at)

    def learn_limits(self, limited_at: Mapping[str, datetime], read: Mapping[str, Limits]) -> None:
        """These queues are limited, and so are those whose limits were read; no other one is any more."""
        after = {queue: read.get(queue, self.limits.get(queue, NONE)) for queue in limited_at}
        before, self.limits, self._read_at = self.limits, after, dict(limited_at)
        for queue in sorted(before.keys() | after.keys()):
            limits = after.get(queue, NONE)
            if limits != before.get(queue, NONE):
                log.info("queue %s across all nodes: %s", queue, str(limits) or "not limited any more")
                self._emit(_limited(queue, str(self._node()), limits))

    def _tell(self, queue: str, before: Control, control: Control) -> None:
        node = str(self._node())
        if control.is_paused != before.is_paused:
            log.info("queue %s %s", queue, "is paused: no job of it starts here" if control.is_paused else "goes on")
            self._emit((QueuePaused if control.is_paused else QueueResumed)(queue=queue, node=node))
        if control.max_demand != before.max_demand:
            log.info("queue %s is scaled: max_demand is %s", queue, control.max_demand or "as is declared")
            self._emit(QueueScaled(queue=queue, node=node, max_demand=control.max_demand))


def _limited(queue: str, node: str, limits: Limits) -> QueueLimited:
    def said(rate: Rate | None) -> str | None:
        return None if rate is None else str(rate)

    return QueueLimited(
        queue=queue, node=node, concurrency=limits.concurrency, rate=said(limits.rate), by=limits.by,
        each_concurrency=limits.each_concurrency, each_rate=said(limits.each_rate), is_shared=limits.is_shared,
    )  # fmt: skip
