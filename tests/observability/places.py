"""Where the files of the stack are, and what is in them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
OBSERVABILITY, GRAFANA = ROOT / "observability", ROOT / "grafana"
RULES = OBSERVABILITY / "rules"
COMPOSE = ROOT / "docker-compose.yml"
DATA_SOURCES = GRAFANA / "provisioning" / "datasources" / "rxjobs.yaml"
PROVIDERS = GRAFANA / "provisioning" / "dashboards" / "rxjobs.yaml"
DASHBOARDS = sorted((GRAFANA / "dashboards").glob("*.json"))


def read(path: Path) -> Any:
    """A file of YAML, or of JSON, which is YAML too."""
    return yaml.safe_load(path.read_text("utf-8"))


def dashboard(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text("utf-8"))


def texts(document: Any) -> Iterator[str]:
    """Every text in a document, keys too."""
    if isinstance(document, dict):
        for key, value in document.items():
            yield str(key)
            yield from texts(value)
    elif isinstance(document, list):
        for value in document:
            yield from texts(value)
    elif isinstance(document, str):
        yield document


def found(document: Any, key: str) -> Iterator[Any]:
    """Every value that a document has under a key, at any depth."""
    if isinstance(document, dict):
        for name, value in document.items():
            if name == key:
                yield value
            yield from found(value, key)
    elif isinstance(document, list):
        for value in document:
            yield from found(value, key)


def rules(path: Path) -> Iterator[dict[str, Any]]:
    """The rules of a rule file."""
    for group in read(path)["groups"]:
        yield from group["rules"]


ALERTS = list(rules(RULES / "rxjobs.alerts.yml"))
RECORDED = list(rules(RULES / "rxjobs.rules.yml"))
