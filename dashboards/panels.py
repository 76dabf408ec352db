"""Grafana's core panels in the form that all our dashboards use.

Each function takes what differs and sets what doesn't, so that a panel is a few lines: first its
title, what it shows, and what to do about it; then its queries; then unit, thresholds (``steps``)
and ``width`` in columns of 24. Nothing here is newer than Grafana 11, and no panel needs a plugin
that does not come with it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from grafana_foundation_sdk.builders import (
    bargauge,
    common,
    dashboard,
    heatmap,
    prometheus,
    stat,
    statetimeline,
    table,
    timeseries,
)
from grafana_foundation_sdk.models import common as units
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models import heatmap as heatmap_model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from dashboards.queries import PanelFormat, PanelQuery

DATASOURCE = model.DataSourceRef(type_val="prometheus", uid="${datasource}")

GREEN, YELLOW, RED, GREY, BLUE = "green", "yellow", "red", "gray", "blue"

_FORMATS = {
    PanelFormat.SERIES: PromQueryFormat.TIME_SERIES,
    PanelFormat.BUCKETS: PromQueryFormat.HEATMAP,
    PanelFormat.NOW: PromQueryFormat.TIME_SERIES,
    PanelFormat.ROWS: PromQueryFormat.TABLE,
}
_INSTANT = (PanelFormat.NOW, PanelFormat.ROWS)


@dataclass(frozen=True)
class ColourThreshold:
    """From this value on a thing has this colour."""

    value: float
    colour: str


P = TypeVar(
    "P",
    timeseries.Panel,
    heatmap.Panel,
    stat.Panel,
    statetimeline.Panel,
    bargauge.Panel,
    table.Panel,
)


def lines(
    title: str,
    shows: str,
    act: str,
    *queries: PanelQuery,
    unit: str = "short",
    steps: Sequence[ColourThreshold] = (),
    stacked: bool = False,
    top: float | None = None,
    width: int = 12,
) -> timeseries.Panel:
    """Lines over time; ``steps`` are drawn as dashed lines, each a threshold."""
    panel = _begin(timeseries.Panel(), title, shows, act, queries, width)
    panel = (
        panel.unit(unit)
        .min(0)
        .line_width(1)
        .fill_opacity(30 if stacked else 8)
        .show_points(units.VisibilityMode.AUTO)
        .span_nulls(False)
        .legend(
            common.VizLegendOptions()
            .display_mode(units.LegendDisplayMode.TABLE)
            .placement(units.LegendPlacement.BOTTOM)
            .show_legend(show_legend=True)
            .calcs(["mean", "max", "lastNotNull"])
        )
        .tooltip(
            common.VizTooltipOptions()
            .mode(units.TooltipDisplayMode.MULTI)
            .sort(units.SortOrder.DESCENDING)
        )
    )
    if top is not None:
        panel = panel.max(top)
    if stacked:
        panel = panel.stacking(common.StackingConfig().mode(units.StackingMode.NORMAL))
    if steps:
        dashed = common.GraphThresholdsStyleConfig().mode(units.GraphTresholdsStyleMode.DASHED)
        panel = panel.thresholds(_thresholds(steps, GREEN)).thresholds_style(dashed)
    return panel


def buckets(
    title: str, shows: str, act: str, query: PanelQuery, *, unit: str = "short", width: int = 12
) -> heatmap.Panel:
    """A heatmap of a Prometheus histogram: cumulative buckets, told apart by Grafana."""
    panel = _begin(heatmap.Panel(), title, shows, act, [query], width)
    colour = (
        heatmap.HeatmapColorOptions()
        .mode(heatmap_model.HeatmapColorMode.SCHEME)
        .scheme("Oranges")
        .scale(heatmap_model.HeatmapColorScale.EXPONENTIAL)
        .exponent(0.5)
        .steps(64)
        .reverse(reverse=False)
        .fill("dark-orange")
    )
    return (
        panel.calculate(calculate=False)
        .color(colour)
        .cell_gap(1)
        .rows_frame(heatmap.RowsHeatmapOptions().layout(units.HeatmapCellLayout.AUTO))
        .y_axis(heatmap.YAxisConfig().unit(unit).axis_placement(units.AxisPlacement.LEFT))
        .filter_values(heatmap.FilterValueRange().le(1e-9))  # empty cells stay empty
        .exemplars_color("rgba(255,0,255,0.7)")
        .show_legend()
    )


def number(
    title: str,
    shows: str,
    act: str,
    query: PanelQuery,
    *,
    unit: str = "short",
    steps: Sequence[ColourThreshold] = (),
    base: str = GREEN,
    width: int = 4,
) -> stat.Panel:
    """One large number for each series, coloured by threshold."""
    panel = _begin(stat.Panel(), title, shows, act, [query], width, height=4)
    return (
        panel.unit(unit)
        .thresholds(_thresholds(steps, base))
        .reduce_options(_reduce_to_last())
        .graph_mode(units.BigValueGraphMode.NONE)
        .color_mode(units.BigValueColorMode.VALUE)
        .text_mode(units.BigValueTextMode.AUTO)
    )


def states(
    title: str,
    shows: str,
    act: str,
    query: PanelQuery,
    *,
    names: Mapping[str, tuple[str, str]],
    width: int = 12,
) -> statetimeline.Panel:
    """Rows of coloured states over time; ``names``: value -> what it is called, and its colour."""
    panel = _begin(statetimeline.Panel(), title, shows, act, [query], width)
    results = {
        value: model.ValueMappingResult(text=name, color=colour, index=index)
        for index, (value, (name, colour)) in enumerate(names.items())
    }
    return (
        panel.mappings([model.ValueMap(options=results)])
        .color_scheme(dashboard.FieldColor().mode(model.FieldColorModeId.THRESHOLDS))
        .thresholds(_thresholds((), GREY))
        .show_value(units.VisibilityMode.AUTO)
        .merge_values(merge_values=True)
        .row_height(0.8)
        .fill_opacity(80)
        .line_width(0)
        .legend(
            common.VizLegendOptions()
            .display_mode(units.LegendDisplayMode.LIST)
            .placement(units.LegendPlacement.BOTTOM)
            .show_legend(show_legend=True)
        )
    )


def bars(title: str, shows: str, act: str, query: PanelQuery, *, width: int = 12) -> bargauge.Panel:
    """One bar for each series, of this moment."""
    panel = _begin(bargauge.Panel(), title, shows, act, [query], width)
    return (
        panel.unit("short")
        .min(0)
        .thresholds(_thresholds((), BLUE))
        .reduce_options(_reduce_to_last())
        .display_mode(units.BarGaugeDisplayMode.BASIC)
        .orientation(units.VizOrientation.HORIZONTAL)
    )


def rows(
    title: str,
    shows: str,
    act: str,
    query: PanelQuery,
    columns: Mapping[str, str],
    *,
    width: int = 24,
    height: int = 7,
) -> table.Panel:
    """A table with a row for each series.

    ``columns``: label or ``Value`` -> heading, in the order of columns; others are hidden.
    """
    panel = _begin(table.Panel(), title, shows, act, [query], width, height=height)
    hidden = {name: True for name in ("Time", "Value") if name not in columns}
    return panel.show_header(True).with_transformation(
        model.DataTransformerConfig(
            id_val="organize",
            options={
                "excludeByName": hidden,
                "indexByName": {name: index for index, name in enumerate(columns)},
                "renameByName": dict(columns),
            },
        )
    )


def link(column: str, title: str, url: str) -> tuple[str, list[model.DynamicConfigValue]]:
    """Arguments of ``override_by_name`` that make a column's values links."""
    value = [{"title": title, "url": url, "targetBlank": True}]
    return column, [model.DynamicConfigValue(id_val="links", value=value)]


def _begin(  # noqa: PLR0917 - in the order of the functions above
    panel: P,
    title: str,
    shows: str,
    act: str,
    queries: Sequence[PanelQuery],
    width: int,
    *,
    height: int = 8,
) -> P:
    panel = (
        panel.title(title)
        .description(f"{shows}\n\n**What to do:** {act}")
        .datasource(DATASOURCE)
        .height(height)
        .span(width)
    )
    for query, ref in zip(queries, "ABCDEFGH", strict=False):
        panel = panel.with_target(_target(query, ref))
    return panel


def _target(query: PanelQuery, ref: str) -> prometheus.Dataquery:
    target = (
        prometheus.Dataquery()
        .expr(query.expr)
        .format(_FORMATS[query.shape])
        .ref_id(ref)
        .datasource(DATASOURCE)
    )
    if query.legend:
        target = target.legend_format(query.legend)
    if query.shape in _INSTANT:
        return target.instant()
    return target.range().exemplar(exemplar=query.exemplars)


def _thresholds(steps: Sequence[ColourThreshold], base: str) -> dashboard.ThresholdsConfig:
    first = model.Threshold(value=None, color=base)
    return (
        dashboard.ThresholdsConfig()
        .mode(model.ThresholdsMode.ABSOLUTE)
        .steps([first, *(model.Threshold(step.value, step.colour) for step in steps)])
    )


def _reduce_to_last() -> common.ReduceDataOptions:
    return common.ReduceDataOptions().calcs(["lastNotNull"]).values(values=False)
