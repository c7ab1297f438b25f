"""Exhibits: a figure or a table of a committed run, or the gap where there is none. What notebooks are made of.

Each takes a run (`lab.analysis.evidence.Shelf.of`) and says which of its arms and points to show. Those with published numbers beside them are
`reproduction`'s, what a request costs taken apart is `ladder`'s. Refuses to judge (`lab.studies.claims`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import expm1

import plotly.graph_objects as go

from lab.analysis import timelines
from lab.analysis.aggregate.generations import levels
from lab.analysis.evidence import Evidence, Log, Missing, probe_timeouts_s
from lab.analysis.explain.run import effect_text
from lab.base.errors import LabError
from lab.model.metrics import QUANTILES, about
from lab.records import incidents as happenings
from lab.report import figures
from lab.report.figures.costs import Dot
from lab.report.figures.intervals import Told
from lab.report.figures.percentiles import Curve, Panel
from lab.report.figures.style import gap, noted
from lab.report.grid import texts
from lab.report.markdown import markdown
from lab.report.tables.gauges import levels_text
from lab.stats.paired import MIN_BLOCKS
from lab.stats.units import format_blocks, format_range, with_interval
from lab.studies import ledger
from lab.studies.claims import fits
from lab.studies.claims.judging import Verdict
from lab.studies.exhibits import curves
from lab.studies.exhibits.frames import (
    TWO_CLUSTERS,
    Run,
    arms_of,
    figured,
    folded,
    gap_lines,
    lacking,
    lacking_noted,
    of_runs,
    points_of,
    told_of,
    worded,
)
from lab.studies.exhibits.ladder import Elsewhere, choose_steps, ladder
from lab.studies.exhibits.reproduction import (
    claimed_level,
    concurrency,
    gains,
    pages,
    placement,
    printed,
    ratios,
    shape,
    transcribed,
    usage,
)

__all__ = [
    "Elsewhere",
    "choose_steps",
    "concurrency",
    "gains",
    "ladder",
    "pages",
    "placement",
    "printed",
    "ratios",
    "shape",
    "transcribed",
    "usage",
]
CLAIMS = "application/vnd.lab.claims+json"
"""MIME type of a list of claims' ids."""
PANEL_WIDTH = 34
"""Characters that fit into a panel beside two others, at its least width."""


# -- numbers of every block -----------------------------------------------------------------------------------


@figured
def intervals(
    run: Evidence, title: str, metric: str, point: str = "*", claimed: str = "", variants: Sequence[str] = ()
) -> go.Figure:
    """A metric of every arm (or of these variants') at every such point, and the number that the claim of this id published."""
    points = points_of(run, point)
    told = (
        told_of(run, arm, at, metric, arm if len(points) == 1 else f"{arm} · {at}")
        for arm, at in product(arms_of(run, variants), points)
    )
    rows = [each for each in told if each is not None]
    published = claimed_level(claimed)[1] if claimed else None
    figure = figures.intervals(rows, title, about(metric).title, about(metric).own_unit, published)
    return lacking_noted(run, figure, variants, point)


@figured
def scaling(run: Evidence, title: str, metric: str, log_y: bool = False) -> go.Figure:
    """A metric of every arm over how many routes its manifests have, a line per point."""
    lines: dict[str, list[tuple[float, Told]]] = {}
    for at, arm in product(points_of(run, "*"), run.arms()):
        size, told = (told_of(run, arm, at, each, arm) for each in ("routes", metric))
        if size is not None and size.value and told is not None:
            lines.setdefault(at, []).append((size.value, told))
    figure = figures.scaling(lines, title, "routes", about(metric).title, about(metric).own_unit, log_y)
    return lacking_noted(run, figure, (), "*")


@figured
def tails(run: Evidence, title: str, point: str = "*", variants: Sequence[str] = ()) -> go.Figure:
    """Percentiles: what the slowest of 2, 10, 100 and 1000 requests take at least, a line per arm and point."""
    lines: dict[str, list[tuple[float, Told]]] = {}
    for at, arm, (metric, share) in product(points_of(run, point), arms_of(run, variants), QUANTILES.items()):
        if (told := told_of(run, arm, at, metric, f"{arm} at {at}, {metric}")) is not None:
            lines.setdefault(f"{arm} at {at}", []).append((round(1 / (1 - share)), told))
    figure = figures.scaling(lines, title, "one request in … takes longer", "latency", "s", log_y=True)
    return lacking_noted(run, figure, variants, point)


@figured
def generations(run: Evidence, title: str, point: str = "*", variants: Sequence[str] = ()) -> go.Figure:
    """What twins differ by, each dot a generation of workers; of the first fitting point whose pairs were measured on several."""
    told = [one for one in levels(run.run.record, run.samples) if fits(point, one.point.name) and one.generations]
    shown = [one for one in told if one.point == told[0].point and (not variants or one.arm.variant in variants)]
    dots = [
        Dot(
            one.arm.variant,
            each.block,
            each.reload + 1,
            100 * expm1(each.ratio),
            [100 * expm1(value) for value in each.ratios],
        )
        for one in shown
        for each in one.generations
    ]
    text = folded("<br>".join(f"{one.arm.variant}: {levels_text(one)}" for one in shown))
    return noted(figures.generations(dots, title), text or "no pair was measured on several generations")


def percentiles(
    runs: Mapping[str, Run],
    title: str,
    suite: str,
    relative_to: int | None = None,
    log_y: bool = True,
    shared_y: bool = True,
) -> go.Figure:
    """Latency by percentile, a line per number of connections: DigitalOcean's `suite` as published, beside it each variant in its run.

    `relative_to`: as multiples of the line of so many connections, each of its own machine.
    """
    panels = [_panel("published", partial(curves.digitised, suite, relative_to))]
    missing: list[str] = []
    short: list[str] = []
    for variant, run in runs.items():
        if isinstance(run, Missing):
            panels.append(Panel(variant, (), folded(run.why, PANEL_WIDTH)))
            continue
        record = run.run.record
        shape_only = ": shape only" if record.blocks < MIN_BLOCKS else ""
        head = f"{variant} ({record.target}, {format_blocks(record.blocks)}{shape_only})<br>{run.name}"
        panels.append(_panel(head, partial(curves.measured, run, variant, relative_to)))
        if run.arms(variant):
            none, some = lacking(run, [variant], "*", rated=True)
            missing += none
            short += some
    name, unit = ("latency", "s") if relative_to is None else (f"latency against that at c{relative_to}", "×")
    below = f"over log 1/(1 − p); bands: what reading the plot may err; here, from {MIN_BLOCKS} blocks on, the blocks' range"
    figure = figures.percentiles(panels, title, name, unit, log_y, shared_y, below)
    noted(figure, folded("; ".join([*missing, *short])))
    empty = (panel.why.replace("<br>", " ") for panel in panels if not panel.curves)
    return of_runs(runs.values(), figure, gaps=[*empty, *missing])


def _panel(head: str, make: Callable[[], Sequence[Curve]]) -> Panel:
    """Its lines, or the gap with the reason."""
    why = "nothing to show that can be told from 0"
    try:
        if found := make():
            return Panel(head, found)
    except LabError as error:
        why = f"{error.place}: {error.fault}"
    return Panel(head, (), folded(why, PANEL_WIDTH + 5))


# -- what happened in one block -------------------------------------------------------------------------------


@figured
def timeline(run: Evidence, title: str, variant: str, point: str = "*") -> go.Figure:
    """The timeline of the first block that counts; behind it the range of all blocks."""
    if all(each.disturbance is None for each in run.points):
        return gap(title, folded("steady loads alone: no single request was logged, and nothing happened meanwhile"))
    name, log = _log(run, variant, point)
    if log is None:
        return _no_block(run, title, variant, point)
    others = [each.bins for each in run.logs(log.sample.arm, name)]
    where = f"{variant} at {name}, block {log.sample.block} of {len(others)}"
    behind = timelines.across(others) if others[1:] else None
    figure = figures.timeline(log.bins, log.marks, f"{title}: {where}", behind)
    return lacking_noted(run, figure, [variant], name)


@figured
def processes(run: Evidence, title: str, point: str = "*", variants: Sequence[str] = ()) -> go.Figure:
    """The proxy's processes of one block of every arm."""
    logs = _logs(run, variants, point)
    alone = next(iter(logs.values())).marks if len(logs) == 1 else None
    figure = figures.processes({arm: happenings.looks(log.usage) for arm, log in logs.items()}, title, alone)
    return lacking_noted(run, figure, variants, point)


@figured
def delays(run: Evidence, title: str, point: str = "*", variants: Sequence[str] = ()) -> go.Figure:
    """How long every change of one block took to show, for every arm."""
    found = {arm: log.delays for arm, log in _logs(run, variants, point).items()}
    return lacking_noted(run, figures.delays(found, title), variants, point)


@figured
def probing(run: Evidence, title: str, variant: str, point: str = "*") -> go.Figure:
    """Every probe of one block."""
    name, log = _log(run, variant, point)
    if log is None:
        return _no_block(run, title, variant, point)
    try:
        timeouts_s = probe_timeouts_s(run.run, log.sample.variant)
    except LabError:  # a run without its manifests: the figure says that they are unknown
        timeouts_s = None
    probes = timelines.probes(log.events, log.zero_s)
    return figures.probing(probes, log.marks, f"{title}: {variant} at {name}", timeouts_s)


@figured
def transfers(run: Evidence, title: str, variant: str, point: str = "*") -> go.Figure:
    """Every large body of one block."""
    name, log = _log(run, variant, point)
    if log is None:
        return _no_block(run, title, variant, point)
    return figures.transfers(timelines.transfers(log.events, log.zero_s), f"{title}: {variant} at {name}")


def _no_block(run: Evidence, title: str, variant: str, point: str) -> go.Figure:
    empty = gap(f"{title}: {variant}", f"no valid block of {variant} at {point}")
    return lacking_noted(run, empty, [variant], point)


def _logs(run: Evidence, variants: Sequence[str], point: str) -> dict[str, Log]:
    """Arm → the log of its first block that counts at such a point."""
    return {arm: log for arm in arms_of(run, variants) if (log := _log(run, arm, point)[1]) is not None}


def _log(run: Evidence, variant: str, pattern: str) -> tuple[str, Log | None]:
    """(point, log) of the first such point at which the variant has a block that counts."""
    for arm, name in product(run.arms(variant), points_of(run, pattern)):
        if (log := run.log(arm, name)) is not None:
            return name, log
    return pattern, None


# -- tables ---------------------------------------------------------------------------------------------------


@worded
def effects(run: Evidence | None, point: str = "*", variants: Sequence[str] = ()) -> str:
    """Markdown: every variant against its baseline at such points, judged as the run's own table does: the primary metric may claim."""
    if run is None:
        return ""
    rows: list[Sequence[str]] = []
    for row in run.summary().rows:
        arm, at = row.arm, row.point.name
        if arm.role == "variant" and fits(point, at) and (not variants or arm.name in variants):
            told = [(effect.primary, effect_text(effect)) for effect in row.effects if effect.estimate is not None]
            cells = ("; ".join(text for primary, text in told if primary is first) or "–" for first in (True, False))
            rows.append([f"{arm.name} at {at}", arm.baseline or "", *cells])
    heads = ("variant", "against", "primary metric", "others, not claimed")
    what, none = "effects [95 %], same: not worth knowing, ?: cannot tell", "no variant beside its baseline"
    return _tabled(run, heads, rows, variants, point, what, none)


@worded
def table(run: Evidence | None, metrics: Sequence[str], point: str = "*", variants: Sequence[str] = ()) -> str:
    """Markdown: a row per arm and point, a column per metric, medians of the blocks with their 95 % intervals."""
    if run is None:
        return ""
    known = [about(metric) for metric in metrics]
    heads = ["", *(f"{each.title} ({each.unit})" if each.unit else each.title for each in known)]
    rows: list[Sequence[str]] = []
    for arm, at in product(arms_of(run, variants), points_of(run, point)):
        told = [told_of(run, arm, at, metric, arm) for metric in metrics]
        if any(each is not None for each in told):
            rows.append([f"{arm} at {at}", *(_cell(each, of.scale) for each, of in zip(told, known, strict=True))])
    what = "medians of the blocks [95 %]; of fewer than six blocks the smallest–the largest"
    return _tabled(run, heads, rows, variants, point, what, f"{run.name} has none of {', '.join(metrics)}")


def _tabled(
    run: Evidence,
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    variants: Sequence[str],
    point: str,
    what: str,
    none: str,
) -> str:
    """Markdown: a table, what of these variants and points it lacks, and below `what` its numbers are; `none`: why it may be empty."""
    missing, short = lacking(run, variants, point)
    missing = missing or ([] if rows else [none])
    lines = [markdown([texts(heads, rows)]).rstrip("\n")] if rows else []
    return "\n".join([*lines, *gap_lines(missing), "", "; ".join([run.said, what, *short])]).lstrip()


def _cell(told: Told | None, scale: float) -> str:
    if told is not None and told.low is None and told.blocks:
        few = format_range(min(told.blocks) / scale, max(told.blocks) / scale)
        return told.note if told.note.startswith(TWO_CLUSTERS) else few
    ends = [told.value, told.low, told.high] if told else [None] * 3
    return with_interval(*(end if end is None else end / scale for end in ends))


@dataclass(frozen=True, slots=True)
class Claims:
    """Claims as rows: a table in a notebook; the report, which knows them by their ids, draws each."""

    ids: tuple[str, ...]
    text: str

    def _repr_mimebundle_(self, **_: object) -> dict[str, object]:
        return {CLAIMS: list(self.ids), "text/markdown": self.text}


def claims(verdicts: Sequence[Verdict], *ids: str, known: Sequence[Verdict] = ()) -> Claims:
    """These claims with both judgements and their run; without ids every one that is judged, and how, with the checks (`known`) below."""
    shown = [verdict for verdict in verdicts if not ids or verdict.claim.id in ids]
    page = ledger.page(shown, known)
    return Claims(tuple(verdict.claim.id for verdict in (*shown, *known)), markdown(page[:1] if ids else page))
