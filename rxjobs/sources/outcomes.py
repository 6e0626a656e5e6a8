"""How outcomes are written down: together, and each by itself where one of them cannot be written, or there is no room for all."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol
from uuid import UUID

import asyncpg
import msgspec

from rxjobs.aside import Unwritten
from rxjobs.decide import resolve
from rxjobs.errors import RxJobsError
from rxjobs.events import Emit, JobStale
from rxjobs.failure import Failure
from rxjobs.job import Job
from rxjobs.log_lines import logger
from rxjobs.outcome import Cancel, Complete, Discard, Finished, Outcome, Release, Retry, Snooze
from rxjobs.store.encoding import Written, keeps_result
from rxjobs.store.patience import PASSING, passes, patiently
from rxjobs.store.store import Store

log = logger("rxjobs.source")

REFUSALS = 3
"""So many outcomes, the smallest first, are tried in vain before there seems to be room for none."""
RESULT_SECONDS = 10.0
"""For so long a result is kept that there is no room for. Then its job is written down as completed without it: to lose what it
returned is better than to lose that it is done."""


class DeadLetters(Protocol):
    """Who knows what is to be kept with jobs that are discarded, and whom to tell."""

    async def examined(self, finished: list[Finished]) -> list[Finished]: ...

    def buried(self, jobs: Sequence[Job]) -> None: ...


class Node(Protocol):
    """What is asked of the running process whose jobs have ended."""

    @property
    def store(self) -> Store: ...

    @property
    def id(self) -> UUID: ...

    @property
    def label(self) -> str: ...

    @property
    def emit(self) -> Emit: ...

    @property
    def dead_letters(self) -> DeadLetters: ...


class Outcomes:
    """Writes down the outcomes of one source's jobs."""

    def __init__(self, node: Node, result_seconds: float = RESULT_SECONDS) -> None:
        self._node = node
        self._result_seconds = result_seconds
        self._refused_since: dict[int, float] = {}
        """Since when there has been no room for a job's outcome, by its id."""

    async def write_what_fits(self, finished: Sequence[Finished]) -> None:
        """In one statement, or as many of them as there is room for. Raises Unwritten with the others."""
        try:
            await self.write(finished)
        except asyncpg.DiskFullError as error:
            left = {one.job.id for one in await self._write_the_smallest(finished)}
            self._forget([one for one in finished if one.job.id not in left])
            now = time.monotonic()
            for id_ in left:
                self._refused_since.setdefault(id_, now)
            if left:
                raise Unwritten(left, error) from error
        else:
            self._forget(finished)

    def _forget(self, finished: Sequence[Finished]) -> None:
        if self._refused_since:
            for one in finished:
                self._refused_since.pop(one.job.id, None)

    async def _write_the_smallest(self, finished: Sequence[Finished]) -> list[Finished]:
        """Write down one after the other, as long as there is room; gives those that are left."""
        left, refused = sorted(finished, key=self._size), 0
        for one in tuple(left):
            try:
                await self.write([self._as_kept(one)])
            except asyncpg.DiskFullError:
                refused += 1
                if refused == REFUSALS:
                    break
            except PASSING:
                break
            else:
                left.remove(one)
        return left

    def _as_kept(self, one: Finished) -> Finished:
        """What is to be written of it: no result that there was no room for too long."""
        since, outcome = self._refused_since.get(one.job.id), one.outcome
        if since is None or type(outcome) is not Complete or not keeps_result(one.job):
            return one
        if time.monotonic() - since < self._result_seconds:
            return one
        return Finished(one.job, Complete(unstorable=f"the server has had no room for it for {self._result_seconds:g} s"))

    def _size(self, one: Finished) -> int:
        """About how many bytes its row takes."""
        texts = (Written.of([one], self._node.label).columns()[column][0] for column in (-3, -2, -1))
        return len(one.job.payload) + sum(len(text) for text in texts if text is not None)

    async def write(self, finished: Sequence[Finished]) -> None:
        """In one statement."""
        store, node = self._node.store, self._node.id
        ids = [one.job.id for one in finished]
        if are_plain(finished):
            written, dead = await store.ack_completed(ids, node, finished[0].job.attempt), []
        else:
            dead = [one.job for one in finished if isinstance(one.outcome, Discard)]
            written = await store.ack_jobs(node, Written.of(finished, self._node.label))
        if len(written) < len(finished):
            written |= await self.report_stale([one for one in finished if one.job.id not in written])
        if dead:
            self._node.dead_letters.buried([job for job in dead if job.id in written])

    async def report_stale(self, missing: Sequence[Finished]) -> set[int]:
        """Tell of outcomes that changed nothing; gives the ids of the others, which were written before."""
        store, node = self._node.store, self._node
        claims = zip(*((one.job.id, one.job.attempt, one.job.attempted_at) for one in missing), strict=True)
        acked = await store.find_acked(node.id, *claims)
        unwritten = [one for one in missing if one.job.id not in acked]
        if unwritten:  # one that was marked to be cancelled in the very moment that it was to go on is found now
            acked |= await store.ack_jobs(node.id, Written.of(unwritten, node.label))
        for one in missing:
            if one.job.id not in acked:
                log.warning(
                    "job %s (%s): attempt %d is not this node's any more, so that its outcome %s changed nothing",
                    one.job.id, one.job.type, one.job.attempt, type(one.outcome).__name__,
                )  # fmt: skip
                self._node.emit(JobStale(job=one.job.told))
        return acked

    async def write_apart(self, finished: Sequence[Finished]) -> None:
        """One outcome that cannot be written down must not hold up the others; its own text is left out."""
        for one in finished:
            try:
                await patiently("writing an outcome down", lambda one=one: self.write([one]))  # type: ignore[misc]
            except asyncpg.UniqueViolationError:
                await self._give_way(one)
            except Exception as refused:
                if not is_about_a_value(refused):
                    raise
                log.exception("job %s: the text of its outcome was refused, and is left out", one.job.id)
                plainer = Finished(msgspec.structs.replace(one.job, forensics=None), _without_text(one, refused))
                await patiently("writing an outcome down", lambda plainer=plainer: self.write([plainer]))  # type: ignore[misc]

    async def _give_way(self, finished: Finished) -> None:
        """A job that cannot go on, since another stands for its unique key by now, is cancelled, and says so."""
        job = finished.job
        while True:
            twins = await patiently("looking for a twin", lambda: self._node.store.twins_of([job.id]))
            reason = f"job {twins[job.id]} has its unique key" if job.id in twins else ""
            last = Finished(job, Cancel(_and_why(reason, finished.outcome))) if reason else finished
            with suppress(asyncpg.UniqueViolationError):
                await patiently("writing an outcome down", lambda last=last: self.write([last]))  # type: ignore[misc]
                return


def are_plain(finished: Sequence[Finished]) -> bool:
    """Whether all are completed jobs of one attempt number that leave no result, as most are."""
    attempt = finished[0].job.attempt
    return all(type(one.outcome) is Complete and one.job.attempt == attempt and not keeps_result(one.job) for one in finished)


def _and_why(reason: str, outcome: Outcome) -> str:
    failure = getattr(outcome, "failure", None)
    return f"{reason}; it had failed with {failure.type}: {failure.message}" if isinstance(failure, Failure) else reason


def is_about_a_value(error: Exception) -> bool:
    """Whether what was to be written is at fault, and neither the database nor the schema."""
    if isinstance(error, asyncpg.PostgresError | asyncpg.InterfaceError):
        return isinstance(error, (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError, asyncpg.ProgramLimitExceededError))
    return not passes(error) and not isinstance(error, RxJobsError)


def _without_text(finished: Finished, refused: Exception) -> Outcome:
    failure = Failure("rxjobs.OutcomeRefused", f"this outcome could not be written down: {type(refused).__name__}")
    match finished.outcome:
        case Retry(delay=delay):
            return Retry(delay, "", failure)
        case Discard():
            return Discard("", failure)
        case Cancel():
            return Cancel("")
        case Complete() | Snooze() | Release() as outcome:
            return outcome
        case _:  # an outcome of the user's own making
            return resolve(finished.job, Retry(failure=failure))
