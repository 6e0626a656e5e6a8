"""rxjobs beside its peers and the raw limit: `python -m tests.peers --rounds 3`, see docs/benchmarks.md.

Give RXJOBS_DSN or --dsn (of a role that may create databases), or an embedded server is started.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import msgspec

from rxjobs.bench import measure
from rxjobs.bench.figures import MEASURES, Figure, Key, Missing, Subject, Values, figures
from rxjobs.bench.ground import Ground
from rxjobs.bench.ground import prepared as prepared_for_rxjobs
from rxjobs.bench.machine import Machine
from rxjobs.bench.program import NotMeasured
from rxjobs.bench.run import Run, embedded_if
from rxjobs.bench.said import Runner
from rxjobs.bench.scenarios import LEAST, WAYS, Case, Measuring, Scenario, Sizes
from rxjobs.bench.tables import where
from rxjobs.bench.view import View, view_on
from rxjobs.errors import InvalidOption, NoDatabase
from rxjobs.settings import load
from rxjobs.signals import stopped_by_sigterm
from rxjobs.store.served import is_embedded
from tests.peers.environments import environment, is_at_least, machine_of, suitable_python, versions
from tests.peers.ground import prepared
from tests.peers.peers import PEERS, Peer

SIZES = Sizes(throughput=5_000, bulk=5_000, single=1_000, together=4_000, paced=100)
FASTER: Mapping[str, int] = {"raw": 20, "rxjobs": 8, "pgqueuer": 4}
"""How many times as many jobs as the slowest each takes, where it is fast, lest its run be over before it has begun."""
BEST: Mapping[str, int] = {"raw": 1_000, "rxjobs": 1_000, **{peer.name: peer.best for peer in PEERS}}
LIMIT_SECONDS = 120.0
SCHEMA = "rxjobs_bench"

Grounds = Mapping[str, Ground | NotMeasured]
"""Where each is measured, or why it cannot be."""


def cases(grounds: Grounds, sizes: Sizes) -> Iterator[Case]:
    """All that is measured, of one after the other: whatever the machine does meanwhile meets all of them."""
    for name, at in (("50 at once", {}), ("each at its best", BEST)):
        for runner in grounds:
            options = {"jobs": sizes.throughput * FASTER.get(runner, 1), "concurrency": at.get(runner, measure.CONCURRENCY)}
            yield _case(grounds, "throughput", name, runner, measure.throughput, **options)
    for way, count in (("bulk", sizes.bulk), ("single", sizes.single), ("together", sizes.together)):
        for runner in grounds:
            its_count = count * FASTER.get(runner, 1) if way == "bulk" else count
            yield _case(grounds, "enqueue", WAYS[way], runner, measure.enqueue, way=way, count=its_count)
    for runner in grounds:
        yield _case(grounds, "latency", "20 jobs/s, idle worker", runner, measure.latency, count=sizes.paced)


def _case(grounds: Grounds, scenario: Scenario, case: str, runner: str, how: Measuring, **options: object) -> Case:
    # the programs of a peer know who they are: to the bench it is one that is not rxjobs
    taken: Runner = "rxjobs" if runner == "rxjobs" else "raw"
    return Case(Subject(Key(scenario, case, runner)), partial(_measure, grounds[runner], partial(how, runner=taken, **options)))


async def _measure(there: Ground | NotMeasured, how: Measuring, _: Ground) -> Values:
    if isinstance(there, NotMeasured):
        raise there
    return await how(there)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What was found, where, and of which versions."""

    machine: Machine
    server: dict[str, str | bool]
    began: datetime
    rounds: int
    sizes: Sizes
    concurrency: Mapping[str, int]
    versions: Mapping[str, Mapping[str, str]]
    figures: Sequence[Figure]
    """Those of rxjobs come once with the ratio to each of the others."""
    missing: Sequence[Missing]


async def compare(dsn: str | None, python: str, rounds: int, sizes: Sizes, peers: Sequence[Peer], view: View) -> Report:
    """Measure all in each round; raises NotMeasured where rxjobs itself cannot be."""
    async with AsyncExitStack() as stack:
        stack.enter_context(stopped_by_sigterm())
        reached = stack.enter_context(embedded_if(load({"dsn": dsn}).dsn))
        ours = environment(python, ())
        machine, began = machine_of(ours), datetime.now(UTC)
        ground = await stack.enter_async_context(prepared_for_rxjobs(reached, SCHEMA, ours))
        grounds: dict[str, Ground | NotMeasured] = {"raw": ground, "rxjobs": ground}
        found = {"rxjobs": versions(ours, ["rxjobs", "asyncpg", "uvloop"])}
        for peer in peers:
            try:
                if not is_at_least(python, peer.python):
                    raise NotMeasured("it needs Python {}.{}, and {} is older: give --python".format(*peer.python, python))
                its = environment(python, [peer.requirement])
                found[peer.name] = versions(its, [peer.name, *peer.others, "uvloop"])
                grounds[peer.name] = await stack.enter_async_context(prepared(peer, its, ground.dsn, ours=is_embedded(reached)))
            except NotMeasured as error:
                grounds[peer.name] = error
        run = Run(list(cases(grounds, sizes)), ground, view, limit=LIMIT_SECONDS)
        await run.measure(rounds)
        return Report(
            machine=machine,
            server={**await ground.settings(), "embedded": is_embedded(reached)},
            began=began,
            rounds=rounds,
            sizes=sizes,
            concurrency={name: BEST[name] for name in grounds},
            versions=found,
            figures=list(held_against(run)),
            missing=run.missing,
        )


def held_against(run: Run) -> Iterator[Figure]:
    """What was found of each, and of rxjobs once with each that it is held against."""
    for key in run.rounds:
        if key.runner != "rxjobs":
            ours = Subject(Key(key.scenario, key.case, "rxjobs"), base=key)
            yield from figures([Subject(key), ours], run.rounds)


def table(found: Sequence[Figure], runners: Iterable[str]) -> str:
    """All figures as Markdown: medians, ranges, and by how much rxjobs differs."""
    others = [name for name in runners if name != "rxjobs"]
    cells: dict[tuple[str, str, str], dict[str, str]] = {}
    for one in found:
        row = cells.setdefault((one.scenario, one.case, one.measure), {})
        row[one.runner] = one.found.told(MEASURES[one.measure].digits)
        if one.ratio is not None:
            row[f"rxjobs ÷ {one.ratio.of}"] = one.ratio.told(2)
    columns = [*others[:1], "rxjobs", *others[1:], *(f"rxjobs ÷ {name}" for name in others)]
    lines = [["", *columns], ["---"] * (1 + len(columns))]
    for (scenario, case, measured), row in cells.items():
        if measured not in ("peak", "p95"):
            lines.append([f"{scenario}, {case}: {MEASURES[measured].unit}", *(row.get(column, "") for column in columns)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def below(report: Report) -> str:
    """Machine, server, versions and settings."""
    of_all = "; ".join(", ".join(f"{name} {version}" for name, version in its.items()) for its in report.versions.values())
    best = ", ".join(f"{name} {concurrency:,}" for name, concurrency in report.concurrency.items())
    return f"{where(report)}. Rounds: {report.rounds}. Versions: {of_all}. At its best: {best}."


def main() -> int:
    """Compare as the command line says; 1 where something was not measured."""
    parser = argparse.ArgumentParser(prog="python -m tests.peers", description=__doc__)
    parser.add_argument("--rounds", type=int, default=1, help="measure all so often, and tell medians and ranges")
    parser.add_argument(
        "--jobs", type=int, default=SIZES.throughput, help="what the slowest is given to run; all else in proportion"
    )
    parser.add_argument("--dsn", help="a PostgreSQL whose role may create databases")
    parser.add_argument(
        "--python", default=suitable_python(max(peer.python for peer in PEERS)), help="the Python of all environments"
    )
    parser.add_argument("--json", type=Path, help="write a JSON document there too")
    given = parser.parse_args()
    if given.jobs < LEAST or given.rounds < 1:
        parser.error(f"--jobs is at least {LEAST} and --rounds at least 1")
    sizes = SIZES.scaled(given.jobs / SIZES.throughput)
    try:
        with view_on(sys.stderr) as view:
            report = asyncio.run(compare(given.dsn, given.python, given.rounds, sizes, PEERS, view))
    except (NotMeasured, InvalidOption, NoDatabase) as error:
        parser.exit(2, f"{error}\n")
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 130
    print(f"{table(report.figures, report.concurrency)}\n\n{below(report)}")
    if given.json:
        given.json.write_bytes(msgspec.json.format(msgspec.json.encode(report)))
    for runner, reason in dict.fromkeys((one.runner, one.reason) for one in report.missing):
        print(f"not all of {runner} was measured: {reason}")
    return 1 if report.missing else 0


if __name__ == "__main__":
    sys.exit(main())
