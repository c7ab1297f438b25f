"""The exhibits (figures and tables) with a study's published numbers next to those of a run.

`gains` and `ratios` show only values relative to their own baseline, since absolute values of different machines cannot be
compared. Where a run lacks a value, the exhibit has the reason. Claims are judged elsewhere (`lab.studies.claims`).
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
from lab.base.errors import UsageError, refuse_unknown
from lab.model.metrics import find_metric
from lab.model.pages import PAGES
from lab.model.sweeps import LoadPoint
from lab.records import published
from lab.records.sweep_files import load_sweep
from lab.report import figures, grid
from lab.report.figures.intervals import Bound, MeasuredNumber, RatioRow
from lab.report.figures.style import INK, add_frame, add_note, make_empty_figure
from lab.report.markdown import render_markdown
from lab.report.tables.gauges import HEADINGS
from lab.stats import paired as stats
from lab.stats.units import format_digits, format_range, format_with_interval
from lab.studies import results
from lab.studies.claims import read_claims
from lab.studies.exhibits.frames import (
    add_runs,
    arms_of,
    draws_published,
    explain_absence,
    fold_text,
    gap_lines,
    list_lacking,
    list_points,
    make_row,
    note_lacking,
    writes_run,
)
from lab.studies.study_files import load_study

UNIT_SIZES = {"s": 1.0, "ms": 1e-3, "µs": 1e-6, "kB": 1e3, "MB": 1e6, "MB/s": 1e6}
"""The size of each published unit in seconds, bytes or bytes per second; figures then choose the printed unit."""
BOOM_COLUMNS = {"mean_s": "average_s", "rate": "requests_per_s"}
"""The lab's metric → the column of the summaries that NDS' tool printed."""
COLUMNS = (*pidstat.CPU_COLUMNS, *pidstat.MEMORY_COLUMNS)
"""The columns of pidstat's two tables."""
PidstatLine = Sequence[float | None]
"""The values of COLUMNS; None: not known."""


# -- what claims published ------------------------------------------------------------------------------------


def read_published_number(name: str) -> tuple[float, str, str]:
    """Return the number that a claim published, its unit, and a text with both.

    Args:
        name: The claim's id.

    Returns:
        (number, unit, text), for example `(1000.0, 'ms', 'DO-21: 1000 ms')`.

    Raises:
        UsageError: The claim does not exist, or did not publish a single number.

    """
    by_id = {claim.id: claim for claim in read_claims()}
    refuse_unknown(name, by_id, "claims.csv", f"there is no claim '{name}'")
    claim = by_id[name]
    if claim.number is None:
        raise UsageError("claims.csv", f"{name} published no single number", "name another claim")
    return claim.number, claim.unit, f"{name}: {claim.published} {claim.unit}"


def read_claimed_level(name: str) -> tuple[str, float]:
    """Return a claim's published value as text, and as a number in the unit that the lab uses (such as seconds).

    Args:
        name: The claim's id.

    Returns:
        (text, number), for example `('DO-21: 1000 ms', 1.0)`. Times are in seconds, sizes in bytes, and rates of data in bytes per second.
        Any other number keeps the published unit.

    Raises:
        UsageError: The claim does not exist, or did not publish a single number.

    """
    value, unit, text = read_published_number(name)
    return text, value * UNIT_SIZES.get(unit.partition(" ")[0], 1.0)


def _read_change(name: str) -> tuple[float, str]:
    """Return the change that a claim published as (change in per cent, text).

    The published number must be a percentage or a factor. A factor is converted: `x1.5` is +50 %.

    Args:
        name: The claim's id.

    Raises:
        UsageError: The claim does not exist, or did not publish a single number.

    """
    value, unit, text = read_published_number(name)
    return (_compute_percent(value), text) if unit.startswith("x") else (value, text)


def _compute_percent(ratio: float) -> float:
    return 100 * (ratio - 1)


# -- gains and ratios -----------------------------------------------------------------------------------------


@draws_published
def gains(
    run: Evidence | None,
    title: str,
    metric: str,
    point: str,
    pairs: Sequence[tuple[str, str]],
    claimed: Sequence[str] = (),
) -> go.Figure:
    """Draw by how many per cent variants change a metric. Dashed lines are the changes that published claims state.

    Text below the figure lists the comparisons that the run lacks, and the blocks (repetitions) that are not usable, with
    reasons.

    Args:
        run: The run; None: only the claims are drawn.
        title: The figure's title.
        metric: The metric's name.
        point: The pattern of the load points' names, with `*` as a wildcard.
        pairs: (variant, the variant that it is compared with) for each row.
        claimed: The ids of the claims whose published changes are drawn.

    """
    name, unit = f"{find_metric(metric).title}, change", "%"
    changes = [(claim, *_read_change(claim)) for claim in claimed]
    if run is None:
        claim_rows = [MeasuredNumber(text, claim, value) for claim, value, text in changes]
        if not claim_rows:
            return make_empty_figure(title, "nothing of this was claimed or recorded:")
        return add_frame(
            figures.intervals(claim_rows, title, name, unit), title, 170 + 34 * len(claim_rows), "as claimed"
        )
    by_pair = {pair: list_gains(run, *pair, metric, point) for pair in pairs}
    rows = [row for pair_rows in by_pair.values() for row in pair_rows]
    reasons: list[str] = []
    missing: list[str] = []
    for variant, against in (pair for pair in pairs if not by_pair[pair]):
        reasons.append(
            next((f"{side} is {reason}" for side in (variant, against) if (reason := explain_absence(run, side))), "")
        )
        missing.append(f"{variant} against {against}: {reasons[-1] or 'no block in which both count'}")
    if not rows:
        return make_empty_figure(title, "<br>".join(missing))
    figure = figures.intervals(rows, title, name, unit).add_vline(x=0, line={"color": INK, "width": 1})
    for _, value, text in changes:
        line, note = {"color": INK, "dash": "dash", "width": 1.5}, {"text": text, "font": {"size": 11}}
        figure.add_vline(x=value, line=line, annotation=note, annotation_position="top")
    arms = [arm for pair in pairs if by_pair[pair] for side in pair for arm in run.arms(side)[:1]]
    lost = (
        f"{arm} at {point_name}: {reason}"
        for arm in arms
        for point_name in list_points(run, point)
        if (reason := run.lost(arm, point_name))
    )
    lines = [*missing, *dict.fromkeys(lost)]
    caption = (
        "diamond: paired effect with its 95 % interval; rings: single blocks, where no pair leads; dashed: as claimed"
    )
    add_frame(figure, title, 170 + 34 * len(rows) + 18 * len(lines), caption)
    gaps = [reason or line for reason, line in zip(reasons, missing, strict=True)]
    figure.update_layout(margin_b=70 + 18 * len(lines), meta={"gaps": gaps})
    return figure.update_xaxes(title_text="<br>".join([f"{name} ({unit})", *lines]))


def list_gains(run: Evidence, variant: str, against: str, metric: str, point: str) -> list[MeasuredNumber]:
    """Return the change of a metric from one variant to another, in per cent, at each matching load point.

    If the two were measured as a pair (at once) and the run's decision rests on this pair, the change is the pair's effect. Otherwise it is
    computed from the blocks (repetitions) in which both have a solo sample (the machine alone).

    Args:
        run: The run.
        variant: The variant.
        against: The variant that it is compared with.
        metric: The metric's name.
        point: The pattern of the load points' names, with `*` as a wildcard.

    """
    arm, base = (next(iter(run.arms(name)), None) for name in (variant, against))
    if arm is None or base is None:
        return []
    points, rows = list_points(run, point), list[MeasuredNumber]()
    for name in points:
        pair = run.as_pair(arm, base, name, metric)
        estimate, blocks = pair.estimate if pair else None, list[float]()
        if not pair:  # solo samples: the change in percent within each block that has both
            values, base_values = run.values(arm, name, metric), run.values(base, name, metric)
            sides = [(values[block] or 0.0, base_values.get(block) or 0.0) for block in values]
            if positive := [side for side in sides if min(side) > 0]:
                estimate = stats.estimate_ratio([first for first, _ in positive], [second for _, second in positive])
                blocks = [_compute_percent(first / second) for first, second in positive]
        if estimate is None:
            continue
        limits = {sample.limited_by for side in (arm, base) for sample in run.blocks(side, name).values()}
        note = "in some block the generator was the limit" if metric == "rate" and "generator" in limits else ""
        suffix = f" · {name}" if len(points) > 1 else ""
        label = f"{variant} against {against}{suffix}{' (generator-limited)' if note else ''}"
        low, high = (None, None) if estimate.ratio_interval is None else map(_compute_percent, estimate.ratio_interval)
        rows.append(MeasuredNumber(label, variant, _compute_percent(estimate.ratio), low, high, blocks, note))
    return rows


@draws_published
def ratios(run: Evidence | None, title: str, study: str, table: str) -> go.Figure:
    """Draw every cell of a study's table as a ratio to the table's reference cell, as published and as measured here.

    A cell without any ratio is left out, such as the reference cell itself.

    Args:
        run: The run; None: only the published ratios are drawn.
        title: The figure's title.
        study: The study's key.
        table: The table's title.

    Raises:
        UsageError: The study has no such table with a reference.

    """
    by_title = {entry.shape.title: entry for entry in _shape_tables(study, run) if entry.shape.reference}
    refuse_unknown(table, by_title, f"study {study}", f"no table '{table}' with references")
    rows: list[RatioRow] = []
    for key, cell in by_title[table].cells.items():
        if not (cell.relative or cell.published_relative):
            continue
        lacks = explain_absence(run, cell.variant) if run and cell.variant else ""
        label, reason = " · ".join(key), f"{cell.variant} is {lacks}" if lacks else "; ".join(cell.notes)
        if run and not cell.variant:
            reason += f": just study {study}"
        measured = None if cell.relative is None else MeasuredNumber(label, "here", *cell.relative, note=reason)
        rows.append(RatioRow(label, cell.published_relative, measured, reason or "its reference was not measured"))
    figure = figures.compare_published(rows, title, "relative to the reference", "×")
    if run is None:
        return figure
    empty = [row for row in rows if row.measured is None]
    labels_by_reason: dict[str, list[str]] = {}  # of cells without a value or without an interval
    for row in (*empty, *(row for row in rows if row.measured is not None and row.measured.low is None)):
        labels_by_reason.setdefault(row.why, []).append(row.label)
    text = fold_text("; ".join(f"{', '.join(labels)}: {reason}" for reason, labels in labels_by_reason.items()))
    return add_note(figure, text, [row.why for row in empty])


def _shape_tables(study: str, run: Evidence | None) -> Sequence[results.ShapedTable]:
    """Return the tables of a study, filled in with a run's values; without a run they have only the published numbers."""
    return results.shape_tables(load_study(study), run.summary() if run else Summary(None, 0, 0, (), (), {}))


# -- curves over a size ---------------------------------------------------------------------------------------


def printed(
    title: str, table: str, metric: str, column: str, over: str, line: str, where: Mapping[str, Sequence[str]]
) -> go.Figure:
    """Draw published numbers without any run: one column of a published table over another one.

    Args:
        title: The figure's title.
        table: The table's name in data/published.
        metric: The lab's metric that the column corresponds to; it gives the title and unit of the vertical axis.
        column: The column of the values. Its name ends in the unit, for example `latency_ms`.
        over: The column of the horizontal axis.
        line: The column that distinguishes the lines: one line per value.
        where: Column → values. Only rows with one of these values are drawn.

    """
    scale = next((size for unit, size in UNIT_SIZES.items() if column.endswith(f"_{unit}")), 1.0)
    lines: dict[str, list[tuple[float, MeasuredNumber]]] = {}
    for row in (
        row for row in published.read_texts(table) if all(row[name] in values for name, values in where.items())
    ):
        value = MeasuredNumber(f"{row[line]}, {row[over]} {over}", row[line], float(row[column]) * scale)
        lines.setdefault(row[line], []).append((float(row[over]), value))
    metric_title, unit = find_metric(metric).title, find_metric(metric).own_unit
    return add_runs([], figures.scaling({}, title, over, metric_title, unit, published=lines))


@draws_published
def concurrency(
    run: Evidence | None,
    title: str,
    metrics: Sequence[str],
    variants: Sequence[str],
    claimed: Mapping[str, str] = MappingProxyType({}),
    log_y: bool = False,
) -> go.Figure:
    """Draw metrics of a run over the number of concurrent requests, next to the values that the NDS study's tool printed.

    With several metrics there is a line per metric. With a single one there is a line per variant.

    Args:
        run: The run; None: only the published numbers are drawn.
        title: The figure's title.
        metrics: The names of the metrics.
        variants: The variants to show; empty: all.
        claimed: Id of a claim → the metric for which the claim states a bound.
        log_y: Whether the vertical axis is logarithmic.

    """
    several, first = len(metrics) > 1, find_metric(metrics[0])
    printed_lines = {find_metric(metric).title if several else "boom": _read_boom(metric) for metric in metrics}
    sizes = [float(point.connections) for point in load_sweep(load_study("nds").sweep)[1].load_points]
    ends = min(sizes), max(sizes)
    bounds = [Bound(*read_claimed_level(claim), ends, find_metric(metric).title) for claim, metric in claimed.items()]
    lines = _list_by_size(run, metrics, variants, lambda point: point.connections)
    name = "response time" if several else first.title
    figure = figures.scaling(
        lines, title, "requests at once", name, first.own_unit, log_y, False, printed_lines, bounds
    )
    return note_lacking(run, figure, variants, "*") if run else figure


def _read_boom(metric: str) -> list[tuple[float, MeasuredNumber]]:
    """Return the values of a metric that the NDS study's tool printed: (number of concurrent requests, value) for each load.

    The result is empty if the tool did not print the metric.

    Args:
        metric: The lab's name of the metric: `mean_s`, `rate`, `p50`, `p75_s` …

    """
    summaries = published.read_rows("nds_boom_summary")
    sizes = {line["version"]: line["concurrency"] for line in summaries}
    values = [(line["concurrency"], line[BOOM_COLUMNS[metric]]) for line in summaries if metric in BOOM_COLUMNS]
    values += [
        (sizes[line["version"]], line["response_time_s"])
        for line in published.read_rows("nds_boom_percentiles")
        if metric.removesuffix("_s") == f"p{line['percentile']:g}"
    ]
    return [
        (float(size or 0), MeasuredNumber(f"{metric} of {size} at once", "published", float(value or 0)))
        for size, value in values
    ]


@draws_published
def pages(
    run: Evidence | None, title: str, metric: str, variants: Sequence[str], claimed: str = "", log_y: bool = False
) -> go.Figure:
    """Draw a metric of a run over the size of the requested page, with a line per variant.

    Args:
        run: The run; None: only the claim is drawn.
        title: The figure's title.
        metric: The metric's name.
        variants: The variants to show; empty: all.
        claimed: The id of a claim, which states at which page size the network link is full; empty: none. It is drawn at this size and at
            the value 1 (a full link).
        log_y: Whether the vertical axis is logarithmic.

    """
    published_lines: dict[str, list[tuple[float, MeasuredNumber]]] = {}
    if claimed:
        value, unit, text = read_published_number(claimed)
        page = f"{value:g}{unit}.bin"
        refuse_unknown(page, PAGES, "claims.csv", f"{claimed}: no page is called {page}")
        published_lines = {claimed: [(float(PAGES[page]), MeasuredNumber(text, "published", 1.0))]}
    ticks = {
        float(PAGES[point.page]): point.page.partition(".")[0] for point in load_sweep("page-sizes")[1].load_points
    }
    lines = _list_by_size(run, [metric], variants, lambda point: PAGES[point.page])
    metric_title, unit = find_metric(metric).title, find_metric(metric).own_unit
    figure = figures.scaling(lines, title, "page", metric_title, unit, log_y, published=published_lines, ticks=ticks)
    return note_lacking(run, figure, variants, "*") if run else figure


def _list_by_size(
    run: Evidence | None, metrics: Sequence[str], variants: Sequence[str], size: Callable[[LoadPoint], float]
) -> dict[str, list[tuple[float, MeasuredNumber]]]:
    """Return the lines of a figure: a line's name → (size of a load, value) for each load of the run.

    With several metrics there is a line per metric, named by its title. With a single one there is a line per arm (variant of the run).

    Args:
        run: The run; None: no lines.
        metrics: The names of the metrics.
        variants: The variants to show; empty: all.
        size: A function that returns the size of a load, for example its number of connections.

    """
    lines: dict[str, list[tuple[float, MeasuredNumber]]] = {}
    if run is None:
        return lines
    points = [point for point in run.points if not point.control]
    for metric, arm, point in product(metrics, arms_of(run, variants), points):
        if (value := make_row(run, arm, point.name, metric, f"{metric} of {arm} at {point.name}")) is not None:
            lines.setdefault(find_metric(metric).title if metrics[1:] else arm, []).append((float(size(point)), value))
    return lines


# -- tables ---------------------------------------------------------------------------------------------------


@writes_run
def shape(run: Evidence | None, study: str, *titles: str) -> str:
    """Return Markdown with the tables of a study, where each cell has the published value and the run's own.

    Args:
        run: The run; None: only the published values.
        study: The study's key.
        titles: The titles of the tables; without any: all.

    """
    tables = [table for table in _shape_tables(study, run) if not titles or table.shape.title in titles]
    text = render_markdown(results.page(tables))
    return f"{text}\n{run.said}" if run else text.rstrip("\n")


@writes_run
def placement(run: Evidence | None, variants: Sequence[str]) -> str:
    """Return a Markdown table of the CPUs for interrupts, packet steering and workers, as AWS published them and as used here.

    In the rows of the run, the CPUs of interrupts and packet steering were read back from the running system. Those of the workers are the
    CPUs to which the run pins the proxy.

    Args:
        run: The run; None: only the published rows.
        variants: The run's variants, one row each.

    """
    rows: list[Sequence[str]] = [
        (f"{row['instance_type']}, published", *(str(row[f"{name}_cores"]) for name in ("irq", "rps", "nginx_worker")))
        for row in published.read_rows("aws_a1_irq_mapping")
    ]
    rows += [_list_placement(run, variant) for variant in variants] if run else []
    heads = ("machine", "interrupts on CPUs", "packet steering to CPUs", "workers on CPUs")
    caption = ["", run.said] if run else []
    return "\n".join([render_markdown([grid.make_text_table(heads, rows)]).rstrip("\n"), *caption])


def _list_placement(run: Evidence, variant: str) -> Sequence[str]:
    """Return a variant's row in the table of `placement`: label, then the CPUs of interrupts, packet steering and workers.

    The CPUs are those of the variant's first usable sample. Without such a sample the row has the reason instead.

    Raises:
        UsageError: The sample's readings are missing or damaged.

    """
    record, arm = run.run.record, next(iter(run.arms(variant)), None)
    label = f"{record.target}, {variant}"
    if arm is None:
        missing = next((item for item in record.not_measurable if item.variant == variant), None)
        reason = f"not measurable here: {missing.what}: {missing.why}" if missing else "not part of this run"
        return label, reason, "–", "–"
    slot = min((slot for slot in run.counted if slot[1] == arm), default=None)
    if slot is None:
        return label, "no block of it counts", "–", "–"
    cpus = record.facts.get("cpus_proxy") or record.facts.get("pinning", "not recorded")
    readings = run.run.readings(run.counted[slot])
    observed = {str(reading.get("name") or reading.get("kind")): str(reading.get("observed")) for reading in readings}
    steered = observed.get("rps", "where they arrive")
    steering = f"the proxy's own: {cpus}" if steered == "own" else steered
    return label, observed.get("irq-affinity", "left as they are"), steering, f"as pinned: {cpus}"


def transcribed(table: str, columns: Sequence[str]) -> str:
    """Return a Markdown table with some columns of a table of data/published, unchanged.

    Args:
        table: The table's name.
        columns: The names of the columns.

    """
    rows = (grid.make_row(*(line[column] for column in columns)) for line in published.read_texts(table))
    return render_markdown([grid.Grid(grid.make_columns(columns), tuple(rows))]).rstrip("\n")


@writes_run
def usage(run: Evidence | None, variants: Sequence[str], point: str) -> str:
    """Return a Markdown table of pidstat's averages: for the two nginx workers of the NDS study, and for a run's proxy processes.

    The run's values are medians of the blocks (repetitions) with their 95 % intervals. Page faults that are illegible on the study's page
    are left out of their average.

    Args:
        run: The run; None: only the published rows.
        variants: The run's variants to show.
        point: The name of the load point.

    """
    units = {"vsz_kib": " (KiB)", "rss_kib": " (KiB)"}
    averages = published.read_frame("nds_pidstat").group_by("process", maintain_order=True).agg(pl.col(COLUMNS).mean())
    rows = [grid.make_row(f"{name}, published", *map(format_digits, line)) for name, *line in averages.iter_rows()]
    measured = {variant: average_process_lines(run, variant, point) for variant in variants} if run else {}
    rows += [
        grid.make_row(f"{variant} at {point}: {name}", *map(_format_median, zip(*blocks, strict=True)))
        for variant, processes in measured.items()
        for name, blocks in processes.items()
    ]
    heads = grid.make_columns(["process", *(HEADINGS[name] + units.get(name, "") for name in COLUMNS)], left=[0])
    table = render_markdown([grid.Grid(heads, tuple(rows))]).rstrip("\n")
    if run is None:
        return f"{table}\n\n{results.NOTE_OTHER_MACHINES}"
    missing, short = list_lacking(run, variants, point)
    caption = "; ".join([run.said, "medians of the blocks [95 %]", results.NOTE_OTHER_MACHINES, *short])
    return "\n".join([table, *gap_lines(missing), "", caption])


def average_process_lines(run: Evidence, variant: str, point: str) -> dict[str, list[PidstatLine]]:
    """Return the averages of pidstat's columns for each process of the proxy: process → a line for each block.

    A block is one repetition. Process ids differ between blocks, so a process is named by its title and its rank by CPU time in the block,
    for example `nginx: worker process 1`. Rank 1 is the busiest process.

    Args:
        run: The run.
        variant: The variant.
        point: The name of the load point.

    Raises:
        UsageError: A table is damaged.

    """
    memory_bytes = run.run.record.facts.get("memory_bytes", "")
    total_bytes = int(memory_bytes) if memory_bytes.isdecimal() else None
    lines: dict[str, list[PidstatLine]] = {}
    for arm in run.arms(variant)[:1]:
        for sample in run.blocks(arm, point).values():
            used = run.run.usage(sample).filter((pl.col("role") == "proxy") & pl.col("tid").is_null())
            averages = pidstat.summary(used, total_bytes).sort("cpu_percent", descending=True, maintain_order=True)
            for number, (title, *line) in enumerate(averages.select("title", *COLUMNS).iter_rows(), 1):
                lines.setdefault(f"{title} {number}", []).append(line)
    return lines


def _format_median(values: PidstatLine) -> str:
    """Return the median of the blocks' values (one per repetition) with its 95 % interval as text; `–` without any value.

    With too few blocks for an interval, the text is the range of the values.

    Args:
        values: The value of each block; None: not known.

    """
    numbers = [value for value in values if value is not None]
    middle = stats.estimate_median(numbers) if numbers else None
    if middle is not None and middle.low is None:
        return format_range(min(numbers), max(numbers))
    return format_with_interval(middle.value, middle.low, middle.high) if middle else format_digits(None)
