"""Every operator of rxjobs, by its public name: marble lines that show what it does, and ways in which it is held to the laws."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import reactivex as rx
from reactivex import compose
from reactivex import operators as ops

import rxjobs as rj
from rxjobs.testing import a_job
from tests.operators.parts import (
    RUN_AND_ACK,
    STEADY,
    Stage,
    ending,
    enqueued,
    find,
    followed_up,
    is_a,
    is_even,
    keep,
    letter,
    pulled,
    refuse,
    refuse_soon,
    same_after_two_seconds,
    seventh,
    sleeping,
    slow,
    two_seconds,
    two_seconds_for_all,
    write,
)


class Line(NamedTuple):
    """What goes in, and what comes out; `make` makes an operator, or a pipeline."""

    shows: str
    make: Callable[[], Stage | rx.Observable[Any]]
    jobs: str
    expect: str
    values: Mapping[str, Any] = {}


class Law(NamedTuple):
    """How an operator is made to be held to the laws; `failing`: around a function that raises."""

    make: Callable[[], Stage]
    failing: Callable[[], Stage] | None = None
    demand: Mapping[str, Any] = {}


class Row(NamedTuple):
    """One operator."""

    lines: tuple[Line, ...]
    laws: Mapping[str, Law]


def exported() -> set[str]:
    """The public names of what a pipeline is made of: the functions that the package exports, but for those named here."""
    others = {"call", "complete_in", "current_job", "in_pool", "in_processes", "in_threads", "on_loop"}
    return {name for name in rj.__all__ if inspect.isfunction(getattr(rj, name))} - others


def at_once(job: Law | Callable[[], Stage]) -> dict[str, Law]:
    return {"": job if isinstance(job, Law) else Law(job)}


OPERATORS: dict[str, Row] = {
    "ack": Row(
        (
            Line("what no source waits for passes", rj.ack, "-a-[bC]-D|", "-a-(bC)-D|"),
            Line("a place is given back once a job is acked", pulled(rj.complete(), rj.ack(), max_demand=1), "(abc)|", "(ABC)|"),
            Line("an error and an end pass", rj.ack, "-A#", "-A#"),
        ),
        at_once(rj.ack),
    ),
    "autoscale": Row(
        (
            Line(
                "more is held while fetches give all that was asked for, less when half is free",
                pulled(slow(2, 9), rj.ack(), max_demand=rj.autoscale(1, 3, every=2.0, **STEADY)),
                "(abcdefghi)|",
                "--A-(BC)-(DEF)-(GH)-(I|)",
            ),
        ),
        {
            "": Law(lambda: rj.execute(concurrency=9), demand={"max_demand": rj.autoscale(1, 40, every=0.001, **STEADY)}),
        },
    ),
    "balance": Row(
        (
            Line("a branch that is fast gets more", lambda: rj.balance(slow(6), slow(1)), "(abcd)---|", "-BCD--(A|)"),
            Line("what is finished passes", lambda: rj.balance(slow(1), slow(1)), "aB-c-|", "-(BA)--C|"),
        ),
        {
            "": Law(
                lambda: rj.balance(rj.execute(concurrency=3), rj.branch(rj.filter(is_even), rj.execute(), max_demand=2)),
                lambda: rj.balance(rj.enrich(refuse_soon), rj.filter(refuse)),
            ),
            "of what settles nothing": Law(lambda: rj.balance(rj.enrich(find), rj.branch(rj.buffer(3, 0.002), max_demand=9))),
            "with acks inside": Law(lambda: rj.balance(rj.branch(rj.execute(), rj.ack()), rj.complete())),
        },
    ),
    "branch": Row(
        (
            Line(
                "it is its operators in a row",
                lambda: rj.branch(rj.filter(is_a), rj.complete()),
                "-a-b|",
                "-A-B|",
                {"B": rj.Cancel},
            ),
            Line(
                "it is given no more than it may have",
                lambda: rj.balance(rj.branch(slow(2, 9), max_demand=2)),
                "(abc)|",
                "--(AB)-(C|)",
            ),
        ),
        {
            "": Law(lambda: rj.branch(rj.enrich(find), rj.execute()), lambda: rj.branch(rj.enrich(refuse_soon), rj.execute())),
        },
    ),
    "broadcast": Row(
        (
            Line("it goes on when all branches have settled it", lambda: rj.broadcast(slow(3), slow(1)), "-a-----|", "----A--|"),
            Line(
                "the worst outcome wins",
                lambda: rj.broadcast(rj.filter(is_a, otherwise=rj.Discard("no")), rj.complete()),
                "-b|",
                "-B|",
                {"B": rj.Discard("no")},
            ),
        ),
        {
            "": Law(
                lambda: rj.broadcast(rj.execute(concurrency=3), rj.branch(rj.enrich(find), rj.complete())),
                lambda: rj.broadcast(rj.complete(), rj.branch(rj.enrich(refuse_soon), rj.execute())),
            ),
            "with acks inside": Law(lambda: rj.broadcast(rj.branch(rj.execute(), rj.ack()), rj.branch(rj.complete(), rj.ack()))),
        },
    ),
    "buffer": Row(
        (
            Line("by count, and by time", lambda: rj.buffer(2, 4), "ab---c------|", "-[ab]-------[c]--|"),
            Line("what is finished passes", lambda: rj.buffer(3, None), "-aBc|", "--B-([ac]|)"),
        ),
        {
            "": Law(lambda: rj.buffer(7, 0.002)),
            "of one": Law(lambda: rj.buffer(1, None)),
            "without a timespan": Law(lambda: rj.buffer(7, None)),
            "by size": Law(lambda: rj.buffer(timespan=0.002, size=40), lambda: rj.buffer(timespan=0.002, size=40, measure=refuse)),
        },
    ),
    "complete": Row(
        (
            Line("jobs and lists of jobs end well", rj.complete, "-a-[bc]-D|", "-A-(BC)-D|", dict.fromkeys("ABCD", rj.Complete)),
            Line("without being run", rj.complete, "a|", "A|", {**sleeping(a=9), "A": rj.Complete(None)}),
            Line("an error passes", rj.complete, "-a#", "-A#"),
        ),
        at_once(rj.complete),
    ),
    "enqueue": Row(
        (
            Line("what comes during an insert goes into the next", lambda: enqueued(2), "abc----|", "--a-(bc)--|"),
            Line("it ends after its last insert", lambda: enqueued(3), "-(ab)|", "----(ab|)"),
            Line("an insert that fails is an error", lambda: enqueued(1), "a--x--|", "-a--#", {"x": a_job(args={"letter": "x"})}),
        ),
        at_once(followed_up),
    ),
    "enrich": Row(
        (
            Line(
                "several at once, in the order in which they are found",
                lambda: rj.enrich(two_seconds, concurrency=2),
                "abcd|",
                "--abc(d|)",
            ),
            Line(
                "what raises fails that job alone",
                lambda: rj.enrich(lambda job: 1 / is_a(job) and {}),
                "-ab|",
                "-aB|",
                {"B": rj.Retry},
            ),
        ),
        {
            "": Law(lambda: rj.enrich(find, concurrency=7), lambda: rj.enrich(refuse_soon)),
            "in threads": Law(lambda: rj.enrich(lambda job: {"found": job.id}, concurrency=3), lambda: rj.enrich(refuse)),
            "with a fallback": Law(
                lambda: rj.enrich(refuse_soon, fallback={}),
                lambda: rj.enrich(refuse_soon, fallback=lambda job, error: refuse()),
            ),
        },
    ),
    "execute": Row(
        (
            Line("as they end", rj.execute, "ab----|", "--B-A-|", {**sleeping(a=4, b=1), "A": rj.Complete, "B": rj.Complete}),
            Line("so many at once", lambda: rj.execute(concurrency=1), "(abc)|", "--A-B-(C|)", sleeping(a=2, b=2, c=2)),
            Line(
                "a retry comes back after its delay",
                pulled(*RUN_AND_ACK),
                "a-----|",
                "A--A--(A|)",
                {"a": ending("retry", max_attempts=3)},
            ),
            Line(
                "so does what raises, after its backoff",
                pulled(*RUN_AND_ACK),
                "a--|",
                "A--(A|)",
                {"a": ending("raise", max_attempts=2)},
            ),
            Line(
                "a snooze and a release are no attempts",
                pulled(*RUN_AND_ACK, ops.take(6)),
                "(ab)-|",
                "(AB)--(AB)--(AB|)",
                {"a": ending("snooze", max_attempts=2), "b": ending("release", max_attempts=2)},
            ),
            Line(
                "what is cancelled or discarded does not come back",
                pulled(*RUN_AND_ACK),
                "-(ab)|",
                "-(AB)|",
                {"a": ending("cancel"), "b": ending("discard"), "A": rj.Cancel("no"), "B": rj.Discard("no")},
            ),
        ),
        {
            "": Law(lambda: rj.execute(concurrency=5)),
            "one at a time": Law(lambda: rj.execute(concurrency=1)),
        },
    ),
    "execute_batch": Row(
        (
            Line("a list is one call", lambda: rj.execute_batch(two_seconds_for_all), "[ab]-[cd]-|", "--(AB)-(CD|)"),
            Line(
                "what raises fails all of a list",
                lambda: rj.execute_batch(refuse_soon),
                "[ab]-|",
                "(AB)-|",
                {"A": rj.Retry, "B": rj.Retry},
            ),
        ),
        {
            "": Law(
                lambda: compose(rj.buffer(7, 0.002), rj.execute_batch(write, concurrency=2)),
                lambda: compose(rj.buffer(7, 0.002), rj.execute_batch(refuse)),
            ),
            "of single jobs": Law(lambda: rj.execute_batch(write), lambda: rj.execute_batch(refuse_soon)),
        },
    ),
    "filter": Row(
        (
            Line(
                "the others are settled",
                lambda: rj.filter(is_a, otherwise=rj.Discard("no")),
                "-a-b|",
                "-a-B|",
                {"B": rj.Discard("no")},
            ),
            Line("what is finished passes", lambda: rj.filter(is_a), "-[ab]-C-|", "-(aB)-C-|", {"B": rj.Cancel}),
        ),
        {"": Law(lambda: rj.filter(is_even), lambda: rj.filter(refuse))},
    ),
    "map": Row(
        (
            Line("each comes when its function has returned", lambda: rj.map(same_after_two_seconds), "ab-|", "--a(b|)"),
            Line("so many at once", lambda: rj.map(same_after_two_seconds, concurrency=1), "(ab)--|", "--a-(b|)"),
            Line(
                "what gives no job fails", lambda: rj.map(lambda job: job if is_a(job) else None), "-ab|", "-aB|", {"B": rj.Retry}
            ),
            Line(
                "one that takes too long fails", lambda: rj.map(same_after_two_seconds, timeout=1), "a--|", "-A-|", {"A": rj.Retry}
            ),
            Line("a fallback may settle it", lambda: rj.map(refuse_soon, fallback=rj.Snooze(9)), "-a|", "-A|", {"A": rj.Snooze(9)}),
            Line("what is finished passes, lists are taken one by one", lambda: rj.map(keep), "-[ab]-C|", "-(ab)-C|"),
        ),
        {"": Law(lambda: rj.map(keep, concurrency=3), lambda: rj.map(refuse_soon))},
    ),
    "partition": Row(
        (
            Line("jobs of one key never overlap", lambda: rj.partition(2, by="queue", branch=slow(2, 9)), "(ab)---|", "--A-(B|)"),
            Line(
                "those of others are at the same time", lambda: rj.partition(1, by=letter, branch=slow(2, 9)), "(ab)--|", "--(AB)|"
            ),
        ),
        {
            "": Law(
                lambda: rj.partition(4, by=seventh, branch=rj.execute(concurrency=3)),
                lambda: rj.partition(4, by=refuse, branch=rj.execute()),
            ),
            "strict": Law(
                lambda: rj.partition(4, by="args.n", branch=rj.execute(concurrency=3), strict=True),
                lambda: rj.partition(4, by=seventh, branch=rj.enrich(refuse_soon), strict=True),
            ),
            "of broadcasts of balances": Law(
                lambda: rj.partition(
                    3,
                    by=seventh,
                    branch=rj.branch(rj.broadcast(rj.balance(rj.execute(), rj.complete()), rj.execute()), max_demand=4),
                )
            ),
        },
    ),
    "pull": Row(
        (
            Line("no more is held than may be", pulled(slow(2, 9), rj.ack(), max_demand=2), "(abcde)|", "--(AB)-(CD)-(E|)"),
            Line(
                "and more asked for when few enough are",
                pulled(slow(2, 9), rj.ack(), max_demand=3, min_demand=0),
                "(abcd)|",
                "--(ABC)-(D|)",
            ),
            Line("jobs come when there are some", pulled(rj.complete(), rj.ack()), "-a--[bc]-|", "-A--(BC)-|"),
            Line("an error of its source is its own", pulled(rj.complete(), rj.ack()), "-a#", "-A#"),
        ),
        {
            "": Law(lambda: rj.execute(concurrency=9)),
            "one at a time": Law(rj.complete, demand={"max_demand": 1}),
            "when nothing is held": Law(rj.complete, demand={"max_demand": 40, "min_demand": 0}),
        },
    ),
    "rate_limit": Row(
        (
            Line("so many at once, then one by one", lambda: rj.rate_limit(2, per=4, burst=2), "(abcd)|", "(ab)-c-(d|)"),
            Line("each key by itself", lambda: rj.rate_limit(1, per=2, by=is_a), "(abc)-|", "(ab)-(c|)"),
        ),
        {
            "": Law(lambda: rj.rate_limit(50, per=0.01)),
            "by a key": Law(
                lambda: rj.rate_limit(1, per=0.001, by=lambda job: job.args["n"] % 500),
                lambda: rj.rate_limit(20, per=0.01, by=refuse),
            ),
        },
    ),
    "tap": Row(
        (
            Line("each passes once its call has returned", lambda: rj.tap(two_seconds, concurrency=1), "ab----|", "--a-b-|"),
            Line("what raises fails that job alone", lambda: rj.tap(lambda job: 1 / is_a(job)), "-ab|", "-aB|", {"B": rj.Retry}),
        ),
        {"": Law(lambda: rj.tap(find, concurrency=3), lambda: rj.tap(refuse_soon))},
    ),
}
