"""The statements about limits of queues that hold across all nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from hashlib import md5
from typing import Any

import asyncpg
import msgspec

from rxjobs.store.asking import Asking, Rows
from rxjobs.store.database import Connection
from rxjobs.store.statements import statement

SLOWEST, FASTEST = 1.0, 0.02
"""Seconds after which a claim that a rate has held back is made again."""


class Rate(msgspec.Struct, frozen=True, omit_defaults=True):
    """At most `n` starts in each window of `per` seconds; with `burst` as many as a bucket of that size has tokens, n in `per`."""

    n: int
    per: float
    burst: int | None = None

    def __str__(self) -> str:
        return f"{self.n} per {self.per:g} s" + ("" if self.burst is None else f", at most {self.burst} at once")

    @property
    def pace(self) -> float:
        """Seconds after which more may start."""
        return min(SLOWEST, max(FASTEST, self.per / (10 if self.burst is None else self.n)))


class Limits(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a queue is limited to across all nodes; None is no limit. `each_…` is for the jobs of one key, which `by` names."""

    concurrency: int | None = None
    rate: Rate | None = None
    by: str | None = None
    each_concurrency: int | None = None
    each_rate: Rate | None = None
    weights: Mapping[str, float] = {}
    is_shared: bool = False
    """Whether keys share the queue by their weights because that was asked. They do wherever there are keys."""

    def __str__(self) -> str:
        each = f" for each {self.by}"
        told = [
            None if self.concurrency is None else f"{self.concurrency} at once",
            None if self.rate is None else str(self.rate),
            None if self.each_concurrency is None else f"{self.each_concurrency} at once{each}",
            None if self.each_rate is None else f"{self.each_rate}{each}",
            None if not self.is_shared else f"shared by {self.by}",
            *(f"{key} weighs {weight:g}" for key, weight in self.weights.items()),
        ]
        return ", ".join(text for text in told if text)

    @property
    def is_by_key(self) -> bool:
        """Whether anything depends on the keys of jobs."""
        return self.each_concurrency is not None or self.each_rate is not None or self.is_shared

    @property
    def path(self) -> list[str] | None:
        """Where in the arguments the key is."""
        return None if self.by is None else self.by.split(".")[1:]

    @property
    def pace(self) -> float:
        """Seconds after which to ask again for what a claim was not given."""
        return min((rate.pace for rate in (self.rate, self.each_rate) if rate is not None), default=SLOWEST)


NONE = Limits()


class LimitStatements(Asking):
    """Limits, and claims under them."""

    async def lock_queue(self, queue: str, connection: Connection) -> None:
        """Be the only one to change what is asked of a queue, until the connection's transaction ends."""
        await self._run("lock_queue", queue, connection=connection)

    async def change_limits(self, queue: str, change: Callable[[Limits], Limits]) -> bool:
        """Change a queue's limits; gives whether that is new. Whatever `change` raises changes nothing."""
        async with self.database.transaction() as connection:
            await self.lock_queue(queue, connection)
            # before the table of jobs is: as claims do
            await self.lock_limits(queue, connection)
            before = (await self.read_limits(queue, connection)).get(queue, NONE)
            after = change(before)
            if after == before:
                return False
            if after.path != before.path:
                await self.index_keys(queue, after.path, connection)
            if after == NONE:
                await self.lift_limits(queue, connection)
            else:
                await self.save_limits(queue, after, connection)
        # in a transaction of its own: once that has committed, nobody claims without regard to it
        async with self.database.transaction() as connection:
            await self.lock_limits(queue, connection)
            await self.count_running(queue, connection)
        return True

    async def read_limits(self, queue: str | None = None, connection: Connection | None = None) -> dict[str, Limits]:
        """The limits of a queue, or of all, by queue: those that nothing is asked of are left out."""
        return {row["queue"]: _limits(row) for row in await self._run("read_limits", queue, connection=connection)}

    async def save_limits(self, queue: str, limits: Limits, connection: Connection) -> None:
        """Limit a queue."""
        await self._run("save_limits", queue, *_columns(limits), self._notify, connection=connection)

    async def lift_limits(self, queue: str, connection: Connection) -> None:
        """Have a queue be without limits."""
        await self._run("lift_limits", queue, self._notify, connection=connection)

    async def index_keys(self, queue: str, path: Sequence[str] | None, connection: Connection) -> None:
        """Make what claims by the key at a path need, or (None) do away with it; raises TimeoutError where the table is held."""
        try:
            await self._run("index_keys", queue, path, connection=connection)
        except asyncpg.LockNotAvailableError as error:
            raise TimeoutError(
                f"queue {queue}: the keys of its jobs could not be indexed, since a transaction, of a dump perhaps, has held "
                "the table of jobs for 2 s. Nothing was changed: try again when it has ended"
            ) from error

    async def fetch_by_keys(self, queue: str, *args: Any) -> Rows | None:
        """Claim from a queue that is limited by keys; gives None where it is so no more."""
        try:
            return await self.database.fetch(_of_queue("fetch_by_keys", self.schema, queue), *args, on="claims")
        except asyncpg.UndefinedFunctionError:
            return None
        except asyncpg.InternalServerError as error:
            if "cache lookup failed for function" not in str(error):
                raise
            return None  # it was done away with in this moment

    async def lock_limits(self, queue: str, connection: Connection) -> None:
        """Let nobody claim from a limited queue until the connection's transaction ends."""
        await self._run("lock_limits", queue, connection=connection)

    async def count_running(self, queue: str, connection: Connection) -> None:
        """Have the jobs that run take places, also those that were claimed before their queue was limited."""
        await self._run("count_running", queue, connection=connection)


@cache
def _of_queue(name: str, schema: str, queue: str) -> str:
    # as PostgreSQL names what it has made for the queue: not to keep anything secret
    return statement(name, schema).replace("{queue}", md5(queue.encode(), usedforsecurity=False).hexdigest())


def _columns(limits: Limits) -> tuple[Any, ...]:
    def rate(one: Rate | None) -> tuple[Any, ...]:
        return (None, None, None) if one is None else (one.n, one.per, one.burst)

    weights = msgspec.json.encode(limits.weights).decode()
    return (
        limits.path, limits.concurrency, *rate(limits.rate), limits.each_concurrency, *rate(limits.each_rate),
        weights, limits.is_shared, limits.pace,
    )  # fmt: skip


def _limits(row: Any) -> Limits:
    return Limits(
        row["concurrency"],
        None if row["rate"] is None else Rate(row["rate"], row["per"], row["burst"]),
        None if row["path"] is None else ".".join(["args", *row["path"]]),
        row["key_concurrency"],
        None if row["key_rate"] is None else Rate(row["key_rate"], row["key_per"], row["key_burst"]),
        msgspec.json.decode(row["weights"], type=dict[str, float]),
        row["is_shared"],
    )
