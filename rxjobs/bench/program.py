"""A program that is measured, as the bench holds it: started, told what to do, looked at, ended."""

from __future__ import annotations

import asyncio
import os
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from tempfile import TemporaryFile
from typing import IO, TypeVar

import msgspec

from rxjobs.bench.said import Fact, Order, Reached, Ready

END_SECONDS = 10.0
"""How long a program has to end."""
LONGEST_LINE = 64 * 1024 * 1024

F = TypeVar("F")

_facts: msgspec.json.Decoder[Fact] = msgspec.json.Decoder(Fact)


class NotMeasured(Exception):
    """Something could not be measured; says why."""


class Program:
    """One process. What it takes is its own: it shares nothing with the bench."""

    def __init__(self, name: str, process: Process, log: IO[bytes]) -> None:
        self.marks: list[Reached] = []
        """How far it told that it was, as time went on."""
        self._name = name
        self._process = process
        self._log = log
        self._has_ended = False
        self._facts: asyncio.Queue[Fact | None] = asyncio.Queue()

    @property
    def bodies(self) -> int:
        """How many bodies of jobs have started, as far as it has told."""
        return self.marks[-1].bodies if self.marks else 0

    def go_on(self) -> None:
        """Have it begin, or tell how far it is."""
        self.say(b"")

    async def ask(self, kind: type[F]) -> F:
        """Its next fact, which is of this kind; raises NotMeasured when it has ended."""
        fact = await self._facts.get()
        if not isinstance(fact, kind):
            raise NotMeasured(self._last_words())
        return fact

    def check(self) -> None:
        """Raise NotMeasured when it has ended."""
        if self._has_ended:
            raise NotMeasured(self._last_words())

    async def hear(self) -> None:
        """Take in what it tells, until it has ended."""
        assert self._process.stdout is not None  # noqa: S101 - a pipe
        async for line in self._process.stdout:
            match _facts.decode(line):
                case Reached() as mark:
                    self.marks.append(mark)
                case fact:
                    self._facts.put_nowait(fact)
        self._has_ended = True
        self._facts.put_nowait(None)

    async def end(self) -> None:
        """Have it end, by force if it does not."""
        assert self._process.stdin is not None  # noqa: S101 - a pipe
        self._process.stdin.close()
        try:
            async with asyncio.timeout(END_SECONDS):
                await self._process.wait()
        finally:
            if self._process.returncode is None:
                self._process.kill()
                await self._process.wait()

    def say(self, line: bytes) -> None:
        """Say a line to it."""
        assert self._process.stdin is not None  # noqa: S101 - a pipe
        self._process.stdin.write(line + b"\n")

    def _last_words(self) -> str:
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").split("\n")
        words = next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
        return f"{self._name} ended too early: {words}"


def ours(python: str, name: str) -> Sequence[str]:
    """The command of a program of this package."""
    # -P: a file in the current folder must not stand in for a module of Python's own
    return python, "-P", "-m", f"rxjobs.bench.{name}"


@asynccontextmanager
async def started(command: Sequence[str], order: Order) -> AsyncIterator[Program]:
    """A program that has set all up, and waits to be told to go on; raises NotMeasured where it ends instead."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("RXJOBS_", "OTEL_"))}
    with TemporaryFile() as log:
        # a group of its own: Ctrl-C in a terminal reaches the bench alone, which ends what it has started
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=PIPE, stdout=PIPE, stderr=log, env=environment, process_group=0, limit=LONGEST_LINE,
        )  # fmt: skip
        program = Program(command[-1].removeprefix("rxjobs.bench."), process, log)
        hearing = asyncio.ensure_future(program.hear())
        try:
            program.say(msgspec.json.encode(order))
            await program.ask(Ready)
            yield program
        finally:
            with suppress(TimeoutError):
                await program.end()
            hearing.cancel()
            await asyncio.wait([hearing])
