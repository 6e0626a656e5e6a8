"""A secret arrives, and is shown nowhere."""

import copy
import dataclasses
import enum
import io
import json
import logging
import pickle
import traceback
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any

import asyncpg
import msgspec
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic import BaseModel
from rich.console import Console

import rxjobs as rj
from rxjobs.arguments import Arguments
from rxjobs.cli.jobs import _document, _lines, _row
from rxjobs.codec import shown
from rxjobs.events import JobStopped
from rxjobs.telemetry.providers import Telemetry
from rxjobs.testing import job_type
from tests.waiting import until

CANARY = "canary-4711"
MIB = 1 << 20


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Login:
    user: str
    password: rj.Secret[str]


class Token(msgspec.Struct):
    value: rj.Secret[bytes]


class Inner(BaseModel):
    at: rj.Secret[datetime]


class Account(BaseModel):
    name: str
    password: rj.Secret[str]
    inner: Inner | None = None


def reveal(token: rj.Secret[str]) -> str:
    return token.get()[::-1]


def arguments_of(annotation):
    def send(x): ...

    send.__annotations__ = {"x": annotation}
    return Arguments(send, "send")


def test_a_secret_shows_as_stars_and_gives_its_value():
    secret = rj.Secret(CANARY)
    assert secret.get() == CANARY
    assert {repr(secret), str(secret), f"{secret}", f"{[secret]}"[1:-1], "%s" % secret} == {"***"}  # noqa: UP031
    assert f"{secret:>5}" == "  ***"
    assert CANARY not in repr(vars(type(secret)))


def test_secrets_are_equal_by_value_and_to_nothing_else():
    assert rj.Secret("a") == rj.Secret("a") != rj.Secret("b")
    assert rj.Secret("a") != "a"
    assert len({rj.Secret("a"), rj.Secret("a"), "a"}) == 2


def test_a_secret_does_not_change_and_is_not_pickled():
    secret = rj.Secret(CANARY)
    for change in (lambda: setattr(secret, "_value", 1), lambda: delattr(secret, "_value"), lambda: setattr(secret, "x", 1)):
        with pytest.raises(AttributeError):
            change()
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TypeError, match="not pickled"):
            pickle.dumps(secret, protocol)
    assert copy.copy(secret) is copy.deepcopy([secret])[0] is secret
    assert rj.Secret[str](CANARY).get() == CANARY
    with pytest.raises(rj.InvalidOption):
        rj.Secret(secret)


@pytest.mark.parametrize(
    ("annotation", "given", "arrives"),
    [
        (rj.Secret[str], rj.Secret(CANARY), rj.Secret(CANARY)),
        (rj.Secret[str], CANARY, rj.Secret(CANARY)),
        (rj.Secret, CANARY, rj.Secret(CANARY)),
        (rj.Secret[str] | None, None, None),
        (rj.Secret[str] | None, CANARY, rj.Secret(CANARY)),
        (rj.Secret[str | None], None, rj.Secret(None)),
        (Annotated[rj.Secret[str], "doc"], CANARY, rj.Secret(CANARY)),
        (rj.Secret[int], 10**30, rj.Secret(10**30)),
        (rj.Secret[Decimal], Decimal("0.10"), rj.Secret(Decimal("0.10"))),
        (rj.Secret[bytes], b"\x00\xff", rj.Secret(b"\x00\xff")),
        (rj.Secret[datetime], datetime(2026, 1, 2, tzinfo=UTC), rj.Secret(datetime(2026, 1, 2, tzinfo=UTC))),
        (rj.Secret[Colour], Colour.RED, rj.Secret(Colour.RED)),
        (rj.Secret[dict[int, list[str]]], {1: ["a"]}, rj.Secret({1: ["a"]})),
        (rj.Secret[Any], {"rxjobs": [1, None]}, rj.Secret({"rxjobs": [1, None]})),
        (list[rj.Secret[int]], [1, rj.Secret(2)], [rj.Secret(1), rj.Secret(2)]),
        (dict[str, rj.Secret[str]], {"a": CANARY}, {"a": rj.Secret(CANARY)}),
        (Login, Login("u", rj.Secret(CANARY)), Login("u", rj.Secret(CANARY))),
        (Login, Login("u", CANARY), Login("u", rj.Secret(CANARY))),
        (Login, {"user": "u", "password": CANARY}, Login("u", rj.Secret(CANARY))),
        (list[Login], [Login("u", rj.Secret(CANARY))], [Login("u", rj.Secret(CANARY))]),
        (Token, Token(rj.Secret(b"x")), Token(rj.Secret(b"x"))),
        (Account, Account(name="n", password=CANARY), Account(name="n", password=CANARY)),
        (Account, {"name": "n", "password": CANARY}, Account(name="n", password=CANARY)),
        (rj.Secret[Login], Login("u", rj.Secret(CANARY)), rj.Secret(Login("u", rj.Secret(CANARY)))),
    ],
)  # fmt: skip
def test_a_secret_arrives_typed_and_its_row_is_marked(annotation, given, arrives):
    arguments = arguments_of(annotation)
    stored = arguments.dump((given,), {}, MIB)
    assert arguments.load(stored) == {"x": arrives}
    json.loads(stored)
    if arrives is not None:
        assert "***" in shown(stored)
        assert CANARY not in shown(stored)


def test_a_row_of_another_program_may_have_the_plain_value():
    assert arguments_of(rj.Secret[str]).load('{"x": "a"}') == {"x": rj.Secret("a")}
    assert arguments_of(Login).load('{"x": {"user": "u", "password": "a"}}') == {"x": Login("u", rj.Secret("a"))}


@pytest.mark.parametrize(
    ("annotation", "given"),
    [
        (rj.Secret[int], CANARY),
        (rj.Secret[str], {CANARY: 1}),
        (rj.Secret[str], 4711),
        (rj.Secret[str], rj.Secret(4711)),
        (rj.Secret[str], f"\0{CANARY}"),
        (rj.Secret[str], f"\ud800{CANARY}"),
        (rj.Secret[str], rj.Secret(f"\0{CANARY}")),
        (rj.Secret[str], rj.Secret(f"\ud800{CANARY}")),
        (rj.Secret[Colour], CANARY),
        (rj.Secret[float], float("nan")),
        (rj.Secret[dict[str, float]], {CANARY: float("nan")}),
        (rj.Secret[str], object()),
        (rj.Secret[str], rj.Secret(object())),
        (list[rj.Secret[int]], [1, CANARY]),
        (dict[str, rj.Secret[int]], {"a": CANARY}),
        (Login, {"user": 4711, "password": CANARY}),
        (Login, {"user": "u", "password": CANARY, CANARY: 1}),
        (Login, Login("u", rj.Secret(f"\0{CANARY}"))),
        (Login, Login("u", f"\0{CANARY}")),
        (Account, Account(name="u", password=f"\0{CANARY}")),
        (Account, {"name": "u", "password": f"\0{CANARY}"}),
        (Account, {"name": "u", "password": {CANARY: 1}}),
        (Any, rj.Secret(CANARY)),
        (dict, {"a": [rj.Secret(CANARY)]}),
        (str, rj.Secret(CANARY)),
    ],
)  # fmt: skip
def test_a_refusal_names_the_argument_and_shows_nothing_of_a_secret(annotation, given):
    with pytest.raises(rj.InvalidArguments, match=r"^send: argument x") as caught:
        arguments_of(annotation).dump((given,), {}, MIB)
    told = "".join(traceback.format_exception(caught.value))
    assert CANARY not in str(caught.value)
    assert "4711" not in str(caught.value)
    # but for the line of this test itself
    assert CANARY not in told


@pytest.mark.parametrize(
    ("annotation", "payload"),
    [
        (rj.Secret[int], f'{{"x": "{CANARY}"}}'),
        (rj.Secret[int], f'{{"x": {{"rxjobs.secret": "{CANARY}"}}}}'),
        (rj.Secret[Colour], f'{{"x": {{"rxjobs.secret": "{CANARY}"}}}}'),
        (Login, f'{{"x": {{"user": 1, "password": {{"rxjobs.secret": "{CANARY}"}}}}}}'),
    ],
)
def test_a_bad_payload_shows_nothing_of_a_secret(annotation, payload):
    with pytest.raises(rj.BadPayload, match="argument x") as caught:
        arguments_of(annotation).load(payload)
    assert CANARY not in str(caught.value)
    assert caught.value.__cause__ is caught.value.__context__ is None


@pytest.mark.parametrize("annotation", [rj.Secret[type], rj.Secret[list[object] | dict[int, type]], list[rj.Secret[Arguments]]])
def test_a_secret_of_what_json_cannot_hold_is_refused_where_it_is_declared(annotation):
    with pytest.raises(rj.InvalidOption, match="parameter x"):
        arguments_of(annotation)


def test_a_secret_is_refused_where_it_would_be_stored_in_the_clear():
    with pytest.raises(rj.InvalidArguments, match="annotated as Secret"):
        Arguments(lambda x: None, "send").dump((rj.Secret(CANARY),), {}, MIB)
    with pytest.raises(rj.InvalidOption, match="annotated as Secret"):
        job_type(arguments_of, meta={"token": rj.Secret(CANARY)})


def test_a_pydantic_model_is_dumped_with_stars_by_everybody_else():
    account = Account(name="n", password=CANARY, inner=Inner(at="2026-01-02T00:00:00Z"))
    assert account.password.get() == CANARY
    assert account.inner is not None
    assert account.inner.at.get() == datetime(2026, 1, 2, tzinfo=UTC)
    assert json.loads(account.model_dump_json()) == {"name": "n", "password": "***", "inner": {"at": "***"}}
    assert account.model_dump()["password"] == rj.Secret(CANARY)
    arguments_of(Account).dump((account,), {}, MIB)
    assert CANARY not in account.model_dump_json() + repr(account)


@pytest.mark.parametrize(
    ("stored", "seen"),
    [
        ('{"a":{"rxjobs.secret":"x"},"b":[{"c":{"rxjobs.secret":{"d":1}}}]}', '{"a":"***","b":[{"c":"***"}]}'),
        ('{"a":{"rxjobs.secret":"x","more":1}}', '{"a":"***"}'),
        ('{"a":{"\\u0072xjobs.secret":"x"}}', '{"a":"***"}'),
        ('{"a": 1.50, "a": 1e2}', '{"a": 1.50, "a": 1e2}'),
        ('{"a":' + "[" * 200 + '{"rxjobs.secret":"x"}' + "]" * 200 + "}", '"***"'),
        ("[" * 200 + "]" * 200, "[" * 200 + "]" * 200),
        ("null", "null"),
    ],
)
def test_a_reader_without_the_type_sees_stars_and_else_what_is_stored(stored, seen):
    assert shown(stored) == seen


async def test_nothing_that_is_printed_stored_or_logged_about_a_job_shows_its_secret(dsn, caplog, capsys):
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    app = rj.App(dsn, migrate=True, poll_seconds=0.1, telemetry=Telemetry(tracer_provider=provider))
    seen: list[Any] = []

    @app.job(name="send", max_attempts=2, backoff=lambda attempt, error: 0.0, executor=None)
    async def send(token: rj.Secret[str], login: Login) -> None:
        seen.append((token, login))
        print(token, login, rj.current_job())
        logging.getLogger("theirs").warning("sending %s for %r", rj.current_job(), login)
        raise ValueError(f"{token} was refused", login)

    caplog.set_level(logging.DEBUG)
    events: list[str] = []
    app.events.subscribe(lambda event: events.append(repr(event)))
    new = send.new(CANARY, login=Login("u", rj.Secret(CANARY)))
    async with app.running() as running:
        id_ = (await app.enqueue(new)).id
        await until(lambda: len(seen) == 2)
        await until(lambda: not running.held_ids)
        job = await app.jobs.get(id_)
    assert job is not None
    assert seen[0] == (rj.Secret(CANARY), Login("u", rj.Secret(CANARY)))
    assert job.args == {"token": rj.Secret(CANARY), "login": Login("u", rj.Secret(CANARY))}
    assert [error["type"] for error in job.errors] == ["ValueError"] * 2

    reader = rj.App(dsn)
    async with reader:
        (untyped,) = await reader.jobs.list()
    assert untyped.args == {"token": "***", "login": {"user": "u", "password": "***"}}
    connection = await asyncpg.connect(dsn)
    errors = await connection.fetchval("SELECT errors::text || COALESCE(meta::text, '') FROM rxjobs.jobs")
    await connection.close()
    paper = io.StringIO()
    Console(file=paper, width=2000).print(job, new, untyped)
    spans = [span.to_json() for span in exporter.get_finished_spans()]
    assert len(spans) >= 3
    told = [
        *spans,
        *(repr(one) for one in (new, job, untyped)), *events, errors, paper.getvalue(), caplog.text, capsys.readouterr().out,
        repr(job.payload), *(str(show(one)) for one in (job, untyped) for show in (_document, _row, _lines)),
    ]  # fmt: skip
    assert all(told)
    assert not [text for text in told if CANARY in text]


async def test_a_secret_reaches_a_child_process_and_a_thread(dsn):
    app = rj.App(dsn, migrate=True, poll_seconds=0.1)
    processes = rj.in_processes(1)
    in_child = app.job(name="in_child", executor=processes)(reveal)
    in_thread = app.job(name="in_thread")(reveal)
    ended: list[Any] = []
    app.events.subscribe(lambda event: ended.append(event.outcome) if isinstance(event, JobStopped) else None)
    async with app.running():
        await in_child.enqueue(CANARY)
        await in_thread.enqueue(rj.Secret(CANARY))
        await until(lambda: len(ended) == 2)
    assert ended == [rj.Complete(CANARY[::-1])] * 2
