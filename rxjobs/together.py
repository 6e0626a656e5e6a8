"""Jobs that run together: each with its types' middleware around it, and one call for all that it lets through."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

from rxjobs.calls import Call
from rxjobs.decide import raised, resolve, returned
from rxjobs.demand import ended, now
from rxjobs.events import Emit, JobStarted
from rxjobs.hold import CANCELLED
from rxjobs.job import Job
from rxjobs.outcome import COMPLETE, Discard, Finished, Outcome, Release, Retry, SharedFailure
from rxjobs.perform import tell_end, waited
from rxjobs.stopping import called, is_wish_to_stop, spawn

Handler = Callable[[list[Job]], Any]
Answer = None | Sequence[Outcome] | Mapping[int, Outcome]


class Together:
    """Where the jobs of a batch run, with their types' middleware around each: in one call for all that it lets through."""

    name = "batch"
    keeps_time = True

    async def run(self, call: Call) -> Any:
        """The job's part of what the call for all gives."""
        batch, place = _place.get()
        return await batch.join(place, call.job)

    async def close(self) -> None:
        """There is nothing to end."""


TOGETHER = Together()


class Batch:
    """Jobs that are performed each by itself, until all wait here for the one call, or have ended without."""

    def __init__(self, jobs: list[Job], handler: Handler, timeout: float | None, emit: Emit) -> None:
        self._jobs = jobs
        self._handler = handler
        self._timeout = timeout
        self._emit = emit
        self._parts: dict[int, tuple[Job, asyncio.Future[Outcome]]] = {}
        self._missing = set(range(len(jobs)))
        self._loop = asyncio.get_running_loop()
        self._is_complete: asyncio.Future[None] = self._loop.create_future()

    async def run(self) -> list[Finished]:
        """Perform them all. Asked to stop, it stops the call, and releases what waits for it."""
        tasks = [spawn(self._loop, self._perform(place, job)) for place, job in enumerate(self._jobs)]
        try:
            await self._is_complete
        except asyncio.CancelledError as error:
            # a middleware still waits for something
            for task in tasks:
                task.cancel(*error.args)
        else:
            await self._call()
        return [await task for task in tasks]

    async def join(self, place: int, job: Job) -> Outcome:
        """Wait for the job's part of what the call gives."""
        part: asyncio.Future[Outcome] = self._loop.create_future()
        self._parts[place] = job, part
        self._is_there(place)
        return await part

    async def _perform(self, place: int, job: Job) -> Finished:
        _place.set((self, place))
        try:
            if job.definition is None:
                return await self._perform_untyped(place, job)
            finished: Finished = await job.definition.perform(job, TOGETHER)
            return finished
        finally:
            self._is_there(place)

    async def _perform_untyped(self, place: int, job: Job) -> Finished:
        began = now()
        queue_time = waited(job, began)
        self._emit(JobStarted(job=job.told, queue_time=queue_time, monotonic_time=began))
        outcome = await self.join(place, job)
        return ended(job, tell_end(self._emit, job, outcome, queue_time, now() - began))

    async def _call(self) -> None:
        together: list[tuple[Job, asyncio.Future[Outcome]]] = []
        for _, (job, part) in sorted(self._parts.items()):
            if job.hold is not None and job.hold.is_to_be_cancelled:
                part.set_result(Release(reason=CANCELLED))  # its run has not begun
            else:
                together.append((job, part))
        if not together:
            return
        jobs, parts = zip(*together, strict=True)
        call = called(self._handler, self._timeout or _shortest(jobs))
        for part, outcome in zip(parts, await _outcomes(list(jobs), call), strict=True):
            # one that was cancelled meanwhile has ended already
            if not part.done():
                part.set_result(outcome)

    def _is_there(self, place: int) -> None:
        self._missing.discard(place)
        if not self._missing and not self._is_complete.done():
            self._is_complete.set_result(None)


_place: ContextVar[tuple[Batch, int]] = ContextVar("rxjobs_place_in_batch")


def _shortest(jobs: Sequence[Job]) -> float | None:
    """The shortest timeout of the jobs' types, seconds."""
    return min((job.definition.how.timeout for job in jobs if job.definition and job.definition.how.timeout), default=None)


async def _outcomes(jobs: list[Job], call: Callable[[list[Job]], Awaitable[Any]]) -> list[Outcome]:
    try:
        return _read(jobs, await call(jobs))
    except BaseException as error:  # the handler is a user's, and may raise anything
        if is_wish_to_stop(error):
            return [Release(reason="its run was stopped") for _ in jobs]
        first, *others = (raised(job, error) for job in jobs)
        return [first, *(_shared(one, error) for one in others)]


def _shared(outcome: Outcome, error: BaseException) -> Outcome:
    """How another job ended of the same call: one call has failed, and not as many as it has jobs, which is what breakers count."""
    return replace(outcome, exception=SharedFailure(error)) if isinstance(outcome, Retry | Discard) else outcome


def _read(jobs: list[Job], answer: Answer) -> list[Outcome]:
    match answer:
        case None:
            return [COMPLETE for _ in jobs]
        case Mapping() if answer.keys() <= {job.id for job in jobs} and _are_outcomes(answer.values()):
            return [resolve(job, answer.get(job.id, COMPLETE)) for job in jobs]
        case Outcome():
            return [returned(job, answer) for job in jobs]
        case Sequence() if len(answer) == len(jobs) and _are_outcomes(answer):
            return [resolve(job, outcome) for job, outcome in zip(jobs, answer, strict=True)]
    raise TypeError(
        f"the handler of rj.execute_batch returns None, {len(jobs)} outcomes in the order of its jobs, or a mapping of their ids "
        f"to outcomes, not {answer!r:.200}"
    )


def _are_outcomes(values: Any) -> bool:
    return all(isinstance(value, Outcome) for value in values)
