"""A run's summary as a page: a sentence per variant, its tables, and what has to be said with them.

Of steady loads one table, an arm's row below its point; of disturbed ones a table for each point (`lab.report.tables.disturbed`).
Milliseconds and microseconds only here.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from lab.analysis.aggregate.absolute import absolute_text
from lab.analysis.explain.run import effect_text, noise_line, verdicts
from lab.analysis.judge.decision import Decision
from lab.analysis.judge.rows import Row, Summary, misleading_ratios
from lab.model.metrics import COLUMNS, METRICS
from lab.report import grid
from lab.report.grid import Cell, Column, Fold, Grid, Heading, Notes, Part, advice, plain, title
from lab.report.loads import load_text, point_text
from lab.report.tables import disturbed
from lab.report.tables.standing_apart import STANDS_APART, of_rows
from lab.stats.units import format_rate

UNDISTURBED = "nothing failed, and no good answer was missing for 0.1 s or three times the p99: what stands above came of the disturbance"
STYLES = {Decision.BETTER: "bold green", Decision.WORSE: "bold red", Decision.SAME: "", Decision.A_A: "cyan"}
"""Of the effect column, but for what is better; else it is dim."""


def page(summary: Summary, elsewhere: str = "") -> list[Part]:
    """A sentence per variant with what to apply (of a baseline alone, its noise), then the tables and their notes.

    `elsewhere`: the command that shows the notes, where they are many.
    """
    return [*sentences(summary), *tables(summary, elsewhere)]


def tables(summary: Summary, elsewhere: str = "") -> list[Part]:
    """Without the sentences."""
    notes = Notes(after=tuple(Text(note, style="dim") for note in summary.notes), blank=True, elsewhere=elsewhere)
    if not summary.disturbed:
        return [_steady(summary), *of_rows(summary.rows), notes]
    parts: list[Part] = []
    for point in summary.points:
        rows = summary.at(point)
        parts += [title(point.name, point_text(point), blank=True), disturbed.table(summary, rows)]
        valid, planned = sum(row.cell.valid_blocks for row in rows), sum(row.cell.planned_blocks for row in rows)
        if point.control and valid:
            count = f"{valid} {f'of {planned} ' if valid < planned else ''}control runs"
            parts.append(plain(f"{count}: {UNDISTURBED}", "dim", blank=True))
    return [*parts, notes]


def sentences(summary: Summary) -> Iterator[Part]:
    """What a run has to say, in the order of its variants."""
    found = verdicts(summary)
    for verdict in found:
        yield advice(verdict.text, verdict.snippet, bold=verdict.kind == "apply")
    if not found:
        yield plain(noise_line(summary))


def _steady(summary: Summary) -> Grid:
    """Where one line does not fit, the variant with its generator and effect stand above its numbers."""
    offered = Column("offered", "req/s")
    numbers = [Column(METRICS[name].heading or METRICS[name].short, METRICS[name].unit) for name in COLUMNS]
    left = [Column(name, stands="left") for name in ("variant", "generator", "effect")]
    columns = (*left[:2], offered, *numbers, Column("blocks"), left[2])
    last = len(columns) - 1
    absent = Heading("not measurable here")
    rows = [grid.row(*_cells(row), under=[Heading(row.point.name, load_text(row.point))]) for row in summary.rows]
    rows += [
        grid.row(Cell(item.variant, "bold"), Cell(f"not measurable: {item.what}", "yellow"), under=[absent], free=True)
        for item in summary.not_measurable
    ]
    return Grid(columns, tuple(rows), Fold((0, 1, last), tuple(range(2, last))), gaps=(2, 1), blank=True)


def _cells(row: Row) -> Iterator[str | Cell]:
    cell, marks = row.cell, {effect.metric: disturbed.arrow(effect) for effect in row.effects}
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
    yield disturbed.blocks(row)
    shown = row.shown
    style = STYLES.get(shown[0].decision, "dim") if shown else ""
    if cell.unsteady is not None:
        yield Cell(cell.unsteady.short(), "yellow")
    else:
        yield Cell(", ".join(map(effect_text, shown)), style)
