"""The few kinds of panels that the dashboards are made of, so that all look and read alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar
from urllib.parse import quote

from grafana_foundation_sdk.builders import common, heatmap, prometheus, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.builders.dashboard import (
    AnnotationQuery,
    Dashboard,
    DashboardLink,
    DatasourceVariable,
    QueryVariable,
    TextBoxVariable,
    ThresholdsConfig,
)
from grafana_foundation_sdk.cog.variants import Dataquery
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models import heatmap as heatmap_models
from grafana_foundation_sdk.models import prometheus as prometheus_models

PROMETHEUS = common_models.DataSourceRef("prometheus", "${prometheus}")
JAEGER = common_models.DataSourceRef("jaeger", "${jaeger}")
POSTGRES = common_models.DataSourceRef("grafana-postgresql-datasource", "${postgres}")
PLUGINS = {"prometheus": PROMETHEUS, "jaeger": JAEGER, "postgres": POSTGRES}

WIDTH = 24
HEIGHT = 8

RATE = "$__rate_interval"
QUEUE = 'messaging_destination_name=~"$queue"'
KIND = 'rxjobs_job_kind=~"$kind"'
INSTANCE = 'instance=~"$instance"'


Panels = list[Any]
"""Builders of panels; the SDK has no type for all of them."""


P = TypeVar("P")


class Raw(Dataquery):
    """A query of a data source that the SDK has no model of."""

    def __init__(self, **fields: Any) -> None:
        self.fields = fields

    def build(self) -> Raw:
        """Itself: it is its own builder."""
        return self

    def to_json(self) -> dict[str, Any]:
        """The query as Grafana stores it."""
        return self.fields


def board(uid: str, title: str, description: str, *plugins: str) -> Dashboard:
    """An empty dashboard, with a variable for each plugin whose data source it asks."""
    made = (
        Dashboard(title)
        .uid(uid)
        .description(description)
        .tags(["rxjobs"])
        .readonly()
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .time("now-1h", "now")
        .refresh("10s")
        .timezone("browser")
        .link(DashboardLink("rxjobs").type(models.DashboardLinkType.DASHBOARDS).tags(["rxjobs"]).include_vars(True).keep_time(True))
    )
    for plugin in plugins:
        uid_of = f"rxjobs-{plugin}"
        made.with_variable(
            DatasourceVariable(plugin)
            .label(plugin.title())
            .type(str(PLUGINS[plugin].type_val))
            .current(models.VariableOption(True, uid_of, uid_of))
        )
    return made


def choice(name: str, label: str, expression: str, *, multi: bool = True) -> QueryVariable:
    """A variable whose values are those of a label: one of them, or several and by default all."""
    variable = (
        QueryVariable(name)
        .label(label)
        .datasource(PROMETHEUS)
        .query({"query": f"label_values({expression})", "refId": name})
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
    )
    if multi:
        every = models.VariableOption(True, ["All"], ["$__all"])
        variable.multi(True).include_all(True).all_value(".*").current(every)
    return variable


def queues() -> QueryVariable:
    """Which queues."""
    return choice("queue", "Queue", "rxjobs_job_attempts_total, messaging_destination_name")


def kinds(*, multi: bool = True) -> QueryVariable:
    """Which job types."""
    return choice("kind", "Job type", f"rxjobs_job_attempts_total{{{QUEUE}}}, rxjobs_job_kind", multi=multi)


def schema() -> TextBoxVariable:
    """Which schema of the database."""
    return (
        TextBoxVariable("schema").label("Schema").default_value("rxjobs").current(models.VariableOption(True, "rxjobs", "rxjobs"))
    )


def query(expression: str, legend: str = "", *, exemplars: bool = False, instant: bool = False) -> prometheus.Dataquery:
    """A PromQL query; with exemplars a graph also has dots that lead to traces."""
    made = prometheus.Dataquery().expr(expression).legend_format(legend).datasource(PROMETHEUS)
    if exemplars:
        made.exemplar(True)
    return made.instant().format(prometheus_models.PromQueryFormat.TABLE) if instant else made.range()


def sql(text: str) -> Raw:
    """A query of the database itself, as a table."""
    return Raw(refId="A", datasource=POSTGRES, format="table", rawQuery=True, editorMode="code", rawSql=text)


def quantile(q: float, name: str, by: str, labels: str = "") -> str:
    """The q-quantile of a histogram, by a label."""
    return f"histogram_quantile({q}, sum by (le, {by}) (rate({name}_bucket{{{labels}}}[{RATE}])))"


def per_second(name: str, by: str, labels: str = QUEUE) -> str:
    """How often a counter counts, by a label."""
    return f"sum by ({by}) (rate({name}{{{labels}}}[{RATE}]))"


def graph(
    title: str,
    description: str,
    *queries: Any,
    unit: str = "short",
    span: int = 8,
    stacked: bool = False,
    may_be_negative: bool = False,
) -> timeseries.Panel:
    """Lines over time."""
    panel = (
        timeseries.Panel()
        .title(title)
        .description(description)
        .datasource(PROMETHEUS)
        .unit(unit)
        .span(span)
        .height(HEIGHT)
        .line_width(1)
        .fill_opacity(30 if stacked else 8)
        .show_points(common_models.VisibilityMode.NEVER)
        .tooltip(common.VizTooltipOptions().mode(common_models.TooltipDisplayMode.MULTI))
        .legend(
            common.VizLegendOptions()
            .display_mode(common_models.LegendDisplayMode.LIST)
            .placement(common_models.LegendPlacement.BOTTOM)
            .show_legend(True)
        )
    )
    if not may_be_negative:
        panel.min(0)
    if stacked:
        panel.stacking(common.StackingConfig().mode(common_models.StackingMode.NORMAL))
    return with_queries(panel, queries)


def number(
    title: str, description: str, asked: Any, *, unit: str = "short", limits: Mapping[float, str] | None = None, span: int = 4
) -> stat.Panel:
    """One number, and how it got there. `limits` are the values from which on it has another colour."""
    steps = [models.Threshold(None, "green"), *(models.Threshold(value, color) for value, color in (limits or {}).items())]
    panel = (
        stat.Panel()
        .title(title)
        .description(description)
        .datasource(PROMETHEUS)
        .unit(unit)
        .span(span)
        .height(4)
        .graph_mode(common_models.BigValueGraphMode.AREA)
        .color_mode(common_models.BigValueColorMode.VALUE)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .thresholds(ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps))
    )
    return with_queries(panel, [asked])


def heat(title: str, description: str, expression: str, *, span: int = 12) -> heatmap.Panel:
    """How many took how long, over time."""
    asked = prometheus.Dataquery().expr(expression).legend_format("{{le}}").datasource(PROMETHEUS).range().exemplar(True)
    panel = (
        heatmap.Panel()
        .title(title)
        .description(description)
        .datasource(PROMETHEUS)
        .span(span)
        .height(HEIGHT)
        .calculate(False)
        .y_axis(heatmap.YAxisConfig().unit("s"))
        .color(heatmap.HeatmapColorOptions().mode(heatmap_models.HeatmapColorMode.SCHEME).scheme("Oranges").steps(64))
        .exemplars_color("rgba(60,120,255,0.9)")
    )
    return with_queries(panel, [asked.format(prometheus_models.PromQueryFormat.HEATMAP)])


def states(
    title: str, description: str, asked: Any, names: Mapping[int, tuple[str, str]], *, span: int = 12
) -> statetimeline.Panel:
    """Which state each thing was in, over time; `names` gives the word and colour of each number."""
    results = {str(value): models.ValueMappingResult(word, color, None, value) for value, (word, color) in names.items()}
    panel = (
        statetimeline.Panel()
        .title(title)
        .description(description)
        .datasource(PROMETHEUS)
        .span(span)
        .height(HEIGHT)
        .mappings([models.ValueMap(results)])
        .merge_values(True)
        .row_height(0.8)
    )
    return with_queries(panel, [asked])


def rows(title: str, description: str, asked: Any, source: common_models.DataSourceRef, *, span: int = WIDTH) -> table.Panel:
    """A table."""
    panel = table.Panel().title(title).description(description).datasource(source).span(span).height(HEIGHT + 1).show_header(True)
    return with_queries(panel, [asked])


def with_queries(panel: P, queries: Iterable[Any]) -> P:
    """The panel with its queries, which are called A, B, C …"""
    builder: Any = panel  # the SDK's panels have this in common, and no type for it
    for place, asked in enumerate(queries):
        if not isinstance(asked, Raw):
            asked.ref_id(chr(ord("A") + place))
        builder.with_target(asked)
    return panel


def link(panel: table.Panel, column: str, title: str, url: str) -> table.Panel:
    """Make the cells of a column lead somewhere."""
    links = [{"title": title, "url": url}]
    return panel.override_by_name(column, [models.DynamicConfigValue("links", links)])


def explore_trace(value: str) -> str:
    """The address of a trace in Grafana's Explore; `value` is what Grafana fills the trace id in for."""
    pane = (
        '{"trace":{"datasource":"${jaeger}","queries":[{"refId":"A","datasource":{"type":"jaeger","uid":"${jaeger}"},"query":"'
        + value
        + '"}],"range":{"from":"now-24h","to":"now"}}}'
    )
    return "/explore?schemaVersion=1&panes=" + quote(pane, safe="${}:._")


def annotation(name: str, expression: str, color: str) -> AnnotationQuery:
    """Marks on all graphs where an expression has a value."""
    return AnnotationQuery().name(name).datasource(PROMETHEUS).expr(expression).enable(True).icon_color(color)
