"""The exhibits of the notebooks: figures and tables of committed runs. If a run is missing, the exhibit is the reason.

Each exhibit needs a run (`lab.analysis.evidence.Shelf.of`), and the variants and load points to show. Exhibits with published
numbers are in `reproduction`, and the steps of a request's cost are in `ladder`. Claims are judged elsewhere
(`lab.studies.claims`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from itertools import product
from math import expm1

import plotly.graph_objects as go

from lab.analysis import timelines
from lab.analysis.aggregate.generations import compute_variance_components
from lab.analysis.evidence import Evidence, Log, Missing, probe_timeouts_s
from lab.analysis.explain.run import format_effect
from lab.base.errors import LabError
from lab.model.metrics import QUANTILES, find_metric
from lab.records import incidents as happenings
from lab.report import figures
from lab.report.figures.costs import GenerationDot
from lab.report.figures.intervals import MeasuredNumber
from lab.report.figures.percentiles import Curve, Panel
from lab.report.figures.style import add_note, make_empty_figure
from lab.report.grid import make_text_table
from lab.report.markdown import render_markdown
from lab.report.tables.gauges import describe_variance
from lab.stats.paired import MIN_BLOCKS
from lab.stats.units import format_blocks, format_range, format_with_interval
from lab.studies import ledger
from lab.studies.claims.judging import ClaimVerdict
from lab.studies.exhibits import curves
from lab.studies.exhibits.frames import (
    TWO_CLUSTERS,
    RunOrMissing,
    add_runs,
    arms_of,
    draws_run,
    fold_text,
    gap_lines,
    list_lacking,
    list_points,
    make_row,
    note_lacking,
    writes_run,
)
from lab.studies.exhibits.ladder import OtherTarget, choose_steps, ladder
from lab.studies.exhibits.reproduction import (
    concurrency,
    gains,
    pages,
    placement,
    printed,
    ratios,
    read_claimed_level,
    shape,
    transcribed,
    usage,
)
from lab.studies.exhibits.streams import event_delays, passing

__all__ = [
    "OtherTarget",
    "choose_steps",
    "concurrency",
    "event_delays",
    "gains",
    "ladder",
    "pages",
    "passing",
    "placement",
    "printed",
    "ratios",
    "shape",
    "transcribed",
    "usage",
]
CLAIMS = "application/vnd.lab.claims+json"
"""The MIME type of a list of claims' ids."""
PANEL_WIDTH = 34
"""The number of characters that fit into one of three panels at its smallest width."""


# -- numbers of every block -----------------------------------------------------------------------------------


@draws_run
def intervals(
    run: Evidence, title: str, metric: str, point: str = "*", claimed: str = "", variants: Sequence[str] = ()
) -> go.Figure:
    """Draw a metric of every arm (variant of a run) at every matching load point, with its 95 % interval.

    Args:
        run: The run.
        title: The figure's title.
        metric: The metric's name.
        point: The pattern of the load points' names, with `*` as a wildcard.
        claimed: The id of a claim whose published number is drawn, too; empty: none.
        variants: The variants to show; empty: all.

    """
    points = list_points(run, point)
    cells = (
        make_row(run, arm, name, metric, arm if len(points) == 1 else f"{arm} · {name}")
        for arm, name in product(arms_of(run, variants), points)
    )
    rows = [cell for cell in cells if cell is not None]
    published = read_claimed_level(claimed)[1] if claimed else None
    figure = figures.intervals(rows, title, find_metric(metric).title, find_metric(metric).own_unit, published)
    return note_lacking(run, figure, variants, point)


@draws_run
def scaling(run: Evidence, title: str, metric: str, log_y: bool = False) -> go.Figure:
    """Draw a metric over the number of routes, with a point for each arm (variant of a run) and a line for each load point.

    The number of routes is that in the manifests of the arm.

    Args:
        run: The run.
        title: The figure's title.
        metric: The metric's name.
        log_y: Whether the vertical axis is logarithmic.

    """
    lines: dict[str, list[tuple[float, MeasuredNumber]]] = {}
    for point, arm in product(list_points(run, "*"), run.arms()):
        size, value = (make_row(run, arm, point, name, arm) for name in ("routes", metric))
        if size is not None and size.value and value is not None:
            lines.setdefault(point, []).append((size.value, value))
    figure = figures.scaling(lines, title, "routes", find_metric(metric).title, find_metric(metric).own_unit, log_y)
    return note_lacking(run, figure, (), "*")


@draws_run
def tails(run: Evidence, title: str, point: str = "*", variants: Sequence[str] = ()) -> go.Figure:
    """Draw the latencies that one request in 2, 10, 100 and 1000 exceeds, with a line per arm (variant of a run) and load point.

    Args:
        run: The run.
        title: The figure's title.
        point: The pattern of the load points' names, with `*` as a wildcard.
        variants: The variants to show; empty: all.

    """
    lines: dict[str, list[tuple[float, MeasuredNumber]]] = {}
    for name, arm, (metric, share) in product(list_points(run, point), arms_of(run, variants), QUANTILES.items()):
        if (value := make_row(run, arm, name, metric, f"{arm} at {name}, {metric}")) is not None:
            lines.setdefault(f"{arm} at {name}", []).append((round(1 / (1 - share)), value))
    figure = figures.scaling(lines, title, "one request in … takes longer", "latency", "s", log_y=True)
    return note_lacking(run, figure, variants, point)


@draws_run
def generations(run: Evidence, title: str, point: str = "*", variants: Sequence[str] = ()) -> go.Figure:
    """Draw how the difference between two arms varies between worker generations (the worker processes between two reloads).

    A dot is the difference between the two arms of a pair (two variants measured at once) on one generation, in per cent. The figure shows
    the first matching load point at which pairs were measured on several generations.

    Args:
        run: The run.
        title: The figure's title.
        point: The pattern of the load points' names, with `*` as a wildcard.
        variants: The variants to show; empty: all.

    """
    components = [
        entry
        for entry in compute_variance_components(run.run.record, run.all_samples)
        if fnmatchcase(entry.point.name, point) and entry.generations
    ]
    selected = [
        entry
        for entry in components
        if entry.point == components[0].point and (not variants or entry.arm.variant in variants)
    ]
    dots = [
        GenerationDot(
            entry.arm.variant,
            generation.block,
            generation.reload + 1,
            100 * expm1(generation.ratio),
            [100 * expm1(value) for value in generation.ratios],
        )
        for entry in selected
        for generation in entry.generations
    ]
    text = fold_text("<br>".join(f"{entry.arm.variant}: {describe_variance(entry)}" for entry in selected))
    return add_note(figures.generations(dots, title), text or "no pair was measured on several generations")


def percentiles(
    runs: Mapping[str, RunOrMissing],
    title: str,
    suite: str,
    relative_to: int | None = None,
    log_y: bool = True,
    shared_y: bool = True,
) -> go.Figure:
    """Draw latency by percentile in several panels: one for DigitalOcean's published suite, and one for each variant.

    Each panel has a line per number of connections.

    Args:
        runs: Variant → the run that measured it.
        title: The figure's title.
        suite: The name of the published suite.
        relative_to: The number of connections of a base line, by which all lines of a panel are divided; None: absolute values.
        log_y: Whether the vertical axis is logarithmic.
        shared_y: Whether the panels have the same vertical axis.

    """
    panels = [_make_panel("published", partial(curves.read_published_curves, suite, relative_to))]
    missing: list[str] = []
    short: list[str] = []
    for variant, run in runs.items():
        if isinstance(run, Missing):
            panels.append(Panel(variant, (), fold_text(run.why, PANEL_WIDTH)))
            continue
        record = run.run.record
        shape_only = ": shape only" if record.blocks < MIN_BLOCKS else ""
        head = f"{variant} ({record.target}, {format_blocks(record.blocks)}{shape_only})<br>{run.name}"
        panels.append(_make_panel(head, partial(curves.measure_curves, run, variant, relative_to)))
        if run.arms(variant):
            none, some = list_lacking(run, [variant], "*", rated=True)
            missing += none
            short += some
    name, unit = ("latency", "s") if relative_to is None else (f"latency against that at c{relative_to}", "×")
    caption = f"over log 1/(1 − p); bands: what reading the plot may err; here, from {MIN_BLOCKS} blocks on, the blocks' range"
    figure = figures.percentiles(panels, title, name, unit, log_y, shared_y, caption)
    add_note(figure, fold_text("; ".join([*missing, *short])))
    empty = (panel.why.replace("<br>", " ") for panel in panels if not panel.curves)
    return add_runs(runs.values(), figure, gaps=[*empty, *missing])


def _make_panel(head: str, make: Callable[[], Sequence[Curve]]) -> Panel:
    """Return a panel of a figure with its lines, or with the reason why there are none.

    Args:
        head: The panel's title.
        make: A function that returns the lines. If it raises LabError, the error's text is the reason.

    """
    try:
        lines = make()
    except LabError as error:
        return Panel(head, (), fold_text(f"{error.place}: {error.fault}", PANEL_WIDTH))
    return Panel(head, lines) if lines else Panel(head, (), "no difference from 0 to show")


# -- what happened in one block -------------------------------------------------------------------------------


@draws_run
def timeline(run: Evidence, title: str, variant: str, point: str = "*") -> go.Figure:
    """Draw the answers and latencies over time of one disrupted load, in front of the range of all blocks (repetitions).

    One block is drawn: the first usable one, at the first matching load point that has a usable block.

    Args:
        run: The run.
        title: The figure's title.
        variant: The variant to show.
        point: The pattern of the load points' names, with `*` as a wildcard.

    """
    if all(entry.disturbance is None for entry in run.points):
        return make_empty_figure(
            title, fold_text("steady loads alone: no single request was logged, and nothing happened meanwhile")
        )
    name, log = _find_log(run, variant, point)
    if log is None:
        return _draw_gap(run, title, variant, point)
    block_bins = [entry.bins for entry in run.logs(log.sample.arm, name)]
    label = f"{variant} at {name}, block {log.sample.block} of {len(block_bins)}"
    background = timelines.find_range(block_bins) if block_bins[1:] else None
    figure = figures.timeline(log.bins, log.marks, f"{title}: {label}", background)
    return note_lacking(run, figure, [variant], name)


@draws_run
def processes(run: Evidence, title: str, point: str = "*", variants: Sequence[str] = ()) -> go.Figure:
    """Draw the number and memory of the proxy's processes over time, for every arm (variant of a run).

    Of each arm one block (repetition) is shown: the first usable one, at the first matching load point that has one.

    Args:
        run: The run.
        title: The figure's title.
        point: The pattern of the load points' names, with `*` as a wildcard.
        variants: The variants to show; empty: all.

    """
    logs = _find_logs(run, variants, point)
    marks = next(iter(logs.values())).marks if len(logs) == 1 else None
    figure = figures.processes(
        {arm: happenings.summarise_processes(log.usage) for arm, log in logs.items()}, title, marks
    )
    return note_lacking(run, figure, variants, point)


@draws_run
def delays(run: Evidence, title: str, point: str = "*", variants: Sequence[str] = ()) -> go.Figure:
    """Draw the delay of each configuration change until an answer first showed the change, for every arm (variant of a run).

    Of each arm one block (repetition) is shown: the first usable one, at the first matching load point that has one.

    Args:
        run: The run.
        title: The figure's title.
        point: The pattern of the load points' names, with `*` as a wildcard.
        variants: The variants to show; empty: all.

    """
    by_arm = {arm: log.delays for arm, log in _find_logs(run, variants, point).items()}
    return note_lacking(run, figures.delays(by_arm, title), variants, point)


@draws_run
def probing(run: Evidence, title: str, variant: str, point: str = "*") -> go.Figure:
    """Draw how long every liveness and readiness probe of a variant took, and which probes failed.

    One block (repetition) is shown: the first usable one, at the first matching load point that has one.

    Args:
        run: The run.
        title: The figure's title.
        variant: The variant to show.
        point: The pattern of the load points' names, with `*` as a wildcard.

    """
    name, log = _find_log(run, variant, point)
    if log is None:
        return _draw_gap(run, title, variant, point)
    try:
        timeouts_s = probe_timeouts_s(run.run, log.sample.variant)
    except LabError:  # a run without its manifests: the figure then shows that they are unknown
        timeouts_s = None
    probes = timelines.probes(log.events, log.zero_s)
    return figures.probing(probes, log.marks, f"{title}: {variant} at {name}", timeouts_s)


@draws_run
def transfers(run: Evidence, title: str, variant: str, point: str = "*") -> go.Figure:
    """Draw when each large body was transferred in a load of a variant, with a bar per body.

    One block (repetition) is shown: the first usable one, at the first matching load point that has one.

    Args:
        run: The run.
        title: The figure's title.
        variant: The variant to show.
        point: The pattern of the load points' names, with `*` as a wildcard.

    """
    name, log = _find_log(run, variant, point)
    if log is None:
        return _draw_gap(run, title, variant, point)
    return figures.transfers(timelines.transfers(log.events, log.zero_s), f"{title}: {variant} at {name}")


def _draw_gap(run: Evidence, title: str, variant: str, point: str) -> go.Figure:
    """Return an empty figure with the reasons why a variant has no usable block (repetition) at the matching load points."""
    empty = make_empty_figure(f"{title}: {variant}", f"no valid block of {variant} at {point}")
    return note_lacking(run, empty, [variant], point)


def _find_logs(run: Evidence, variants: Sequence[str], point: str) -> dict[str, Log]:
    """Return the log of one load for each arm (variant of the run): arm → log; an arm without a usable block is left out.

    The log is that of the first usable block (repetition), at the first matching load point that has a usable block.

    Args:
        run: The run.
        variants: The variants; empty: all.
        point: The pattern of the load points' names, with `*` as a wildcard.

    """
    return {arm: log for arm in arms_of(run, variants) if (log := _find_log(run, arm, point)[1]) is not None}


def _find_log(run: Evidence, variant: str, pattern: str) -> tuple[str, Log | None]:
    """Return the first load point that has a usable block (repetition) of a variant, together with the log of this block.

    Only load points whose names match the pattern are considered.

    Returns:
        (load point's name, log); (pattern, None) if there is no such load point.

    """
    logs = ((name, run.log(arm, name)) for arm, name in product(run.arms(variant), list_points(run, pattern)))
    return next(((name, log) for name, log in logs if log is not None), (pattern, None))


# -- tables ---------------------------------------------------------------------------------------------------


@writes_run
def effects(run: Evidence | None, point: str = "*", variants: Sequence[str] = ()) -> str:
    """Return a Markdown table of a run's effects: every variant against its baseline at matching load points.

    The decisions are those of the run's own table. Effects in other metrics than the primary one are shown, too, but no verdict rests on
    them.

    Args:
        run: The run; None: the text is empty.
        point: The pattern of the load points' names, with `*` as a wildcard.
        variants: The variants to show; empty: all.

    """
    if run is None:
        return ""
    rows: list[Sequence[str]] = []
    for row in run.summary().rows:
        arm, name = row.arm, row.point.name
        if arm.role == "variant" and fnmatchcase(name, point) and (not variants or arm.name in variants):
            judged = [(effect.primary, format_effect(effect)) for effect in row.effects if effect.estimate is not None]
            cells = ("; ".join(text for primary, text in judged if primary is first) or "–" for first in (True, False))
            rows.append([f"{arm.name} at {name}", arm.baseline or "", *cells])
    heads = ("variant", "against", "primary metric", "others, not claimed")
    caption, none = "effects [95 %], equivalent: within the margin, ?: inconclusive", "no variant with its baseline"
    return _make_table(run, heads, rows, variants, point, caption, none)


@writes_run
def table(run: Evidence | None, metrics: Sequence[str], point: str = "*", variants: Sequence[str] = ()) -> str:
    """Return a Markdown table of a run's metrics: medians of the blocks (repetitions) with their 95 % intervals.

    The table has a row per arm (variant of the run) and load point, and a column per metric.

    Args:
        run: The run; None: the text is empty.
        metrics: The names of the metrics.
        point: The pattern of the load points' names, with `*` as a wildcard.
        variants: The variants to show; empty: all.

    """
    if run is None:
        return ""
    columns = [find_metric(metric) for metric in metrics]
    heads = ["", *(f"{column.title} ({column.unit})" if column.unit else column.title for column in columns)]
    rows: list[Sequence[str]] = []
    for arm, name in product(arms_of(run, variants), list_points(run, point)):
        cells = [make_row(run, arm, name, metric, arm) for metric in metrics]
        if any(cell is not None for cell in cells):
            rows.append(
                [
                    f"{arm} at {name}",
                    *(_format_cell(cell, column.scale) for cell, column in zip(cells, columns, strict=True)),
                ]
            )
    caption = "medians of the blocks [95 %]; of fewer than six blocks the smallest–the largest"
    return _make_table(run, heads, rows, variants, point, caption, f"{run.name} has none of {', '.join(metrics)}")


def _make_table(
    run: Evidence,
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    variants: Sequence[str],
    point: str,
    caption: str,
    none: str,
) -> str:
    """Return a Markdown table, followed by lines about missing variants and load points, and by a caption.

    Args:
        run: The run.
        heads: The headings of the columns.
        rows: The rows.
        variants: The requested variants; empty: all.
        point: The pattern of the requested load points' names.
        caption: The meaning of the numbers.
        none: The reason to print if there are no rows although the run lacks nothing.

    """
    missing, short = list_lacking(run, variants, point)
    missing = missing or ([] if rows else [none])
    lines = [render_markdown([make_text_table(heads, rows)]).rstrip("\n")] if rows else []
    return "\n".join([*lines, *gap_lines(missing), "", "; ".join([run.said, caption, *short])]).lstrip()


def _format_cell(cell: MeasuredNumber | None, scale: float) -> str:
    """Return a value with its 95 % interval as text.

    With too few blocks (repetitions) for an interval, the text is the range of the blocks. For blocks in two clusters, it describes the
    clusters.

    Args:
        cell: The value; None: there is none.
        scale: The size of the printed unit, by which the value is divided.

    """
    if cell is not None and cell.low is None and cell.blocks:
        few = format_range(min(cell.blocks) / scale, max(cell.blocks) / scale)
        return cell.note if cell.note.startswith(TWO_CLUSTERS) else few
    ends = [cell.value, cell.low, cell.high] if cell else [None] * 3
    return format_with_interval(*(end if end is None else end / scale for end in ends))


@dataclass(frozen=True, slots=True)
class ClaimList:
    """The output of a notebook's cell that shows claims: a table for the notebook, and the claims' ids for the report.

    Attributes:
        ids: The ids of the claims, from which the report draws each claim.
        text: The table as Markdown.

    """

    ids: tuple[str, ...]
    text: str

    def _repr_mimebundle_(self, **_: object) -> dict[str, object]:
        return {CLAIMS: list(self.ids), "text/markdown": self.text}


def claims(verdicts: Sequence[ClaimVerdict], *ids: str, known: Sequence[ClaimVerdict] = ()) -> ClaimList:
    """Return a table of claims (published sentences) with two judgements each: by the publication's data, and by our runs.

    Without `ids` the table has all judged claims. Notes below it then explain how each kind of claim is judged, and list the checks.

    Args:
        verdicts: The verdicts of the claims.
        ids: The ids of the claims to show.
        known: The verdicts of the checks (facts known before any run).

    """
    selected = [verdict for verdict in verdicts if not ids or verdict.claim.id in ids]
    page = ledger.page(selected, known)
    return ClaimList(
        tuple(verdict.claim.id for verdict in (*selected, *known)), render_markdown(page[:1] if ids else page)
    )
