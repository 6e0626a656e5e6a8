"""The plugin for pytest, as projects of others use it: each in a folder and a process of its own."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import asyncpg
import psutil
import pytest

import rxjobs.pytest_plugin

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "testing.md").read_text("utf-8")
# where rxjobs was installed before it had the plugin, pytest does not know of it
PLUGIN = [] if entry_points(group="pytest11", name="rxjobs") else ["-p", "rxjobs.pytest_plugin"]


def run(folder, *options, **environ):
    """Run the tests of a folder; gives what pytest says."""
    surroundings = {name: value for name, value in os.environ.items() if not name.startswith(("RXJOBS_", "PYTEST_"))}
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    # without that one pytest-asyncio of today warns
    loops = "asyncio_default_fixture_loop_scope=function"
    command = [sys.executable, "-m", "pytest", *PLUGIN, "-p", "no:cacheprovider", "-W", "error", "-o", loops, *options]
    ran = subprocess.run(
        command, env={**surroundings, "PYTHONPATH": path, **environ}, cwd=folder, capture_output=True, text=True, timeout=110
    )
    return ran.returncode, ran.stdout + ran.stderr


def project(folder, **files):
    for name, text in files.items():
        (folder / name.replace("_DOT_", ".")).write_text(text)
    return folder


def servers_in(folder):
    """The embedded servers that live in a folder."""
    lines = ((process.pid, " ".join(process.info["cmdline"] or ())) for process in psutil.process_iter(["cmdline"]))
    return [line for pid, line in lines if f"{folder}/" in line and pid != os.getpid()]


@pytest.fixture
def temp():
    """A temp folder of the inner run's own, so that what it leaves is seen; one that the server's OS user may enter."""
    folder = Path(tempfile.mkdtemp(prefix="rxk-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_the_project_of_the_page_passes(tmp_path, temp):
    """On an embedded server that two workers of xdist share, and that is gone afterwards."""
    blocks = re.findall(r"```(?:python|ini)\n# (\S+)\n(.*?)```", PAGE, re.DOTALL)
    for name, text in blocks:
        (tmp_path / name).write_text(text)
    assert len(blocks) == len({name for name, _ in blocks}) == 6
    code, said = run(tmp_path, "-n2", "--dist=load", TMPDIR=str(temp))
    assert code == 0, said
    assert "5 passed" in said
    assert servers_in(temp) == []
    assert list(temp.glob("rxjobs-*")) == []


def test_nothing_is_imported_before_it_is_asked_for_and_an_app_that_is_not_named_is_told(tmp_path):
    project(
        tmp_path,
        test_1_DOT_py=(
            "import sys\n\ndef test_it():\n"
            "    assert {name for name in sys.modules if 'rxjobs' in name} == {'rxjobs', 'rxjobs.pytest_plugin'}\n"
        ),
        test_2_DOT_py="def test_it(rxjobs_inline): ...\n",
    )
    code, said = run(tmp_path)
    assert code == 1
    assert "1 passed, 1 error" in said
    assert "rxjobs_inline is for the app that the ini file names: rxjobs_app = shop.jobs:app; or use inline(app)" in said


def test_the_plugin_is_an_entry_point_of_the_package():
    package = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert package["project"]["entry-points"]["pytest11"] == {"rxjobs": rxjobs.pytest_plugin.__name__}


EACH_ITS_OWN = """
import psycopg
import pytest
from rxjobs.testing import assert_enqueued, drain_sync


@pytest.mark.parametrize("n", range(3))
def test_ids_begin_at_1(rxjobs_app, n):
    work = rxjobs_app.job(name="work")(work_)
    assert rxjobs_app.sync.enqueue(work.new()).id == 1
    assert drain_sync() == {"complete": 1}
    assert rxjobs_app.sync.enqueue(work.new()).id == 2


def work_(): ...


left_open = []


def test_that_leaves_a_transaction_open(rxjobs_app):
    left_open.append(psycopg.connect(rxjobs_app.settings.dsn))
    work = rxjobs_app.job(name="work")(work_)
    rxjobs_app.sync.enqueue(work.new(), left_open[0])


def test_that_comes_after_it(rxjobs_app, rxjobs_database):
    assert rxjobs_app.settings.schema == rxjobs_database.schema
    assert rxjobs_app.sync.jobs.count() == {}


def test_that_changes_the_tables(rxjobs_database):
    with psycopg.connect(rxjobs_database.dsn) as connection:
        connection.execute(f"CREATE TABLE {rxjobs_database.schema}.mine AS SELECT 1")
        connection.execute(f"DROP TABLE {rxjobs_database.schema}.cron_slots CASCADE")


def test_that_comes_after_that(rxjobs_app):
    assert rxjobs_app.sync.cron.list() == []


def test_the_name_of_a_type_is_enough(rxjobs_app):
    work = rxjobs_app.job(name="work")(work_)
    rxjobs_app.sync.enqueue(work.new())
    assert_enqueued("work")
"""


def test_each_test_has_a_schema_without_a_row_on_the_server_that_is_named(tmp_path, dsn):
    project(tmp_path, pytest_DOT_ini=f"[pytest]\nrxjobs_dsn = {dsn}\n", test_it_DOT_py=EACH_ITS_OWN)
    code, said = run(tmp_path)
    assert code == 0, said
    assert "8 passed" in said
    assert asyncio.run(schemas_of(dsn)) == []  # nothing is left there


async def schemas_of(dsn):
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetch("SELECT FROM pg_namespace WHERE nspname LIKE 'rxjobs%'")
    finally:
        await connection.close()
