"""Where the machine plays: in memory, or in memory and on a real PostgreSQL, which have to agree after every step."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Coroutine, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

import asyncpg
import msgspec

from rxjobs.backoff import default_backoff
from rxjobs.definition import NewJob
from rxjobs.job import Job
from rxjobs.outcome import Complete, Finished
from rxjobs.store.database import Database
from rxjobs.store.encoding import Written, instant
from rxjobs.store.store import Store
from tests.model.rows import SECOND_RESCUE, Rows

T = TypeVar("T")

MOST = 1000


class Memory:
    """The rows alone. Every method is one statement, at an instant of its own."""

    def __init__(self) -> None:
        self.rows = Rows()
        self._next_id = 0

    def close(self) -> None:
        """Let go of it."""

    def agree(self) -> None:
        """Check that there are not two opinions."""

    def wait(self, seconds: float) -> None:
        self.rows.now += timedelta(seconds=seconds)

    def insert(self, max_attempts: int, priority: int, delay: float) -> int:
        self.rows.tick()
        self._next_id += 1
        self.rows.insert(self._next_id, max_attempts, priority, delay)
        return self._next_id

    def claim(self, node: UUID, n: int) -> list[Job]:
        self.rows.tick()
        return self.rows.claim(node, n)

    def ack(self, node: UUID, finished: Sequence[Finished]) -> set[int]:
        self.rows.tick()
        return self.rows.ack(node, finished)

    def lost_claims(self, node: UUID, held: Collection[int], before: datetime | None) -> tuple[set[int], datetime]:
        self.rows.tick()
        return self.rows.lost_claims(node, held, before), self.rows.now

    def take_lease(self, node: UUID, seconds: float) -> None:
        self.rows.tick()
        self.rows.take_lease(node, seconds)

    def renew_lease(self, node: UUID, seconds: float) -> bool:
        self.rows.tick()
        return self.rows.renew_lease(node, seconds)

    def leave(self, node: UUID) -> None:
        self.rows.tick()
        self.rows.leave(node)

    def lead(self, node: UUID, seconds: float) -> int | None:
        self.rows.tick()
        return self.rows.lead(node, seconds)

    def stage(self, leader: UUID, term: int) -> int:
        self.rows.tick()
        return self.rows.stage(leader, term)

    def expired(self) -> set[UUID]:
        self.rows.tick()
        return self.rows.expired()

    def rescue(self, node: UUID, leader: UUID, term: int, limit: int) -> set[int]:
        self.rows.tick()
        return self.rows.rescue(node, leader, term, limit)

    def bury(self, node: UUID) -> None:
        self.rows.tick()
        self.rows.bury(node)

    def cancel(self, ids: Collection[int]) -> set[int]:
        self.rows.tick()
        return self.rows.cancel(ids)

    def retry(self, ids: Collection[int]) -> set[int]:
        self.rows.tick()
        return self.rows.retry(ids)

    def pause(self, node: UUID | None) -> bool:
        self.rows.tick()
        return self.rows.pause(node)

    def resume(self, node: UUID | None) -> bool:
        self.rows.tick()
        return self.rows.resume(node)


class Postgres(Memory):
    """The rows in memory, and beside them the statements on a server. Time passes there by moving every instant back."""

    def __init__(self, dsn: str, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop = loop
        self._connection = self._do(asyncpg.connect(dsn))
        self._store = Store(_One(self._connection), "rxjobs")
        self._passed = timedelta()
        self._instants: dict[datetime, tuple[datetime, timedelta]] = {}
        """What an instant in memory is over there: as it was when it was made, and the time that had passed then."""
        tables = "rxjobs.live_jobs, rxjobs.finished_jobs, rxjobs.nodes, rxjobs.leaders, rxjobs.queues"
        self._do(self._connection.execute(f"TRUNCATE {tables} RESTART IDENTITY"))

    def close(self) -> None:
        self._do(self._connection.close())

    def agree(self) -> None:
        expected = {
            row.id: (row.state, row.attempt, row.max_attempts, row.priority, row.node, row.rescues)
            for row in self.rows.jobs.values()
        }
        lost = """(SELECT count(*) FROM jsonb_array_elements(errors) AS error WHERE error ->> 'type' = 'rxjobs.NodeLost')"""
        found = self._do(
            self._connection.fetch(f"SELECT id, state, attempt, max_attempts, priority, node, {lost} FROM rxjobs.jobs")
        )
        assert {row[0]: tuple(row)[1:] for row in found} == expected
        nodes = self._do(self._connection.fetch("SELECT id, expires_at > '-infinity' FROM rxjobs.nodes"))
        assert dict(map(tuple, nodes)) == {node: ends is not None for node, ends in self.rows.nodes.items()}

    def wait(self, seconds: float) -> None:
        super().wait(seconds)
        self._passed += timedelta(seconds=seconds)
        step = f"interval '{seconds} seconds'"
        self._do(
            self._connection.execute(
                f"UPDATE rxjobs.live_jobs SET scheduled_at = scheduled_at - {step}, attempted_at = attempted_at - {step};"
                f"UPDATE rxjobs.nodes SET expires_at = expires_at - {step};"
                f"UPDATE rxjobs.leaders SET expires_at = expires_at - {step};"
            )
        )

    def insert(self, max_attempts: int, priority: int, delay: float) -> int:
        id_ = super().insert(max_attempts, priority, delay)
        new = NewJob(type="work", queue="default", payload="{}", priority=priority, max_attempts=max_attempts, delay=delay)
        (made,) = self._do(self._store.insert_jobs([new]))
        assert (made.id, made.state) == (id_, self.rows.jobs[id_].state)
        return id_

    def claim(self, node: UUID, n: int) -> list[Job]:
        jobs = super().claim(node, n)
        rows = self._do(self._store.fetch_jobs("default", n, ["work"], node))
        assert {(row["id"], row["attempt"]) for row in rows} == {(job.id, job.attempt) for job in jobs}
        if rows:
            self._instants[self.rows.now] = instant(rows[0]["attempted_at"]), self._passed
        return jobs

    def ack(self, node: UUID, finished: Sequence[Finished]) -> set[int]:
        done = super().ack(node, finished)
        there = [Finished(self._job_there(one.job), one.outcome) for one in finished]
        ids, attempt = [one.job.id for one in there], there[0].job.attempt
        # chosen as PostgresSource does
        if all(type(one.outcome) is Complete and one.job.attempt == attempt for one in there):
            assert self._do(self._store.ack_completed(ids, node, attempt)) == done
        else:
            assert self._do(self._store.ack_jobs(node, Written.of(there, ""))) == done
        return done

    def lost_claims(self, node: UUID, held: Collection[int], before: datetime | None) -> tuple[set[int], datetime]:
        ids, now = super().lost_claims(node, held, before)
        found, there = self._do(self._store.lost_claims(node, held, self._there(before)))
        assert found == ids
        self._instants[now] = there, self._passed
        return ids, now

    def take_lease(self, node: UUID, seconds: float) -> None:
        super().take_lease(node, seconds)
        self._do(self._store.take_lease(node, "", 1, seconds))

    def renew_lease(self, node: UUID, seconds: float) -> bool:
        renewed = super().renew_lease(node, seconds)
        assert self._do(self._store.renew_lease(node, seconds)) == renewed
        return renewed

    def leave(self, node: UUID) -> None:
        super().leave(node)
        self._do(self._store.leave(node))

    def lead(self, node: UUID, seconds: float) -> int | None:
        term = super().lead(node, seconds)
        assert self._do(self._store.lead(node, seconds)) == term
        return term

    def stage(self, leader: UUID, term: int) -> int:
        staged = super().stage(leader, term)
        assert self._do(self._store.stage_jobs(MOST, leader, term))[0] == staged
        return staged

    def expired(self) -> set[UUID]:
        nodes = super().expired()
        assert {node for node, *_ in self._do(self._store.expired_nodes(0.0))} == nodes
        return nodes

    def rescue(self, node: UUID, leader: UUID, term: int, limit: int) -> set[int]:
        ids = super().rescue(node, leader, term, limit)
        held = self._do(self._store.held_by(node, limit))
        delays = [default_backoff(row["attempt"], row["max_attempts"]) for row in held]
        lost = [row["id"] for row in held], [row["attempt"] for row in held], delays
        assert self._do(self._store.rescue_jobs(node, *lost, leader, term)) == ids
        for id_ in ids:
            if self.rows.jobs[id_].state == "retryable":
                self._without_jitter(id_)
        return ids

    def bury(self, node: UUID) -> None:
        super().bury(node)
        self._do(self._store.bury(node))

    def cancel(self, ids: Collection[int]) -> set[int]:
        cancelled = super().cancel(ids)
        assert self._do(self._store.cancel_jobs(list(ids))) == cancelled
        return cancelled

    def retry(self, ids: Collection[int]) -> set[int]:
        back = super().retry(ids)
        assert self._do(self._store.retry_jobs(list(ids), 1)) == (back, [])
        return back

    def pause(self, node: UUID | None) -> bool:
        is_new = super().pause(node)
        assert self._do(self._store.pause_queue("default", _name(node))) == is_new
        return is_new

    def resume(self, node: UUID | None) -> bool:
        is_new = super().resume(node)
        assert self._do(self._store.resume_queue("default", _name(node))) == is_new
        return is_new

    def _without_jitter(self, id_: int) -> None:
        left = "SELECT extract(epoch FROM scheduled_at - now())::float8 FROM rxjobs.live_jobs WHERE id = $1"
        wait = self._do(self._connection.fetchval(left, id_))
        backoff = 15 + 2 ** self.rows.jobs[id_].attempt
        assert backoff - 1 < wait <= backoff * 1.1
        sql = "UPDATE rxjobs.live_jobs SET scheduled_at = now() + $2::float8 * interval '1 second' WHERE id = $1"
        self._do(self._connection.execute(sql, id_, SECOND_RESCUE))

    def _there(self, instant: datetime | None) -> datetime | None:
        if instant is None:
            return None
        made, passed = self._instants[instant]
        return made - (self._passed - passed)

    def _job_there(self, job: Job) -> Job:
        return msgspec.structs.replace(job, attempted_at=self._there(job.attempted_at))

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(work)


def _name(node: UUID | None) -> str:
    return "" if node is None else str(node)


class _One(Database):
    """A single connection in the place of a pool."""

    def __init__(self, connection: Any) -> None:
        super().__init__("")
        self._connection = connection

    async def fetch(self, sql: str, *args: Any, **how: Any) -> list[asyncpg.Record]:
        rows: list[asyncpg.Record] = await self._connection.fetch(sql, *args)
        return rows

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        async with self._connection.transaction():
            yield self._connection
