"""The environments that are measured: one for rxjobs and one a peer, all of one Python, made once and kept in the user's cache."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from platformdirs import user_cache_path

from rxjobs.bench.machine import Machine
from rxjobs.bench.program import NotMeasured

ROOT = Path(__file__).parents[2]


def suitable_python(oldest: tuple[int, int]) -> str:
    """This one if it is new enough, or else the newest such on the path; this one all the same where there is none."""
    named = (shutil.which(f"python3.{minor}") for minor in (14, 13, 12))
    return next((python for python in (sys.executable, *filter(None, named)) if is_at_least(python, oldest)), sys.executable)


def is_at_least(python: str, oldest: tuple[int, int]) -> bool:
    """Whether a Python runs, and is new enough."""
    if shutil.which(python) is None:
        return False
    return subprocess.run([python, "-c", f"import sys; sys.exit(sys.version_info < {oldest})"], capture_output=True).returncode == 0


def environment(python: str, requirements: Sequence[str]) -> str:
    """The Python of an environment with this checkout, uvloop and what is asked for; raises NotMeasured with pip's last words."""
    wanted = ["-e", f"{ROOT}[fast]", *requirements]
    folder = user_cache_path("rxjobs") / "peers" / hashlib.sha256(repr((python, wanted)).encode()).hexdigest()[:12]
    its_python, ready = str(folder / "bin" / "python"), folder / "ready"
    if not ready.exists():
        print(f"{', '.join(requirements) or 'rxjobs'}: an environment is made in {folder}", file=sys.stderr)
        shutil.rmtree(folder, ignore_errors=True)
        _run(python, "-m", "venv", str(folder))
        _run(its_python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted)
        ready.touch()
    return its_python


def versions(python: str, names: Iterable[str]) -> dict[str, str]:
    """The versions of packages in an environment."""
    code = f"import json, importlib.metadata as m; print(json.dumps({{name: m.version(name) for name in {[*names]}}}))"
    found: dict[str, str] = json.loads(_run(python, "-c", code))
    return found


def machine_of(python: str) -> Machine:
    """This machine, as an environment's Python sees it."""
    code = "import msgspec; from rxjobs.bench.machine import this_machine as m; print(msgspec.json.encode(m()).decode())"
    return Machine(**json.loads(_run(python, "-c", code)))


def _run(*command: str) -> str:
    ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode:
        raise NotMeasured(f"its environment could not be made: {ran.stderr.strip().splitlines()[-1:]}")
    return ran.stdout
