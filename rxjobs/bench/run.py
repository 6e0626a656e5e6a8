"""One run of the bench: every case in each round, on a schema that is gone afterwards."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from rxjobs.bench.figures import MEASURES, Figure, Key, Missing, Values, figures
from rxjobs.bench.ground import Ground, prepared
from rxjobs.bench.machine import Machine, this_machine
from rxjobs.bench.program import NotMeasured
from rxjobs.bench.said import Level
from rxjobs.bench.scenarios import Case, Scenario, Sizes, cases
from rxjobs.bench.view import View
from rxjobs.settings import load
from rxjobs.signals import stopped_by_sigterm
from rxjobs.store.served import is_embedded


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure, how often, with how many jobs."""

    scenarios: Sequence[Scenario]
    sizes: Sizes
    rounds: int
    levels: Sequence[Level]

    @property
    def limit(self) -> float:
        """Seconds after which a case is given up: several times what the slowest machine needs."""
        return 60 + self.sizes.memory / 500

    @property
    def cases(self) -> list[Case]:
        """Every one of the scenarios."""
        return [case for scenario in self.scenarios for case in cases(scenario, self.sizes, self.levels)]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What was found, where, and how."""

    machine: Machine
    server: dict[str, str | bool]
    began: datetime
    seconds: float
    wanted: Wanted
    figures: Sequence[Figure]
    missing: Sequence[Missing]


async def run(wanted: Wanted, dsn: str | None, schema: str, view: View) -> Report:
    """Measure all that is wanted; raises InvalidOption or NoDatabase where it cannot be begun."""
    with stopped_by_sigterm(), embedded_if(load({"dsn": dsn}).dsn) as found:
        began, at = datetime.now(UTC), time.monotonic()
        machine = this_machine()
        async with prepared(found, schema) as ground:
            bench = Run(wanted.cases, ground, view, limit=wanted.limit)
            await bench.measure(wanted.rounds)
            return Report(
                machine=machine,
                server={**await ground.settings(), "embedded": is_embedded(found)},
                began=began,
                seconds=round(time.monotonic() - at, 1),
                wanted=wanted,
                figures=bench.figures,
                missing=bench.missing,
            )


class Run:
    """Goes through the rounds, and keeps what was found."""

    def __init__(self, cases: Sequence[Case], ground: Ground, view: View, *, limit: float) -> None:
        """`limit` is the seconds after which a case is given up."""
        self.rounds: dict[Key, list[Values | None]] = {}
        self.missing: list[Missing] = []
        self._cases = cases
        self._ground = ground
        self._view = view
        self._limit = limit

    @property
    def figures(self) -> list[Figure]:
        """All that was found, in the order of the cases."""
        return list(figures((case.subject for case in self._cases), self.rounds))

    async def measure(self, rounds: int) -> None:
        """Measure each case once in every round."""
        self._view.expect(len(self._cases) * rounds)
        for number in range(1, rounds + 1):
            # each goes first in its turn, so that a machine that grows slower favours nobody
            for case in self._cases if number % 2 else reversed(self._cases):
                name = f"round {number}" if rounds > 1 else ""
                self.rounds.setdefault(case.subject.key, []).append(await self._measure(case, number, name))

    async def _measure(self, case: Case, number: int, round: str) -> Values | None:
        key = case.subject.key
        name = ", ".join(filter(None, (key.scenario, key.case, key.runner, round)))
        self._view.begin(name)
        try:
            async with asyncio.timeout(self._limit):
                values = await case.measure(self._ground)
        except (NotMeasured, TimeoutError) as error:
            reason = str(error) or f"it was given up after {self._limit:.0f} s"
            self.missing.append(Missing(key.scenario, key.case, key.runner, number, reason))
            self._view.end(f"{name}: not measured: {reason}")
            return None
        self._view.end(f"{name}: {told(values)}")
        return values


def told(values: Values) -> str:
    """Figures in a line."""
    return ", ".join(f"{value:,.{MEASURES[name].digits}f} {MEASURES[name].unit}" for name, value in values.items())


@contextmanager
def embedded_if(dsn: str | None) -> Iterator[str]:
    """Where nobody names a server, one in a folder that is gone afterwards."""
    if dsn:
        yield dsn
        return
    with TemporaryDirectory(prefix="rxjobs-bench-", ignore_cleanup_errors=True) as folder:
        # as root the server has an account of its own, which is to reach its folder in there
        Path(folder).chmod(0o755)
        yield f"embedded://{folder}/data"
