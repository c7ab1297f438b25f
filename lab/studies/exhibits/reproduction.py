"""Exhibits that set a study's published numbers and a run's side by side: gains against what was claimed, placement, tables, pidstat's lines.

Refuses to compare levels of different machines (what is drawn in one plot is relative to its own baseline)
and to judge (`lab.studies.claims`). Where a run lacks something, what stands there says why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from types import MappingProxyType

import plotly.graph_objects as go
import polars as pl

from lab.analysis import pidstat
from lab.analysis.evidence import Evidence
from lab.analysis.summary import Summary
from lab.base.errors import UsageError, did_you_mean, refuse_unknown
from lab.model.metrics import about
from lab.model.pages import PAGES
from lab.model.sweeps import Point
from lab.records import published
from lab.records.sweep_files import load_sweep
from lab.report import figures, grid
from lab.report.figures.intervals import Bound, Pair, Told
from lab.report.figures.style import INK, dressed, gap, noted
from lab.report.markdown import markdown
from lab.report.tables.gauges import HEADINGS
from lab.stats import paired as stats
from lab.stats.units import digits, format_range, with_interval
from lab.studies import results
from lab.studies.claims import claims
from lab.studies.exhibits.frames import (
    absent,
    arms_of,
    beside,
    folded,
    gap_lines,
    lacking,
    lacking_noted,
    of_runs,
    points_of,
    told_of,
    worded,
)
from lab.studies.study_files import load_study

UNITS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "kB": 1e3, "MB": 1e6, "MB/s": 1e6}
"""Units of tables that figures choose by themselves → what one of it is in seconds or bytes."""
PRINTED = {"mean_s": "average_s", "rate": "requests_per_s"}
"""Metric of ours → column of the summaries that NDS' tool printed."""
COLUMNS = (*pidstat.CPU_COLUMNS, *pidstat.MEMORY_COLUMNS)
Line = Sequence[float | None]
"""COLUMNS' values; None: not told."""


# -- what claims published ------------------------------------------------------------------------------------


def published_number(name: str) -> tuple[float, str, str]:
    """(number, unit, words) of a claim that published one number. UsageError for one that did not, and for one that there is not."""
    known = {claim.id: claim for claim in claims()}
    refuse_unknown(name, known, "claims.csv", f"there is no claim '{name}'")
    claim = known[name]
    if claim.number is None:
        raise UsageError("claims.csv", f"{name} published no single number", "name another claim")
    return claim.number, claim.unit, f"{name}: {claim.published} {claim.unit}"


def claimed_level(name: str) -> tuple[str, float]:
    """(words, value in seconds, bytes or as counted) of a claim that published one number."""
    value, unit, text = published_number(name)
    return text, value * UNITS.get(unit.partition(" ")[0], 1.0)


def _claimed_change(name: str) -> tuple[float, str]:
    """(change in percent, words) of a claim that published one number, in percent or as a factor."""
    value, unit, text = published_number(name)
    return (_percent(value), text) if unit.startswith("x") else (value, text)


def _percent(ratio: float) -> float:
    return 100 * (ratio - 1)


# -- gains and ratios -----------------------------------------------------------------------------------------


@beside
def gains(
    run: Evidence | None,
    title: str,
    metric: str,
    point: str,
    pairs: Sequence[tuple[str, str]],
    claimed: Sequence[str] = (),
) -> go.Figure:
    """How much each (variant, what it is against) changed the metric, in percent, and what the claims of these ids say, as lines.

    Pairs that the run does not have are named below it, with why, and blocks that do not count.
    """
    name, unit = f"{about(metric).title}, change", "%"
    said = [(each, *_claimed_change(each)) for each in claimed]
    if run is None:
        alone = [Told(text, each, value) for each, value, text in said]
        if not alone:
            return gap(title, "nothing of this was claimed or recorded:")
        return dressed(figures.intervals(alone, title, name, unit), title, 170 + 34 * len(alone), "as claimed")
    found = {pair: told_gains(run, *pair, metric, point) for pair in pairs}
    rows = [row for each in found.values() for row in each]
    whys: list[str] = []
    missing: list[str] = []
    for variant, against in (pair for pair in pairs if not found[pair]):
        whys.append(next((f"{each} is {why}" for each in (variant, against) if (why := absent(run, each))), ""))
        missing.append(f"{variant} against {against}: {whys[-1] or 'no block in which both count'}")
    if not rows:
        return gap(title, "<br>".join(missing))
    figure = figures.intervals(rows, title, name, unit).add_vline(x=0, line={"color": INK, "width": 1})
    for _, value, text in said:
        line, note = {"color": INK, "dash": "dash", "width": 1.5}, {"text": text, "font": {"size": 11}}
        figure.add_vline(x=value, line=line, annotation=note, annotation_position="top")
    shown = [arm for pair in pairs if found[pair] for each in pair for arm in run.arms(each)[:1]]
    lost = (f"{arm} at {at}: {why}" for arm in shown for at in points_of(run, point) if (why := run.lost(arm, at)))
    lines = [*missing, *dict.fromkeys(lost)]
    below = (
        "diamond: paired effect with its 95 % interval; rings: single blocks, where no pair leads; dashed: as claimed"
    )
    dressed(figure, title, 170 + 34 * len(rows) + 18 * len(lines), below)
    gaps = [why or line for why, line in zip(whys, missing, strict=True)]
    figure.update_layout(margin_b=70 + 18 * len(lines), meta={"gaps": gaps})
    return figure.update_xaxes(title_text="<br>".join([f"{name} ({unit})", *lines]))


def told_gains(run: Evidence, variant: str, against: str, metric: str, point: str) -> list[Told]:
    """Of a pair at each such point, where the two were one and its effect leads; else of the blocks that have both."""
    mine, other = (next(iter(run.arms(name)), None) for name in (variant, against))
    if mine is None or other is None:
        return []
    points, rows = points_of(run, point), list[Told]()
    for at in points:
        pair = run.as_pair(mine, other, at, metric)
        found, blocks = pair.estimate if pair else None, list[float]()
        if not pair:  # each by itself, in percent of each block that has both
            values, theirs = run.values(mine, at, metric), run.values(other, at, metric)
            sides = [(values[block] or 0.0, theirs.get(block) or 0.0) for block in values]
            if both := [each for each in sides if min(each) > 0]:
                found = stats.paired([first for first, _ in both], [second for _, second in both])
                blocks = [_percent(first / second) for first, second in both]
        if found is None:
            continue
        limits = {sample.limited_by for arm in (mine, other) for sample in run.blocks(arm, at).values()}
        note = "in some block the generator was the limit" if metric == "rate" and "generator" in limits else ""
        where = f" · {at}" if len(points) > 1 else ""
        label = f"{variant} against {against}{where}{' (generator-limited)' if note else ''}"
        low, high = (None, None) if found.ratio_interval is None else map(_percent, found.ratio_interval)
        rows.append(Told(label, variant, _percent(found.ratio), low, high, blocks, note))
    return rows


@beside
def ratios(run: Evidence | None, title: str, study: str, table: str) -> go.Figure:
    """Every cell of the study's table of this title, relative to the table's reference, as published and here; the references left out.

    UsageError where the study has no such table with references.
    """
    known = {each.shape.title: each for each in _shaped(study, run) if each.shape.reference}
    if table not in known:
        fault = f"no table '{table}' with references"
        raise UsageError(f"study {study}", fault, did_you_mean(table, list(known)))
    rows: list[Pair] = []
    for key, cell in known[table].cells.items():
        if not (cell.relative or cell.published_relative):
            continue
        lacks = absent(run, cell.variant) if run and cell.variant else ""
        label, why = " · ".join(key), f"{cell.variant} is {lacks}" if lacks else "; ".join(cell.notes)
        if run and not cell.variant:
            why += f": just study {study}"
        told = None if cell.relative is None else Told(label, "here", *cell.relative, note=why)
        rows.append(Pair(label, cell.published_relative, told, why or "its reference was not measured"))
    figure = figures.beside(rows, title, "relative to the reference", "×")
    if run is None:
        return figure
    empty = [row for row in rows if row.measured is None]
    whys: dict[str, list[str]] = {}  # of what there is nothing, or no interval
    for row in (*empty, *(row for row in rows if row.measured is not None and row.measured.low is None)):
        whys.setdefault(row.why, []).append(row.label)
    text = folded("; ".join(f"{', '.join(labels)}: {why}" for why, labels in whys.items()))
    return noted(figure, text, [row.why for row in empty])


def _shaped(study: str, run: Evidence | None) -> Sequence[results.Shaped]:
    """Of no run the tables have the published numbers alone."""
    return results.shaped(load_study(study), run.summary() if run else Summary(None, 0, 0, (), (), {}))


# -- curves over a size ---------------------------------------------------------------------------------------


def printed(
    title: str, table: str, metric: str, column: str, over: str, line: str, where: Mapping[str, Sequence[str]]
) -> go.Figure:
    """What a publication prints, beside nothing of ours: `column` of its table over `over`, a line for each value of `line`.

    `where`: only rows with one of these values; `metric` is what the column is, of which its name ends in the unit.
    """
    scale = next((size for unit, size in UNITS.items() if column.endswith(f"_{unit}")), 1.0)
    lines: dict[str, list[tuple[float, Told]]] = {}
    for row in (row for row in published.texts(table) if all(row[name] in values for name, values in where.items())):
        told = Told(f"{row[line]}, {row[over]} {over}", row[line], float(row[column]) * scale)
        lines.setdefault(row[line], []).append((float(row[over]), told))
    words, unit = about(metric).title, about(metric).own_unit
    return of_runs([], figures.scaling({}, title, over, words, unit, published=lines))


@beside
def concurrency(
    run: Evidence | None,
    title: str,
    metrics: Sequence[str],
    variants: Sequence[str],
    claimed: Mapping[str, str] = MappingProxyType({}),
    log_y: bool = False,
) -> go.Figure:
    """Metrics over the requests at once, a line per metric or variant, beside what NDS' tool printed; claim → the metric it bounds."""
    several, first = len(metrics) > 1, about(metrics[0])
    known = {about(metric).title if several else "boom": _printed_by_boom(metric) for metric in metrics}
    sizes = [float(point.connections) for point in load_sweep(load_study("nds").file.sweep)[1].expanded()]
    ends = min(sizes), max(sizes)
    bounds = [Bound(*claimed_level(claim), ends, about(metric).title) for claim, metric in claimed.items()]
    lines = _sized(run, metrics, variants, lambda point: point.connections)
    name = "response time" if several else first.title
    figure = figures.scaling(lines, title, "requests at once", name, first.own_unit, log_y, False, known, bounds)
    return lacking_noted(run, figure, variants, "*") if run else figure


def _printed_by_boom(metric: str) -> list[tuple[float, Told]]:
    """What NDS' tool printed of a metric of ours (`mean_s`, `rate`, `p50`, `p75_s` …): (requests at once, value); empty where nothing."""
    summaries = published.rows("nds_boom_summary")
    sizes = {line["version"]: line["concurrency"] for line in summaries}
    told = [(line["concurrency"], line[PRINTED[metric]]) for line in summaries if metric in PRINTED]
    told += [
        (sizes[line["version"]], line["response_time_s"])
        for line in published.rows("nds_boom_percentiles")
        if metric.removesuffix("_s") == f"p{line['percentile']:g}"
    ]
    return [
        (float(size or 0), Told(f"{metric} of {size} at once", "published", float(value or 0))) for size, value in told
    ]


@beside
def pages(
    run: Evidence | None, title: str, metric: str, variants: Sequence[str], claimed: str = "", log_y: bool = False
) -> go.Figure:
    """A metric over the size of the page, a line per variant; the page that is `claimed` to fill the link stands where it is full."""
    known: dict[str, list[tuple[float, Told]]] = {}
    if claimed:
        value, unit, text = published_number(claimed)
        page = f"{value:g}{unit}.bin"
        refuse_unknown(page, PAGES, "claims.csv", f"{claimed}: no page is called {page}")
        known = {claimed: [(float(PAGES[page]), Told(text, "published", 1.0))]}
    ticks = {float(PAGES[point.page]): point.page.partition(".")[0] for point in load_sweep("page-sizes")[1].expanded()}
    lines = _sized(run, [metric], variants, lambda point: PAGES[point.page])
    words, unit = about(metric).title, about(metric).own_unit
    figure = figures.scaling(lines, title, "page", words, unit, log_y, published=known, ticks=ticks)
    return lacking_noted(run, figure, variants, "*") if run else figure


def _sized(
    run: Evidence | None, metrics: Sequence[str], variants: Sequence[str], size: Callable[[Point], float]
) -> dict[str, list[tuple[float, Told]]]:
    """Metric, or arm where there is one metric → its value at each of the run's loads, by their size."""
    lines: dict[str, list[tuple[float, Told]]] = {}
    if run is None:
        return lines
    points = [point for point in run.points if not point.control]
    for metric, arm, point in product(metrics, arms_of(run, variants), points):
        if (told := told_of(run, arm, point.name, metric, f"{metric} of {arm} at {point.name}")) is not None:
            lines.setdefault(about(metric).title if metrics[1:] else arm, []).append((float(size(point)), told))
    return lines


# -- tables ---------------------------------------------------------------------------------------------------


@worded
def shape(run: Evidence | None, study: str, *titles: str) -> str:
    """Markdown: the study's tables (those of these titles, if any are named) as published, the run's cells beside them."""
    shown = [table for table in _shaped(study, run) if not titles or table.shape.title in titles]
    text = markdown(results.page(shown))
    return f"{text}\n{run.said}" if run else text.rstrip("\n")


@worded
def placement(run: Evidence | None, variants: Sequence[str]) -> str:
    """Markdown: where AWS's post places interrupts, packet steering and workers, and what was read back of these variants; of workers,
    where the run pins them.
    """
    rows: list[Sequence[str]] = [
        (f"{row['instance_type']}, published", *(str(row[f"{name}_cores"]) for name in ("irq", "rps", "nginx_worker")))
        for row in published.rows("aws_a1_irq_mapping")
    ]
    rows += [_placed(run, variant) for variant in variants] if run else []
    heads = ("machine", "interrupts on CPUs", "packet steering to CPUs", "workers on CPUs")
    below = ["", run.said] if run else []
    return "\n".join([markdown([grid.texts(heads, rows)]).rstrip("\n"), *below])


def _placed(run: Evidence, variant: str) -> Sequence[str]:
    """One more row, what was read back of a variant beside its first sample that counts, and the CPUs that the run pins the
    proxy to; or why there is nothing. UsageError when that is missing or damaged.
    """
    record, arm = run.run.record, next(iter(run.arms(variant)), None)
    where = f"{record.target}, {variant}"
    if arm is None:
        missing = next((item for item in record.not_measurable if item.variant == variant), None)
        why = f"not measurable here: {missing.what}: {missing.why}" if missing else "not part of this run"
        return where, why, "–", "–"
    slot = min((slot for slot in run.counted if slot[1] == arm), default=None)
    if slot is None:
        return where, "no block of it counts", "–", "–"
    own = record.facts.get("cpus_proxy") or record.facts.get("pinning", "not told")
    readings = run.run.readings(run.counted[slot])
    found = {str(each.get("name") or each.get("kind")): str(each.get("observed")) for each in readings}
    steered = found.get("rps", "where they arrive")
    steering = f"the proxy's own: {own}" if steered == "own" else steered
    return where, found.get("irq-affinity", "left as they are"), steering, f"as pinned: {own}"


def transcribed(table: str, columns: Sequence[str]) -> str:
    """Markdown: these columns of a table of `data/published`, as they stand there."""
    rows = (grid.row(*(line[column] for column in columns)) for line in published.texts(table))
    return markdown([grid.Grid(grid.columns(columns), tuple(rows))]).rstrip("\n")


@worded
def usage(run: Evidence | None, variants: Sequence[str], point: str) -> str:
    """Markdown: the average lines of NDS' two tables of pidstat, of its two nginx workers, and those of these variants' processes at this
    point, with the blocks' medians [95 %]. Page faults that could not be read off NDS' page are left out of their average.
    """
    units = {"vsz_kib": " (KiB)", "rss_kib": " (KiB)"}
    known = published.frame("nds_pidstat").group_by("process", maintain_order=True).agg(pl.col(COLUMNS).mean())
    rows = [grid.row(f"{name}, published", *map(digits, line)) for name, *line in known.iter_rows()]
    for variant in variants if run else ():
        assert run is not None
        for name, blocks in process_lines(run, variant, point).items():
            rows.append(grid.row(f"{variant} at {point}: {name}", *map(_middle, zip(*blocks, strict=True))))
    heads = grid.columns(["process", *(HEADINGS[name] + units.get(name, "") for name in COLUMNS)], left=[0])
    table = markdown([grid.Grid(heads, tuple(rows))]).rstrip("\n")
    if run is None:
        return f"{table}\n\n{results.HONEST}"
    missing, short = lacking(run, variants, point)
    below = "; ".join([run.said, "medians of the blocks [95 %]", results.HONEST, *short])
    return "\n".join([table, *gap_lines(missing), "", below])


def process_lines(run: Evidence, variant: str, point: str) -> dict[str, list[Line]]:
    """Process of the proxy, the busiest first (ids differ from block to block) → its average line in each block. UsageError for a damaged table."""
    memory_bytes = run.run.record.facts.get("memory_bytes", "")
    of_all = int(memory_bytes) if memory_bytes.isdecimal() else None
    found: dict[str, list[Line]] = {}
    for arm in run.arms(variant)[:1]:
        for sample in run.blocks(arm, point).values():
            used = run.run.usage(sample).filter((pl.col("role") == "proxy") & pl.col("tid").is_null())
            averages = pidstat.summary(used, of_all).sort("cpu_percent", descending=True, maintain_order=True)
            for number, (title, *line) in enumerate(averages.select("title", *COLUMNS).iter_rows(), 1):
                found.setdefault(f"{title} {number}", []).append(line)
    return found


def _middle(values: Line) -> str:
    known = [value for value in values if value is not None]
    found = stats.middle(known) if known else None
    if found is not None and found.low is None:
        return format_range(min(known), max(known))
    return with_interval(found.value, found.low, found.high) if found else digits(None)
