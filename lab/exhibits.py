"""Exhibits: a figure of a committed run, or the gap where there is none. What notebooks are made of.

Each takes a run (`lab.evidence.Shelf.of`) and says which of its arms and points to show. A damaged log is a gap, too: a figure
never stops a notebook. Refuses to judge (`lab.claims`).
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Concatenate, ParamSpec

import plotly.graph_objects as go

from lab import curves, figures, happenings, published, reproduction, stats, timelines
from lab.claims import fits
from lab.claims.measuring import said_as
from lab.derived import probe_timeouts_s
from lab.errors import LabError
from lab.evidence import Evidence, Log, Missing
from lab.figures.intervals import Told
from lab.figures.law import Sized
from lab.figures.percentiles import Curve, Panel
from lab.figures.style import gap
from lab.histogram import BEYOND
from lab.summary import QUANTILES, summarise_run
from lab.units import format_blocks, three_digits
from lab.verdicts import effect_text

P = ParamSpec("P")
Run = Evidence | Missing
UNITS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "kB": 1e3, "MB": 1e6, "MB/s": 1e6}
"""Units of tables that figures choose by themselves → what one of it is in seconds or bytes."""
PANEL_WIDTH = 34
"""Characters that fit into a panel beside two others, at its least width."""


def _exhibit(make: Callable[Concatenate[Evidence, str, P], go.Figure]) -> Callable[Concatenate[Run, str, P], go.Figure]:
    """The figure of a run under a title, or a gap with the reason."""

    @wraps(make)
    def shown(run: Run, title: str, *args: P.args, **kwargs: P.kwargs) -> go.Figure:
        if isinstance(run, Missing):
            return gap(title, _folded(run.why))
        try:
            return _from(run, make(run, f"{title} ({run.run.record.target})", *args, **kwargs))
        except LabError as error:
            return _from(run, gap(title, _folded(f"{error.place}: {error.fault}")))

    return shown


def _from(run: Run, figure: go.Figure) -> go.Figure:
    """The figure with the run's id, which `just report` puts beside it."""
    return _of([run], figure)


def _of(runs: Iterable[Run], figure: go.Figure, gaps: int = 0) -> go.Figure:
    """The figure with these runs' ids. `gaps`: how many of its panels or lines stand empty, which `just report` counts."""
    ids = [run.run.record.id for run in runs if not isinstance(run, Missing)]
    return figure.update_layout(meta={"runs": list(dict.fromkeys(ids))} | ({"gaps": gaps} if gaps else {}))


def _folded(text: str, width: int = 90) -> str:
    """Long texts do not fold by themselves in a figure."""
    return "<br>".join(textwrap.wrap(text, width, break_on_hyphens=False))


@_exhibit
def timeline(run: Evidence, title: str, variant: str, point: str = "*", block: int | None = None) -> go.Figure:
    """One block's timeline, the first that counts unless one is named; behind it the range of all blocks."""
    if all(each.disturbance is None for each in run.points):
        return gap(title, _folded("steady loads alone: no single request was logged, and nothing happened meanwhile"))
    name, log = _log(run, variant, point, block)
    if log is None:
        return gap(f"{title}: {variant}", f"no valid block of {variant} at {point}")
    others = [each.bins for each in run.logs(log.sample.arm, name)]
    where = f"{variant} at {name}, block {log.sample.block} of {len(others)}"
    return figures.timeline(log.bins, log.marks, f"{title}: {where}", timelines.across(others) if others[1:] else None)


@_exhibit
def intervals(
    run: Evidence,
    title: str,
    metric: str,
    point: str = "*",
    published: float | None = None,
    variants: Sequence[str] = (),
) -> go.Figure:
    """A metric of every arm (or of these variants') at every such point. `published` in seconds, bytes or as counted."""
    names, points = _arms(run, variants), _points(run, point)
    rows = [
        told
        for arm in names
        for at in points
        if (told := _told(run, arm, at, metric, arm if len(points) == 1 else f"{arm} · {at}")) is not None
    ]
    words, unit = _unit(metric)
    return figures.intervals(rows, title, words, unit, published)


@_exhibit
def scaling(
    run: Evidence, title: str, metric: str, point: str = "*", over: str = "routes", log_y: bool = False
) -> go.Figure:
    """A metric of every arm over how many `over` its manifests have, a line per point."""
    lines: dict[str, list[tuple[float, Told]]] = {}
    for at in _points(run, point):
        for arm in _arms(run, ()):
            size, told = _told(run, arm, at, over, arm), _told(run, arm, at, metric, arm)
            if size is not None and size.value and told is not None:
                lines.setdefault(at, []).append((size.value, told))
    words, unit = _unit(metric)
    return figures.scaling(lines, title, over, words, unit, log_y)


@_exhibit
def tails(run: Evidence, title: str, point: str = "*", variants: Sequence[str] = ()) -> go.Figure:
    """Percentiles: what the slowest of 2, 10, 100 and 1000 requests take at least, a line per arm and point."""
    lines: dict[str, list[tuple[float, Told]]] = {}
    for at in _points(run, point):
        for arm in _arms(run, variants):
            for metric, share in QUANTILES.items():
                told = _told(run, arm, at, metric, f"{arm} at {at}, {metric}")
                if told is not None:
                    lines.setdefault(f"{arm} at {at}", []).append((round(1 / (1 - share)), told))
    return figures.scaling(lines, title, "one request in … takes longer", "latency", "s", log_y=True)


@_exhibit
def processes(run: Evidence, title: str, point: str = "*", variants: Sequence[str] = ()) -> go.Figure:
    """The proxy's processes of one block of every arm."""
    logs = {arm: log for arm in _arms(run, variants) if (log := _log(run, arm, point)[1]) is not None}
    alone = next(iter(logs.values())).marks if len(logs) == 1 else None
    return figures.processes({arm: happenings.looks(log.usage) for arm, log in logs.items()}, title, alone)


@_exhibit
def delays(run: Evidence, title: str, point: str = "*", variants: Sequence[str] = ()) -> go.Figure:
    """How long every change of one block took to show, for every arm."""
    logs = {arm: log for arm in _arms(run, variants) if (log := _log(run, arm, point)[1]) is not None}
    return figures.delays({arm: log.delays for arm, log in logs.items()}, title)


@_exhibit
def probing(run: Evidence, title: str, variant: str, point: str = "*") -> go.Figure:
    """Every probe of one block."""
    name, log = _log(run, variant, point)
    if log is None:
        return gap(f"{title}: {variant}", f"no valid block of {variant} at {point}")
    try:
        timeouts_s = probe_timeouts_s(run.run, log.sample.variant)
    except LabError:  # a run without its manifests: the figure says that they are unknown
        timeouts_s = None
    probes = timelines.probes(log.events, log.zero_s)
    return figures.probing(probes, log.marks, f"{title}: {variant} at {name}", timeouts_s)


@_exhibit
def transfers(run: Evidence, title: str, variant: str, point: str = "*") -> go.Figure:
    """Every large body of one block."""
    name, log = _log(run, variant, point)
    if log is None:
        return gap(f"{title}: {variant}", f"no valid block of {variant} at {point}")
    return figures.transfers(timelines.transfers(log.events, log.zero_s), f"{title}: {variant} at {name}")


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
    panels = [_panel("published", lambda: curves.digitised(suite, relative_to))]
    panels += [_measured(run, variant, relative_to) for variant, run in runs.items()]
    name, unit = ("latency", "s") if relative_to is None else (f"latency against that at c{relative_to}", "×")
    below = f"over log 1/(1 − p); bands: what reading the plot may err; here, from {stats.MIN_BLOCKS} blocks on, the blocks' range"
    figure = figures.percentiles(panels, title, name, unit, log_y, shared_y, below)
    return _of(runs.values(), figure, gaps=sum(not panel.curves for panel in panels))


def _measured(run: Run, variant: str, relative_to: int | None) -> Panel:
    if isinstance(run, Missing):
        return Panel(variant, (), _folded(run.why, PANEL_WIDTH))
    record = run.run.record
    shape = ": shape only" if record.blocks < stats.MIN_BLOCKS else ""
    head = f"{variant} ({record.target}, {format_blocks(record.blocks)}{shape})<br>{record.id}"
    return _panel(head, lambda: curves.measured(run, variant, relative_to))


def _panel(head: str, make: Callable[[], Sequence[Curve]]) -> Panel:
    """Its lines, or the gap with the reason."""
    try:
        found = make()
    except LabError as error:
        return Panel(head, (), _folded(f"{error.place}: {error.fault}", PANEL_WIDTH))
    return Panel(head, found) if found else Panel(head, (), "nothing to show that can be told from 0")


def effects(run: Run, point: str = "*", variants: Sequence[str] = ()) -> str:
    """Markdown: every variant against its baseline at such points, judged as the run's own table does: the primary metric may claim."""
    if isinstance(run, Missing):
        return f"*{run.said}*"
    try:
        summary = summarise_run(run.run.record, run.samples, run.run.histogram)
    except LabError as error:
        return f"*{error.place}: {error.fault}*"
    lines = ["| variant | against | primary metric | others, not claimed |", "| --- | --- | --- | --- |"]
    for row in summary.rows:
        if row.arm.role != "variant" or not fits(point, row.point.name) or (variants and row.arm.name not in variants):
            continue
        told = [(effect.primary, effect_text(effect)) for effect in row.effects if effect.estimate is not None]
        cells = ["; ".join(text for primary, text in told if primary is first) or "–" for first in (True, False)]
        lines.append(f"| {row.arm.name} at {row.point.name} | {row.arm.baseline} | {' | '.join(cells)} |")
    if len(lines) == 2:
        lines = ["*nothing of this was measured*"]
    return "\n".join([*lines, "", f"{run.said}; effects [95 %], ~: not beyond the A/A floor"])


def example(run: Run, variant: str = "baseline", connections: int = 100) -> str:
    """Markdown: the sample output that DigitalOcean's guide prints, and the same percentiles at so many connections here."""
    found, why = None, run.said
    if not isinstance(run, Missing):
        try:
            found = curves.merged(run, variant, connections)
        except LabError as error:
            why = f"{error.place}: {error.fault}"
    lines = [f"| percentile | published (ms) | {variant} at c{connections}, here (ms) |", "| --: | --: | --: |"]
    for row in published.frame("digitalocean_wrk2_example").sort("percentile").iter_rows(named=True):
        share = row["percentile"] / 100
        here = None if found is None else found.maximum_s if share == 1 else found.quantile_s(share)
        lines.append(f"| {row['percentile']:g} % | {row['latency_ms']:g} | {three_digits(here, 1e3)} |")
    return "\n".join([*lines, "", f"{why}; –: fewer than {BEYOND} requests beyond it"])


@_exhibit
def gains(
    run: Evidence,
    title: str,
    metric: str,
    point: str,
    pairs: Sequence[tuple[str, str]],
    claimed: Sequence[str] = (),
) -> go.Figure:
    """How much each (variant, what it is against) changed the metric, in percent, and what the claims of these ids say."""
    return reproduction.gains(run, title, metric, point, pairs, claimed)


def law(
    run: Run,
    title: str,
    study: str,
    variants: str = "*-workers-*",
    point: str = "*",
    relative: bool = False,
    log: bool = False,
) -> go.Figure:
    """Requests per second over workers, the study's and those of these variants, each with its scalability law where there is one."""
    ours = Sized("measured", (), None, run.said if isinstance(run, Missing) else "")
    try:
        ours = ours if isinstance(run, Missing) else reproduction.measured_law(run, variants, point)
    except LabError as error:
        ours = Sized("measured", (), None, f"{error.place}: {error.fault}")
    lines = [reproduction.published_law(study), ours]
    name = "speed-up over one worker" if relative else "requests per second"
    figure = figures.law(lines, title, "workers", name, "req/s", relative, log)
    return _of([run], figure, gaps=0 if ours.points else 1)


def placement(run: Run, variants: Sequence[str]) -> str:
    """Markdown: where AWS's post places interrupts, packet steering and workers, and what was read back of these variants."""
    lines = reproduction.published_placement()
    if isinstance(run, Missing):
        return "\n".join([*lines, "", f"*{run.said}*"])
    try:
        return "\n".join([*lines, *(reproduction.placed(run, variant) for variant in variants), "", run.said])
    except LabError as error:
        return "\n".join([*lines, "", f"*no run: {run.name} is damaged: {error.place}: {error.fault}*"])


def shape(run: Run, study: str, *titles: str) -> str:
    """Markdown: the study's tables (those of these titles, if any are named) as published, the run's cells beside them."""
    if isinstance(run, Missing):
        return f"{reproduction.tables(study, titles, None)}\n*{run.said}*"
    try:
        return f"{reproduction.tables(study, titles, run)}\n{run.said}"
    except LabError as error:
        why = f"*no run: {run.name} is damaged: {error.place}: {error.fault}*"
        return f"{reproduction.tables(study, titles, None)}\n{why}"


def table(run: Run, metrics: Sequence[str], point: str = "*", variants: Sequence[str] = ()) -> str:
    """Markdown: a row per arm and point, a column per metric, medians of the blocks with their 95 % intervals."""
    if isinstance(run, Missing):
        return f"*{run.said}*"
    try:
        return _table(run, metrics, point, variants)
    except LabError as error:
        return f"*no run: {run.name} is damaged: {error.place}: {error.fault}*"


def _table(run: Evidence, metrics: Sequence[str], point: str, variants: Sequence[str]) -> str:
    heads = [f"{words} ({unit})" if unit else words for words, unit, _ in map(said_as, metrics)]
    lines = [f"| | {' | '.join(heads)} |", f"| --- |{' --- |' * len(metrics)}"]
    for arm in _arms(run, variants):
        for at in _points(run, point):
            cells = [_cell(_told(run, arm, at, metric, arm), said_as(metric)[2]) for metric in metrics]
            if any(cell != "–" for cell in cells):
                lines.append(f"| {arm} at {at} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", f"{run.said}; medians of the blocks [95 %]"])


def _cell(told: Told | None, scale: float) -> str:
    if told is None or told.value is None:
        return "–"
    ends = (
        "" if told.low is None or told.high is None else f" [{_digits(told.low / scale)}, {_digits(told.high / scale)}]"
    )
    return f"{_digits(told.value / scale)}{ends}"


def _digits(value: float) -> str:
    """Three significant ones, whole numbers from 100 on."""
    return f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:.3g}"


def _told(run: Evidence, arm: str, point: str, metric: str, label: str) -> Told | None:
    """None where no block has the metric."""
    values = run.values(arm, point, metric)
    known = [value for value in values.values() if value is not None]
    if not known:
        return None
    level = stats.middle(known)
    untold = len(values) - len(known)
    return Told(label, arm, level.value, level.low, level.high, known, f"not told in {untold} blocks" if untold else "")


def _unit(metric: str) -> tuple[str, str]:
    """Words, and the unit that a figure scales from."""
    words, unit, scale = said_as(metric)
    if UNITS.get(unit) == scale:
        return words, "s" if scale <= 1 and unit in ("s", "ms", "µs") else f"bytes{'/s' if unit.endswith('/s') else ''}"
    return words, "share" if unit == "%" else unit


def _arms(run: Evidence, variants: Sequence[str]) -> list[str]:
    if not variants:
        return [arm for arm in run.arms() if any(arm == of for _, of, _ in run.counted)]
    return [arm for variant in variants for arm in run.arms(variant)]


def _points(run: Evidence, pattern: str) -> list[str]:
    return [point.name for point in run.points if not point.control and fits(pattern, point.name)]


def _log(run: Evidence, variant: str, pattern: str, block: int | None = None) -> tuple[str, Log | None]:
    """(point, log) of the first such point at which the variant has a block that counts."""
    for arm in run.arms(variant):
        for name in _points(run, pattern):
            log = run.log(arm, name, block)
            if log is not None:
                return name, log
    return pattern, None
