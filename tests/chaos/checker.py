"""What must hold however badly everything was treated: one function a rule, each of which gives the violations it found."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from rxjobs.store.database import LINES, POOL_SIZE
from tests.chaos.ledger import Answer, Interval

TERMINAL = frozenset({"completed", "discarded", "cancelled"})
RUNNABLE = frozenset({"available", "scheduled", "retryable"})
HEARD = 10**9
"""Within so many ns a worker has heard of what its children ended."""


@dataclass(frozen=True)
class Row:
    """A job as the table has it in the end; `lost` are the attempts that the rescue has written off."""

    id: int
    key: str | None
    type: str
    state: str
    attempt: int
    max_attempts: int
    lost: frozenset[int] = frozenset()
    is_leased: bool = False
    """Whether it names a node whose lease has not run out."""


@dataclass(frozen=True)
class Bounds:
    """What one worker may take: bytes of memory, threads, connections."""

    memory: int = (80 + 2 * 25) * 1024 * 1024
    threads: int = 25 + 12
    connections: int = 2 * (POOL_SIZE + sum(LINES.values())) + 2
    """The pool and its lines, the lease and the listener; each query may be cancelled on a connection of its own."""


@dataclass
class Run:
    """Everything that is known about one run, once it is over."""

    rows: Sequence[Row]
    attempts: Sequence[Interval]
    answers: Mapping[str, Answer] = field(default_factory=dict)
    absences: Mapping[int, Sequence[tuple[int, int]]] = field(default_factory=dict)
    """When which process was stopped for longer than its lease (ns): it cannot have known that others went on."""
    given_up: Sequence[int] = ()
    """When a worker said that it gives its jobs up, since it could not renew its lease (ns)."""
    changed_when_terminal: int = 0
    use: Mapping[int, tuple[int, int, int]] = field(default_factory=dict)
    """The most memory, threads and connections of each process."""
    bounds: Bounds = Bounds()
    may_wait: frozenset[str] = frozenset()
    """Job types that nobody runs."""


def violations(run: Run) -> list[str]:
    """Everything that was not kept, in words; nothing is as it should be."""
    rules = (lost, overlaps, unfinished, miscounted, unbounded, rewritten)
    return [f"{rule.__name__}: {found}" for rule in rules for found in rule(run)]


def lost(run: Run) -> Iterator[str]:
    """I1: what was acknowledged is there once; what was neither acknowledged nor refused, at most once."""
    count = Counter(row.key for row in run.rows if row.key is not None)
    for key, answer in run.answers.items():
        match answer:
            case Answer.OK if count[key] != 1:
                yield f"{key} was acknowledged, and is there {count[key]} times"
            case Answer.INFO if count[key] > 1:
                yield f"{key} was enqueued once, and is there {count[key]} times"
            case Answer.FAIL if count[key]:
                yield f"{key} was refused, and is there"


def overlaps(run: Run) -> Iterator[str]:
    """I2: no job runs twice at once, but where a process was away for longer than its lease."""
    types = {row.id: row.type for row in run.rows}
    for of_one in _by_job(run.attempts).values():
        for before, after in pairwise(of_one):
            if (before.to is None or before.to > after.since) and not _was_away(run, before):
                ran = f"{before.attempt} ran in {before.pid} ({types.get(after.id)}, {before.how})"
                into = f"{(after.since - before.since) / 1e9:.3f} s into it"
                left = "" if before.to is None else f", {(before.to - after.since) / 1e9:.3f} s before its end"
                yield f"attempt {after.attempt} of job {after.id} began in {after.pid} while {ran}: {into}{left}"


def unfinished(run: Run) -> Iterator[str]:
    """I3: every row has ended, may run, or is held by a node that lives."""
    for row in run.rows:
        if row.state == "executing" and not row.is_leased:
            yield f"job {row.id} ({row.type}) is executing, and no living node has it"
        elif row.state not in TERMINAL and row.state != "executing" and row.type not in run.may_wait:
            yield f"job {row.id} ({row.type}) still waits as {row.state}, attempt {row.attempt}"
        elif row.state not in TERMINAL | RUNNABLE | {"executing"}:
            yield f"job {row.id} is {row.state}"


def miscounted(run: Run) -> Iterator[str]:
    """I4: no attempt beyond the last; each number was begun once, or written off; one that was given back may come again."""
    begun = _by_job(run.attempts)
    for row in run.rows:
        ran = begun.get(row.id, [])
        if row.attempt > row.max_attempts:
            yield f"job {row.id} has attempt {row.attempt} of {row.max_attempts}"
        seen = {one.attempt for one in ran} | row.lost
        missing = set(range(1, row.attempt + 1)) - seen
        if missing and row.state in TERMINAL and (ran or row.lost):
            yield f"job {row.id} is at attempt {row.attempt}, and nobody knows of {sorted(missing)}"
        whole = Counter(one.attempt for one in ran if one.how == "end" and not _was_away(run, one) and not _was_given_up(run, one))
        for attempt, times in whole.items():
            if times > 1:
                yield f"attempt {attempt} of job {row.id} ({row.type}) ran to its end {times} times"


def unbounded(run: Run) -> Iterator[str]:
    """I5: no worker takes more memory, threads or connections than it may."""
    limits = run.bounds.memory, run.bounds.threads, run.bounds.connections
    for pid, used in run.use.items():
        for name, amount, limit in zip(("bytes", "threads", "connections"), used, limits, strict=True):
            if amount > limit:
                yield f"process {pid} took {amount} {name}, more than {limit}"


def rewritten(run: Run) -> Iterator[str]:
    """I8: a row that has ended never changes again."""
    if run.changed_when_terminal:
        yield f"{run.changed_when_terminal} times a row was to change that had ended"


def recovery(attempts: Sequence[Interval], died: Mapping[int, int]) -> list[float]:
    """I6: for each job that a dying process left, the seconds until its next attempt began.

    Of first attempts and the second ones after them: a job that is rescued twice waits for its backoff.
    """
    found = []
    for of_one in _by_job(attempts).values():
        for before, after in pairwise(of_one):
            if before.how == "died" and before.to is not None and before.to == died.get(before.pid):
                if (before.attempt, after.attempt) == (1, 2):
                    found.append((after.since - before.to) / 1e9)
                break
    return sorted(found)


def throughput(attempts: Iterable[Interval], queue: str, since: int, to: int) -> float:
    """I7: the attempts of a queue that began in a time, a second."""
    return sum(one.queue == queue and since <= one.since < to for one in attempts) / ((to - since) / 1e9)


def percentile(values: Sequence[float], part: float) -> float:
    """The value that so big a part of sorted values does not exceed."""
    return values[min(len(values) - 1, int(len(values) * part))] if values else 0.0


def _by_job(attempts: Iterable[Interval]) -> dict[int, list[Interval]]:
    found: dict[int, list[Interval]] = defaultdict(list)
    for one in sorted(attempts, key=lambda one: (one.id, one.since)):
        found[one.id].append(one)
    return found


def _was_away(run: Run, one: Interval) -> bool:
    return any(since < (one.to or since + 1) and to > one.since for since, to in run.absences.get(one.pid, ()))


def _was_given_up(run: Run, one: Interval) -> bool:
    """Whether a child ended it in the moment in which its worker gave it up, before that had heard of it."""
    return one.to is not None and any(abs(one.to - at) < HEARD for at in run.given_up)


def row_of(record: Mapping[str, Any], key: str | None, errors: Sequence[Mapping[str, Any]]) -> Row:
    """A row of the view, with what else is known of it."""
    return Row(
        id=record["id"],
        key=key,
        type=record["type"],
        state=record["state"],
        attempt=record["attempt"],
        max_attempts=record["max_attempts"],
        lost=frozenset(error["attempt"] for error in errors if error.get("type") in ("rxjobs.NodeLost", "rxjobs.errors.ChildDied")),
        is_leased=bool(record["is_leased"]),
    )
