"""Every code block of the README and the docs is run, checked, or has its reason in reasons.py."""

from __future__ import annotations

import ast
import asyncio
import configparser
import inspect
import os
import sys
import tomllib
from collections.abc import MutableMapping
from contextlib import AsyncExitStack
from dataclasses import fields
from functools import partial
from pathlib import Path
from types import ModuleType

import asyncpg
import pytest
import yaml

import rxjobs as rj
from rxjobs import settings
from rxjobs.cli import MISTAKE
from rxjobs.cli import commands as cli
from tests.docs.blocks import ROOT, Block, all_blocks, blocks_of
from tests.docs.conftest import Reader
from tests.docs.reasons import LANGUAGES, LINES, RUN_BY
from tests.docs.shell import Shell, is_as_shown, starts

BLOCKS = all_blocks()
WORLDS = Path(__file__).with_name("worlds")
CODE = ("rxjobs ", "$ ", "pip ", "import ", "from ", "SELECT ", "async def ", "def ", "await ", "app.", "[tool.")


class Ground:
    """Runs the blocks of one page in order, all in one namespace, with an app that is open."""

    def __init__(self, reader: Reader, stack: AsyncExitStack) -> None:
        self.reader = reader
        self.shell = Shell(reader)
        self.stack = stack
        self.in_a_program: dict[str, str] = {}
        """What a block that has this in it is put behind, to be run as a program of its own."""
        module = sys.modules["page"] = ModuleType("page")  # where dataclasses look for what their annotations name
        self.names = vars(module)
        self.names |= {
            "rj": rj, "ground": self, "dsn": reader.dsn, "connect": partial(asyncpg.connect, reader.dsn),
            "enter": stack.enter_async_context,
        }  # fmt: skip

    async def prepare(self, page: str) -> None:
        """Do what the world of the page does first; without one nothing is there but what the page itself makes."""
        world = world_of(page)
        if world.exists():
            await self.execute(world.read_text("utf-8"), str(world))

    async def do(self, block: Block) -> None:
        """Do what its language says."""
        if block.title:
            path = self.reader.folder / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.code)
        match block.language:
            case "python" if block.title:
                compile(block.code, block.place, "exec")  # a command of the page imports it
            case "python":
                await self.python(block)
            case "bash":
                await self.shell.bash(block)
            case "console":
                await self.shell.console(block)
            case "sql":
                await self.sql(block)
            case "toml":
                self.toml(block)
            case "yaml":
                self.yaml(block)
            case "env":
                self.env(block)
            case "ini":
                self.unit(block)
            case "text":
                assert not any(line.startswith(CODE) for line in block.code.splitlines()), f"{block.place} is code"
            case language:
                assert language in LANGUAGES, f"{block.place}: nothing runs {language!r}, and reasons.py does not say why"

    @property
    def environ(self) -> MutableMapping[str, str]:
        """The variables of this process, as they are until the page is done."""
        return os.environ

    async def python(self, block: Block) -> None:
        for part, beginning in self.in_a_program.items():
            if part in block.code:
                self.reader.write("program.py", f"{beginning}\n{block.code}")
                done = await asyncio.to_thread(self.reader.python, "program.py")
                assert done.code == 0, (block.place, done.err)
                return
        await self.execute(block.code, block.place)

    async def execute(self, code: str, place: str) -> None:
        """Run Python that may await at its top level, and the tests that it defines."""
        before = dict(self.names)
        compiled = compile(code, place, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if inspect.isawaitable(result := eval(compiled, self.names)):  # noqa: S307 - it is our own page
            await result
        for name, test in list(self.names.items()):
            if name.startswith("test_") and before.get(name) is not test:
                # as pytest would: a plain one is in no event loop
                await (test() if inspect.iscoroutinefunction(test) else asyncio.to_thread(test))

    async def sql(self, block: Block) -> None:
        connection = await asyncpg.connect(self.reader.dsn)
        try:
            for statement in filter(str.strip, block.code.split(";\n")):
                await connection.fetch(statement)
        finally:
            await connection.close()

    def toml(self, block: Block) -> None:
        document = tomllib.loads(block.code)
        assert document.keys() == {"tool"}
        (self.reader.folder / "pyproject.toml").write_text(block.code)
        settings.load({}, {}, self.reader.folder)

    def env(self, block: Block) -> None:
        """Variables: each is a setting, and may be what it is set to."""
        given = dict(line.split("=", 1) for line in block.code.splitlines() if line and not line.startswith("#"))
        known = {f"RXJOBS_{one.name.upper()}" for one in fields(settings.Settings)}
        assert given.keys() <= known, block.place
        settings.load({}, given, self.reader.folder)

    def yaml(self, block: Block) -> None:
        """Of Kubernetes: the grace is enough, and what is started is a command of ours."""
        pod = yaml.safe_load(block.code)["spec"]["template"]["spec"]
        assert pod["terminationGracePeriodSeconds"] > settings.Settings().shutdown_grace
        for container in pod["containers"]:
            program, *arguments = container["command"]
            assert program == "rxjobs"
            cli.parse_args(arguments, exit_on_error=False, print_error=False)

    def unit(self, block: Block) -> None:
        """Of systemd: as above, and what no new start mends is not started again."""
        unit = configparser.ConfigParser(interpolation=None)
        unit.optionxform = str  # type: ignore[assignment,method-assign]
        unit.read_string(block.code)
        service = unit["Service"]
        assert int(service["TimeoutStopSec"]) > settings.Settings().shutdown_grace
        assert int(service["RestartPreventExitStatus"]) == MISTAKE
        cli.parse_args(service["ExecStart"].partition(" -m rxjobs ")[2], exit_on_error=False, print_error=False)


def world_of(page: str) -> Path:
    return WORLDS / f"{page.removeprefix('docs/').removesuffix('.md').replace('/', '_').replace('-', '_').lower()}.py"


@pytest.mark.parametrize("page", sorted(BLOCKS.keys() - RUN_BY.keys()))
async def test_the_code_of_a_page_runs(page: str, reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(reader.folder)
    monkeypatch.syspath_prepend(str(reader.folder))
    before, environ = set(sys.modules), dict(os.environ)
    try:
        async with AsyncExitStack() as stack:
            ground = Ground(reader, stack)
            await ground.prepare(page)
            for block in BLOCKS[page]:
                await ground.do(block)
    finally:
        os.environ.clear()
        os.environ.update(environ)
        for name in sys.modules.keys() - before:
            if name == "page" or _is_in(sys.modules[name], reader.folder):
                del sys.modules[name]


def _is_in(module: ModuleType, folder: Path) -> bool:
    places = [getattr(module, "__file__", None), *getattr(module, "__path__", [])]
    return any(str(place).startswith(str(folder)) for place in places)


@pytest.mark.parametrize(("page", "test"), RUN_BY.items())
def test_a_page_that_another_test_runs_is_named_there(page: str, test: str) -> None:
    assert page in BLOCKS
    assert Path(page).name in (ROOT / test).read_text("utf-8")


def test_no_reason_and_no_world_is_left_over() -> None:
    """What a reason is for is still there."""
    code = [line.strip().removeprefix("$ ") for blocks in BLOCKS.values() for block in blocks for line in block.code.splitlines()]
    assert [one for one in LINES if not any(starts(line, {one: ""}) for line in code)] == []
    assert LANGUAGES.keys() <= {block.language for blocks in BLOCKS.values() for block in blocks}
    assert {path.name for path in WORLDS.glob("*.py")} <= {world_of(page).name for page in BLOCKS}


@pytest.mark.parametrize(
    "code",
    [
        "```python\nraise RuntimeError('a mistake on a page')\n```",
        "```\nno language\n```",
        "```text\nrxjobs run shop:app\n```",
        "```ruby\nputs 7\n```",
        "```bash\nsystemctl restart shop\n```",
        "```bash\nrxjobs jobs list --nonsense\n```",
        "```bash\nmake nothing-of-that-name\n```",
        '```bash\npip install "rxjobs[nonsense]"\n```',
        "```sql\nSELECT rxjobs.nothing();\n```",
        "```toml\n[tool.rxjobs]\nnonsense = 1\n```",
        "```env\nRXJOBS_NONSENSE=1\n```",
        "```console\n$ rxjobs --version\nnonsense\n```",
    ],
    ids=lambda code: code.split("\n")[1],
)
async def test_a_new_block_that_does_not_run_and_has_no_reason_is_found(code: str, reader: Reader) -> None:
    (block,) = blocks_of("docs/new.md", f"# New\n\n{code}\n")
    async with AsyncExitStack() as stack:
        ground = Ground(reader, stack)
        with pytest.raises((AssertionError, Exception)):
            await ground.do(block)


def test_what_a_command_prints_is_held_against_what_a_page_shows() -> None:
    assert is_as_shown("job 7 of send: available\n", "job … of send: available\n")
    assert not is_as_shown("job 7 of send: discarded\n", "job … of send: available\n")
    assert is_as_shown("a   b\n────\nc\n", "a b\nc\n")
    assert is_as_shown("one\ntwo\nthree\n", "one\n…\n")
    assert not is_as_shown("one\ntwo\n", "one\n")
