"""Nothing that a row holds becomes code: not its arguments, not its type, not its errors."""

import ast
import asyncio
import base64
import os
import pickle
import subprocess
import sys
import textwrap
from pathlib import Path

import asyncpg
import pytest

import rxjobs as rj
from rxjobs.definition import NAME, Options
from rxjobs.executors.remote import read_answer
from rxjobs.failure import RemoteFailure, describe
from tests.waiting import until

PACKAGE = Path(rj.__file__).parent
ROOT = PACKAGE.parent
BANNED_MODULES = {
    "pickle",
    "cPickle",
    "_pickle",
    "cloudpickle",
    "dill",
    "marshal",
    "shelve",
    "jsonpickle",
    "yaml",
    "code",
    "codeop",
}
BANNED_CALLS = {"eval", "exec", "compile", "__import__"}
# it imports what the code that runs names, a child's functions by a path that no row can give, and public names by its own table
IMPORTERS = {"__init__.py", "executors/remote.py", "cli/loading.py", "callables.py"}


def sources():
    return [pytest.param(path, id=str(path.relative_to(PACKAGE))) for path in sorted(PACKAGE.rglob("*.py"))]


def used(tree):
    """The modules a file imports, and the names of what it calls."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (("module", name.name.split(".")[0]) for name in names)
            case ast.ImportFrom(module=str(module), level=0):
                yield "module", module.split(".")[0]
            case ast.Call(func=ast.Name(id=name)):
                yield "call", name
            case ast.Call(func=ast.Attribute(attr=name, value=ast.Name(id=owner))):
                yield "call", f"{owner}.{name}"


@pytest.mark.parametrize("path", sources())
def test_no_module_unpickles_or_evaluates_anything(path):
    found = {*used(ast.parse(path.read_text("utf-8")))}
    allowed = {"pickle"} if path.name == "pickle_codec.py" else set()  # what it reads is signed
    assert not {name for kind, name in found if kind == "module"} & (BANNED_MODULES - allowed)
    calls = {name for kind, name in found if kind == "call"}
    assert not {name for name in calls if name in BANNED_CALLS or name in {"yaml.load", "builtins.exec", "builtins.eval"}}
    if "importlib.import_module" in calls or "import_module" in calls:
        assert str(path.relative_to(PACKAGE)) in IMPORTERS


def test_the_walk_finds_what_it_looks_for():
    text = "import pickle.x\nfrom yaml import load\ndef f():\n    eval('1')\n    importlib.import_module('x')\n"
    assert {*used(ast.parse(text))} == {
        ("module", "pickle"), ("module", "yaml"), ("call", "eval"), ("call", "importlib.import_module"),
    }  # fmt: skip


class Bomb:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (self.marker,)


async def test_a_pickle_in_a_row_is_a_bad_payload_and_is_never_unpickled(dsn, tmp_path):
    marker = tmp_path / "marker"
    body = base64.b64encode(pickle.dumps(Bomb(str(marker)))).decode()
    pickle.loads(pickle.dumps(Bomb(str(tmp_path / "proof"))))  # noqa: S301 - that it would have gone off
    assert (tmp_path / "proof").exists()
    app = rj.App(dsn, migrate=True, poll_seconds=0.1)
    ran = []

    @app.job(name="work")
    async def work(data: bytes) -> None:
        ran.append(data)

    bodies = [f'"{body}"', f'{{"pickle": "{body}"}}', f'{{"py/reduce": "{body}"}}', f'{{"data": {{"__reduce__": "{body}"}}}}']
    async with app:
        connection = await asyncpg.connect(dsn)
        for one in bodies:
            await connection.execute("INSERT INTO rxjobs.live_jobs (type, args) VALUES ('work', $1)", one)
        await work.enqueue(base64.b64decode(body))
        async with app.running():
            await until(lambda: counts_are(app, {"discarded": len(bodies), "completed": 1}))
        errors = await connection.fetch("SELECT errors -> -1 ->> 'type' AS type FROM rxjobs.jobs WHERE state = 'discarded'")
        await connection.close()
    assert {row["type"] for row in errors} == {"rxjobs.errors.BadPayload"}
    assert ran == [base64.b64decode(body)]
    assert not marker.exists()


async def counts_are(app, wanted):
    return await app.jobs.count() == wanted


FOREIGN_TYPES = [
    "os.system", "antigravity", "this", "../../x", "work/../other", "builtins.exec", "__main__.work", "x" * 10_000,
    "w\u043erk", "work ", "WORK", "work\n", "work\u200b", "", "rxjobs.demo.library", "tests.security.marker:touch",
    "'; DROP TABLE x; --",
]  # fmt: skip
"""What is named here is importable, or looks like the one name that is registered."""

WORKER = """
    import asyncio, json, sys
    import rxjobs as rj

    app = rj.App(sys.argv[1], poll_seconds=0.05)
    done = asyncio.Event()

    @app.job(name="work")
    async def work(last: bool = False) -> None:
        if last:
            done.set()

    async def main():
        async with app.running():
            # what the machinery itself needs is imported by its first job
            await work.enqueue(last=True)
            await done.wait()
            done.clear()
            imported = []
            sys.addaudithook(lambda event, args: imported.append(args[0]) if event == "import" else None)
            # the foreign rows are older, so that they would be claimed before it
            await work.enqueue(last=True)
            await done.wait()
        print(json.dumps({"imported": imported, "modules": sorted(sys.modules)}))

    asyncio.run(main())
"""


async def test_a_type_that_is_not_registered_is_never_imported_nor_fetched(dsn, tmp_path):
    app = rj.App(dsn, migrate=True)
    async with app:
        connection = await asyncpg.connect(dsn)
        for type_ in FOREIGN_TYPES:
            await connection.execute("INSERT INTO rxjobs.live_jobs (type) VALUES ($1)", type_)
        script = tmp_path / "worker.py"
        script.write_text(textwrap.dedent(WORKER))
        worker = await asyncio.create_subprocess_exec(
            sys.executable, script, dsn, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE
        )
        said, _ = await asyncio.wait_for(worker.communicate(), 60)
        assert worker.returncode == 0
        rows = await connection.fetch("SELECT type, state, attempt, node, errors FROM rxjobs.live_jobs")
        await connection.close()
    document = said.decode()
    for name in ("antigravity", "this", "rxjobs.demo.library", "tests.security"):
        assert f'"{name}"' not in document
    assert sorted(row["type"] for row in rows) == sorted(FOREIGN_TYPES)
    assert {(row["state"], row["attempt"], row["node"], row["errors"]) for row in rows} == {("available", 0, None, None)}


@pytest.mark.parametrize("name", [name for name in FOREIGN_TYPES if not NAME.fullmatch(name)])
def test_a_name_that_cannot_be_told_from_data_cannot_be_registered(name):
    with pytest.raises(rj.InvalidOption):
        Options(name=name)


async def test_the_type_of_a_stored_error_is_only_text(dsn):
    app = rj.App(dsn, migrate=True)
    async with app:
        connection = await asyncpg.connect(dsn)
        id_ = await connection.fetchval(
            "INSERT INTO rxjobs.live_jobs (type, errors) VALUES ('work', "
            """'[{"type": "os.system", "message": "touch marker", "traceback": "", "attempt": 1}]') RETURNING id"""
        )
        await connection.close()
        job = await app.jobs.get(id_)
    assert job is not None
    assert job.errors == [{"type": "os.system", "message": "touch marker", "traceback": "", "attempt": 1}]


def test_the_failure_of_a_child_is_never_rebuilt_into_its_class():
    ran = read_answer(b'{"failure": {"type": "os.system", "message": "touch marker"}}')
    assert type(ran.error) is RemoteFailure
    assert describe(ran.error).type == "os.system"
