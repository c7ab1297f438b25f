"""What came of a disturbance, at one point: arms stand side by side, what came of each below one another.

    kill  100 req/s, …; kill after 5 s (role proxy, how delete)

                          baseline                  proxy-replicas-2
    failed requests          2,981 [2,975, 2,990]            0
      against baseline                                  −2,981 [−2,990, −2,972]

Shows what a disturbance produced and nothing else: a number that it left as its control run had it has no line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from lab.analysis.aggregate.absolute import absolute_of, absolute_text
from lab.analysis.explain.run import interval_text
from lab.analysis.judge.decision import Decision
from lab.analysis.judge.effects import Effect
from lab.analysis.judge.rows import Row, Summary, slowed_by
from lab.model.metrics import DIFFERENCES, METRICS
from lab.report import grid
from lab.report.grid import Cell, Column, Grid, Panels
from lab.stats import paired as stats

MOVED = 1.2
"""What any system has is shown where it is so many times what the control run had, at least."""
CONTROL_METRICS = ("requests", "failed", "gap_s", "p50_during_s", "p99_during_s", "max_during_s")
LATENCY_AFTER = "_after_s"


def table(summary: Summary, rows: Sequence[Row]) -> Grid:
    """The rows of one point. As many arms side by side as fit; the others below, beside the baseline again."""
    arms = [Column(row.arm.name, "", "split", "", "bold" if row.arm.role == "variant" else "", 3) for row in rows]
    lines = tuple(_lines(summary, rows))
    names = (Column("", stands="left"), Column("", stands="left"))
    return Grid((*names, *arms), lines, Panels(2), blank=True, wide=Grid((names[0], *arms), tuple(map(_wide, lines))))


def _wide(line: grid.Row) -> grid.Row:
    """With the unit behind its title."""
    title, unit, *cells = line.cells
    text = (f"{title.text}, {unit.text}" if unit.text else title.text).replace("  ", "&emsp;", 1)
    return replace(line, cells=(Cell(text), *cells))


def _lines(summary: Summary, rows: Sequence[Row]) -> Iterator[grid.Row]:
    yield _line("blocks", "", (blocks(row) for row in rows))
    slowed = slowed_by(rows)
    for name in metrics_shown(summary, rows):
        metric = METRICS[name]
        title, style = ("  " + metric.title, "dim") if metric.detail else (metric.title, "")
        yield _line(title, metric.unit, (_level(row, name) for row in rows), style)
        effects = [next((effect for effect in row.shown if effect.metric == name), None) for row in rows]
        if any(effects):
            against = ", ".join(dict.fromkeys(effect.against for effect in effects if effect))
            yield _line(f"  against {against}", metric.unit, map(_effect, effects), "dim")
        if name == f"{slowed}_during_s":
            yield _line(f"  {slowed} during against before", "×", (_slowdown(row, slowed) for row in rows), "dim")


def _line(title: str, unit: str, cells: Iterable[Cell], style: str = "") -> grid.Row:
    return grid.row(Cell(title, style), Cell(unit, "dim"), *cells)


def blocks(row: Row) -> Cell:
    """`5/6¹`: how many of the planned blocks count, and the row's notes."""
    valid, planned = row.cell.valid_blocks, row.cell.planned_blocks
    return Cell(f"{valid}/{planned}", "yellow" if valid < planned else "", notes=row.notes)


def _slowdown(row: Row, name: str | None) -> Cell:
    estimate = row.cell.slowdowns.get(name) if name else None
    if estimate is None:
        return Cell("–")
    ends = estimate.ratio_interval
    return Cell(ratio_text(estimate.ratio), tail=f" [{', '.join(map(ratio_text, ends))}]" if ends else "")


def ratio_text(value: float) -> str:
    """Three significant digits, two decimals at most: 0.98, 12.3, 1,234."""
    return f"{value:,.{0 if value >= 99.95 else 1 if value >= 9.995 else 2}f}"


def metrics_shown(summary: Summary, rows: Sequence[Row]) -> list[str]:
    """The metrics worth a line at this point: primary ones, what is never left out, and what the disturbance brought about."""
    wanted = {effect.metric for row in rows for effect in row.shown}
    known = [metric for metric in DIFFERENCES if any(metric in row.cell.values for row in rows)]
    if rows and rows[0].point.control:
        return [metric for metric in known if metric in CONTROL_METRICS]
    return [metric for metric in known if metric in wanted or _worth(summary, rows, metric)]


def _worth(summary: Summary, rows: Sequence[Row], metric: str) -> bool:
    if metric in ("clock_error_s", "max_before_s"):  # a note tells the first
        return False
    if metric == "reloads" and not any("changes" in row.cell.values for row in rows):
        return any(row.cell.largest(metric) for row in rows)
    if metric.endswith(LATENCY_AFTER):
        # later than it acts, the worst is its doing as well
        before = "max_during_s" if metric == "max_after_s" else metric.replace(LATENCY_AFTER, "_before_s")
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
    mark = "".join(arrow(effect) for effect in row.effects if effect.metric == metric)
    known = [value for value in values.values() if value is not None]
    lacking = len(values) - len(known)
    untold = f" ({lacking} –)" if lacking else ""
    if level.n < stats.MIN_BLOCKS:
        return Cell(absolute_text(METRICS[metric], absolute_of(known, metric)), tail=mark + untold)
    shown, *ends = map(METRICS[metric].text, (level.value, level.low, level.high))
    spread = "" if set(ends) == {shown} else f" [{', '.join(ends)}]"
    return Cell(shown, tail=mark + spread + untold)


def arrow(effect: Effect) -> str:
    """↑ or ↓ behind a number that is marked; empty for another."""
    if not effect.marked:
        return ""
    return "↑" if effect.estimate is not None and effect.estimate.effect > 0 else "↓"


def _effect(effect: Effect | None) -> Cell:
    if effect is None:
        return Cell("")
    metric = METRICS[effect.metric]
    if effect.estimate is None or effect.decision is Decision.NOT_JUDGED:
        return Cell("–", "dim")
    number = metric.text(effect.estimate.effect, signed=True)
    if effect.decision is Decision.A_A and effect.estimate.has_interval:
        return Cell(f"a/a {number}", "cyan", interval_text(effect))
    if effect.decision is Decision.SAME:
        return Cell(f"same: {number}", "", interval_text(effect))
    if effect.claimed:
        return Cell(number, "bold green" if effect.better else "bold red", interval_text(effect))
    if effect.decision is Decision.CANNOT_TELL:
        return Cell("~", "dim", interval_text(effect))
    return Cell(number, "dim", " no interval")
