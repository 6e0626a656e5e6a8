"""Whole pipelines on virtual time, as a user tests his own: no database, no sleep."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import reactivex as rx
from reactivex import operators as ops

import rxjobs as rj
from rxjobs.testing import marbles

app = rj.App("postgresql://nobody@nowhere.invalid/none", migrate=False)


@app.job(name="mail.send", queue="mail", max_attempts=3, backoff=lambda attempt, error: 5.0, breaker=None)
async def send(user_id: int, seconds: float = 1.0) -> str:
    await asyncio.sleep(seconds)
    if user_id < 0:
        raise ConnectionError("refused")
    if rj.current_job().attempt <= rj.current_job().args.get("user_id", 0) - 100:
        raise TimeoutError("the first tries fail")
    return f"sent to {user_id}"


@app.job(name="mail.plain", queue="mail", timeout=2.0, breaker=None)
def plain(n: int) -> int:
    """A plain function, which an app runs in a thread."""
    return n * n


@app.job(name="sms.send", queue="sms", breaker=None)
async def text(number: int) -> None:
    await asyncio.sleep(2)


async def profile(job: rj.Job) -> dict[str, Any]:
    await asyncio.sleep(1)
    return {"name": f"user {job.args['user_id']}"}


mail = app.source("mail", max_demand=10).pipe(
    rj.filter(lambda job: job.args["user_id"] != 0, otherwise=rj.Cancel("nobody")),
    rj.enrich(profile, concurrency=5),
    rj.execute(concurrency=2),
    rj.ack(),
)
PEOPLE = {letter: send.new(place) for place, letter in enumerate("abcdefgh", 1)} | {"z": send.new(0)}


def test_jobs_go_in_on_one_line_and_outcomes_come_out_on_another():
    values = {**PEOPLE, "A": rj.Complete("sent to 1"), "Z": rj.Cancel}
    sent, none = marbles(mail, "-a-z|", "---(ZA)|", values=values, app=app)
    assert none.job.assigns == {"name": "user 1"}
    assert (sent.job.type, sent.job.queue) == ("mail.send", "mail")


def test_a_pipeline_runs_as_it_was_declared_with_its_concurrency_and_order():
    marbles(mail, "(abcde)---|", "--(AB)(CD)(E|)", values=PEOPLE, app=app)


def test_a_job_that_fails_comes_back_after_its_backoff_and_ends_by_its_retry_rule():
    items = marbles(mail, "b-----------------|", "--B------B------B-|", values={"b": send.new(-1)}, app=app)
    assert [(type(one.outcome), one.job.attempt) for one in items] == [(rj.Retry, 1), (rj.Retry, 2), (rj.Discard, 3)]
    items = marbles(mail, "b|", "--B------(B|)", values={"b": send.new(101)}, app=app)
    assert [type(one.outcome) for one in items] == [rj.Retry, rj.Complete]


def test_the_demand_of_the_pipeline_holds_jobs_back():
    narrow = app.source("mail", max_demand=1).pipe(rj.execute(), rj.ack())
    marbles(narrow, "(abc)|", "-AB(C|)", values=PEOPLE, app=app)


def test_a_plain_function_and_one_on_an_executor_run_here():
    stream = app.source("mail", max_demand=5).pipe(rj.execute(on=rj.in_processes(1)), rj.ack())
    (item,) = marbles(stream, "-a|", "-A|", values={"a": plain.new(7), "A": rj.Complete(49)}, app=app)
    assert item.job.args == {"n": 7}


def test_a_timeout_is_on_virtual_time():
    @app.job(name="mail.slow", queue="mail", timeout=3.0, max_attempts=1, breaker=None)
    async def slow() -> None:
        await asyncio.sleep(3600)

    (item,) = marbles(mail_of_all(), "a|", "---(A|)", values={"a": slow.new(), "A": rj.Discard}, app=app)
    assert item.outcome.failure.type == "TimeoutError"


def test_middleware_of_the_app_is_around_each_run():
    other = rj.App("postgresql://nobody@nowhere.invalid/none")
    other.job(name="answer", queue="mail")(lambda: 42)
    seen = list[str]()

    async def see(job: rj.Job, call_next: Any) -> rj.Outcome:
        seen.append(job.type)
        return await call_next(job)

    other.use(see)
    stream = other.source("mail", max_demand=2).pipe(rj.execute(), rj.ack())
    marbles(stream, "ab|", "AB|", values={letter: other.definitions["answer"].new() for letter in "ab"}, app=other)
    assert seen == ["answer", "answer"]


def mail_of_all() -> rx.Observable[Any]:
    return app.source("mail", max_demand=10).pipe(rj.execute(), rj.ack())


def test_branches_of_every_dispatcher():
    values = {**PEOPLE, "d": send.new(1, seconds=3.0)}
    source = app.source("mail", max_demand=10)
    balanced = source.pipe(rj.balance(rj.execute(concurrency=1), rj.execute(concurrency=1)), rj.ack())
    marbles(balanced, "(dabc)|", "-AB(DC|)", values=values, app=app)
    slow = rj.branch(rj.enrich(profile), rj.enrich(profile), rj.complete())
    broadcasted = source.pipe(rj.broadcast(rj.execute(), slow), rj.ack())
    marbles(broadcasted, "ab|", "--A(B|)", values=PEOPLE, app=app)
    by_user = source.pipe(rj.partition(2, by="args.user_id", branch=rj.execute()), rj.ack())
    marbles(by_user, "(dab)---|", "-B-D(A|)", values=values, app=app)


def test_stages_on_time():
    source = app.source("mail", max_demand=10)
    limited = source.pipe(rj.rate_limit(1, per=2, burst=1), rj.complete(), rj.ack())
    marbles(limited, "(abc)|", "A-B-(C|)", values=PEOPLE, app=app)

    async def write(jobs: list[rj.Job]) -> None:
        await asyncio.sleep(1)

    batched = source.pipe(rj.buffer(2, timespan=3), rj.execute_batch(write), rj.ack())
    marbles(batched, "-a-bc-----|", "----(AB)---C-|", values=PEOPLE, app=app)


def test_a_job_that_an_operator_drops_comes_back():
    left = [1]
    dropping = app.source("mail", max_demand=1).pipe(ops.filter(lambda job: not (left and left.pop())), rj.complete(), rj.ack())
    marbles(dropping, "a|", "-----(A|)", values=PEOPLE, app=app)


def test_one_that_is_not_acked_is_acked_at_the_end():
    marbles(app.source("mail", max_demand=1).pipe(rj.complete()), "(ab)|", "(AB)|", values=PEOPLE, app=app)


def test_several_sources_have_a_line_each():
    both = rx.merge(app.source("mail", max_demand=1), app.source("sms", max_demand=5)).pipe(rj.execute(), rj.ack())
    values = {"a": send.new(1), "b": send.new(2), "x": text.new(1), "y": text.new(2)}
    marbles(both, {"mail": "(ab)--|", "sms": "(xy)-|"}, "-A(XYB)|", values=values, app=app)


def test_two_pulls_of_one_queue_share_its_line():
    both = rx.merge(app.source("mail", max_demand=1), app.source("mail", max_demand=1)).pipe(rj.execute(), rj.ack())
    marbles(both, "(abcd)|", "-(AB)(CD|)", values=PEOPLE, app=app)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("-a|", "has sources of the queues mail, sms, and there is one line of jobs"),
        ({"mail": "-a|"}, "there is lines of jobs for mail; name a line for each"),
        ({"mail": "-a|", "sms": "|", "fax": "|"}, "for fax, mail, sms"),
    ],
)
def test_lines_that_fit_no_source_are_refused(lines, words):
    both = rx.merge(app.source("mail"), app.source("sms")).pipe(rj.complete(), rj.ack())
    with pytest.raises(ValueError, match=words):
        marbles(both, lines, "|")


def test_a_source_of_ones_own_is_replaced_as_well_and_needs_no_app():
    pipeline = rj.pull(rj.MemorySource(), max_demand=2).pipe(rj.complete(), rj.ack())
    marbles(pipeline, "-a-[bc]|", "-A-(BC)|")


def test_an_error_of_the_source_and_one_of_an_operator_are_the_end():
    pipeline = rj.pull(rj.MemorySource(), max_demand=2).pipe(rj.complete(), rj.ack())
    marbles(pipeline, "-a-#", "-A-#")
    marbles(pipeline.pipe(ops.map(lambda _: 1 / 0)), "-a", "-#")


def test_a_pipeline_can_be_tried_again():
    for _ in range(2):
        marbles(mail, "a|", "--(A|)", values=PEOPLE, app=app)


def test_what_differs_is_shown():
    with pytest.raises(AssertionError) as caught:
        marbles(mail, "-a|", "-A|", values=PEOPLE, app=app)
    assert "expected -A|\n    came     ---(A|)" in str(caught.value)


def test_a_letter_of_a_job_type_needs_the_app_that_knows_it():
    with pytest.raises(rj.InvalidOption, match=r"marbles needs app=, the app that knows the job type 'mail.send'"):
        marbles(mail, "-a|", values=PEOPLE)
    with pytest.raises(rj.UnknownJobType):
        marbles(mail, "-a|", values=PEOPLE, app=rj.App("postgresql://nobody@nowhere.invalid/none"))


def test_a_source_gives_no_finished_jobs():
    with pytest.raises(ValueError, match="whose source gives jobs"):
        marbles(mail, "-A|", values=PEOPLE, app=app)
