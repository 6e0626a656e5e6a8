"""Results, wherever somebody waits for them: in the process that runs the job, and in others."""

import asyncio
import copy
import dataclasses
import json
import pickle
import secrets
import threading
from datetime import UTC, datetime

import asyncpg
import msgspec
import pytest

import rxjobs as rj
from rxjobs.recording import Results
from tests.waiting import until

FAST = {"poll_seconds": 0.5}


@dataclasses.dataclass
class Invoice:
    number: int
    at: datetime


AN_INSTANT = datetime(2026, 1, 2, tzinfo=UTC)


def test_a_result_comes_back_as_its_annotation_says():
    def invoice() -> Invoice: ...

    results = Results(invoice, "invoice")
    text = results.dump(Invoice(7, AN_INSTANT), 1000)
    assert json.loads(text) == {"number": 7, "at": "2026-01-02T00:00:00Z"}
    assert results.load(text) == Invoice(7, AN_INSTANT)


def test_without_an_annotation_any_plain_json_is_taken():
    results = Results(lambda: None, "plain")
    assert results.load(results.dump({"a": [1, 2.5, None, "x"]}, 1000)) == {"a": [1, 2.5, None, "x"]}
    with pytest.raises(rj.InvalidArguments, match="plain: its result: expected"):
        results.dump(AN_INSTANT, 1000)


def test_outcomes_that_a_function_may_return_are_no_part_of_its_result():
    def poll() -> Invoice | rj.Snooze: ...

    async def stop() -> rj.Cancel: ...

    assert Results(poll, "poll").load('{"number": 1, "at": "2026-01-02T00:00:00Z"}') == Invoice(1, AN_INSTANT)
    Results(stop, "stop")


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (float("nan"), "expected a finite number"),
        ("x" * 99, "expected at most 100 bytes as JSON, got 101"),
        ([[]], "expected (float|Union)"),
    ],
)
def test_what_cannot_be_kept_is_refused_by_its_name(value, why):
    def measure() -> float | str: ...

    with pytest.raises(rj.InvalidArguments, match=f"^measure: its result: {why}"):
        Results(measure, "measure").dump(value, 100)


def test_the_limit_itself_is_allowed():
    def text() -> str: ...

    results = Results(text, "text")
    assert results.dump("x" * 98, 100) == f'"{"x" * 98}"'


def test_an_annotation_that_json_cannot_hold_is_refused_where_the_type_is_declared():
    app = rj.App("postgresql://nowhere")

    def lock() -> threading.Thread: ...

    with pytest.raises(rj.InvalidOption, match=r"lock: its return annotation: .*Thread has no JSON form"):
        app.job(name="lock", record=True)(lock)
    app.job(name="lock")(lock)
    with pytest.raises(rj.InvalidOption, match="record is True or False, not 1"):
        app.job(name="other", record=1)(lock)


def an_app(dsn, **settings):
    app = rj.App(dsn, migrate=True, **FAST, **settings)

    @app.job(name="add", record=True)
    async def add(a: int, b: int) -> int:
        return a + b

    @app.job(name="invoice", record=True)
    def invoice(number: int) -> Invoice:
        return Invoice(number, AN_INSTANT)

    @app.job(name="unrecorded")
    async def unrecorded() -> int:
        return 1

    @app.job(name="bad", record=True)
    async def bad(kind: str) -> object:
        return {"nan": float("nan"), "large": "x" * 2000, "form": threading.Lock()}[kind]

    @app.job(name="fails", max_attempts=1)
    async def fails() -> None:
        raise LookupError("no such thing")

    @app.job(name="sleeps", record=True)
    async def sleeps(seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "slept"

    return app


async def test_a_result_reaches_the_one_who_enqueued(dsn):
    app = an_app(dsn)
    add, invoice = app.definitions["add"], app.definitions["invoice"]
    async with app.running():
        assert await (await add.enqueue(1, 2)).result(timeout=20) == 3
        assert await app.perform(invoice.new(4), timeout=20) == Invoice(4, AN_INSTANT)
        assert await app.perform(app.definitions["unrecorded"].new(), timeout=20) is None
        enqueued = await add.enqueue(2, 2)
        assert await asyncio.gather(*(enqueued.result(20) for _ in range(50))) == [4] * 50
        job = await app.jobs.get(enqueued.id)
        assert job.result == 4


async def test_a_result_reaches_other_processes_typed_where_they_know_the_type(dsn):
    app, other, stranger = an_app(dsn), an_app(dsn), rj.App(dsn, **FAST)
    async with other:
        enqueued = await other.definitions["invoice"].enqueue(9)
        with pytest.raises(TimeoutError, match=rf"job {enqueued.id} has not ended within 0.1 s"):
            await enqueued.result(timeout=0.1)
        waiting = asyncio.ensure_future(enqueued.result(timeout=20))
        async with app.running():
            assert await waiting == Invoice(9, AN_INSTANT)
        async with stranger:
            assert await stranger.jobs.result(enqueued.id) == {"number": 9, "at": "2026-01-02T00:00:00Z"}
    with pytest.raises(rj.NotOpen, match="not open"):
        await enqueued.result()


elsewhere = rj.App("postgresql://nowhere")


@elsewhere.job(name="typed", record=True)
def typed(number: int) -> Invoice:
    return Invoice(number, AN_INSTANT if number else threading.Lock())  # type: ignore[arg-type]


async def test_a_child_process_returns_what_its_annotation_says(dsn):
    app = an_app(dsn)
    child = app.job(name="typed", record=True, executor=rj.in_processes(1))(typed.function)
    async with app.running():
        assert await app.perform(child.new(5), timeout=30) == Invoice(5, AN_INSTANT)
        enqueued = await child.enqueue(0)
        assert await enqueued.result(timeout=30) is None
        (error,) = (await app.jobs.get(enqueued.id)).errors
        assert "typed: its result" in error["message"]


async def test_a_result_that_cannot_be_kept_is_dropped_and_the_job_is_done(dsn):
    app = an_app(dsn, max_args_bytes=1000)
    bad = app.definitions["bad"]
    async with app.running():
        for kind, why in [("nan", "finite number"), ("large", "at most 1000 bytes"), ("form", "JSON form")]:
            enqueued = await bad.enqueue(kind)
            assert await enqueued.result(timeout=20) is None
            job = await app.jobs.get(enqueued.id)
            assert (job.state, job.attempt, job.result) == ("completed", 1, None)
            (error,) = job.errors
            assert error["type"] == "rxjobs.UnstorableResult"
            assert why in error["message"]


async def test_whoever_waits_for_a_job_that_fails_is_told_why(dsn):
    app = an_app(dsn)
    async with app.running():
        with pytest.raises(rj.JobFailed, match=r"job \d+ \(fails\) was discarded: LookupError: no such thing") as caught:
            await app.perform(app.definitions["fails"].new(), timeout=20)
        error = caught.value
        assert (error.type, error.message, error.job.type, error.job.state) == (
            "LookupError",
            "no such thing",
            "fails",
            "discarded",
        )
        assert "raise LookupError" in error.traceback
        later = await app.definitions["add"].options(delay=3600).enqueue(1, 1)
        waiting = asyncio.ensure_future(later.result(timeout=20))
        await app.jobs.cancel(later.id)
        with pytest.raises(rj.JobFailed, match=r"was cancelled: rxjobs.Cancel: cancelled by request"):
            await waiting
        await app.jobs.delete(later.id)
        with pytest.raises(rj.JobFailed, match="is not there: it was deleted") as caught:
            await later.result(timeout=20)
        assert caught.value.job is None


async def test_results_are_encrypted_with_the_arguments(dsn):
    codec = rj.EncryptedCodec(keys={"k1": secrets.token_bytes(32)})
    app, stranger = an_app(dsn, codec=codec), rj.App(dsn, **FAST)
    async with app.running():
        enqueued = await app.definitions["sleeps"].enqueue(0)
        assert await enqueued.result(timeout=20) == "slept"
        assert (await app.jobs.get(enqueued.id)).result == "slept"
    connection = await asyncpg.connect(dsn)
    assert "slept" not in await connection.fetchval("SELECT result::text FROM rxjobs.finished_jobs")
    await connection.close()
    async with stranger:
        assert "encrypted" in str((await stranger.jobs.get(enqueued.id)).result)
        with pytest.raises(rj.UnknownJobType, match="sleeps"):
            await stranger.jobs.result(enqueued.id)


async def test_an_enqueued_is_the_value_it_was_before_it_knew_whom_to_ask(dsn):
    async with an_app(dsn) as app:
        enqueued = await app.definitions["add"].enqueue(1, 2)
        same = rj.Enqueued(enqueued.id, "available")
        assert enqueued == same
        assert repr(enqueued) == repr(same)
        assert msgspec.json.encode(enqueued) == msgspec.json.encode(same)
        for left in (same, copy.copy(enqueued), pickle.loads(pickle.dumps(enqueued))):  # noqa: S301 - our own
            with pytest.raises(rj.NotOpen, match=rf"app.jobs.result\({enqueued.id}\)"):
                await left.result()


async def test_whoever_waits_when_the_app_is_closed_is_told(dsn):
    app = an_app(dsn)
    async with app:
        enqueued = await app.definitions["add"].enqueue(1, 2)
        waiting = asyncio.ensure_future(enqueued.result())
        await until(lambda: bool(app.store.ends_awaited))
    with pytest.raises(rj.NotOpen, match=f"closed while job {enqueued.id} was waited for"):
        await waiting


async def test_all_who_wait_share_one_look(dsn, monkeypatch):
    async with an_app(dsn) as app:
        enqueued = await app.enqueue_many(app.definitions["add"].new(n, 1) for n in range(500))
        asked, look = [], app.store.ended_jobs

        async def counted(ids):
            asked.append(len(ids))
            return await look(ids)

        monkeypatch.setattr(app.store, "ended_jobs", counted)
        waiting = [asyncio.ensure_future(one.result(timeout=60)) for one in enqueued]
        await until(lambda: sum(asked) >= 2000)
        assert max(asked) == 500
        assert len(asked) < 100
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert not app.store.ends_awaited


@pytest.mark.parametrize(("id_", "seconds"), [("7", None), (0, None), (7, -1), (7, "5")])
async def test_what_is_no_id_or_no_timeout_is_refused(dsn, id_, seconds):
    async with an_app(dsn) as app:
        with pytest.raises(rj.InvalidOption, match=r"a whole number|a number"):
            await app.jobs.result(id_, seconds)


async def test_code_without_an_event_loop_waits_too(dsn):
    app = an_app(dsn)
    async with app.running():
        assert await asyncio.to_thread(app.sync.perform, app.definitions["invoice"].new(3), 20) == Invoice(3, AN_INSTANT)
        enqueued = await asyncio.to_thread(app.sync.enqueue, app.definitions["add"].new(1, 1))
        assert await asyncio.to_thread(app.sync.jobs.result, enqueued.id, timeout=20) == 2
    app.sync.close()
