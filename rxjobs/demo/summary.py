"""What came of the demo, read from the tables it filled, and whether that is what should have."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec

from rxjobs.demo.witness import ENDS, Run, Transition, Witness
from rxjobs.job import Job, State
from rxjobs.store.database import Database

LARGEST = 10
AWAITED = {
    "flaky_reading": State.COMPLETED,
    "failing_reading": State.DISCARDED,
    "slow_reading": State.DISCARDED,
    "forecast": State.COMPLETED,
}
"""How the jobs of the weather must end."""

COUNT = "SELECT type, state, count(*)::integer AS jobs FROM {schema}.jobs GROUP BY type, state ORDER BY type, state"
STATES = "SELECT id, state FROM {schema}.jobs"
TOTALS = """
SELECT count(*)::integer AS files, COALESCE(sum(bytes), 0)::bigint AS bytes, COALESCE(sum(lines), 0)::bigint AS lines,
       COALESCE(sum(functions), 0)::bigint AS functions, COALESCE(sum(classes), 0)::bigint AS classes,
       COALESCE(sum(imports), 0)::bigint AS imports
FROM {schema}.python_files"""
LARGEST_MODULES = "SELECT name, lines, functions, classes FROM {schema}.python_files ORDER BY lines DESC, name LIMIT $1"
TIMES = """
SELECT extract(epoch FROM attempted_at - inserted_at)::float8 AS waited,
       extract(epoch FROM finished_at - attempted_at)::float8 AS took
FROM {schema}.jobs
WHERE type = 'index_file' AND state = 'completed'"""


class Module(msgspec.Struct, frozen=True):
    """A large file."""

    name: str
    lines: int
    functions: int
    classes: int


class DeadLetter(msgspec.Struct, frozen=True):
    """A job that was discarded, and its last error."""

    id: int
    type: str
    attempts: int
    about: str
    error: str


class Percentiles(msgspec.Struct, frozen=True):
    """Seconds that half, 95 % and 99 % did not exceed, and the most."""

    p50: float
    p95: float
    p99: float
    max: float


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What came of the demo; times in seconds."""

    seconds: float
    jobs: int
    jobs_per_second: float
    totals: Mapping[str, int]
    """Of the files that were indexed: files, bytes, lines, functions, classes, imports."""
    largest: Sequence[Module]
    states: Mapping[str, Mapping[str, int]]
    """Job type → state → jobs."""
    outcomes: Mapping[str, int]
    """Outcome → attempts that ended so."""
    retries: int
    rejected: int
    """How often a job was put off because a breaker was open."""
    transitions: Sequence[Transition]
    dead_letters: Sequence[DeadLetter]
    latencies: Mapping[str, Percentiles]
    events: Mapping[str, int]
    """Event name → how often it was heard."""
    problems: Sequence[str] = ()
    """What did not end as it should; nothing, if all is well."""


async def summarize(
    database: Database, schema: str, ids: Collection[int], dead: Sequence[Job], witness: Witness, seconds: float
) -> Summary:
    """Read what the demo left behind, and check it."""

    async def fetch(sql: str, *args: object) -> list[Mapping[str, object]]:
        return [dict(row) for row in await database.fetch(sql.format(schema=schema), *args)]

    states: dict[str, dict[str, int]] = {}
    for row in msgspec.convert(await fetch(COUNT), list[_Count]):
        states.setdefault(row.type, {})[row.state] = row.jobs
    rows: dict[int, list[State]] = {}
    for one in msgspec.convert(await fetch(STATES), list[_Row]):
        rows.setdefault(one.id, []).append(one.state)
    (totals,) = msgspec.convert(await fetch(TOTALS), list[dict[str, int]])
    times = msgspec.convert(await fetch(TIMES), list[_Times])
    outcomes: dict[str, int] = {}
    for (_, outcome), count in witness.outcomes.items():
        outcomes[outcome] = outcomes.get(outcome, 0) + count
    ended = sum(len(ends) for ends in witness.ends.values())
    return Summary(
        seconds=seconds,
        jobs=len(ids),
        jobs_per_second=ended / seconds,
        totals=totals,
        largest=msgspec.convert(await fetch(LARGEST_MODULES, LARGEST), list[Module]),
        states=states,
        outcomes=outcomes,
        retries=witness.retries,
        rejected=witness.events["breaker.reject"],
        transitions=witness.transitions,
        dead_letters=[_dead_letter(job) for job in dead],
        latencies=dict(_latencies(times, witness.runs)),
        events=dict(sorted(witness.events.items())),
        problems=[*find_lost(ids, rows, witness.ends), *find_misled(states, totals["files"], witness.transitions)],
    )


class _Count(msgspec.Struct):
    type: str
    state: str
    jobs: int


class _Row(msgspec.Struct):
    id: int
    state: State


class _Times(msgspec.Struct):
    waited: float
    took: float


def percentiles(values: Sequence[float]) -> Percentiles:
    """The percentiles of at least one value, each a value that occurred (nearest rank)."""
    ordered = sorted(values)

    def rank(share: float) -> float:
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)]

    return Percentiles(rank(0.5), rank(0.95), rank(0.99), ordered[-1])


def _latencies(files: Sequence[_Times], runs: Sequence[Run]) -> Iterator[tuple[str, Percentiles]]:
    # the stages of the index are timed by its rows: the events of a batch begin with the last stage
    if files:
        yield "files: enqueue → claim", percentiles([one.waited for one in files])
        yield "files: claim → written down", percentiles([one.took for one in files])
    weather = [run for run in runs if run.type in AWAITED]
    if weather:
        yield "weather: due → start", percentiles([run.waited for run in weather])
        yield "weather: run", percentiles([run.took for run in weather])


def _dead_letter(job: Job) -> DeadLetter:
    about = ", ".join(f"{name}={value}" for name, value in list(job.args.items())[:1])
    error = f"{job.errors[-1]['type']}: {job.errors[-1]['message']}" if job.errors else "no error was kept"
    return DeadLetter(job.id, job.type, job.attempt, about, error)


def find_lost(ids: Collection[int], rows: Mapping[int, Sequence[State]], ends: Mapping[int, Sequence[State]]) -> Iterator[str]:
    """What is wrong with jobs: each must have one row, in the state in which it came out of its pipeline, once."""
    lost = [id_ for id_ in ids if id_ not in rows]
    unfinished = [id_ for id_, states in rows.items() if not set(ENDS.values()).issuperset(states)]
    odd = [id_ for id_ in rows.keys() | ends.keys() if rows.get(id_) != ends.get(id_)]
    if lost:
        yield f"{len(lost)} jobs have no row: {_some(lost)}"
    if unfinished:
        yield f"{len(unfinished)} jobs did not end: {_some(unfinished)}"
    if odd:
        yield f"{len(odd)} jobs did not end exactly once, as their row says: {_some(odd)}"


def find_misled(states: Mapping[str, Mapping[str, int]], written: int, transitions: Sequence[Transition]) -> Iterator[str]:
    """What did not go as it is meant to: `written` is how many files the table has."""
    completed = states.get("index_file", {}).get(State.COMPLETED, 0)
    if written != completed:
        yield f"{written} files were written, and {completed} of their jobs completed"
    for name, state in AWAITED.items():
        if states.get(name, {}).keys() != {state}:
            yield f"all jobs of {name} should have ended {state.value}, and ended {dict(states.get(name, {}))}"
    moves = [(one.before, one.after) for one in transitions if one.type == "forecast"]
    if not moves or moves[0] != ("closed", "open") or moves[-1] != ("half-open", "closed"):
        yield f"the breaker of forecast should have opened and closed again, and moved {moves}"


def _some(ids: Sequence[int]) -> str:
    return ", ".join(map(str, sorted(ids)[:10])) + (" …" if len(ids) > 10 else "")
