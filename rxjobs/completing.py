"""A job's completion as a part of the job's own transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any

from rxjobs.errors import InvalidOption, NotOpen, StaleClaim
from rxjobs.job import Job, current_job
from rxjobs.store.joining import is_asynchronous, joined
from rxjobs.store.result_statements import Claim, complete_job


def complete_in(connection: Any, *, result: Any = None) -> Awaitable[None]:
    """Write the running job's completion in the connection's transaction: what the job wrote there and that it is done are
    committed together or not at all, so that such a job takes effect exactly once.

    `connection` is one of asyncpg or psycopg 3, a Session, AsyncSession or Connection of SQLAlchemy 2, or Django's. A plain
    function, which cannot await, just calls this with a synchronous one. `result` is what is kept of a job with `record=True`:
    what it returns after this is not.

    Raises StaleClaim, which is to undo the transaction, where others may have the job by now, and InvalidOption for a connection
    that is in no transaction.
    """
    job = current_job()
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        if is_asynchronous(connection):
            raise InvalidOption(
                f"{connection!r:.100} is used by an event loop: await complete_in(...) in a job that is an async def"
            ) from None
        return _done_here(_complete(job, connection, result))
    return _complete(job, connection, result)


async def _complete(job: Job, connection: Any, result: Any) -> None:
    definition = job.definition
    if definition is None or job.hold is None or job.node is None:
        raise NotOpen(f"job {job.id} ({job.type}) is no row of an app that runs now: no transaction can complete it")
    stored = definition.seal_result(result)
    ours = await joined(connection)
    if ours is None or not ours.is_in_transaction():
        raise InvalidOption(
            "complete_in takes a connection that is in a transaction, with what the job writes in the same one: "
            "async with connection.transaction(): …"
        )
    if not await complete_job(definition.schema, ours, Claim(job.id, job.node, job.attempt, job.attempted_at), stored):
        raise StaleClaim(
            f"attempt {job.attempt} of job {job.id} ({job.type}) is not the current one any more, or is completed already: roll "
            "its transaction back"
        )


def _done_here(work: Coroutine[Any, Any, None]) -> Awaitable[None]:
    """Do it in the calling thread, which runs no event loop: over a synchronous connection nothing else is waited for."""
    try:
        while True:
            work.send(None)
    except StopIteration:
        return _Done()


class _Done:
    """What need not be awaited any more, and may be."""

    def __await__(self) -> Any:
        return iter(())
