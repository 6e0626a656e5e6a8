"""Write the dashboards in grafana/dashboards/, which are what Grafana reads.

python -m grafana.dashboards            (with --check: say whether they are up to date)
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.builders.dashboard import Dashboard
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard as Model

from grafana.job_type import job_type
from grafana.node import node
from grafana.overview import overview
from grafana.sql import database
from observability.generated import write_or_check

FOLDER = Path(__file__).parent / "dashboards"
DASHBOARDS = {"overview": overview, "job-type": job_type, "node": node, "sql": database}


def render(dashboard: Dashboard) -> str:
    """A dashboard as Grafana reads it."""
    register_default_plugins()
    document = _as_json(dashboard.build())
    # read back, it has the defaults too that the models fill in
    document = _as_json(Model.from_json(document))
    for number, panel in enumerate(document["panels"], start=1):
        panel["id"] = number
    for variable in document["templating"]["list"]:
        _drop_what_is_of_intervals(variable)
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _as_json(model: Model) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(JSONEncoder().encode(model))
    return document


def _drop_what_is_of_intervals(variable: dict[str, Any]) -> None:
    # the SDK writes these for every kind of variable; Grafana's own schema knows them for intervals alone
    if variable["type"] != "interval":
        for name in ("auto", "auto_count", "auto_min"):
            variable.pop(name, None)


def files() -> dict[Path, str]:
    """All dashboards, by the file they are in."""
    return {FOLDER / f"{name}.json": render(make()) for name, make in DASHBOARDS.items()}


if __name__ == "__main__":
    sys.exit(write_or_check(files(), "grafana.dashboards"))
