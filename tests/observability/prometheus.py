"""A real Prometheus with our rules, for as long as a test takes."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import yaml

from tests.observability.places import OBSERVABILITY, RULES, read

STARTS = 5
"""How often another port is tried: a free one may be taken before Prometheus takes it."""
MISSING = "prometheus is not installed: apt-get install --no-install-recommends prometheus, or a release of it on the PATH"


def is_missing() -> bool:
    return shutil.which("prometheus") is None


class Prometheus:
    """A running one."""

    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, path: str, **parameters: str):
        with urlopen(f"{self.url}/api/v1/{path}?{urlencode(parameters)}", timeout=10) as answer:  # noqa: S310 - a server of ours
            return json.load(answer)["data"]

    def ask(self, expression: str):
        """What an expression is now: a list of series with their values."""
        return self.get("query", query=expression)["result"]


@contextmanager
def running(folder: Path, *targets: str) -> Iterator[Prometheus]:
    """Scrapes the targets (host:port) and evaluates our rules, both every second."""
    config = _config(folder, targets)
    for _ in range(STARTS):
        port = _free_port()
        command = [
            "prometheus",
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--enable-feature=exemplar-storage",
            "--log.level=error",
        ]
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            if _is_ready(process, f"http://127.0.0.1:{port}"):
                yield Prometheus(f"http://127.0.0.1:{port}")
                return
        finally:
            process.kill()
            _, said = process.communicate()
    raise AssertionError(f"Prometheus did not start: {said}")


def _config(folder: Path, targets: tuple[str, ...]) -> Path:
    """Our own configuration, but for what it scrapes and how often."""
    (folder / "rules").mkdir()
    for path in (RULES / "rxjobs.rules.yml", RULES / "rxjobs.alerts.yml"):
        (folder / "rules" / path.name).write_text(path.read_text("utf-8").replace("interval: 15s", "interval: 1s"), "utf-8")
    config = read(OBSERVABILITY / "prometheus.yml")
    config["global"] = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
    ours = next(job for job in config["scrape_configs"] if job["job_name"] == "rxjobs")
    ours["static_configs"] = [{"targets": list(targets)}]
    config["scrape_configs"] = [ours]
    path = folder / "prometheus.yml"
    path.write_text(yaml.safe_dump(config), "utf-8")
    return path


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def _is_ready(process: subprocess.Popen[str], url: str) -> bool:
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with urlopen(f"{url}/-/ready", timeout=5) as answer:  # noqa: S310 - a server of ours
                return answer.status == 200
        except (URLError, TimeoutError, ConnectionError):
            time.sleep(0.05)
    return False
