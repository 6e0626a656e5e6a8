"""A link to a PostgreSQL server that can be cut, silenced, slowed and listened in on, without either end noticing."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import parse_qsl, urlsplit


class Link:
    """One connection through a proxy, and what it was seen to be used for."""

    def __init__(self, here: asyncio.StreamWriter, there: asyncio.StreamWriter) -> None:
        self.writers = (here, there)
        self.statements: dict[bytes, str] = {}
        self.texts: list[str] = []
        self.running = ""
        """The text of the statement that the client sent last."""

    def is_about(self, what: str) -> bool:
        """Whether a statement with these words was sent on it."""
        return any(what in text for text in self.texts)

    def reset(self) -> None:
        """End it as a router does that has lost its state: both ends get a RST."""
        for writer in self.writers:
            connected = writer.get_extra_info("socket")
            if connected is not None and connected.family == socket.AF_INET:
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    def finish(self) -> None:
        """End it in order, at a moment that neither end has chosen."""
        for writer in self.writers:
            writer.close()

    def note(self, message: bytes) -> None:
        """Learn from a message of the client what it does."""
        match message[:1]:
            case b"P":
                name, text = message[5:].split(b"\0")[:2]
                self.statements[name] = text.decode("utf-8", "replace")
            case b"B":
                self._runs(self.statements.get(message[5:].split(b"\0")[1], ""))
            case b"Q":
                self._runs(message[5:-1].decode("utf-8", "replace"))

    def _runs(self, text: str) -> None:
        self.running = text
        if text not in self.texts:
            self.texts.append(text)


Which = Callable[[Link], bool]


def every(link: Link) -> bool:
    """All links."""
    return True


def listening(link: Link) -> bool:
    """Those on which notifications are heard."""
    return link.is_about("LISTEN")


@dataclass(eq=False)
class Trap:
    """What waits for a message about a statement, by its type: `B` is the client's question, `Z` says that it is committed."""

    about: str
    message: str
    then: Callable[[Link], object]
    left: int
    withholds: bool
    sprung: asyncio.Event = field(default_factory=asyncio.Event)

    def catches(self, link: Link, kind: str) -> bool:
        return self.left > 0 and kind == self.message and self.about in link.running


class Proxy:
    """A TCP proxy in front of a PostgreSQL server, which passes everything until it is told otherwise."""

    def __init__(self, dsn: str) -> None:
        self._to = urlsplit(dsn)
        self._silent: Which | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._links: set[Link] = set()
        self._traps: list[Trap] = []
        self._swallowed_type = ""
        self.swallowed = 0
        self._keeps_open = False
        self._delay = 0.0
        self._bytes_a_second = 0.0
        self._refuses = False

    @property
    def dsn(self) -> str:
        """Where clients connect to. Unencrypted: the proxy reads along."""
        port = self._server.sockets[0].getsockname()[1]
        return self._to._replace(netloc=f"{self._to.username}@127.0.0.1:{port}", query="sslmode=disable").geturl()

    @property
    def links(self) -> list[Link]:
        """The connections there are: one that was cut may linger here for a moment."""
        return [link for link in self._links if not link.writers[0].is_closing()]

    # what it can do to its links

    def silence(self, which: Which = every) -> None:
        """Let nothing pass on these links, and refuse nothing: a black hole."""
        self._silent = which

    def reset(self, which: Which = every) -> None:
        """End these links with a RST."""
        for link in filter(which, self.links):
            link.reset()

    def finish(self, which: Which = every) -> None:
        """End these links in order."""
        for link in filter(which, self.links):
            link.finish()

    def refuse(self) -> None:
        """End all links with a RST, and every new one too: a server that cannot be reached."""
        self._refuses = True
        self.reset()

    def delay(self, seconds: float) -> None:
        """Take so long to pass anything on."""
        self._delay = seconds

    def slow(self, bytes_a_second: float) -> None:
        """Pass no more than so much a second on each link."""
        self._bytes_a_second = bytes_a_second

    def swallow(self, kind: str) -> None:
        """Let no message of this type through from the server: `A` is a notification."""
        self._swallowed_type = kind

    def keep_open(self) -> None:
        """Tell the server of no client that takes its leave: it does not end the session, and its client waits for that."""
        self._keeps_open = True

    def cut_after(self, about: str, message: str = "Z", times: int = 1) -> Trap:
        """Reset the link in place of the server's answer to such a statement, so often: it is done, and nobody is told."""
        return self._set(Trap(about, message, Link.reset, times, withholds=True))

    def watch_for(self, about: str, message: str, then: Callable[[Link], object] = lambda link: None) -> Trap:
        """Have it known when such a message passes, and do something at that moment."""
        return self._set(Trap(about, message, then, 1, withholds=False))

    def heal(self) -> None:
        """Pass everything again."""
        self._silent, self._delay, self._bytes_a_second, self._swallowed_type, self._refuses = None, 0.0, 0.0, "", False
        self._keeps_open = False
        self._traps.clear()

    # how

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *raised: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _set(self, trap: Trap) -> Trap:
        self._traps.append(trap)
        return trap

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        link = None
        try:
            if self._refuses:
                Link(writer, writer).reset()
                return
            there, back = await self._connect()
            link = Link(writer, back)
            self._links.add(link)
            await asyncio.gather(self._pass(link, reader, back, is_client=True), self._pass(link, there, writer, is_client=False))
        except (OSError, asyncio.CancelledError):  # a server that is away refuses, and so do we
            pass
        finally:
            for one in link.writers if link is not None else (writer,):
                one.close()
            if link is not None:
                self._links.discard(link)
            self._tasks.discard(task)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        options = dict(parse_qsl(self._to.query))
        if "host" in options:  # the embedded server listens on a socket in a folder
            return await asyncio.open_unix_connection(f"{options['host']}/.s.PGSQL.{options['port']}")
        return await asyncio.open_connection(self._to.hostname, self._to.port)

    async def _pass(self, link: Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_client: bool) -> None:
        frames = _Frames(starts_bare=is_client)
        while data := await reader.read(65536):
            if self._delay:
                await asyncio.sleep(self._delay)
            if self._bytes_a_second:
                await asyncio.sleep(len(data) / self._bytes_a_second)
            passing = b"".join(message for message in frames.of(data) if self._lets_through(link, message, is_client))
            await self._be_silent(link)
            writer.write(passing)
            await writer.drain()
        writer.close()

    async def _be_silent(self, link: Link) -> None:
        # which links are silent is a question, and no event
        while self._silent is not None and self._silent(link):  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    def _lets_through(self, link: Link, message: bytes, is_client: bool) -> bool:
        kind = chr(message[0])
        if is_client:
            link.note(message)
            if kind == "X" and self._keeps_open:
                return False
        elif kind == self._swallowed_type:
            self.swallowed += 1
            return False
        for trap in self._traps:
            if (trap.message == "B") == is_client and trap.catches(link, kind):
                trap.left -= 1
                trap.then(link)
                if not trap.left:
                    trap.sprung.set()
                return not trap.withholds
        return True


class _Frames:
    """The messages in a stream of bytes: a type and a length before each, but for a client's first, which has no type."""

    def __init__(self, *, starts_bare: bool) -> None:
        self._is_bare = starts_bare
        self._rest = b""

    def of(self, data: bytes) -> Iterator[bytes]:
        """The messages that are whole by now."""
        self._rest += data
        while True:
            head = 0 if self._is_bare else 1
            if len(self._rest) < head + 4:
                return
            size = head + int.from_bytes(self._rest[head : head + 4], "big")
            if len(self._rest) < size:
                return
            message, self._rest = self._rest[:size], self._rest[size:]
            self._is_bare = False
            yield message
