"""The dashboards are those that the generator writes, and all that they name is there."""

from __future__ import annotations

import json
import re

import asyncpg
import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

import rxjobs as rj
from grafana.dashboards import files
from tests.observability.places import DASHBOARDS, DATA_SOURCES, PROVIDERS, dashboard, found, read, texts
from tests.waiting import until

UIDS = {one["uid"]: one for one in read(DATA_SOURCES)["datasources"]}
by_name = pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)


def test_the_dashboards_are_up_to_date():
    written = {path.name: text for path, text in files().items()}
    assert {path.name: path.read_text("utf-8") for path in DASHBOARDS} == written, "run: python -m grafana.dashboards"


@by_name
def test_a_dashboard_comes_back_the_same_from_the_model_of_grafana(path):
    register_default_plugins()
    document = dashboard(path)
    again = json.loads(JSONEncoder().encode(Dashboard.from_json(document)))
    for variable in again["templating"]["list"]:
        for name in ("auto", "auto_count", "auto_min"):  # written by the SDK, known to Grafana for intervals alone
            variable.pop(name, None)
    assert again == document


@by_name
def test_a_dashboard_asks_data_sources_that_are_provisioned(path):
    document = dashboard(path)
    variables = {one["name"]: one for one in document["templating"]["list"] if one["type"] == "datasource"}
    for one in variables.values():
        assert UIDS[one["current"]["value"]]["type"] == one["query"]
    asked = [one for one in found(document["panels"], "datasource") if one]
    assert asked
    for one in asked:
        assert one["type"] == variables[re.fullmatch(r"\$\{(\w+)\}", one["uid"])[1]]["query"]


@by_name
def test_a_dashboard_uses_variables_that_it_has(path):
    document = dashboard(path)
    known = {one["name"] for one in document["templating"]["list"]}
    used = {name for text in texts(document) for name in re.findall(r"\$\{?(\w+)", text) if not name.startswith("__")}
    assert used <= known
    assert known == used | {"queue", "kind"} & known  # a choice of queues narrows that of job types


@by_name
def test_panels_have_titles_and_say_what_they_show_and_do_not_overlap(path):
    places = set()
    for panel in dashboard(path)["panels"]:
        assert panel["title"]
        assert panel["type"] == "row" or panel["description"].endswith((".", "?")), panel["title"]
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & places, panel["title"]
        assert at["x"] + at["w"] <= 24
        places |= cells


def test_each_dashboard_and_data_source_has_an_identity_of_its_own():
    uids = [dashboard(path)["uid"] for path in DASHBOARDS]
    assert len(set(uids)) == len(uids) == 4
    assert len(UIDS) == 3


def test_links_lead_to_dashboards_and_data_sources_that_there_are():
    uids = {dashboard(path)["uid"] for path in DASHBOARDS}
    linked = {uid for path in DASHBOARDS for text in texts(dashboard(path)) for uid in re.findall(r"^/d/([\w-]+)", text)}
    assert linked
    assert linked <= uids
    assert set(found(read(DATA_SOURCES), "datasourceUid")) <= UIDS.keys()


def test_what_makes_links_of_traces_and_metrics_is_on():
    prometheus, jaeger = UIDS["rxjobs-prometheus"]["jsonData"], UIDS["rxjobs-jaeger"]["jsonData"]
    assert prometheus["exemplarTraceIdDestinations"] == [{"name": "trace_id", "datasourceUid": "rxjobs-jaeger"}]
    assert jaeger["tracesToMetrics"]["datasourceUid"] == "rxjobs-prometheus"
    exemplars = [
        one["exemplar"]
        for path in DASHBOARDS
        for one in found(dashboard(path)["panels"], "targets")
        for one in one
        if "exemplar" in one
    ]
    assert True in exemplars


def test_data_sources_spell_dollars_twice():
    """Grafana fills in its environment in provisioning files, and would fill in nothing for its own variables."""
    lines = [line for line in DATA_SOURCES.read_text("utf-8").splitlines() if not line.lstrip().startswith("#")]
    text = "\n".join(lines).replace("$GRAFANA_DATABASE_PASSWORD", "")
    assert "$" not in text.replace("$$", "")
    assert "$$__tags" in text


def test_dashboards_are_provided_from_where_they_are():
    (provider,) = read(PROVIDERS)["providers"]
    assert provider["options"]["path"] == "/var/lib/grafana/dashboards"


QUERIES = [
    (panel["title"], target["rawSql"])
    for path in DASHBOARDS
    for panel in dashboard(path)["panels"]
    for target in panel.get("targets", ())
    if "rawSql" in target
]


def filled_in(query: str) -> str:
    """A query as Grafana sends it."""
    query = re.sub(r"\$__timeFilter\((\w+)\)", r"\1 BETWEEN now() - interval '1 hour' AND now()", query)
    return query.replace("$schema", "rxjobs")


async def test_every_query_of_the_database_is_one_that_it_understands(dsn):
    app = rj.App(dsn, migrate=True)

    @app.job(max_attempts=1)
    async def fail():
        raise OSError("no")

    async with app, app.running():
        await fail.enqueue()
        await fail.options(delay=3600).enqueue()
        await until(lambda: app.jobs.count(state="discarded"))
        connection = await asyncpg.connect(app.dsn)
        try:
            answers = {title: await connection.fetch(filled_in(query)) for title, query in QUERIES}
            for _, query in QUERIES:
                await connection.execute(f"EXPLAIN {filled_in(query)}")
        finally:
            await connection.close()

    assert len(QUERIES) == len(answers) > 10
    assert answers["Failures"][0]["error"] == "OSError"
    assert answers["The dead letters"][0]["message"] == "no"
    assert [row["state"] for row in answers["Queues"]] == ["scheduled"]
    assert answers["Who runs what"][0]["queues"] == "default"
    assert answers["Leader"][0]["leader"] == app.label
