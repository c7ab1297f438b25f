"""The tables of a run: its differences, its absolute values, the legend, and the notes.

Steady loads have two tables. The first one has the differences between each arm (variant of the run) and its baseline, with
intervals and decisions. The second one has absolute values, below a sentence that warns against comparing its rows. Disrupted
loads have a table for each load point, with a column for each arm and a line for each outcome:

    kill  100 req/s, …; kill after 5 s (role proxy, how delete)

                          baseline                  proxy-replicas-2
    failed requests          2,981 [2,975, 2,990]            0
      against baseline                                  −2,981 [−2,990, −2,972]

Such a table shows only effects of the disruption: a number that is as in the control run has no line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import expm1

from rich.text import Text

from lab.analysis.aggregate.absolute import compute_absolute, format_absolute
from lab.analysis.explain.run import PAIRS_MISS, explain_inconclusive, format_interval, format_margin, format_p_value
from lab.analysis.judge.decision import ALPHA, Decision
from lab.analysis.judge.effects import Effect
from lab.analysis.judge.rows import (
    Summary,
    SummaryRow,
    choose_slowdown_percentile,
    compute_misleading_gaps,
)
from lab.model.metrics import COLUMNS, DIFFERENCES, METRICS, QUANTILES
from lab.report.grid import (
    Fold,
    Grid,
    Heading,
    Notes,
    Panels,
    Part,
    Sentences,
    TableCell,
    TableColumn,
    TableRow,
    make_columns,
    make_row,
    make_sentence,
    make_title,
)
from lab.report.loads import describe_load, describe_point
from lab.stats import paired as stats
from lab.stats.histogram import LEAST_BEYOND

STYLES = {Decision.BETTER: "bold green", Decision.WORSE: "bold red", Decision.EQUIVALENT: "", Decision.A_A: "cyan"}
"""The style of the effect column by decision; for any other decision it is dim."""
SHOWN = ("rate", "p50", "p90", "p99", "errors", "cpu_per_request")
"""The metrics of steady loads that the table of absolute values has; `--absolute` adds the others."""
MOST_NAMED = 3
"""The most variants that a sentence names; it counts the others."""
LONG_NAME = 40
"""The most characters of a variant's name with which a row counts as one line; with a longer name it counts as two."""
MOST_LINES, LEAST_LINES = 22, 10
"""The most lines of both tables together in default output, and those kept for absolute values; `--all` shows every row.

With heads, sentences and legend these make 40 lines.
"""
PASSED = "passed"
"""The decision about a noise check whose interval includes 0; `failed` where it does not."""
MOVED = 1.2
"""The ratio above which a number counts as changed by a disruption.

It is the ratio to the same number in the control run, or before the disruption.
"""


def make_tables(summary: Summary, elsewhere: str = "", absolute: bool = True, every: bool = True) -> list[Part]:
    """Return the tables of a run's summary, with their legend and notes.

    Args:
        summary: The summary of the run's steady loads, or of its disrupted ones.
        elsewhere: The command that shows all rows and notes. If it is given, a terminal prints it instead of many notes.
        absolute: Whether to show absolute values in all metrics, and of variants with an inconclusive difference, too. The table of
            absolute values then has any number of lines.
        every: True: every row is shown. False: both tables together have at most `MOST_LINES` lines (unless `absolute`), and of
            disruptions only the most important outcomes are shown, without control runs.

    """
    notes = Notes(after=tuple(Text(note, style="dim") for note in summary.notes), blank=True, elsewhere=elsewhere)
    if not summary.disturbed:
        differences = _make_differences(summary, None if every else MOST_LINES - LEAST_LINES)
        used = sum(_count_lines(part.rows) for part in differences if isinstance(part, Grid))
        most = None if every or absolute else max(LEAST_LINES, MOST_LINES - used)
        absolutes = _make_absolutes(summary, absolute or every, most)
        return [*differences, *absolutes, *_make_legend(summary), notes]
    parts: list[Part] = []
    for point in summary.points:
        rows = summary.at(point)
        if every or not point.control:
            table = _make_disturbed_table(summary, rows, every)
            parts += [make_title(point.name, describe_point(point), blank=True), table]
        valid, planned = sum(row.cell.valid_blocks for row in rows), sum(row.cell.planned_blocks for row in rows)
        if point.control and valid:
            count = f"{valid} {f'of {planned} ' if valid < planned else ''}control runs"
            explanation = "nothing failed, and no good answer was missing for 0.1 s or three times the p99: what stands above came of the disturbance"
            parts.append(make_sentence(f"{count}: {explanation}", "dim", blank=True))
    return [*parts, notes]


# -- steady loads ---------------------------------------------------------------------------------------------


def _make_differences(summary: Summary, most: int | None) -> list[Part]:
    """Return the table of differences between each arm (variant of the run) and its baseline.

    An arm has a row for the primary metric, and for every other metric that clearly differs. A variant has a single row with the
    reason if it is not steady at a load, or if it cannot be measured.

    Args:
        summary: The summary of the run's steady loads.
        most: The maximum number of lines of the table; None: any number.

    """
    heads = ("variant", "metric", "difference", "95 % interval", "per request", "p", "n", "decision")
    rows: list[tuple[int, TableRow]] = []  # with its rank: what decides is 0
    for row in summary.rows:
        under = [Heading(row.point.name, describe_load(row.point))]
        if row.unsteady is not None and row.arm.role == "variant":
            cells = TableCell(row.arm.name, "bold"), TableCell(row.unsteady.short(), "yellow")
            rows.append((0, make_row(*cells, under=under, free=True)))
            continue
        rows += [
            (_rank(row, effect), make_row(*_yield_difference(row, effect), under=under))
            for effect in row.effects
            if effect.primary or effect.marked
        ]
    for item in summary.not_measurable:
        cells = TableCell(item.variant, "bold"), TableCell(f"not measurable: {item.what}", "yellow")
        rows.append((0, make_row(*cells, under=[Heading("not measurable here")], free=True)))
    last = len(heads) - 1
    fold = Fold((0, last), tuple(range(1, last)), indent=2)
    return _make_short_grid(make_columns(heads, left=(0, 1, 3, 7)), rows, fold, most, blank=True)


def _rank(row: SummaryRow, effect: Effect) -> int:
    """Return the rank of an effect's row, from 0 (most important) to 3. A table that is too long loses rows of high rank first.

    Rank 0 is for better or worse effects in the primary metric, and for an A/A comparison (the baseline with itself) that did not
    pass. Rank 1 is for the other effects in the primary metric, rank 2 for a passed A/A comparison, and rank 3 for other metrics.
    """
    if not effect.primary:
        return 3
    if row.arm.role == "again":
        return 2 if _name_decision(effect) == PASSED else 0
    return 0 if effect.decision.resolved else 1


def _make_short_grid(
    columns: Sequence[TableColumn],
    ranked: Sequence[tuple[int, TableRow]],
    fold: Fold,
    most: int | None,
    blank: bool,
) -> list[Part]:
    """Return a table of limited length, and a sentence with the number of rows that were left out, if any.

    Rows of the highest rank are left out first, beginning with the last one of them. At least one row stays. The table's head and the
    sentence are not counted as lines; the heading of a group is counted as two. The result is empty if there are no rows.

    Args:
        columns: The columns.
        ranked: (rank, row) for each row, in the order of the table.
        fold: The layout with two lines per row, for a narrow terminal. If any row has a long name, each row counts as two lines, except
            free rows (those that do not use the table's columns).
        most: The maximum number of lines; None: every row is shown.
        blank: Whether an empty line precedes the table.

    """
    shown = list(ranked)
    while most is not None and len(shown) > 1 and _count_lines([row for _, row in shown]) > most:
        worst = max(rank for rank, _ in shown)
        shown.pop(max(place for place, (rank, _) in enumerate(shown) if rank == worst))
    if not shown:
        return []
    parts: list[Part] = [Grid(tuple(columns), tuple(row for _, row in shown), fold, gaps=(2, 1), blank=blank)]
    if left := len(ranked) - len(shown):
        parts.append(make_sentence(f"{left} more row{'s' if left > 1 else ''}: --all", "dim"))
    return parts


def _count_lines(rows: Sequence[TableRow]) -> int:
    """Return the number of lines that rows and the headings of their groups need, with two lines for each heading.

    A row needs one line. If any row has a long name (`LONG_NAME`), every row needs two. Free rows (those that do not use the
    table's columns) always need one line, and their names do not matter.
    """
    double = any(len(row.cells[0].text) > LONG_NAME and not row.free for row in rows)
    return 2 * len({row.under for row in rows}) + sum(2 if double and not row.free else 1 for row in rows)


def _yield_difference(row: SummaryRow, effect: Effect) -> Iterator[str | TableCell]:
    metric, estimate = METRICS[effect.metric], effect.estimate or effect.pair_estimate
    name = f"noise check ({effect.against})" if row.arm.role == "again" else row.arm.name
    yield TableCell(name, "bold" if row.arm.role == "variant" else "")
    yield metric.title
    if effect.decision is Decision.BIMODAL or estimate is None:
        yield from ("–", "", "")
    else:
        yield metric.change(estimate.effect)
        yield (metric.ends(*estimate.interval).strip() or "–") if estimate.interval else "–"
        yield metric.time(estimate.effect, effect.level_s).removeprefix(" = ")
    yield format_p_value(effect.holm_p) if effect.decision.judged else ""
    yield f"{estimate.n}" if estimate else "0"
    style = STYLES.get(effect.decision, "dim")
    yield TableCell(_name_decision(effect), style, notes=row.notes if effect.primary else ())


def _name_decision(effect: Effect) -> str:
    """Return the decision about an effect as the table of differences prints it, for example `better` or `passed`.

    In a metric that is not the primary one, the decision is in brackets, since it is no verdict on the variant: `(better)`.
    """
    if effect.decision is Decision.A_A:
        if effect.estimate is None or not effect.estimate.has_interval:
            return Decision.NO_INTERVAL.value
        return "failed" if effect.estimate.excludes_zero else PASSED
    if effect.estimate is None and effect.pair_estimate is not None:
        return "as a pair, which decides nothing here"
    decision = effect.decision.value
    return (
        f"{decision}, at least"
        if effect.bound and effect.decision.resolved
        else decision
        if effect.primary
        else f"({decision})"
    )


def _make_absolutes(summary: Summary, every: bool, most: int | None) -> list[Part]:
    """Return the table of absolute values, below a sentence that warns against comparing its rows.

    The result is empty if no row is to be shown.

    Args:
        summary: The summary of the run's steady loads.
        every: Whether to show variants with an inconclusive difference, and all metrics.
        most: The maximum number of lines of the table; None: any number.

    """
    hidden = {
        (row.arm.name, row.point.name)
        for row in summary.rows
        if not every and any(effect.decision is Decision.INCONCLUSIVE for effect in row.shown)
    }
    shown = [row for row in summary.rows if (row.arm.name, row.point.name) not in hidden and row.arm.role != "again"]
    if not shown:
        return []
    names = COLUMNS if every else SHOWN
    names = (*(["throughput"] if any(row.point.transfer for row in shown) else []), *names)
    numbers = [TableColumn(METRICS[name].heading or METRICS[name].short, METRICS[name].unit) for name in names]
    columns = (TableColumn("variant", stands="left"), *numbers, TableColumn("n"))
    rows = [
        (
            0 if row.arm.role == "baseline" else 2 if row.arm.role == "reference" else 1,
            make_row(*_yield_absolute(row, names), under=[_describe_group(row)]),
        )
        for row in shown
    ]
    counts = [row.cell.valid_blocks for row in shown if row.arm.role != "reference" and row.cell.valid_blocks]
    ends = "–".join(str(count) for count in dict.fromkeys((min(counts, default=0), max(counts, default=0))))
    sentence = f"Absolute values of each alone, {ends} times"
    sentence += ". Do not compare rows: the machine changes between them, and the differences above do without that."
    if gaps := [gap for row in summary.rows for gap in compute_misleading_gaps(row).values()]:
        worst = max(100 * abs(expm1(gap)) for gap in gaps)
        sentence += f" Comparing them would be wrong by up to {worst:.0f} % here."
    if hidden:
        arms = list(dict.fromkeys(arm for arm, _ in sorted(hidden)))
        named = ", ".join(arms) if len(arms) <= MOST_NAMED else f"{len(arms)} variants"
        sentence += f" Rows whose difference is inconclusive are left out ({named}): --absolute."
    fold = Fold((0,), tuple(range(1, len(columns))), indent=2)
    return [make_sentence(sentence, "dim", blank=True), *_make_short_grid(columns, rows, fold, most, blank=False)]


def _describe_group(row: SummaryRow) -> Heading:
    """Return the heading for the rows of one load: the load point's name, the load generator, and the load in words."""
    generator, stood_for = row.cell.generator or row.point.generator, row.cell.stand_in_for
    tool = f"{generator} (for {stood_for})" if stood_for else generator
    return Heading(row.point.name, f"{tool}, {describe_load(row.point)}")


def _yield_absolute(row: SummaryRow, names: Sequence[str]) -> Iterator[str | TableCell]:
    cell = row.cell
    yield TableCell(
        "no proxy" if row.arm.role == "reference" else row.arm.name, "bold" if row.arm.role == "variant" else ""
    )
    for name in names:
        if name == "errors":
            lost, invalid = sum(cell.errors.values()), sum(cell.errors_invalid.values())
            text = f"{lost:,}" + (f" (+{invalid:,})" if invalid else "")
            missing = "" if cell.valid_blocks or lost or invalid else "not steady" if row.unsteady else "no solo sample"
            yield TableCell(missing or text, "red" if lost else "")
        elif name == "cpu_per_request" and cell.cpu_of == "backend":
            yield ""
        else:
            text = format_absolute(METRICS[name], cell.absolute(name))
            few = "few" if cell.valid_blocks and name in QUANTILES and cell.absolute(name) is None else ""
            yield few or (text if cell.valid_blocks else "")
    stated = any(effect.primary for effect in row.effects)  # then the differences have the row's notes
    yield replace(_format_blocks(row), notes=() if stated else row.notes)


def _describe_schemes(summary: Summary) -> str:
    """Return in words how the judged differences were measured: both sides at once (as pairs), or one after the other.

    If both ways were used, the text names the load points that were measured one after the other.
    """
    schemes: dict[str, set[bool]] = {}
    for row in summary.rows:
        for effect in row.shown:
            if effect.decision.judged:
                schemes.setdefault(row.point.name, set()).add(effect.scheme is not None)
    solo = [name for name, kinds in schemes.items() if kinds == {False}]
    if len(solo) == len(schemes):
        return "one after the other"
    mixed = any(len(kinds) > 1 for kinds in schemes.values())
    apart = (
        f"; at {', '.join(solo)} one after the other" if solo else "; some one after the other (notes)" if mixed else ""
    )
    return f"both at once, as pairs{apart}"


def _make_legend(summary: Summary) -> list[Part]:
    """Return the legend of the tables of differences and absolute values, in at most five lines."""
    judged = [effect for row in summary.rows for effect in row.shown if effect.decision.judged]
    lines: list[str] = []
    if judged:
        how = _describe_schemes(summary)
        lines.append(
            f"difference    against the baseline, {how}; n: blocks or pairs; p adjusted for {len(judged)}"
            f" comparison{'s' if len(judged) > 1 else ''}"
        )
        lines.append(
            f"equivalent    the interval lies within ±{format_margin(judged[0])} (--margin); better, worse: p ≤ {ALPHA} and beyond the noise check"
        )
        pairs = any(explain_inconclusive(effect) == PAIRS_MISS for effect in judged)
        lines.append(
            f"inconclusive  anything else{', also within the margin where pairs may miss part of a cost' if pairs else ''}"
        )
    if any(row.arm.role == "again" for row in summary.rows):
        others = any(effect.marked and not effect.primary for row in summary.rows for effect in row.effects)
        lines.append(
            f"noise check   the baseline against itself{'; (better), (worse): a secondary metric, in which nothing is claimed' * others}"
        )
    values = [
        value for row in summary.rows for name in SHOWN if METRICS[name].ratio and (value := row.cell.absolute(name))
    ]
    kinds = {
        f"a–b: smallest and largest of fewer than {stats.MIN_BLOCKS} blocks": any(
            v.value is None and not v.clusters for v in values
        ),
        "a|b: two clusters": any(v.clusters for v in values),
        f"few: under {LEAST_BEYOND} requests lie beyond it": any(
            row.cell.valid_blocks and row.cell.shown(name) is None
            for row in summary.rows
            for name in QUANTILES
            if name in SHOWN
        ),
    }
    if marks := [text for text, applies in kinds.items() if applies]:
        lines.append(f"values        {'; '.join(marks)}")
    text = tuple(Text(line, style="dim") for line in lines)
    return [Sentences(text, tuple(f"- {line.replace('  ', ' ')}" for line in lines), blank=True)] if lines else []


def _format_blocks(row: SummaryRow) -> TableCell:
    """Return a cell with the number of valid blocks (repetitions) and of planned ones, and with the row's notes: `5/6¹`."""
    valid, planned = row.cell.valid_blocks, row.cell.planned_blocks
    return TableCell(f"{valid}/{planned}", "yellow" if valid < planned else "", notes=row.notes)


# -- disrupted loads ------------------------------------------------------------------------------------------


def _make_disturbed_table(summary: Summary, rows: Sequence[SummaryRow], every: bool) -> Grid:
    """Return the table of one disrupted load point, with a line per metric and a column per arm (variant of the run).

    On a terminal that is too narrow for all arms, the others follow below, next to the first arm again.

    Args:
        summary: The summary of the run's disrupted loads.
        rows: The rows of the load point, one for each arm.
        every: Whether to show all metrics that the disruption changed, instead of the most important ones.

    """
    lines = [_make_line("blocks", "", map(_format_blocks, rows))]
    slowed = choose_slowdown_percentile(rows)
    for name in _select_metrics(summary, rows, every):
        metric = METRICS[name]
        text, style = ("  " + metric.title, "dim") if metric.detail else (metric.title, "")
        lines.append(_make_line(text, metric.unit, (_format_level(row, name) for row in rows), style))
        effects = [next((effect for effect in row.shown if effect.metric == name), None) for row in rows]
        if any(effects):
            against = ", ".join(dict.fromkeys(effect.against for effect in effects if effect))
            lines.append(_make_line(f"  against {against}", metric.unit, map(_format_effect, effects), "dim"))
        if every and slowed and name == f"{slowed}_during_s":
            cells = (_format_slowdown(row.cell.slowdowns.get(slowed)) for row in rows)
            lines.append(_make_line(f"  {slowed} during against before", "×", cells, "dim"))
    wide: list[TableRow] = []
    for line in lines:  # with the unit after its title
        head, unit, *cells = line.cells
        label = (f"{head.text}, {unit.text}" if unit.text else head.text).replace("  ", "&emsp;", 1)
        wide.append(replace(line, cells=(TableCell(label), *cells)))
    name = TableColumn("", stands="left")
    arms = [TableColumn(row.arm.name, "", "split", "", "bold" if row.arm.role == "variant" else "", 3) for row in rows]
    return Grid((name, name, *arms), tuple(lines), Panels(2), blank=True, wide=Grid((name, *arms), tuple(wide)))


def _make_line(text: str, unit: str, cells: Iterable[TableCell], style: str = "") -> TableRow:
    return make_row(TableCell(text, style), TableCell(unit, "dim"), *cells)


def _format_slowdown(estimate: stats.Estimate | None) -> TableCell:
    if estimate is None:
        return TableCell("–")
    # three significant digits, two decimals at most
    ratio, *ends = (
        f"{value:,.{0 if value >= 99.95 else 1 if value >= 9.995 else 2}f}"
        for value in (estimate.ratio, *(estimate.ratio_interval or ()))
    )
    return TableCell(ratio, tail=f" [{', '.join(ends)}]" if ends else "")


def _select_metrics(summary: Summary, rows: Sequence[SummaryRow], every: bool) -> list[str]:
    """Return the metrics that get a line in the table of a disrupted load point.

    With `every`, these are the primary metrics, those that are always shown, and those that the disruption changed. Without `every`, they
    are the primary metrics, those marked `in_default` in the catalogue, and those in which an arm differs significantly from its baseline,
    except details. A control run (the load without the disruption) has a fixed selection.

    Args:
        summary: The summary of the run's disrupted loads.
        rows: The rows of the load point, one for each arm (variant of the run).
        every: Whether to show all metrics that the disruption changed, instead of the most important ones.

    """
    present = [metric for metric in DIFFERENCES if any(metric in row.cell.values for row in rows)]
    if rows and rows[0].point.control:
        of_control = ("requests", "failed", "gap_s", "p50_during_s", "p99_during_s", "max_during_s")
        return [metric for metric in present if metric in of_control]
    primary = {effect.metric for row in rows for effect in row.shown}
    if not every:
        marked = {effect.metric for row in rows for effect in row.effects if effect.marked}
        kept = primary | {metric for metric in marked if not METRICS[metric].detail}
        return [metric for metric in present if metric in kept or METRICS[metric].in_default]
    return [metric for metric in present if metric in primary or _deserves_line(summary, rows, metric)]


def _deserves_line(summary: Summary, rows: Sequence[SummaryRow], metric: str) -> bool:
    if metric in ("clock_error_s", "max_before_s"):  # a note has the first
        return False
    if metric == "reloads" and not any("changes" in row.cell.values for row in rows):
        return any(row.cell.largest(metric) for row in rows)
    if metric.endswith("_after_s"):
        # the disruption also causes the longest latency after it has acted
        before = "max_during_s" if metric == "max_after_s" else metric.replace("_after_s", "_before_s")
        return any(_has_moved(row.cell.largest(metric), row.cell.largest(before)) for row in rows)
    if METRICS[metric].idle:
        controls = {row.arm.name: summary.control_of(row) for row in rows}
        values = {arm: control.cell.largest(metric) for arm, control in controls.items() if control}
        return any(_has_moved(row.cell.largest(metric), values.get(row.arm.name)) for row in rows)
    return METRICS[metric].always or any(row.cell.largest(metric) for row in rows)


def _has_moved(value: float | None, control: float | None) -> bool:
    return value is not None and (control is None or value > MOVED * control)


def _format_level(row: SummaryRow, metric: str) -> TableCell:
    """Return the cell of a metric of one arm (variant of the run), such as `2.0↑ [1.9, 2.1] (2 –)`, without the unit.

    An arrow marks a number that clearly differs from the baseline. `(2 –)` means that two blocks (repetitions) have no value. The
    interval is left out if both ends are printed like the value. With too few blocks for an interval, the cell has the range of
    their values. If no block has a value, the cell is `–`. It is empty for a metric that was not measured.
    """
    values, level = row.cell.values.get(metric), row.cell.level(metric)
    if values is None or level is None:
        return TableCell("" if values is None else "–")
    estimates = [effect.estimate for effect in row.effects if effect.metric == metric and effect.marked]
    mark = "".join("↑" if estimate is not None and estimate.effect > 0 else "↓" for estimate in estimates)
    present = [value for value in values.values() if value is not None]
    lacking = len(values) - len(present)
    lacking_text = f" ({lacking} –)" if lacking else ""
    if level.n < stats.MIN_BLOCKS:
        return TableCell(format_absolute(METRICS[metric], compute_absolute(present, metric)), tail=mark + lacking_text)
    text, *ends = map(METRICS[metric].text, (level.value, level.low, level.high))
    spread = "" if set(ends) == {text} else f" [{', '.join(ends)}]"
    return TableCell(text, tail=mark + spread + lacking_text)


def _format_effect(effect: Effect | None) -> TableCell:
    if effect is None:
        return TableCell("")
    if effect.estimate is None or effect.decision is Decision.NOT_JUDGED:
        return TableCell("–", "dim")
    number, ends = METRICS[effect.metric].text(effect.estimate.effect, signed=True), format_interval(effect)
    if effect.decision is Decision.A_A and effect.estimate.has_interval:
        return TableCell(f"a/a {number}", "cyan", ends)
    if effect.decision is Decision.EQUIVALENT:
        return TableCell(f"equivalent: {number}", "", ends)
    if effect.claimed:
        return TableCell(number, "bold green" if effect.better else "bold red", ends)
    if effect.decision is Decision.INCONCLUSIVE:
        return TableCell("~", "dim", ends)
    return TableCell(number, "dim", " no interval")
