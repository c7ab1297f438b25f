"""Exhibits: a figure of a committed run, or the gap where there is none. What notebooks are made of.

Each takes a run (`lab.analysis.evidence.Shelf.of`) and says which of its arms and points to show. A damaged log is a gap, too: a figure
never stops a notebook. Refuses to judge (`lab.studies.claims`).
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from itertools import product
from math import expm1
from types import MappingProxyType
from typing import Any, Concatenate, ParamSpec

import plotly.graph_objects as go

from lab.analysis import rerun, timelines
from lab.analysis.aggregate.absolute import clusters_of, clusters_text
from lab.analysis.aggregate.generations import levels
from lab.analysis.evidence import Evidence, Log, Missing, probe_timeouts_s
from lab.analysis.explain.run import effect_text
from lab.base.errors import LabError
from lab.model.metrics import QUANTILES, about
from lab.model.pages import PAGES
from lab.model.sweeps import Point
from lab.records import incidents as happenings
from lab.records import published
from lab.report import figures, grid
from lab.report.figures.generations import Dot
from lab.report.figures.intervals import Told
from lab.report.figures.ladder import Rung
from lab.report.figures.percentiles import Curve, Panel
from lab.report.figures.scaling import Bound
from lab.report.figures.style import gap, noted
from lab.report.grid import texts
from lab.report.markdown import markdown
from lab.report.tables.generations import sentence
from lab.stats import paired as stats
from lab.stats.units import format_blocks, format_range, with_interval
from lab.studies import ledger, study_tables
from lab.studies.claims import fits
from lab.studies.claims.judging import Verdict
from lab.studies.exhibits import curves, reproduction
from lab.studies.exhibits import ladder as rungs
from lab.studies.exhibits import pidstat as pidstat_tables
from lab.studies.exhibits.ladder import Elsewhere, Remainder, remainder

P = ParamSpec("P")
Run = Evidence | Missing
UNITS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "kB": 1e3, "MB": 1e6, "MB/s": 1e6}
"""Units of tables that figures choose by themselves → what one of it is in seconds or bytes."""
NDS, BOOM = "nds", "boom"
"""Whose loads grow in requests at once, and the tool it measured with."""
PAGE_SIZES = "page-sizes"
"""The sweep of ours whose pages grow."""
PLACES = ("machine", "interrupts on CPUs", "packet steering to CPUs", "workers on CPUs")
"""Columns of where AWS's post has things run."""
CLAIMS = "application/vnd.lab.claims+json"
"""MIME type of a list of claims' ids."""
TWO_CLUSTERS = "two clusters: "
"""How the note begins of an arm whose blocks no mean describes."""
PANEL_WIDTH = 34
"""Characters that fit into a panel beside two others, at its least width."""


def _exhibit(make: Callable[Concatenate[Evidence, str, P], go.Figure]) -> Callable[Concatenate[Run, str, P], go.Figure]:
    """The figure of a run under a title, or a gap with the reason."""

    @wraps(make)
    def shown(run: Run, title: str, *args: P.args, **kwargs: P.kwargs) -> go.Figure:
        if isinstance(run, Missing):
            return gap(title, _folded(run.why))
        try:
            return _of([run], make(run, f"{title} ({run.run.record.target})", *args, **kwargs))
        except LabError as error:
            return _of([run], gap(title, _folded(f"{error.place}: {error.fault}")))

    return shown


def _prose(make: Callable[Concatenate[Evidence, P], str]) -> Callable[Concatenate[Run, P], str]:
    """Markdown of a run, or in its place why there is none."""

    @wraps(make)
    def shown(run: Run, *args: P.args, **kwargs: P.kwargs) -> str:
        return _with_published(run, lambda found: make(found, *args, **kwargs) if found else "")

    return shown


def _with_published(run: Run, made: Callable[[Evidence | None], str]) -> str:
    """Markdown of what was published with the run beside it; where there is none, or a damaged one, of what was published alone."""
    if isinstance(run, Missing):
        return f"{made(None)}\n\n*{run.said}*".lstrip()
    try:
        return made(run)
    except LabError as error:
        return f"{made(None)}\n\n{_damaged(run, error)}".lstrip()


def _of(runs: Iterable[Run], figure: go.Figure, gaps: Sequence[str] | None = None) -> go.Figure:
    """The figure with these runs' ids, which `just report` puts beside it, and what each of its empty panels, lines or rows lacks,
    which it counts and lists; None: as the figure says.
    """
    layout: Any = figure.layout
    empty = (layout.meta or {}).get("gaps", ()) if gaps is None else gaps
    ids = [run.run.record.id for run in runs if not isinstance(run, Missing)]
    return figure.update_layout(meta={"runs": list(dict.fromkeys(ids))} | ({"gaps": list(empty)} if empty else {}))


def _noted(run: Evidence, figure: go.Figure, variants: Sequence[str], point: str) -> go.Figure:
    """The figure with what it lacks of these variants and points below its title."""
    missing, short = _lacking(run, variants, point)
    return noted(figure, _folded("; ".join([*missing, *short])), missing)


def _no_block(run: Evidence, title: str, variant: str, point: str) -> go.Figure:
    return _noted(run, gap(f"{title}: {variant}", f"no valid block of {variant} at {point}"), [variant], point)


def _lacking(run: Evidence, variants: Sequence[str], pattern: str, rated: bool = False) -> tuple[list[str], list[str]]:
    """(what has no block that counts: arms at points, variants, the points themselves; what has some), each with why.

    `rated`: only at points with a rate.
    """
    points = reproduction.points_of(run, pattern)
    if not points:
        return [f"no load of this run is called `{pattern}`"], []
    rates = {point.name: point.rate_rps for point in run.points}
    wanted = variants or [item.variant for item in run.run.record.not_measurable]
    missing, short = [f"{each} is {why}" for each in wanted if (why := reproduction.absent(run, each))], list[str]()
    for arm in _arms(run, variants):
        for at in (at for at in points if not rated or rates[at] is not None):
            if why := run.lost(arm, at):
                lost = f"{arm} at {at}: {why}"
                if run.blocks(arm, at):
                    short.append(lost)
                else:
                    missing.append(f"{lost}: just bench {arm}{rerun.load(run.run.record)}")
    return missing, short


def _told_missing(missing: Sequence[str]) -> list[str]:
    """Lines of Markdown, each a gap that `just report` counts."""
    return [line for each in missing for line in ("", f"*nothing to show: {each}*")]


def _damaged(run: Evidence, error: LabError) -> str:
    """Markdown in a table's place."""
    return f"*no run: {run.name} is damaged: {error.place}: {error.fault}*"


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
        return _no_block(run, title, variant, point)
    others = [each.bins for each in run.logs(log.sample.arm, name)]
    where = f"{variant} at {name}, block {log.sample.block} of {len(others)}"
    behind = timelines.across(others) if others[1:] else None
    return _noted(run, figures.timeline(log.bins, log.marks, f"{title}: {where}", behind), [variant], name)


@_exhibit
def intervals(
    run: Evidence,
    title: str,
    metric: str,
    point: str = "*",
    claimed: str = "",
    variants: Sequence[str] = (),
) -> go.Figure:
    """A metric of every arm (or of these variants') at every such point, and the number that the claim of this id published."""
    points = reproduction.points_of(run, point)
    told = (
        _told(run, arm, at, metric, arm if len(points) == 1 else f"{arm} · {at}")
        for arm, at in product(_arms(run, variants), points)
    )
    rows = [each for each in told if each is not None]
    published = _claim(claimed)[1] if claimed else None
    figure = figures.intervals(rows, title, about(metric).title, about(metric).own_unit, published)
    return _noted(run, figure, variants, point)


@_exhibit
def scaling(
    run: Evidence, title: str, metric: str, point: str = "*", over: str = "routes", log_y: bool = False
) -> go.Figure:
    """A metric of every arm over how many `over` its manifests have, a line per point."""
    lines: dict[str, list[tuple[float, Told]]] = {}
    for at, arm in product(reproduction.points_of(run, point), _arms(run, ())):
        size, told = _told(run, arm, at, over, arm), _told(run, arm, at, metric, arm)
        if size is not None and size.value and told is not None:
            lines.setdefault(at, []).append((size.value, told))
    figure = figures.scaling(lines, title, over, about(metric).title, about(metric).own_unit, log_y)
    return _noted(run, figure, (), point)


@_exhibit
def generations(run: Evidence, title: str, point: str = "*", variants: Sequence[str] = ()) -> go.Figure:
    """What twins differ by, each dot a generation of workers; of the first fitting point whose pairs were measured on several."""
    told = [one for one in levels(run.run.record, run.samples) if fits(one.point.name, point) and one.generations]
    first = next((one.point for one in told), None)
    shown = [one for one in told if one.point == first and (not variants or one.arm.variant in variants)]
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
    text = "<br>".join(f"{one.arm.variant}: {sentence(one)}" for one in shown)
    return noted(
        figures.generations(dots, title), _folded(text) if dots else "no pair was measured on several generations"
    )


def choose_steps(run: Run, *choices: rungs.Steps) -> rungs.Steps:
    """Return the first of several ladders whose variants a run has all measured; the first of all where it has none of them whole."""
    if isinstance(run, Missing):
        return choices[0]
    return next((steps for steps in choices if all(run.arms(variant) for variant, _ in steps.values())), choices[0])


def ladder(
    panels: Mapping[str, tuple[Run, rungs.Steps]], title: str, point: str, elsewhere: Elsewhere | None = None
) -> go.Figure:
    """What a request costs, taken apart: what a run is of → the run, and its steps in words, each the variants after and before it.

    `elsewhere`: what the last step of the last panel is left against, on another target.
    """
    rows: list[Rung] = []
    missing: list[str] = []
    notes: list[str] = []
    for name, (run, steps) in panels.items():
        left = Remainder()
        try:
            told = ([], [run.said]) if isinstance(run, Missing) else rungs.rungs(run, name, steps, point)
            if elsewhere is not None and name == [*panels][-1] and not isinstance(run, Missing):
                left = remainder(run, [*steps.values()][-1][0], elsewhere, point)
        except LabError as error:
            told = [], [f"{error.place}: {error.fault}"]
        rows += [*told[0], *left.rungs]
        missing += [*told[1], *left.missing]
        notes += left.notes
    figure = figures.ladder(rows, title, _folded("; ".join(missing)))
    if rows and (missing or notes):
        noted(figure, _folded("; ".join([*missing, *notes])), missing)
    return _of([*(run for run, _ in panels.values()), *([elsewhere.run] if elsewhere else [])], figure)


@_exhibit
def tails(run: Evidence, title: str, point: str = "*", variants: Sequence[str] = ()) -> go.Figure:
    """Percentiles: what the slowest of 2, 10, 100 and 1000 requests take at least, a line per arm and point."""
    lines: dict[str, list[tuple[float, Told]]] = {}
    for at, arm, (metric, share) in product(
        reproduction.points_of(run, point), _arms(run, variants), QUANTILES.items()
    ):
        told = _told(run, arm, at, metric, f"{arm} at {at}, {metric}")
        if told is not None:
            lines.setdefault(f"{arm} at {at}", []).append((round(1 / (1 - share)), told))
    figure = figures.scaling(lines, title, "one request in … takes longer", "latency", "s", log_y=True)
    return _noted(run, figure, variants, point)


@_exhibit
def processes(run: Evidence, title: str, point: str = "*", variants: Sequence[str] = ()) -> go.Figure:
    """The proxy's processes of one block of every arm."""
    logs = _logs(run, variants, point)
    alone = next(iter(logs.values())).marks if len(logs) == 1 else None
    figure = figures.processes({arm: happenings.looks(log.usage) for arm, log in logs.items()}, title, alone)
    return _noted(run, figure, variants, point)


@_exhibit
def delays(run: Evidence, title: str, point: str = "*", variants: Sequence[str] = ()) -> go.Figure:
    """How long every change of one block took to show, for every arm."""
    found = {arm: log.delays for arm, log in _logs(run, variants, point).items()}
    return _noted(run, figures.delays(found, title), variants, point)


@_exhibit
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


@_exhibit
def transfers(run: Evidence, title: str, variant: str, point: str = "*") -> go.Figure:
    """Every large body of one block."""
    name, log = _log(run, variant, point)
    if log is None:
        return _no_block(run, title, variant, point)
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
    panels = [_panel("published", partial(curves.digitised, suite, relative_to))]
    for variant, run in runs.items():
        if isinstance(run, Missing):
            panels.append(Panel(variant, (), _folded(run.why, PANEL_WIDTH)))
            continue
        record = run.run.record
        shape = ": shape only" if record.blocks < stats.MIN_BLOCKS else ""
        head = f"{variant} ({record.target}, {format_blocks(record.blocks)}{shape})<br>{run.name}"
        panels.append(_panel(head, partial(curves.measured, run, variant, relative_to)))
    name, unit = ("latency", "s") if relative_to is None else (f"latency against that at c{relative_to}", "×")
    below = f"over log 1/(1 − p); bands: what reading the plot may err; here, from {stats.MIN_BLOCKS} blocks on, the blocks' range"
    figure = figures.percentiles(panels, title, name, unit, log_y, shared_y, below)
    there = [(variant, run) for variant, run in runs.items() if not isinstance(run, Missing)]
    lacking = [_lacking(run, [variant], "*", rated=True) for variant, run in there if run.arms(variant)]
    missing, short = ([line for each in lacking for line in each[which]] for which in (0, 1))
    noted(figure, _folded("; ".join([*missing, *short])))
    empty = (panel.why.replace("<br>", " ") for panel in panels if not panel.curves)
    return _of(runs.values(), figure, gaps=[*empty, *missing])


def _panel(head: str, make: Callable[[], Sequence[Curve]]) -> Panel:
    """Its lines, or the gap with the reason."""
    try:
        found = make()
    except LabError as error:
        return Panel(head, (), _folded(f"{error.place}: {error.fault}", PANEL_WIDTH))
    return Panel(head, found) if found else Panel(head, (), "nothing to show that can be told from 0")


@_prose
def effects(run: Evidence, point: str = "*", variants: Sequence[str] = ()) -> str:
    """Markdown: every variant against its baseline at such points, judged as the run's own table does: the primary metric may claim."""
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


def gains(
    run: Run,
    title: str,
    metric: str,
    point: str,
    pairs: Sequence[tuple[str, str]],
    claimed: Sequence[str] = (),
) -> go.Figure:
    """How much each (variant, what it is against) changed the metric, in percent, and what the claims of these ids say."""

    def made(found: Evidence | None, head: str) -> go.Figure:
        if found is None:
            return reproduction.claimed_alone(head, metric, claimed)
        return reproduction.gains(found, head, metric, point, pairs, claimed)

    return _beside(run, title, made)


def placement(run: Run, variants: Sequence[str]) -> str:
    """Markdown: where AWS's post places interrupts, packet steering and workers, and what was read back of these variants; of workers,
    where the run pins them.
    """

    def made(found: Evidence | None) -> str:
        ours = [reproduction.placed(found, variant) for variant in variants] if found else []
        below = ["", found.said] if found else []
        return "\n".join([markdown([texts(PLACES, [*reproduction.published_placement(), *ours])]).rstrip("\n"), *below])

    return _with_published(run, made)


def shape(run: Run, study: str, *titles: str) -> str:
    """Markdown: the study's tables (those of these titles, if any are named) as published, the run's cells beside them."""

    def made(found: Evidence | None) -> str:
        tables = reproduction.tables(study, titles, found)
        return f"{tables}\n{found.said}" if found else tables.rstrip("\n")

    return _with_published(run, made)


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


def ratios(run: Run, title: str, study: str, table: str) -> go.Figure:
    """Every cell of the study's table of this title, relative to the table's reference, as published and here."""

    def made(found: Evidence | None, head: str) -> go.Figure:
        rows = reproduction.ratios(study, table, found)
        figure = figures.beside(rows, head, "relative to the reference", "×")
        if found is None:
            return figure
        empty = [row for row in rows if row.measured is None]
        whys: dict[str, list[str]] = {}  # of what there is nothing, or no interval
        for row in (*empty, *(row for row in rows if row.measured is not None and row.measured.low is None)):
            whys.setdefault(row.why, []).append(row.label)
        text = _folded("; ".join(f"{', '.join(labels)}: {why}" for why, labels in whys.items()))
        return noted(figure, text, [row.why for row in empty])

    return _beside(run, title, made)


def printed(
    title: str, table: str, metric: str, column: str, over: str, line: str, where: Mapping[str, Sequence[str]]
) -> go.Figure:
    """What a publication prints, beside nothing of ours: `column` of its table over `over`, a line for each value of `line`.

    `where`: only rows with one of these values; `metric` is what the column is, of which its name ends in the unit.
    """
    rows = [row for row in published.texts(table) if all(row[name] in values for name, values in where.items())]
    scale = next((size for unit, size in UNITS.items() if column.endswith(f"_{unit}")), 1.0)
    lines: dict[str, list[tuple[float, Told]]] = {}
    for row in rows:
        told = Told(f"{row[line]}, {row[over]} {over}", row[line], float(row[column]) * scale)
        lines.setdefault(row[line], []).append((float(row[over]), told))
    words, unit = about(metric).title, about(metric).own_unit
    return _of([], figures.scaling({}, title, over, words, unit, published=lines))


def concurrency(
    run: Run,
    title: str,
    metrics: Sequence[str],
    variants: Sequence[str],
    claimed: Mapping[str, str] = MappingProxyType({}),
    log_y: bool = False,
) -> go.Figure:
    """Metrics over the requests at once, a line per metric or variant, beside what NDS' tool printed; claim → the metric it bounds."""

    def made(found: Evidence | None, head: str) -> go.Figure:
        several = len(metrics) > 1
        known = {about(metric).title if several else BOOM: reproduction.printed(metric) for metric in metrics}
        ends = reproduction.loads(NDS)
        bounds = [Bound(*_claim(claim), ends, about(metric).title) for claim, metric in claimed.items()]
        lines = _sized(found, metrics, variants, lambda point: point.connections)
        words, unit = about(metrics[0]).title, about(metrics[0]).own_unit
        name = "response time" if several else words
        figure = figures.scaling(lines, head, "requests at once", name, unit, log_y, False, known, bounds)
        return figure if found is None else _noted(found, figure, variants, "*")

    return _beside(run, title, made)


def pages(
    run: Run, title: str, metric: str, variants: Sequence[str], claimed: str = "", log_y: bool = False
) -> go.Figure:
    """A metric over the size of the page, a line per variant; the page that is `claimed` to fill the link stands where it is full."""

    def made(found: Evidence | None, head: str) -> go.Figure:
        known = {claimed: [reproduction.filling(claimed)]} if claimed else {}
        ticks = {float(PAGES[page]): page.partition(".")[0] for page in reproduction.pages(PAGE_SIZES)}
        lines = _sized(found, [metric], variants, lambda point: PAGES[point.page])
        words, unit = about(metric).title, about(metric).own_unit
        figure = figures.scaling(lines, head, "page", words, unit, log_y, published=known, ticks=ticks)
        return figure if found is None else _noted(found, figure, variants, "*")

    return _beside(run, title, made)


def _sized(
    run: Evidence | None, metrics: Sequence[str], variants: Sequence[str], size: Callable[[Point], float]
) -> dict[str, list[tuple[float, Told]]]:
    """Metric, or arm where there is one metric → its value at each of the run's loads, by their size."""
    lines: dict[str, list[tuple[float, Told]]] = {}
    for metric, arm in product(metrics, _arms(run, variants) if run else ()):
        assert run is not None
        for point in (point for point in run.points if not point.control):
            if (told := _told(run, arm, point.name, metric, f"{metric} of {arm} at {point.name}")) is not None:
                lines.setdefault(about(metric).title if metrics[1:] else arm, []).append((float(size(point)), told))
    return lines


def usage(run: Run, variants: Sequence[str], point: str) -> str:
    """Markdown: the average lines of NDS' two tables of pidstat, and those of these variants' processes at this point."""

    def made(found: Evidence | None) -> str:
        return markdown(pidstat_tables.page(found, variants, point)).rstrip("\n")

    if isinstance(run, Missing):
        return "\n".join([made(None), "", f"*{run.said}*", "", study_tables.HONEST])
    try:
        missing, short = _lacking(run, variants, point)
        below = "; ".join([run.said, "medians of the blocks [95 %]", study_tables.HONEST, *short])
        return "\n".join([made(run), *_told_missing(missing), "", below])
    except LabError as error:
        return "\n".join([made(None), "", _damaged(run, error), "", study_tables.HONEST])


def transcribed(table: str, columns: Sequence[str]) -> str:
    """Markdown: these columns of a table of `data/published`, as they stand there."""
    rows = (grid.row(*(line[column] for column in columns)) for line in published.texts(table))
    return markdown([grid.Grid(grid.columns(columns), tuple(rows))]).rstrip("\n")


def _beside(run: Run, title: str, made: Callable[[Evidence | None, str], go.Figure]) -> go.Figure:
    """What was published with the run beside it; where there is none, or a damaged one, as one gap, what was published alone."""
    why = run.said if isinstance(run, Missing) else ""
    if not isinstance(run, Missing):
        try:
            return _of([run], made(run, f"{title} ({run.run.record.target})"))
        except LabError as error:
            why = f"{error.place}: {error.fault}"
    try:
        figure = noted(made(None, title), _folded(why))
    except LabError as error:
        figure = gap(title, _folded(f"{error.place}: {error.fault}"))
    return _of([run], figure, [why] if figure.data else [])  # one that is nothing but a gap needs none


def _claim(name: str) -> tuple[str, float]:
    """(words, value in seconds, bytes or as counted) of a claim that published one number."""
    value, unit, text = reproduction.published_number(name)
    return text, value * UNITS.get(unit.partition(" ")[0], 1.0)


@_prose
def table(run: Evidence, metrics: Sequence[str], point: str = "*", variants: Sequence[str] = ()) -> str:
    """Markdown: a row per arm and point, a column per metric, medians of the blocks with their 95 % intervals."""
    known = [about(metric) for metric in metrics]
    heads = ["", *(f"{each.title} ({each.unit})" if each.unit else each.title for each in known)]
    rows: list[Sequence[str]] = []
    for arm, at in product(_arms(run, variants), reproduction.points_of(run, point)):
        told = [_told(run, arm, at, metric, arm) for metric in metrics]
        if any(each is not None for each in told):
            rows.append([f"{arm} at {at}", *(_cell(each, of.scale) for each, of in zip(told, known, strict=True))])
    none = f"{run.name} has none of {', '.join(metrics)}"
    return _tabled(
        run,
        heads,
        rows,
        variants,
        point,
        "medians of the blocks [95 %]; of fewer than six blocks the smallest–the largest",
        none,
    )


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
    missing, short = _lacking(run, variants, point)
    missing = missing or ([] if rows else [none])
    lines = [markdown([texts(heads, rows)]).rstrip("\n")] if rows else []
    return "\n".join([*lines, *_told_missing(missing), "", "; ".join([run.said, what, *short])]).lstrip()


def _cell(told: Told | None, scale: float) -> str:
    if told is not None and told.low is None and told.blocks:
        few = format_range(min(told.blocks) / scale, max(told.blocks) / scale)
        return told.note if told.note.startswith(TWO_CLUSTERS) else few
    ends = [told.value, told.low, told.high] if told else [None] * 3
    return with_interval(*(end if end is None else end / scale for end in ends))


def _told(run: Evidence, arm: str, point: str, metric: str, label: str) -> Told | None:
    """None where no block has the metric."""
    values = run.values(arm, point, metric)
    known = [value for value in values.values() if value is not None]
    if not known:
        return None
    if clusters := clusters_of(known, metric):
        note = f"{TWO_CLUSTERS}{clusters_text(about(metric), clusters, len(known))}"
        return Told(label, arm, sorted(known)[len(known) // 2], None, None, known, note)
    level = stats.middle(known)
    untold = len(values) - len(known)
    return Told(label, arm, level.value, level.low, level.high, known, f"not told in {untold} blocks" if untold else "")


def _arms(run: Evidence, variants: Sequence[str]) -> list[str]:
    return [arm for variant in variants for arm in run.arms(variant)] if variants else run.arms()


def _logs(run: Evidence, variants: Sequence[str], point: str) -> dict[str, Log]:
    """Arm → the log of its first block that counts at such a point."""
    return {arm: log for arm in _arms(run, variants) if (log := _log(run, arm, point)[1]) is not None}


def _log(run: Evidence, variant: str, pattern: str, block: int | None = None) -> tuple[str, Log | None]:
    """(point, log) of the first such point at which the variant has a block that counts."""
    for arm in run.arms(variant):
        for name in reproduction.points_of(run, pattern):
            log = run.log(arm, name, block)
            if log is not None:
                return name, log
    return pattern, None
