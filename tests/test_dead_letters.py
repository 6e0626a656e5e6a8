"""Who is told of dead letters: how much, in which order, and what becomes of those who cannot be told."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

import rxjobs as rj
from rxjobs import dead_letters as module
from rxjobs.testing import a_job
from tests.waiting import until


def letter(id_: int, type_: str = "work") -> rj.Job:
    return a_job(id=id_, type=type_, forensics={"breaker": "closed"})


class Told(list[rj.Job]):
    """A listener's notes."""

    @property
    def ids(self) -> list[int]:
        return [job.id for job in self]

    def hear(self, job: rj.Job) -> None:
        self.append(job)


@pytest.fixture
def told():
    return Told()


@pytest.fixture
async def letters():
    """Dead letters of rows that cannot be read by the time that somebody is told of them."""
    letters = rj.App("postgresql://nowhere").dead_letters
    yield letters
    await letters.finish()


class Receiver(ThreadingHTTPServer):
    """A server that notes what is posted to it."""

    def __init__(self, status: int) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.status = status
        self.posted: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_port}/secret-path"


class Answering(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        self.server.posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        self.server.paths.append(self.path)
        self.send_response(self.server.status)
        if self.server.status == 302:
            self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def receive() -> Iterator[Any]:
    """Start a server that answers with a status."""
    servers: list[Receiver] = []

    def receive(status: int = 204) -> Receiver:
        servers.append(Receiver(status))
        threading.Thread(target=servers[-1].serve_forever, args=(0.01,), daemon=True).start()
        return servers[-1]

    yield receive
    for server in servers:
        server.shutdown()
        server.server_close()


async def test_a_plain_function_an_async_one_and_decorators_are_told_in_order(letters, told):
    @letters.on
    async def one(job):
        told.hear(job)

    @letters.on(per_minute=2)
    def two(job):
        told.hear(job)

    assert letters.on(told.hear) == told.hear
    assert callable(one)
    assert callable(two)
    letters.buried([letter(1), letter(2)])
    await until(lambda: len(told) == 6)
    assert sorted(told.ids) == [1, 1, 1, 2, 2, 2]
    assert {job.state for job in told} == {rj.State.DISCARDED}
    assert told[0].forensics == {"breaker": "closed"}


async def test_a_plain_function_is_not_called_on_the_event_loop(letters):
    threads: list[threading.Thread] = []
    letters.on(lambda _: threads.append(threading.current_thread()))
    letters.buried([letter(1)])
    await until(lambda: threads)
    assert threads[0] is not threading.current_thread()


async def test_more_than_so_many_a_minute_of_a_type_are_counted_and_told_with_the_next(letters, told, monkeypatch):
    monkeypatch.setattr(module, "WINDOW", 1.0)
    letters.on(told.hear, per_minute=2)
    letters.buried([letter(1)])
    await until(lambda: told.ids == [1])
    letters.buried([letter(n) for n in (2, 3, 4)])
    letters.buried([letter(5, "other")])
    await until(lambda: told.ids == [1, 2, 5])
    assert [job.assigns["untold"] for job in told] == [0, 2, 0]
    await asyncio.sleep(1.1)  # the minute, which is a second here
    letters.buried([letter(6)])
    await until(lambda: told.ids == [1, 2, 5, 6])
    assert told[-1].assigns == {"untold": 0}


async def test_a_listener_that_never_ends_holds_up_nobody_and_its_line_is_short(letters, told):
    async def hang(_: rj.Job) -> None:
        await asyncio.Event().wait()

    letters.on(hang, per_minute=10_000, timeout=3600)
    letters.on(told.hear, per_minute=10_000)
    began = time.monotonic()
    letters.buried([letter(n) for n in range(1, 50)])
    letters.buried([letter(n) for n in range(50, 5_000)])
    assert time.monotonic() - began < 30  # the one that never ends would be waited for
    await until(lambda: len(told) >= 100)
    letters.buried([letter(5_000)])
    await until(lambda: told.ids[-1] == 5_000)
    assert told.ids == [*range(1, 101), 5_000]
    assert sum(job.assigns["untold"] for job in told) == 4_899


async def test_one_that_takes_too_long_is_cancelled_and_the_next_is_told(letters, told, caplog):
    async def slow(job: rj.Job) -> None:
        if job.id == 1:
            await asyncio.Event().wait()
        told.hear(job)

    letters.on(slow, timeout=0.1)
    letters.buried([letter(1), letter(2)])
    await until(lambda: told.ids == [2])
    assert "slow could not be told of a dead letter (1 times so far): took too long" in caplog.text


async def test_what_a_plain_function_gives_to_be_awaited_has_a_deadline_too(letters, told, caplog):
    """F49: an object may be called like a plain function, and give a coroutine."""

    class Slow:
        async def __call__(self, job: rj.Job) -> None:
            if job.id == 1:
                await asyncio.Event().wait()
            told.hear(job)

    letters.on(Slow(), timeout=0.1)
    letters.buried([letter(1), letter(2)])
    await until(lambda: told.ids == [2])
    assert "could not be told of a dead letter (1 times so far): took too long" in caplog.text


async def test_whatever_a_listener_raises_the_others_are_told_and_the_log_says_it_once(letters, told, caplog):
    async def fails(_: rj.Job) -> None:
        raise SystemExit(3)

    def fails_too(_: rj.Job) -> None:
        raise StopIteration("enough")

    letters.on(fails)
    letters.on(fails_too)
    letters.on(told.hear)
    letters.buried([letter(n) for n in range(5)])
    await until(lambda: len(told) == 5)
    await letters.finish()
    errors = [record.getMessage() for record in caplog.records if record.name == "rxjobs.dead_letters"]
    assert len(errors) == 2
    assert any("fails could not be told of a dead letter (1 times so far): SystemExit: 3" in error for error in errors)


async def test_what_waits_is_told_when_a_node_ends_and_what_hangs_is_let_go(letters, told, monkeypatch, caplog):
    monkeypatch.setattr(module, "FAREWELL", 0.3)

    async def soon(job: rj.Job) -> None:
        await asyncio.sleep(0.05)
        told.hear(job)

    async def hang(_: rj.Job) -> None:
        await asyncio.Event().wait()

    letters.on(soon)
    letters.on(hang)
    letters.buried([letter(1), letter(2)])
    await letters.finish()
    assert told.ids == [1, 2]
    assert "hang was not told of 2 dead letters: this node ends" in caplog.text


async def test_a_webhook_gets_a_dead_letter_as_json_without_its_arguments(letters, receive):
    receiver = receive()
    letters.on(webhook=receiver.url)
    letters.buried([a_job(id=7, type="work", args={"card": "4711"}, payload='{"card":"4711"}', forensics={"load": [1.0]})])
    await until(lambda: receiver.posted)
    [posted] = receiver.posted
    assert (posted["event"], posted["untold"]) == ("job.discard", 0)
    assert (posted["job"]["id"], posted["job"]["state"], posted["job"]["forensics"]) == (7, "discarded", {"load": [1.0]})
    assert "4711" not in json.dumps(posted)


async def test_a_webhook_that_fails_is_told_of_by_its_host_only_and_a_redirect_is_not_followed(letters, receive, caplog):
    receiver = receive(302)
    letters.on(webhook=receiver.url)
    letters.buried([letter(1)])
    await until(lambda: "could not be told" in caplog.text)
    assert "the webhook at 127.0.0.1 could not be told of a dead letter (1 times so far): OSError: it answered 302" in caplog.text
    assert "secret-path" not in caplog.text
    assert receiver.paths == ["/secret-path"]


async def test_a_webhook_that_answers_nothing_is_given_up_in_time(letters, caplog):
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    letters.on(webhook=f"http://127.0.0.1:{port}/", timeout=0.1)
    letters.buried([letter(1)])
    await until(lambda: "could not be told" in caplog.text)
    server.close()


@pytest.mark.parametrize("url", ["ftp://x.example/", "file:///etc/passwd", "https://", "x", "http://a b/", "http://x:y/", 7, ""])
def test_a_webhook_that_is_no_url_of_the_web_is_refused(url):
    with pytest.raises(rj.InvalidOption, match=r"webhook is a URL that begins with https:// or http://, not "):
        rj.App("postgresql://nowhere").on_dead_letter(webhook=url)


@pytest.mark.parametrize(
    ("arguments", "options", "match"),
    [
        ((7,), {}, "takes a function of a job, or webhook="),
        ((print,), {"per_minute": 0}, "per_minute is a whole number from 1"),
        ((print,), {"timeout": 0}, "timeout is a number from 0.01"),
    ],
)
def test_what_cannot_be_told_is_refused(arguments, options, match):
    with pytest.raises(rj.InvalidOption, match=match):
        rj.App("postgresql://nowhere").on_dead_letter(*arguments, **options)
