"""A link to a server that can be cut without either end noticing."""

from __future__ import annotations

import asyncio
from typing import Self
from urllib.parse import parse_qsl, urlsplit


class Proxy:
    """A TCP proxy in front of a PostgreSQL server. While it is silent, nothing passes and nothing is refused."""

    def __init__(self, dsn: str) -> None:
        self._to = urlsplit(dsn)
        self._open = asyncio.Event()
        self._open.set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def dsn(self) -> str:
        port = self._server.sockets[0].getsockname()[1]
        return self._to._replace(netloc=f"{self._to.username}@127.0.0.1:{port}", query="").geturl()

    def silence(self) -> None:
        self._open.clear()

    def heal(self) -> None:
        self._open.set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *raised: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        there, back = await self._connect()
        try:
            await asyncio.gather(self._pass(reader, back), self._pass(there, writer))
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            back.close()
            self._tasks.discard(task)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        options = dict(parse_qsl(self._to.query))
        if "host" in options:  # the embedded server listens on a socket in a folder
            return await asyncio.open_unix_connection(f"{options['host']}/.s.PGSQL.{options['port']}")
        return await asyncio.open_connection(self._to.hostname, self._to.port)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            await self._open.wait()
            writer.write(data)
            await writer.drain()
        writer.close()
