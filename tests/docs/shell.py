"""Lines of a shell in the pages: what is of rxjobs is really run, all else is looked up or has its reason."""

from __future__ import annotations

import asyncio
import re
import shlex
import signal
import tomllib
from fnmatch import fnmatchcase

from rxjobs.cli import commands as cli
from tests.cli.conftest import Commands, Ran, until
from tests.docs.blocks import ROOT, Block
from tests.docs.reasons import LINES, PARSED

ASSIGNED = re.compile(r"[A-Z_]+=")
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
SHOWN = re.compile(r"…")


class Shell:
    """Runs the lines of bash and console blocks in a folder of a user's, with a database."""

    def __init__(self, commands: Commands) -> None:
        self.commands = commands

    async def bash(self, block: Block) -> None:
        """Each line ends with success."""
        for line in lines(block.code):
            ran = await asyncio.to_thread(self._run, line, block)
            assert ran is None or ran.code == 0, (block.place, line, ran)

    async def console(self, block: Block) -> None:
        """Each line after a `$` prints what stands below it, where `…` is anything."""
        for part in re.split(r"^\$ ", block.code, flags=re.MULTILINE)[1:]:
            line, _, shown = part.partition("\n")
            ran = await asyncio.to_thread(self._run, line, block)
            if ran is not None:
                assert is_as_shown(ran.out + ran.err, shown), (block.place, line, ran, shown)

    def _run(self, line: str, block: Block) -> Ran | None:
        words = shlex.split(line, comments=True)
        given = {}
        while words and ASSIGNED.match(words[0]):
            name, _, given[name] = words.pop(0).partition("=")
        words = [word for word in words if word != "&"]
        match words:
            case ["export", assignment]:
                name, _, value = assignment.partition("=")
                # the reader's own server is ours here
                self.commands.environment[name] = self.commands.dsn if name == "RXJOBS_DSN" else value
                return None
            case ["python", file]:
                return self.commands.python(file) if hasattr(self.commands, "python") else None
            case ["rxjobs", "run", *options]:
                return self._serve(options, [*words, *given])
            case ["rxjobs", *arguments] if not starts(line, LINES):
                return self.commands(*arguments, environment=given)
            case _:
                self._look_up(words, line, block)
                return None

    def _serve(self, options: list[str], words: list[str]) -> Ran | None:
        """Run a worker until it has begun, and drain it; or only parse the line where another test runs such a one."""
        if any(part in word for part in PARSED for word in words):
            cli.parse_args(["run", *options], exit_on_error=False, print_error=False)
            return None
        process = self.commands.start("run", *options)
        until(lambda: " runs\n" in self.commands.read("stderr") or process.poll() is not None)
        until(lambda: self.commands.is_worked_off() or process.poll() is not None)
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)
        return Ran(process.returncode, "", self.commands.read("stderr"))

    def _look_up(self, words: list[str], line: str, block: Block) -> None:
        """What is not run has a reason, and is right as far as that can be seen."""
        assert starts(line, LINES), f"{block.place}: {line!r} is not run, and tests/docs/reasons.py does not say why"
        match words:
            case ["make", target, *_]:
                assert target in TARGETS, (block.place, line)
            case ["pip", "install", *what]:
                for extra in re.findall(r"rxjobs\[([^\]]+)\]", " ".join(what)):
                    assert set(extra.split(",")) <= EXTRAS.keys(), (block.place, line)
            case ["rxjobs", *arguments]:
                cli.parse_args(arguments, exit_on_error=False, print_error=False)


def lines(code: str) -> list[str]:
    """The lines, those joined that end with a backslash, without those that say nothing."""
    joined = code.replace("\\\n", " ").splitlines()
    return [line.strip() for line in joined if line.strip() and not line.strip().startswith("#")]


def starts(line: str, beginnings: dict[str, str]) -> bool:
    """Whether a line begins, after what it sets, with one of these."""
    bare = re.sub(r"^(?:[A-Z_]+=\S*\s+)*", "", line)
    return any(bare == one or bare.startswith(f"{one} ") for one in beginnings)


def is_as_shown(said: str, shown: str) -> bool:
    """Whether each line is what the page shows, spaces aside; a line `…` alone stands for any number of them."""

    def fits(said: list[str], shown: list[str]) -> bool:
        if not shown:
            return not said
        if shown[0] == "…":
            return any(fits(said[place:], shown[1:]) for place in range(len(said) + 1))
        return bool(said) and _fits(said[0], shown[0]) and fits(said[1:], shown[1:])

    return fits(_bare(said), _bare(shown))


def _bare(text: str) -> list[str]:
    return [re.sub(r"\s+", " ", line).strip() for line in text.splitlines() if line.strip() and set(line.strip()) != {"─"}]


def _fits(said: str, shown: str) -> bool:
    return fnmatchcase(said, re.sub(r"([\[\]?*])", r"[\1]", shown).replace("…", "*"))
