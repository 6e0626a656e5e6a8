"""TLS before a server that has none of its own, as the embedded one: what PostgreSQL does when it is asked for it."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from typing import Self
from urllib.parse import parse_qs, urlsplit

SSL_REQUEST = b"\x00\x00\x00\x08\x04\xd2\x16\x2f"


class Front:
    """Stands before a server on a port of 127.0.0.1. With a context it takes nothing but TLS; without, it says that it has none."""

    def __init__(self, dsn: str, context: ssl.SSLContext | None) -> None:
        self._to = urlsplit(dsn)
        self._context = context
        self.taken = self.plain = 0
        """Connections that TLS was spoken on, and those that were begun without."""

    def dsn(self, **options: object) -> str:
        """Of the database behind it, by the name localhost unless another `host` is given."""
        host = options.pop("host", "localhost")
        query = "&".join(f"{name}={value}" for name, value in options.items())
        return self._to._replace(netloc=f"{self._to.username}@{host}:{self._port}", query=query).geturl()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *raised: object) -> None:
        self._server.close()
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, ssl.SSLError, asyncio.IncompleteReadError):
            try:
                if await self._is_let_in(reader, writer):
                    await self._pass_on(reader, writer)
            finally:
                writer.close()

    async def _is_let_in(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        if await reader.readexactly(8) != SSL_REQUEST:
            self.plain += 1
            return False
        writer.write(b"N" if self._context is None else b"S")
        await writer.drain()
        if self._context is None:
            return False
        await writer.start_tls(self._context)
        self.taken += 1
        return True

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        options = parse_qs(self._to.query)
        host, port = options.get("host", [self._to.hostname])[0], int(options.get("port", [self._to.port])[0] or 5432)
        theirs = (
            asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}") if host.startswith("/") else asyncio.open_connection(host, port)
        )
        from_server, to_server = await theirs
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_copy(reader, to_server))
                group.create_task(_copy(from_server, writer))
        except* (OSError, ssl.SSLError):
            pass
        finally:
            to_server.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while said := await reader.read(64 * 1024):
        writer.write(said)
        await writer.drain()
    writer.close()
