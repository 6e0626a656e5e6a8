"""Jobs from a queue in PostgreSQL."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Protocol

import asyncpg
import msgspec
import reactivex as rx
from reactivex import Observable
from reactivex import operators as ops
from reactivex.subject import Subject

from rxjobs.arguments import dump_untyped
from rxjobs.aside import Unwritten
from rxjobs.autoscaling import Depth
from rxjobs.awaiting import conflate_map, every, let_others
from rxjobs.decide import raised
from rxjobs.definition import Definition, check_queue, tags_of
from rxjobs.demand import now
from rxjobs.errors import BadPayload, InvalidOption
from rxjobs.events import JobStarted
from rxjobs.failure import describe
from rxjobs.job import Job, State
from rxjobs.log_lines import logger
from rxjobs.outcome import Discard, Finished
from rxjobs.perform import tell_end, waited
from rxjobs.reporting import Report
from rxjobs.source import Control
from rxjobs.sources.looks import Following, Looks
from rxjobs.sources.low_water import LowWater
from rxjobs.sources.outcomes import DeadLetters, Outcomes, are_plain, is_about_a_value
from rxjobs.store.encoding import instant, plain, to_json
from rxjobs.store.patience import PASSING, patiently
from rxjobs.store.store import FROM_THE_START, Marks

log = logger("rxjobs.source")


FAIR = 200
"""So many rows are read in one go."""
IDLE_SECONDS = 1.0
"""How often a queue that is not limited is looked at for having become so."""
Write = Callable[[Sequence[Finished]], Awaitable[None]]
UNBOUNDED = 2**63 - 1
"""The most that a statement can be asked for, and more than there is."""


class Node(Following, Protocol):
    """What a source asks of the running process it belongs to."""

    @property
    def definitions(self) -> Mapping[str, Definition[..., Any]]: ...

    @property
    def looks(self) -> Looks: ...

    @property
    def dead_letters(self) -> DeadLetters: ...


class Where(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a source narrows its asking to: job types, tags that a job must all have, and arguments it must contain."""

    types: tuple[str, ...] | None = None
    tags: tuple[str, ...] = ()
    args: dict[str, Any] = {}


class PostgresSource:
    """The jobs of one queue whose types this node knows, claimed with FOR UPDATE SKIP LOCKED, most urgent first.

    `where` is a mapping with any of `types`, `tags` and `args`, evaluated by PostgreSQL (`args`: containment).
    """

    def __init__(self, node: Node, queue: str, where: Mapping[str, Any] | None = None) -> None:
        check_queue(queue)
        self.queue = queue
        self._blanks: dict[str, Job] = {}
        self._node = node
        self._where = _where(where)
        tags_of(f"where of queue {queue}", self._where.tags)
        self._args = dump_untyped(self._where.args, "where['args']", 65536) if self._where.args else "{}"
        self.low_water = LowWater()
        self._outcomes = Outcomes(node)
        self._freed: Subject[object] = Subject()
        self._unsure: Subject[object] = Subject()
        """Says that nobody knows how much claims step over."""
        self._was_given_less = False

    def __repr__(self) -> str:
        return f"PostgresSource({self.queue!r})"

    @property
    def wakes(self) -> Observable[object]:
        """A notification for this queue, a connection that may have missed one, what its node sees, a job that claims passed by.

        Where the queue is limited, also that a place is free again, and that more may start.
        """
        node = self._node
        heard = node.woken.pipe(ops.filter(lambda queue: queue is None or queue == self.queue))
        looked = every(lambda: self.low_water.wait, self._look_behind), self._unsure.pipe(conflate_map(self._look_behind_now))
        passed_by = rx.merge(*looked).pipe(ops.filter(bool))
        allowed = every(lambda: self._pace or IDLE_SECONDS, self._may_be_given_more).pipe(ops.filter(bool))
        return rx.merge(heard, node.looks.wakes(self), passed_by, self._freed, allowed)

    @property
    def controls(self) -> Observable[Control]:
        """What is asked of its queue at run time."""
        return self._node.looks.of(self.queue)

    @property
    def types(self) -> Iterable[str]:
        """The job types that it takes."""
        return self._node.definitions if self._where.types is None else self._where.types

    async def fetch(self, n: int) -> list[Job]:
        """Claim up to n jobs, none while the queue is paused; waits out a database that is not there."""
        node = self._node
        types, n = node.startable(self.types), min(n, UNBOUNDED)
        due = node.startable(self.types, as_probes=True)
        if not types and not due:
            return []
        with node.store.claiming():  # until this returns, and its caller holds the jobs
            probes = await self._claim_probes(due, n) if due else []
            try:
                rows = probes + await self._claim_ready(types, n - len(probes))
            except BaseException:
                node.circuits.settled(row["id"] for row in probes)
                raise
            return await self._read(rows)

    async def _read(self, rows: Sequence[asyncpg.Record]) -> list[Job]:
        """Claimed rows as jobs; those that cannot be read have ended."""
        jobs: list[Job] = []
        unread: list[Finished] = []
        for place, row in enumerate(rows, 1):
            if place % FAIR == 0:  # what others on the loop wait for does not wait for all of them
                await let_others()
            job = self._job(row)
            if isinstance(job, Job):
                jobs.append(job)
            else:
                unread.append(self._ended(job))
        self._node.looks.controls.hold(self.queue, len(rows))
        if unread:
            await self._settle(unread, self._outcomes.write)
        return jobs

    async def has_waited(self, seconds: float) -> bool:
        """Whether a job that it could give has been ready for longer than so many seconds; none could while its queue is paused.

        Of a limited queue it is not known: its jobs may wait for their turn for as long as it takes.
        """
        looks = self._node.looks
        if self._pace is not None:
            return False
        if not looks.may_be_ready(self) or await looks.is_paused(self.queue):
            return False
        where = self._where
        types = self._node.startable(self.types)
        return bool(types) and await self._node.store.has_waited(self.queue, types, where.tags, self._args, seconds)

    async def depth(self, most: int) -> Depth:
        """How many jobs it could give now, counted up to `most`, and how long the oldest of those has waited."""
        types = self._node.startable(self.types)
        if not types or not self._node.looks.may_be_ready(self):
            return Depth(0)
        return Depth(*await self._node.store.ready_depth(self.queue, types, self._where.tags, self._args, most))

    async def settle(self, finished: list[Finished]) -> None:
        """Write outcomes down; returns once they are durable, however long the database is away.

        Raises Unwritten with those that there is no room for.
        """
        await self._settle(finished, self._outcomes.write_what_fits)

    def may_exchange(self, finished: Sequence[Finished]) -> bool:
        """Whether jobs can be claimed with these outcomes: of a queue that is not limited, with outcomes as most are."""
        node = self._node
        if self._pace is not None or not are_plain(finished):
            return False
        return bool(node.startable(self.types)) and not node.startable(self.types, as_probes=True)

    async def exchange(self, finished: list[Finished], n: int) -> list[Job]:
        """Write outcomes down and claim up to n jobs, in one transaction; raises what `settle` and `fetch` would wait out."""
        node, where, ids = self._node, self._where, [one.job.id for one in finished]
        node.circuits.settled(ids)
        types, attempt = node.startable(self.types), finished[0].job.attempt
        marks = self.low_water.begin(types)
        with node.store.claiming():
            if where.tags or where.args:
                narrowed = where.tags, self._args
                exchange = node.store.exchange_jobs_where(self.queue, n, types, node.id, *narrowed, ids, attempt, marks)
            else:
                exchange = node.store.exchange_jobs(self.queue, n, types, node.id, ids, attempt, marks)
            written, rows = await exchange
            await node.dead_letters.examined(finished)
            node.looks.controls.hold(self.queue, -len(finished))
            rows.sort(key=_urgency)
            self._claimed(types, marks, rows, n)
            jobs = await self._read(rows)
            if written < len(finished):
                await patiently("looking for outcomes that changed nothing", lambda: self._outcomes.report_stale(finished))
            return jobs

    async def _settle(self, finished: list[Finished], write: Write) -> None:
        self._node.circuits.settled(one.job.id for one in finished)
        finished = await self._node.dead_letters.examined(finished)
        try:
            await patiently("writing outcomes down", lambda: write(finished))
        except Unwritten as error:
            self._freed_of(len(finished) - len(error.left))
            raise
        except Exception as error:
            if not is_about_a_value(error):
                raise
            await self._outcomes.write_apart(finished)
        self._freed_of(len(finished))

    async def keep_progress(self, reports: Sequence[Report]) -> None:
        """Write down how far jobs say that they have come."""
        while reports:
            jobs = [one.job for one in reports]
            said = [to_json({"fraction": one.fraction, "message": one.message}).decode() for one in reports]
            _, left = await self._node.store.save_progress(
                self._node.id, [job.id for job in jobs], [job.attempt for job in jobs], [job.attempted_at for job in jobs], said
            )
            reports = [one for one in reports if one.job.id in left]

    def _freed_of(self, count: int) -> None:
        self._node.looks.controls.hold(self.queue, -count)
        if self._pace is not None:
            self._freed.on_next(None)

    async def _claim_ready(self, types: Sequence[str], n: int) -> list[asyncpg.Record]:
        """Claim up to n jobs of types that may start, the most urgent first."""
        if not types or not n:
            return []
        marks = self.low_water.begin(types)
        rows = await patiently(f"fetching from queue {self.queue}", lambda: self._claim(n, types, marks))
        rows.sort(key=_urgency)
        self._was_given_less = self._pace is not None and len(rows) < n
        # of a limited queue less than was asked for is not all that there was
        self._claimed(types, marks, rows, n if self._pace is None else len(rows))
        return rows

    def _claimed(self, types: Sequence[str], marks: Marks, rows: Sequence[Any], asked: int) -> None:
        # where other types are asked for by now, as when a breaker has opened meanwhile, it says nothing of those
        if types == self.low_water.types and self.low_water.claimed(marks, rows, asked):
            self._unsure.on_next(None)

    async def _claim_probes(self, types: Sequence[str], n: int) -> list[asyncpg.Record]:
        """Claim as many jobs of each of these types as may try whether its breaker can close, and no more than n."""
        circuits, found = self._node.circuits, list[asyncpg.Record]()
        await circuits.look_for(types, self.queue, self._is_there)
        for name in types:
            permits = await circuits.permits(name, self.queue, n - len(found)) if len(found) < n else 0
            if not permits:
                continue
            rows: list[asyncpg.Record] = []
            try:
                what = f"fetching probes of {name} from queue {self.queue}"
                rows = await patiently(what, lambda: self._claim(permits, [name], FROM_THE_START))  # noqa: B023 - awaited here
            finally:
                circuits.fetched(name, self.queue, permits, [row["id"] for row in rows])
            found += rows
        return found

    async def _is_there(self, types: Sequence[str]) -> bool:
        """Whether a job of these types is ready."""
        try:
            return await self._node.store.has_waited(self.queue, types, self._where.tags, self._args, 0.0)
        except PASSING:  # fetching tells of it
            return False

    async def _claim(self, n: int, types: Sequence[str], marks: Marks) -> list[asyncpg.Record]:
        store, where = self._node.store, self._where
        if self._pace is not None:
            by_keys = self._node.looks.controls.is_by_keys(self.queue)
            return await store.fetch_limited(self.queue, n, types, self._node.id, where.tags, self._args, marks, by_keys=by_keys)
        if where.tags or where.args:
            return await store.fetch_jobs_where(self.queue, n, types, self._node.id, where.tags, self._args, marks)
        return await store.fetch_jobs(self.queue, n, types, self._node.id, marks)

    @property
    def _pace(self) -> float | None:
        """Seconds after which to ask again for what a claim was not given; None where the queue is not limited."""
        return self._node.looks.controls.limited.get(self.queue)

    async def _may_be_given_more(self) -> bool:
        """Whether there was less to have than was asked for though a job waits: by now a limit may allow it."""
        was_given_less, self._was_given_less = self._was_given_less, False
        return was_given_less and self._node.looks.may_be_ready(self)

    async def _look_behind(self) -> bool:
        """Whether a job is to be fetched that claims passed by."""
        low_water = self.low_water
        if not low_water.needs_a_look:
            return False
        types, marks = low_water.types, low_water.marks
        try:
            is_ready, seconds = await self._node.store.ready_behind(self.queue, types, self._where.tags, self._args, marks)
        except PASSING:  # fetching tells of it
            return False
        # of other types meanwhile nothing is known, and their claims begin at the start
        return types is low_water.types and low_water.looked(marks, is_ready, seconds)

    async def _look_behind_now(self, _: object) -> list[bool]:
        return [await self._look_behind()]

    def _job(self, row: asyncpg.Record) -> Job | Finished:
        id_, type_, priority, attempt, max_attempts, inserted_at, scheduled_at, attempted_at, stored, meta, tags, errors, *_ = row
        blank = self._blank(type_)
        args, payload, error = self._arguments(blank.definition, stored)
        # in two steps where need be: a call with more than 14 keywords takes Python three times as long
        job = msgspec.structs.replace(
            blank,
            id=id_,
            args=args,
            attempt=attempt,
            max_attempts=max_attempts,
            priority=priority,
            inserted_at=instant(inserted_at),
            scheduled_at=instant(scheduled_at),
            attempted_at=instant(attempted_at),
            payload=payload,
        )
        if meta is not None or tags or errors is not None:
            job = msgspec.structs.replace(job, errors=plain(errors) or (), meta=plain(meta) or {}, tags=tags or ())
        if error is None:
            return job
        log.error("job %s (%s) of queue %s cannot run: %s", id_, type_, self.queue, error)
        # no attempt could read a bad payload; a key may be there for the next one
        return Finished(job, Discard(str(error), describe(error), error) if isinstance(error, BadPayload) else raised(job, error))

    def _blank(self, name: str) -> Job:
        """What all jobs of a type have in common here."""
        node, blank = self._node, self._blanks.get(name)
        if blank is None or blank.node is not node.id:
            blank = Job(id=0, type=name, queue=self.queue, state=State.EXECUTING, node=node.id, definition=node.definitions[name])
            self._blanks[name] = blank
        return blank

    def _arguments(self, definition: Definition[..., Any], stored: str | None) -> tuple[dict[str, Any], str, Exception | None]:
        """A row's arguments, their JSON, and why they cannot be read, if so."""
        payload = "null" if stored is None else stored
        try:
            if stored is None:
                most = self._node.store.max_stored_bytes
                raise BadPayload(f"{definition.name}: stored arguments: expected at most {most} bytes, got more")
            return *definition.read(stored), None
        except Exception as error:  # BadPayload, or whatever a codec raises
            return {}, payload, error

    def _ended(self, finished: Finished) -> Finished:
        """Make known an attempt that ended before it could run."""
        job, began = finished.job, now()
        queue_time = waited(job, began)
        self._node.emit(JobStarted(job=job, queue_time=queue_time, monotonic_time=began))
        return Finished(job, tell_end(self._node.emit, job, finished.outcome, queue_time, 0))


_urgency = itemgetter("priority", "scheduled_at", "id")


def _where(where: Mapping[str, Any] | None) -> Where:
    try:
        return msgspec.convert(dict(where or {}), Where)
    except (TypeError, ValueError) as error:
        raise InvalidOption(
            f'where is a mapping of "types", "tags" and "args", such as {{"types": ["send_mail"]}}, not {where!r}: {error}'
        ) from error
