"""The statements about breakers."""

from __future__ import annotations

from uuid import UUID

import msgspec

from rxjobs.definition import Breaker
from rxjobs.store.asking import Asking, Rows
from rxjobs.store.standing import Report, Standing

STANDINGS = msgspec.json.Decoder(list[Standing])


class BreakerStatements(Asking):
    """Breakers, which all nodes share."""

    async def enter_breaker(self, type: str) -> None:
        """Enter a job type's breaker, closed."""
        await self._run("enter_breaker", type)

    async def report_breaker(self, type: str, node: UUID, report: Report, how: Breaker) -> Standing:
        """Tell what a node has seen of a job type; gives how its breaker stands then."""
        values = (
            type, node, *report, how.fail_max, how.failure_rate, how.min_calls, float(how.window), float(how.reset_timeout),
            how.probes, self._notify,
        )  # fmt: skip
        while not (rows := await self._run("report_breaker", *values)):
            await self.enter_breaker(type)
        return _standing(rows)

    async def take_probes(self, type: str, node: UUID, wanted: int, out: int, allowed: int) -> tuple[Standing, int]:
        """Ask for so many more probes than the node has out; gives how the breaker stands then, and how many it was given."""
        while not (rows := await self._run("take_probes", type, node, wanted, out, allowed)):
            await self.enter_breaker(type)
        return _standing(rows), rows[0]["given"]

    async def open_breaker(self, type: str) -> bool:
        """Open a breaker until it is closed by hand; gives whether that is new."""
        (row,) = await self._run("open_breaker", type, self._notify)
        return bool(row["is_changed"])

    async def close_breaker(self, type: str) -> bool:
        """Close a breaker; gives whether that is new."""
        (row,) = await self._run("close_breaker", type, self._notify)
        return bool(row["is_changed"])

    async def list_breakers(self) -> Rows:
        """The breakers of job types that have failed."""
        return await self._run("list_breakers")

    async def is_known_type(self, type: str) -> bool:
        """Whether a living node takes jobs of a type, or its breaker was ever entered."""
        (row,) = await self._run("is_known_type", type)
        return bool(row["is_known"])


def _standing(rows: Rows) -> Standing:
    return Standing(**{name: rows[0][name] for name in Standing.__struct_fields__})
