"""A pooler in transaction mode, as small as one can be: what PgBouncer does to a client, on machines where there is none.

A server connection is a client's for one transaction only. So what was prepared, set or listened for on it is not there in the
next one, or is there for somebody else. Unlike PgBouncer this one never gives a client the same connection twice in a row if it
can help it: what depends on that fails at once, and not now and then.
"""

from __future__ import annotations

import asyncio
import struct
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import parse_qsl, urlsplit

PROTOCOL, CANCEL, SSL, GSS = 196608, 80877102, 80877103, 80877104
KNOWN = {"user", "database", "client_encoding", "application_name", "datestyle", "timezone", "standard_conforming_strings"}
"""What a client may ask for when it connects; PgBouncer refuses all else."""


@dataclass(eq=False)
class Session:
    """A connection to the server."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    greeting: list[bytes] = field(default_factory=list)
    """What it said of its parameters."""
    key: bytes = b""
    """Its process and secret, for a cancel request."""


class Lent:
    """A server connection while it is a client's."""

    def __init__(self, session: Session, client: asyncio.StreamWriter) -> None:
        self.session = session
        self.is_over = False
        self.answering: asyncio.Future[None]
        self._client = client
        self._owed = 0
        self._is_asking = False

    def ask(self, message: bytes) -> None:
        """Pass on what the client says."""
        self.session.writer.write(message)
        self._is_asking = message[:1] not in b"QS"
        self._owed += not self._is_asking

    def told(self, message: bytes) -> None:
        """Pass on what the server says; it is over when nothing is asked any more and no transaction is open."""
        self._client.write(message)
        if message[:1] == b"Z":
            self._owed -= 1
            self.is_over = message[5:] == b"I" and not self._owed and not self._is_asking


class TransactionPooler:
    """Serves any number of clients with a few server connections."""

    def __init__(self, dsn: str, size: int = 3) -> None:
        self._to = urlsplit(dsn)
        self._size = size
        self._idle: asyncio.Queue[Session] = asyncio.Queue()
        self._sessions: set[Session] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._running: dict[bytes, Session] = {}
        self._clients = 0

    @property
    def dsn(self) -> str:
        """Where clients connect to."""
        port = self._listener.sockets[0].getsockname()[1]
        return self._to._replace(netloc=f"{self._to.username}@127.0.0.1:{port}", query="").geturl()

    async def __aenter__(self) -> Self:
        for _ in range(self._size):
            await self._open_session()
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *raised: object) -> None:
        self._listener.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for session in self._sessions:
            session.writer.close()

    # to the server

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        options = dict(parse_qsl(self._to.query))
        if "host" in options:  # the embedded server listens on a socket in a folder
            return await asyncio.open_unix_connection(f"{options['host']}/.s.PGSQL.{options['port']}")
        return await asyncio.open_connection(self._to.hostname, self._to.port)

    async def _open_session(self) -> None:
        session = Session(*await self._connect())
        asked = {"user": self._to.username or "", "database": self._to.path.removeprefix("/")}
        session.writer.write(_bare(PROTOCOL, *(part for pair in asked.items() for part in pair), ""))
        while (message := await _message(session.reader))[:1] != b"Z":
            assert message[:1] != b"E", message
            if message[:1] == b"S":
                session.greeting.append(message)
            elif message[:1] == b"K":
                session.key = message[5:]
        self._sessions.add(session)
        self._idle.put_nowait(session)

    async def _replace(self, session: Session) -> None:
        session.writer.close()
        self._sessions.discard(session)
        await self._open_session()

    # to the clients

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            key = await self._greet(reader, writer)
            if key is not None:
                await self._serve(key, reader, writer)
        except (OSError, EOFError, asyncio.CancelledError):  # a client that is gone, or this pooler is
            pass
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes | None:
        """Answer what a client begins with; gives the key by which it may cancel, or None if it does not stay."""
        while True:
            size, code = struct.unpack("!II", await reader.readexactly(8))
            rest = await reader.readexactly(size - 8)
            if code == CANCEL:
                await self._cancel(rest)
                return None
            if code not in (SSL, GSS):
                break
            writer.write(b"N")
        words = rest.decode().split("\0")
        unknown = {name.lower() for name in words[:-2:2]} - KNOWN
        if unknown:
            writer.write(_refusal(f"unsupported startup parameter: {sorted(unknown)[0]}"))
            return None
        self._clients += 1
        key = struct.pack("!II", self._clients, 4711)  # of no process: the server's are not told
        greeting = next(iter(self._sessions)).greeting
        writer.write(_typed(b"R", struct.pack("!I", 0)) + b"".join(greeting) + _typed(b"K", key) + _typed(b"Z", b"I"))
        return key

    async def _cancel(self, key: bytes) -> None:
        session = self._running.get(key)
        if session is not None:
            _, writer = await self._connect()
            writer.write(struct.pack("!II", 16, CANCEL) + session.key)
            await writer.drain()
            writer.close()

    async def _serve(self, key: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lent: Lent | None = None
        try:
            while (message := await _message(reader))[:1] != b"X":
                if lent is None or lent.is_over:
                    lent = Lent(await self._idle.get(), writer)
                    self._running[key] = lent.session
                    lent.answering = asyncio.ensure_future(self._answer(key, lent))
                lent.ask(message)
        finally:
            if lent is not None and not lent.is_over:  # whoever goes in the middle of a transaction takes it along
                lent.answering.cancel()
                self._running.pop(key, None)
                await asyncio.shield(self._replace(lent.session))

    async def _answer(self, key: bytes, lent: Lent) -> None:
        """Pass on what the server says, until a transaction has ended."""
        while not lent.is_over:
            lent.told(await _message(lent.session.reader))
        self._running.pop(key, None)
        self._idle.put_nowait(lent.session)


async def _message(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(5)
    return head + await reader.readexactly(int.from_bytes(head[1:], "big") - 4)


def _typed(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!I", len(body) + 4) + body


def _bare(code: int, *words: str) -> bytes:
    body = b"".join(word.encode() + b"\0" for word in words)
    return struct.pack("!II", len(body) + 8, code) + body


def _refusal(text: str) -> bytes:
    return _typed(b"E", b"".join(field.encode() + b"\0" for field in ("SFATAL", "VFATAL", "C08P01", f"M{text}", "")))
