"""Encrypted arguments: who has the key reads them, and nobody else."""

import base64
import json
import logging
import sys
from collections import Counter

import asyncpg
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rxjobs as rj
from rxjobs.codec import PlainCodec, shown
from tests.waiting import until

OLD, NEW = bytes(range(32)), base64.urlsafe_b64encode(bytes(range(32, 64))).decode()
CANARY = "canary-4711"


def declare(app, ran=None):
    @app.job(name="send", backoff=lambda attempt, error: 0.05)
    async def send(to: str, copies: int = 1) -> None:
        if ran is not None:
            ran.append((to, copies))

    return send


def an_app(dsn, ran=None, **settings):
    app = rj.App(dsn, migrate=True, poll_seconds=0.1, **settings)
    return app, declare(app, ran)


@given(st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_what_is_sealed_opens_to_the_same_for_its_own_type(text, type_):
    codec = rj.EncryptedCodec({"k1": OLD})
    payload = json.dumps({"x": text})
    sealed = codec.seal(payload, type_)
    assert codec.open(sealed, type_) == payload
    with pytest.raises(rj.BrokenSeal, match="key 'k1'"):
        codec.open(sealed, type_ + "2")


def test_what_is_sealed_is_a_small_json_object_that_names_its_key_and_shows_nothing():
    codec = rj.EncryptedCodec({"k1": OLD})
    payload = json.dumps({"to": CANARY * 10})
    one, other = codec.seal(payload, "send"), codec.seal(payload, "send")
    assert one != other
    document = json.loads(one)
    assert document.keys() == {"rxjobs.sealed", "key", "data"}
    assert document["key"] == "k1"
    assert CANARY.encode() not in base64.b64decode(document["data"]) + one.encode()
    assert len(one) < 4 / 3 * len(payload) + 120


def test_the_first_key_writes_and_all_read():
    before = rj.EncryptedCodec({"k1": OLD}).seal("{}", "send")
    both = rj.EncryptedCodec({"k2": NEW, "k1": OLD})
    after = both.seal("{}", "send")
    assert json.loads(after)["key"] == "k2"
    assert both.open(before, "send") == both.open(after, "send") == "{}"
    assert rj.EncryptedCodec({"other": OLD, "k2": NEW}).open(after, "send") == "{}"


def test_a_key_may_be_bytes_or_base64():
    as_bytes = rj.EncryptedCodec({"k": OLD})
    for text in (base64.urlsafe_b64encode(OLD).decode(), base64.urlsafe_b64encode(OLD).decode().rstrip("=")):
        assert as_bytes.open(rj.EncryptedCodec({"k": text}).seal("{}", "send"), "send") == "{}"


@pytest.mark.parametrize("codec", [PlainCodec(), rj.EncryptedCodec({"k2": NEW})])
def test_a_missing_key_is_named(codec):
    sealed = rj.EncryptedCodec({"k1": OLD}).seal("{}", "send")
    with pytest.raises(rj.MissingKey, match=r"^send: the arguments are encrypted with key 'k1'"):
        codec.open(sealed, "send")


def test_rows_that_are_not_encrypted_are_read_as_they_are():
    for codec in (PlainCodec(), rj.EncryptedCodec({"k1": OLD})):
        for payload in ("{}", '{"x":"rxjobs.sealed"}', '{"rxjobs.sealed":"aes-256-gcm-siv"}', "no json rxjobs.sealed", "null"):
            assert codec.open(payload, "send") == payload


def test_any_change_of_what_is_sealed_is_noticed():
    codec = rj.EncryptedCodec({"k1": OLD, "k2": NEW})
    document = json.loads(codec.seal('{"n":1}', "send"))
    data = base64.b64decode(document["data"])
    for place in range(len(data)):
        changed = bytes(byte ^ (1 if at == place else 0) for at, byte in enumerate(data))
        with pytest.raises(rj.BrokenSeal) as caught:
            codec.open(json.dumps(document | {"data": base64.b64encode(changed).decode()}), "send")
        assert caught.value.__suppress_context__
    for wrong in ({"key": "k2"}, {"data": ""}, {"data": "?"}, {"data": "AAAA"}, {"data": document["data"][:-4]}, {"data": "é"}):
        with pytest.raises(rj.BrokenSeal):
            codec.open(json.dumps(document | wrong), "send")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({}, "at least one key"),
        (None, "at least one key"),
        ([("k1", OLD)], "at least one key"),
        (OLD, "at least one key"),
        ({"k1": b"short"}, "32 bytes"),
        ({"k1": OLD + b"x"}, "32 bytes"),
        ({"k1": "no base64!"}, "32 bytes"),
        ({"k1": base64.urlsafe_b64encode(OLD[:-1]).decode()}, "32 bytes"),
        ({"k1": 5}, "32 bytes"),
        ({"k1": None}, "32 bytes"),
        ({"k1": OLD, "k2": b""}, "key k2"),
        ({1: OLD}, "a key's id is text"),
        ({"": OLD}, "a key's id is text"),
        ({"a b": OLD}, "a key's id is text"),
        ({"k" * 65: OLD}, "a key's id is text"),
        ({OLD: "k1"}, "a key's id is text"),
    ],
)
def test_bad_keys_are_refused(keys, message):
    with pytest.raises(rj.InvalidOption, match=message) as caught:
        rj.EncryptedCodec(keys)
    assert NEW not in str(caught.value)
    assert repr(OLD)[2:10] not in str(caught.value)


def test_a_codec_shows_no_key():
    assert repr(rj.EncryptedCodec({"k2": NEW, "k1": OLD})) == "EncryptedCodec(keys of the ids k2, k1)"


def test_without_the_package_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)
    with pytest.raises(rj.InvalidOption, match=r"rxjobs\[encryption\]"):
        rj.EncryptedCodec({"k1": OLD})


@pytest.mark.parametrize("codec", [NEW, rj.EncryptedCodec, {"k1": OLD}])
def test_what_is_no_codec_is_refused_and_not_shown(codec):
    with pytest.raises(rj.InvalidOption, match="codec takes an object with seal and open") as caught:
        rj.App(codec=codec)
    assert NEW not in str(caught.value)


def test_the_size_limit_counts_the_plain_json():
    _, send = an_app(None, codec=rj.EncryptedCodec({"k1": OLD}), max_args_bytes=20)
    assert len(send.new(to="x" * 11).payload) > 20
    with pytest.raises(rj.InvalidArguments, match="at most 20 bytes as JSON, got 21"):
        send.new(to="x" * 12)


def test_a_new_job_is_sealed_and_shows_nothing():
    _, send = an_app(None, codec=rj.EncryptedCodec({"k1": OLD}))
    new = send.new(CANARY)
    assert CANARY not in repr(new) + new.payload
    assert "encrypted with key k1" in repr(new)
    assert shown(new.payload) == '{"***":"encrypted with key k1"}'


async def test_encrypted_arguments_reach_the_job_and_are_in_no_column_event_or_log(dsn, caplog):
    caplog.set_level(logging.DEBUG)
    ran: list[object] = []
    app, send = an_app(dsn, ran, codec=rj.EncryptedCodec({"k1": OLD}))
    payloads: list[str] = []

    @app.job(name="look")
    async def look(to: str) -> None:
        payloads.append(rj.current_job().payload)

    async with app.running():
        id_ = (await send.enqueue(CANARY, copies=2)).id
        await look.enqueue(CANARY)
        await until(lambda: ran and payloads)
        assert ran == [(CANARY, 2)]
        assert payloads == [f'{{"to":"{CANARY}"}}']
        job = await app.jobs.get(id_)
    assert job is not None
    assert job.args == {"to": CANARY, "copies": 2}
    reader = rj.App(dsn)
    declare(reader)
    async with reader:
        job = await reader.jobs.get(id_)
    assert job is not None
    assert job.args == {"***": "encrypted with key k1"}
    connection = await asyncpg.connect(dsn)
    everything = await connection.fetchval("SELECT string_agg(job::text, ' ') FROM rxjobs.jobs AS job")
    await connection.close()
    assert "k1" in everything
    assert CANARY not in everything + caplog.text


async def test_a_process_gets_the_opened_arguments(dsn):
    app = rj.App(dsn, migrate=True, poll_seconds=0.1, codec=rj.EncryptedCodec({"k1": OLD}))
    double_ = app.job(name="double", executor=rj.in_processes(1))(double)
    outcomes: list[object] = []
    app.events.subscribe(lambda event: outcomes.append(event.outcome) if event.name == "job.stop" else None)
    async with app.running():
        await double_.enqueue(21)
        await until(lambda: outcomes)
    assert outcomes == [rj.Complete(42)]


def double(number: int) -> int:
    return 2 * number


async def test_rows_of_before_a_rotation_and_of_before_encryption_are_still_run(dsn):
    ran: list[object] = []
    for number, codec in enumerate((None, rj.EncryptedCodec({"k1": OLD}), rj.EncryptedCodec({"k2": NEW}))):
        app, send = an_app(dsn, codec=codec)
        async with app:
            await send.enqueue("x", copies=number)
    app, _ = an_app(dsn, ran, codec=rj.EncryptedCodec({"k2": NEW, "k1": OLD}))
    async with app.running():
        await until(lambda: len(ran) == 3)
    assert sorted(ran) == [("x", 0), ("x", 1), ("x", 2)]


async def test_a_missing_key_fails_the_attempt_naming_it_and_with_the_key_the_retry_completes(dsn):
    keyed, send = an_app(dsn, codec=rj.EncryptedCodec({"k1": OLD}))
    async with keyed:
        id_ = (await send.enqueue("x")).id
    ran: list[object] = []
    keyless, _ = an_app(dsn, ran)
    names: list[str] = []
    keyless.events.subscribe(lambda event: names.append(event.name))
    async with keyless.running():
        job = await until(lambda: failed_twice(keyless, id_))
    assert names.count("job.start") == names.count("job.exception") >= 2
    assert ran == []
    assert job.state in ("retryable", "available")
    for number, error in enumerate(job.errors, 1):
        assert error["attempt"] == number
        assert error["type"] == "rxjobs.errors.MissingKey"
        assert "key 'k1'" in error["message"]
    app, _ = an_app(dsn, ran, codec=rj.EncryptedCodec({"k2": NEW, "k1": OLD}))
    async with app.running():
        await until(lambda: ran)
        assert ran == [("x", 1)]
        await until(lambda: is_in(app, id_, "completed"))


async def failed_twice(app, id_):
    job = await app.jobs.get(id_)
    return job if len(job.errors) >= 2 else None


async def is_in(app, id_, state):
    return (await app.jobs.get(id_)).state == state


async def test_a_missing_key_ends_in_a_dead_letter_when_attempts_are_used_up(dsn):
    keyed, send = an_app(dsn, codec=rj.EncryptedCodec({"k1": OLD}))
    async with keyed:
        id_ = (await send.options(max_attempts=1).enqueue("x")).id
    keyless, _ = an_app(dsn)
    names: list[str] = []
    keyless.events.subscribe(lambda event: names.append(event.name))
    async with keyless.running():
        await until(lambda: is_in(keyless, id_, "discarded"))
    assert names.count("job.discard") == 1


async def test_a_batch_with_rows_that_do_not_open_runs_the_others(dsn):
    ran: list[object] = []
    app, send = an_app(dsn, ran, codec=rj.EncryptedCodec({"k1": OLD}))
    connection = await asyncpg.connect(dsn)
    async with app:
        good = [await send.options(max_attempts=1).enqueue("x", copies=n) for n in range(20)]
        foreign = msgspec.structs.replace(send.new("y"), type="other", max_attempts=1)
        moved = (await app.enqueue(foreign)).id
        await connection.execute("UPDATE rxjobs.live_jobs SET type = 'send' WHERE id = $1", moved)
        # a row of another type, sealed for that one and moved here
        app.job(name="pay")(double)
        stolen = (await app.enqueue(msgspec.structs.replace(app.definitions["pay"].new(1), max_attempts=1))).id
        await connection.execute("UPDATE rxjobs.live_jobs SET type = 'send' WHERE id = $1", stolen)
    await connection.close()
    async with app.running():
        await until(lambda: all_ended(app, 22))
        counts = Counter(ran)
        assert counts == Counter([("x", n) for n in range(20)] + [("y", 1)])
        job = await app.jobs.get(stolen)
    assert job is not None
    assert job.state == "discarded"
    assert job.errors[0]["type"] == "rxjobs.errors.BrokenSeal"
    assert "key 'k1'" in job.errors[0]["message"]
    assert len(good) == 20


async def all_ended(app, count):
    states = await app.jobs.count()
    return states.get("completed", 0) + states.get("discarded", 0) == count


async def test_whatever_a_codec_raises_is_an_error_of_that_attempt(dsn):
    class Fickle:
        def seal(self, payload: str, type: str) -> str:
            return payload

        def open(self, stored: str, type: str) -> str:
            if "bad" in stored:
                raise RuntimeError("the vault is sealed")
            return stored

    ran: list[object] = []
    app, send = an_app(dsn, ran, codec=Fickle())
    async with app.running():
        bad = (await send.options(max_attempts=1).enqueue("bad")).id
        await send.enqueue("good")
        await until(lambda: is_in(app, bad, "discarded"))
        await until(lambda: ran == [("good", 1)])
        job = await app.jobs.get(bad)
    assert job is not None
    assert (job.errors[0]["type"], job.errors[0]["message"]) == ("RuntimeError", "the vault is sealed")
