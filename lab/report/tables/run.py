"""A run's summary as a page: a sentence per variant, its tables, and what has to be said with them.

Of steady loads one table, an arm's row below its point, and under it the absolute values that stand apart from the difference that they do
not show. Of disturbed ones a table for each point, arms side by side, what came of each below one another:

    kill  100 req/s, …; kill after 5 s (role proxy, how delete)

                          baseline                  proxy-replicas-2
    failed requests          2,981 [2,975, 2,990]            0
      against baseline                                  −2,981 [−2,990, −2,972]

Such a table shows what a disturbance produced and nothing else: a number that it left as its control run had it has no line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import expm1

from rich.text import Text

from lab.analysis.aggregate.absolute import absolute_of, absolute_text
from lab.analysis.explain.run import effect_text, interval_text, noise_line, verdicts
from lab.analysis.judge.decision import Decision
from lab.analysis.judge.effects import Effect
from lab.analysis.judge.rows import LIMIT, Row, SoloRatio, Summary, misleading_ratios, slowed_by
from lab.model.metrics import COLUMNS, DIFFERENCES, METRICS
from lab.model.sweeps import Point
from lab.report import grid
from lab.report.grid import Cell, Column, Fold, Grid, Heading, Notes, Panels, Part, advice, plain, title
from lab.report.loads import load_text, point_text
from lab.stats import paired as stats
from lab.stats.units import format_rate

STYLES = {Decision.BETTER: "bold green", Decision.WORSE: "bold red", Decision.SAME: "", Decision.A_A: "cyan"}
"""Of the effect column, but for what is better; else it is dim."""
STANDS_APART = "below"
"""What a table has in place of an absolute value that stands below it."""
MOVED = 1.2
"""What any system has is shown where it is so many times what the control run had, at least."""


def page(summary: Summary, elsewhere: str = "") -> list[Part]:
    """A sentence per variant with what to apply (of a baseline alone, its noise), then the tables and their notes.

    `elsewhere`: the command that shows the notes, where they are many.
    """
    return [*sentences(summary), *tables(summary, elsewhere)]


def sentences(summary: Summary) -> Iterator[Part]:
    """What a run has to say, in the order of its variants."""
    found = verdicts(summary)
    for verdict in found:
        yield advice(verdict.text, verdict.snippet, bold=verdict.kind == "apply")
    if not found:
        yield plain(noise_line(summary))


def tables(summary: Summary, elsewhere: str = "") -> list[Part]:
    """Without the sentences."""
    notes = Notes(after=tuple(Text(note, style="dim") for note in summary.notes), blank=True, elsewhere=elsewhere)
    if not summary.disturbed:
        apart = [(row.arm.name, row.point, each) for row in summary.rows for each in misleading_ratios(row)]
        return [_steady(summary), *standing_apart(apart), notes]
    parts: list[Part] = []
    for point in summary.points:
        rows = summary.at(point)
        parts += [title(point.name, point_text(point), blank=True), _disturbed(summary, rows)]
        valid, planned = sum(row.cell.valid_blocks for row in rows), sum(row.cell.planned_blocks for row in rows)
        if point.control and valid:
            count = f"{valid} {f'of {planned} ' if valid < planned else ''}control runs"
            said = "nothing failed, and no good answer was missing for 0.1 s or three times the p99: what stands above came of the disturbance"
            parts.append(plain(f"{count}: {said}", "dim", blank=True))
    return [*parts, notes]


# -- steady loads ---------------------------------------------------------------------------------------------


def _steady(summary: Summary) -> Grid:
    """Where one line does not fit, the variant with its generator and effect stand above its numbers."""
    names = [Column(name, stands="left") for name in ("variant", "generator", "effect")]
    numbers = [Column(METRICS[name].heading or METRICS[name].short, METRICS[name].unit) for name in COLUMNS]
    columns = (*names[:2], Column("offered", "req/s"), *numbers, Column("blocks"), names[2])
    last = len(columns) - 1
    rows = [grid.row(*_cells(row), under=[Heading(row.point.name, load_text(row.point))]) for row in summary.rows]
    for item in summary.not_measurable:
        cells = Cell(item.variant, "bold"), Cell(f"not measurable: {item.what}", "yellow")
        rows.append(grid.row(*cells, under=[Heading("not measurable here")], free=True))
    return Grid(columns, tuple(rows), Fold((0, 1, last), tuple(range(2, last))), gaps=(2, 1), blank=True)


def _cells(row: Row) -> Iterator[str | Cell]:
    cell, marks = row.cell, {effect.metric: _arrow(effect) for effect in row.effects}
    apart = {each.metric for each in misleading_ratios(row)}
    made_by = cell.generator or row.point.generator
    yield Cell(row.arm.name, "bold" if row.arm.role == "variant" else "")
    yield f"{made_by} (for {cell.stand_in_for})" if cell.stand_in_for else made_by
    yield format_rate(row.point.rate_rps) if row.point.rate_rps is not None else "closed"
    for name in COLUMNS:
        if name == "errors":
            lost, invalid = sum(cell.errors.values()), sum(cell.errors_invalid.values())
            yield Cell(f"{lost:,}" + (f" (+{invalid:,})" if invalid else ""), "red" if lost else "")
        elif name in apart:
            yield Cell(STANDS_APART + marks.get(name, ""), "dim")
        else:
            yield absolute_text(METRICS[name], cell.absolute(name)) + marks.get(name, "")
    yield _blocks(row)
    if cell.unsteady is not None:
        yield Cell(cell.unsteady.short(), "yellow")
    else:
        style = STYLES.get(row.shown[0].decision, "dim") if row.shown else ""
        yield Cell(", ".join(map(effect_text, row.shown)), style)


def _blocks(row: Row) -> Cell:
    """`5/6¹`: how many of the planned blocks count, and the row's notes."""
    valid, planned = row.cell.valid_blocks, row.cell.planned_blocks
    return Cell(f"{valid}/{planned}", "yellow" if valid < planned else "", notes=row.notes)


def _arrow(effect: Effect) -> str:
    """↑ or ↓ behind a number that is marked; empty for another."""
    if not effect.marked:
        return ""
    return "↑" if effect.estimate is not None and effect.estimate.effect > 0 else "↓"


def standing_apart(found: Sequence[tuple[str, Point, SoloRatio]]) -> list[Part]:
    """Return a sentence that says how far such absolute values are off and a table of them, by (arm, where, what they show); nothing of none.

    Which they are, `lab.analysis.judge.rows` finds.
    """
    if not found:
        return []
    worst = max(100 * abs(expm1(each.ratio - each.pair.effect)) for _, _, each in found)
    said = (
        "Absolute values apart from the difference: the ratio of these solo samples leaves the pair's 95 % interval by more than"
        f" {100 * LIMIT:.0f} %, and is off the pair's effect by up to {worst:.0f} %. Conclude nothing from it where the pair decides."
    )
    rows: list[grid.Row] = []
    for arm, point, each in found:
        metric = METRICS[each.metric]
        cells = (
            Cell(arm, "bold"),
            f"{metric.short} {metric.unit}".rstrip(),
            absolute_text(metric, each.own),
            absolute_text(metric, each.base),
            metric.change(each.ratio),
            f"{metric.change(each.pair.effect)}{metric.ends(*(each.pair.interval or (None, None)))}",
        )
        rows.append(grid.row(*cells, under=[Heading(point.name, load_text(point))]))
    heads = grid.columns(
        ("variant", "metric", "solo", "baseline, solo", "solo ratio", "as a pair"), left=(0, 1, 2, 3, 5)
    )
    return [plain(said, blank=True), Grid(heads, tuple(rows), Fold((0, 1, 4, 5), (2, 3), indent=4))]


# -- disturbances ---------------------------------------------------------------------------------------------


def _disturbed(summary: Summary, rows: Sequence[Row]) -> Grid:
    """The rows of one point. As many arms side by side as fit; the others below, beside the baseline again."""
    lines = [_line("blocks", "", map(_blocks, rows))]
    slowed = slowed_by(rows)
    for name in _metrics_shown(summary, rows):
        metric = METRICS[name]
        said, style = ("  " + metric.title, "dim") if metric.detail else (metric.title, "")
        lines.append(_line(said, metric.unit, (_level(row, name) for row in rows), style))
        effects = [next((effect for effect in row.shown if effect.metric == name), None) for row in rows]
        if any(effects):
            against = ", ".join(dict.fromkeys(effect.against for effect in effects if effect))
            lines.append(_line(f"  against {against}", metric.unit, map(_effect, effects), "dim"))
        if slowed and name == f"{slowed}_during_s":
            cells = (_slowdown(row.cell.slowdowns.get(slowed)) for row in rows)
            lines.append(_line(f"  {slowed} during against before", "×", cells, "dim"))
    wide: list[grid.Row] = []
    for line in lines:  # with the unit behind its title
        head, unit, *cells = line.cells
        text = (f"{head.text}, {unit.text}" if unit.text else head.text).replace("  ", "&emsp;", 1)
        wide.append(replace(line, cells=(Cell(text), *cells)))
    name = Column("", stands="left")
    arms = [Column(row.arm.name, "", "split", "", "bold" if row.arm.role == "variant" else "", 3) for row in rows]
    return Grid((name, name, *arms), tuple(lines), Panels(2), blank=True, wide=Grid((name, *arms), tuple(wide)))


def _line(said: str, unit: str, cells: Iterable[Cell], style: str = "") -> grid.Row:
    return grid.row(Cell(said, style), Cell(unit, "dim"), *cells)


def _slowdown(estimate: stats.Estimate | None) -> Cell:
    if estimate is None:
        return Cell("–")
    # three significant digits, two decimals at most
    ratio, *ends = (
        f"{value:,.{0 if value >= 99.95 else 1 if value >= 9.995 else 2}f}"
        for value in (estimate.ratio, *(estimate.ratio_interval or ()))
    )
    return Cell(ratio, tail=f" [{', '.join(ends)}]" if ends else "")


def _metrics_shown(summary: Summary, rows: Sequence[Row]) -> list[str]:
    """The metrics worth a line at this point: primary ones, what is never left out, and what the disturbance brought about."""
    known = [metric for metric in DIFFERENCES if any(metric in row.cell.values for row in rows)]
    if rows and rows[0].point.control:
        of_control = ("requests", "failed", "gap_s", "p50_during_s", "p99_during_s", "max_during_s")
        return [metric for metric in known if metric in of_control]
    wanted = {effect.metric for row in rows for effect in row.shown}
    return [metric for metric in known if metric in wanted or _worth(summary, rows, metric)]


def _worth(summary: Summary, rows: Sequence[Row], metric: str) -> bool:
    if metric in ("clock_error_s", "max_before_s"):  # a note tells the first
        return False
    if metric == "reloads" and not any("changes" in row.cell.values for row in rows):
        return any(row.cell.largest(metric) for row in rows)
    if metric.endswith("_after_s"):
        # later than it acts, the worst is its doing as well
        before = "max_during_s" if metric == "max_after_s" else metric.replace("_after_s", "_before_s")
        return any(_moved(row.cell.largest(metric), row.cell.largest(before)) for row in rows)
    if METRICS[metric].idle:
        controls = {row.arm.name: summary.control_of(row) for row in rows}
        known = {arm: control.cell.largest(metric) for arm, control in controls.items() if control}
        return any(_moved(row.cell.largest(metric), known.get(row.arm.name)) for row in rows)
    return METRICS[metric].always or any(row.cell.largest(metric) for row in rows)


def _moved(value: float | None, control: float | None) -> bool:
    return value is not None and (control is None or value > MOVED * control)


def _level(row: Row, metric: str) -> Cell:
    """With its interval where not all blocks show the same, and with how many could not tell: `2.0 s [1.9, 2.1] (2 –)`."""
    values, level = row.cell.values.get(metric), row.cell.level(metric)
    if values is None or level is None:
        return Cell("" if values is None else "–")
    mark = "".join(_arrow(effect) for effect in row.effects if effect.metric == metric)
    known = [value for value in values.values() if value is not None]
    lacking = len(values) - len(known)
    untold = f" ({lacking} –)" if lacking else ""
    if level.n < stats.MIN_BLOCKS:
        return Cell(absolute_text(METRICS[metric], absolute_of(known, metric)), tail=mark + untold)
    shown, *ends = map(METRICS[metric].text, (level.value, level.low, level.high))
    spread = "" if set(ends) == {shown} else f" [{', '.join(ends)}]"
    return Cell(shown, tail=mark + spread + untold)


def _effect(effect: Effect | None) -> Cell:
    if effect is None:
        return Cell("")
    if effect.estimate is None or effect.decision is Decision.NOT_JUDGED:
        return Cell("–", "dim")
    number, ends = METRICS[effect.metric].text(effect.estimate.effect, signed=True), interval_text(effect)
    if effect.decision is Decision.A_A and effect.estimate.has_interval:
        return Cell(f"a/a {number}", "cyan", ends)
    if effect.decision is Decision.SAME:
        return Cell(f"same: {number}", "", ends)
    if effect.claimed:
        return Cell(number, "bold green" if effect.better else "bold red", ends)
    if effect.decision is Decision.CANNOT_TELL:
        return Cell("~", "dim", ends)
    return Cell(number, "dim", " no interval")
