"""The page of a run's summary: a sentence per variant, its tables, and their notes.

Steady loads have one table, with a row per arm below its point. Under it stand the absolute values whose ratio differs from the pair's
effect. Disrupted loads have a table for each point, with the arms next to each other and the outcomes of each below each other:

    kill  100 req/s, …; kill after 5 s (role proxy, how delete)

                          baseline                  proxy-replicas-2
    failed requests          2,981 [2,975, 2,990]            0
      against baseline                                  −2,981 [−2,990, −2,972]

Such a table shows only what a disruption caused: a number that stayed as in the control run has no line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import expm1

from rich.text import Text

from lab.analysis.aggregate.absolute import compute_absolute, format_absolute
from lab.analysis.explain.run import describe_noise, format_effect, format_interval, make_verdicts
from lab.analysis.judge.decision import Decision
from lab.analysis.judge.effects import Effect
from lab.analysis.judge.rows import (
    CONTRADICTION_SHARE,
    SoloRatio,
    Summary,
    SummaryRow,
    choose_slowdown_percentile,
    list_misleading_ratios,
)
from lab.model.metrics import COLUMNS, DIFFERENCES, METRICS
from lab.model.sweeps import LoadPoint
from lab.report import grid
from lab.report.grid import (
    Fold,
    Grid,
    Heading,
    Notes,
    Panels,
    Part,
    TableCell,
    TableColumn,
    make_advice,
    make_sentence,
    make_title,
)
from lab.report.loads import describe_load, describe_point
from lab.stats import paired as stats
from lab.stats.units import format_rate

STYLES = {Decision.BETTER: "bold green", Decision.WORSE: "bold red", Decision.EQUIVALENT: "", Decision.A_A: "cyan"}
"""The style of the effect column by decision; for any other decision it is dim."""
SHOWN_BELOW = "below"
"""The text in a table in place of an absolute value that stands below the table."""
MOVED = 1.2
"""The least ratio to the control run at which a number that every system has is shown."""


def page(summary: Summary, elsewhere: str = "") -> list[Part]:
    """Return a sentence per variant with what to apply (for a baseline without variants, its noise), then the tables.

    Args:
        summary: The summary of the run.
        elsewhere: The command that shows the notes, printed where they are many.

    """
    return [*yield_verdicts(summary), *make_tables(summary, elsewhere)]


def yield_verdicts(summary: Summary) -> Iterator[Part]:
    """Yield the verdicts of a run in the order of its variants; without any, its noise."""
    run_verdicts = make_verdicts(summary)
    for verdict in run_verdicts:
        yield make_advice(verdict.text, verdict.snippet, bold=verdict.kind == "apply")
    if not run_verdicts:
        yield make_sentence(describe_noise(summary))


def make_tables(summary: Summary, elsewhere: str = "") -> list[Part]:
    """Return the tables of a summary and their notes, without the sentences."""
    notes = Notes(after=tuple(Text(note, style="dim") for note in summary.notes), blank=True, elsewhere=elsewhere)
    if not summary.disturbed:
        apart = [(row.arm.name, row.point, ratio) for row in summary.rows for ratio in list_misleading_ratios(row)]
        return [_make_steady_table(summary), *make_solo_ratio_table(apart), notes]
    parts: list[Part] = []
    for point in summary.points:
        rows = summary.at(point)
        parts += [make_title(point.name, describe_point(point), blank=True), _make_disturbed_table(summary, rows)]
        valid, planned = sum(row.cell.valid_blocks for row in rows), sum(row.cell.planned_blocks for row in rows)
        if point.control and valid:
            count = f"{valid} {f'of {planned} ' if valid < planned else ''}control runs"
            explanation = "nothing failed, and no good answer was missing for 0.1 s or three times the p99: what stands above came of the disturbance"
            parts.append(make_sentence(f"{count}: {explanation}", "dim", blank=True))
    return [*parts, notes]


# -- steady loads ---------------------------------------------------------------------------------------------


def _make_steady_table(summary: Summary) -> Grid:
    """Return the table of steady loads.

    Where one line does not fit, the variant stands with its generator and effect above its numbers.
    """
    names = [TableColumn(name, stands="left") for name in ("variant", "generator", "effect")]
    numbers = [TableColumn(METRICS[name].heading or METRICS[name].short, METRICS[name].unit) for name in COLUMNS]
    columns = (*names[:2], TableColumn("offered", "req/s"), *numbers, TableColumn("blocks"), names[2])
    last = len(columns) - 1
    rows = [
        grid.make_row(*_yield_cells(row), under=[Heading(row.point.name, describe_load(row.point))])
        for row in summary.rows
    ]
    for item in summary.not_measurable:
        cells = TableCell(item.variant, "bold"), TableCell(f"not measurable: {item.what}", "yellow")
        rows.append(grid.make_row(*cells, under=[Heading("not measurable here")], free=True))
    return Grid(columns, tuple(rows), Fold((0, 1, last), tuple(range(2, last))), gaps=(2, 1), blank=True)


def _yield_cells(row: SummaryRow) -> Iterator[str | TableCell]:
    cell, marks = row.cell, {effect.metric: _choose_arrow(effect) for effect in row.effects}
    apart = {ratio.metric for ratio in list_misleading_ratios(row)}
    generator = cell.generator or row.point.generator
    yield TableCell(row.arm.name, "bold" if row.arm.role == "variant" else "")
    yield f"{generator} (for {cell.stand_in_for})" if cell.stand_in_for else generator
    yield format_rate(row.point.rate_rps) if row.point.rate_rps is not None else "closed"
    for name in COLUMNS:
        if name == "errors":
            lost, invalid = sum(cell.errors.values()), sum(cell.errors_invalid.values())
            yield TableCell(f"{lost:,}" + (f" (+{invalid:,})" if invalid else ""), "red" if lost else "")
        elif name in apart:
            yield TableCell(SHOWN_BELOW + marks.get(name, ""), "dim")
        else:
            yield format_absolute(METRICS[name], cell.absolute(name)) + marks.get(name, "")
    yield _format_blocks(row)
    if cell.unsteady is not None:
        yield TableCell(cell.unsteady.short(), "yellow")
    else:
        style = STYLES.get(row.shown[0].decision, "dim") if row.shown else ""
        yield TableCell(", ".join(map(format_effect, row.shown)), style)


def _format_blocks(row: SummaryRow) -> TableCell:
    """Return how many of the planned blocks count, with the row's notes: `5/6¹`."""
    valid, planned = row.cell.valid_blocks, row.cell.planned_blocks
    return TableCell(f"{valid}/{planned}", "yellow" if valid < planned else "", notes=row.notes)


def _choose_arrow(effect: Effect) -> str:
    """Return the arrow ↑ or ↓ after a number whose effect is marked; empty for any other."""
    if not effect.marked:
        return ""
    return "↑" if effect.estimate is not None and effect.estimate.effect > 0 else "↓"


def make_solo_ratio_table(misleading: Sequence[tuple[str, LoadPoint, SoloRatio]]) -> list[Part]:
    """Return the table of absolute values whose ratio differs from the pair's effect, after a sentence about it.

    It is empty without any. `lab.analysis.judge.rows` decides which values these are.

    Args:
        misleading: For each of these values the arm, the load point, and the absolute values with their ratio.

    """
    if not misleading:
        return []
    worst = max(100 * abs(expm1(solo.ratio - solo.pair.effect)) for _, _, solo in misleading)
    sentence = (
        "Absolute values apart from the difference: the ratio of these solo samples leaves the pair's 95 % interval by more than"
        f" {100 * CONTRADICTION_SHARE:.0f} %, and is off the pair's effect by up to {worst:.0f} %. Conclude nothing from it where the pair decides."
    )
    rows: list[grid.TableRow] = []
    for arm, point, solo in misleading:
        metric = METRICS[solo.metric]
        cells = (
            TableCell(arm, "bold"),
            f"{metric.short} {metric.unit}".rstrip(),
            format_absolute(metric, solo.own),
            format_absolute(metric, solo.base),
            metric.change(solo.ratio),
            f"{metric.change(solo.pair.effect)}{metric.ends(*(solo.pair.interval or (None, None)))}",
        )
        rows.append(grid.make_row(*cells, under=[Heading(point.name, describe_load(point))]))
    heads = grid.make_columns(
        ("variant", "metric", "solo", "baseline, solo", "solo ratio", "as a pair"), left=(0, 1, 2, 3, 5)
    )
    return [make_sentence(sentence, blank=True), Grid(heads, tuple(rows), Fold((0, 1, 4, 5), (2, 3), indent=4))]


# -- disrupted loads ------------------------------------------------------------------------------------------


def _make_disturbed_table(summary: Summary, rows: Sequence[SummaryRow]) -> Grid:
    """Return the table of one point, with as many arms next to each other as fit.

    The other arms stand below, next to the baseline again.
    """
    lines = [_make_line("blocks", "", map(_format_blocks, rows))]
    slowed = choose_slowdown_percentile(rows)
    for name in _select_metrics(summary, rows):
        metric = METRICS[name]
        text, style = ("  " + metric.title, "dim") if metric.detail else (metric.title, "")
        lines.append(_make_line(text, metric.unit, (_format_level(row, name) for row in rows), style))
        effects = [next((effect for effect in row.shown if effect.metric == name), None) for row in rows]
        if any(effects):
            against = ", ".join(dict.fromkeys(effect.against for effect in effects if effect))
            lines.append(_make_line(f"  against {against}", metric.unit, map(_format_effect, effects), "dim"))
        if slowed and name == f"{slowed}_during_s":
            cells = (_format_slowdown(row.cell.slowdowns.get(slowed)) for row in rows)
            lines.append(_make_line(f"  {slowed} during against before", "×", cells, "dim"))
    wide: list[grid.TableRow] = []
    for line in lines:  # with the unit after its title
        head, unit, *cells = line.cells
        label = (f"{head.text}, {unit.text}" if unit.text else head.text).replace("  ", "&emsp;", 1)
        wide.append(replace(line, cells=(TableCell(label), *cells)))
    name = TableColumn("", stands="left")
    arms = [TableColumn(row.arm.name, "", "split", "", "bold" if row.arm.role == "variant" else "", 3) for row in rows]
    return Grid((name, name, *arms), tuple(lines), Panels(2), blank=True, wide=Grid((name, *arms), tuple(wide)))


def _make_line(text: str, unit: str, cells: Iterable[TableCell], style: str = "") -> grid.TableRow:
    return grid.make_row(TableCell(text, style), TableCell(unit, "dim"), *cells)


def _format_slowdown(estimate: stats.Estimate | None) -> TableCell:
    if estimate is None:
        return TableCell("–")
    # three significant digits, two decimals at most
    ratio, *ends = (
        f"{value:,.{0 if value >= 99.95 else 1 if value >= 9.995 else 2}f}"
        for value in (estimate.ratio, *(estimate.ratio_interval or ()))
    )
    return TableCell(ratio, tail=f" [{', '.join(ends)}]" if ends else "")


def _select_metrics(summary: Summary, rows: Sequence[SummaryRow]) -> list[str]:
    """Return the metrics that get a line at this point.

    These are the primary metrics, the metrics that are always shown, and the metrics that the disruption changed.
    """
    present = [metric for metric in DIFFERENCES if any(metric in row.cell.values for row in rows)]
    if rows and rows[0].point.control:
        of_control = ("requests", "failed", "gap_s", "p50_during_s", "p99_during_s", "max_during_s")
        return [metric for metric in present if metric in of_control]
    primary = {effect.metric for row in rows for effect in row.shown}
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
    """Return a value, with its interval where the blocks differ, and the number of blocks without it in brackets.

    `2.0 s [1.9, 2.1] (2 –)`
    """
    values, level = row.cell.values.get(metric), row.cell.level(metric)
    if values is None or level is None:
        return TableCell("" if values is None else "–")
    mark = "".join(_choose_arrow(effect) for effect in row.effects if effect.metric == metric)
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
