"""The page of a comparison, in the manner of benchstat: both absolute values, the effect, its p-value, and the number of blocks.

ceiling  64 connections, closed loop, 5 s, 1kB.bin
  keepalive against baseline
           rate  req/s   64,773 [61,002, 66,120]   62,575 [60,871, 64,330]   −2.4 % [−5.5, +0.9]   0.412   6
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from rich.text import Text

from lab.analysis.aggregate.absolute import compute_absolute, format_absolute
from lab.analysis.explain.comparison import advise
from lab.analysis.explain.notes import FEW_BLOCKS
from lab.analysis.explain.run import format_p_value
from lab.analysis.judge.comparison import ComparedRow, Comparison, format_change
from lab.analysis.judge.decision import ALPHA, Decision
from lab.analysis.judge.meeting import TWO_MACHINES, CellStats
from lab.model.metrics import find_metric
from lab.report.grid import (
    Fold,
    Grid,
    Heading,
    Notes,
    Part,
    Sentences,
    TableCell,
    TableRow,
    make_advice,
    make_columns,
    make_row,
)
from lab.report.loads import describe_disruption, describe_load
from lab.stats.paired import MIN_BLOCKS
from lab.stats.units import format_blocks

STYLES = {Decision.BETTER: "bold green", Decision.WORSE: "bold red", Decision.INCONCLUSIVE: ""}


def make_page(comparison: Comparison, selected: Sequence[ComparedRow] | None = None) -> list[Part]:
    """Return the page of a comparison: the runs, the table, its legend, and a sentence for each compared arm (variant of a run).

    Args:
        comparison: The comparison.
        selected: The rows to show; None: all. The p-values and the advice are those of the entire comparison in any case.

    """
    part = comparison if selected is None else replace(comparison, rows=tuple(selected))
    base, other = (
        f"{record.id}: {record.target}, sweep {record.sweep}, {format_blocks(record.blocks)}"
        for record in (comparison.base, comparison.other)
    )
    runs = [f"{base}; paired by block"] if comparison.paired else [f"base   {base}", f"other  {other}; unpaired"]
    pairs = {row.pair for row in part.rows}
    advised = [
        verdict for verdict in advise(comparison) if selected is None or (verdict.base_arm, verdict.other_arm) in pairs
    ]
    differences = (Text(note, "bold red" if note.startswith(TWO_MACHINES) else "dim") for note in part.notes)
    rows = list(_yield_rows(part))
    heads = ("base", "other") if any(wide.cells[2].text for _, wide in rows) else ()
    heads = (*heads, "effect", "p", "n")
    if len(heads) == 3:
        rows = [tuple(replace(row, cells=row.cells[:2] + row.cells[4:]) for row in both) for both in rows]
    last = len(heads) + 1
    table = Grid(
        make_columns(("", "", *heads), left={0, 1, last, *range(2, last - 1)}),  # where an interval or footnotes follow
        tuple(narrow for narrow, _ in rows),
        Fold(tuple(range(last - 2)), (last - 2, last - 1, last), indent=8),
        gaps=(3, 2, 1),
        indent=4,
        blank=True,
        wide=Grid(make_columns(("arm", "metric", *heads), left=(0, 1)), tuple(wide for _, wide in rows)),
    )
    return [
        Sentences(tuple(map(Text, runs)), tuple(f"- {line}" for line in runs)),
        table,
        Notes(tuple(differences), tuple(Text(line, "dim") for line in _yield_legend(comparison)), blank=True),
        *(
            make_advice(verdict.text, verdict.snippet, bold=verdict.kind == "apply", blank=not number)
            for number, verdict in enumerate(advised)
        ),
    ]


def _yield_rows(comparison: Comparison) -> Iterator[tuple[TableRow, TableRow]]:
    """Yield each row of a comparison in two forms: (row for a terminal, row for Markdown).

    On a terminal the compared arms (variants of the runs) are a heading above the row. In Markdown they are its first cell.
    """
    for point, rows in groupby(comparison.rows, key=lambda row: row.point):
        at_point = list(rows)
        done = f"; {describe_disruption(point)}" if point.disturbance is not None else ""
        generators = {side.generator for compared in at_point for side in (compared.base, compared.other)}
        generator = f"; {next(iter(generators))}" if len(generators) == 1 else ""  # where all sides had the same one
        heading = Heading(point.name, f"{describe_load(point)}{done}{generator}")
        for compared in at_point:
            pair = compared.arms
            # within one run a ratio is not that of the two absolute values, which `just table` has
            bare = comparison.paired and compared.relative
            levels = (
                ("", "") if bare else tuple(_format_level(compared, side) for side in (compared.base, compared.other))
            )
            effect = TableCell(_format_effect(compared), STYLES.get(compared.decision, "dim"))
            base_blocks, other_blocks = compared.base.values.keys(), compared.other.values.keys()
            blocks = (
                str(len(base_blocks & other_blocks)) if comparison.paired else f"{len(base_blocks)}+{len(other_blocks)}"
            )
            p_and_n = format_p_value(compared.holm_p), TableCell(blocks, notes=compared.notes)
            metric = f"{compared.title} ({compared.unit})" if compared.unit else compared.title
            under = [heading, Heading(pair, inner=True)]
            narrow = make_row(compared.title, TableCell(compared.unit, "dim"), *levels, effect, *p_and_n, under=under)
            strong = replace(effect, strong=compared.decision.resolved)
            yield narrow, make_row(pair, metric, *levels, strong, *p_and_n, under=[heading])


def _yield_legend(comparison: Comparison) -> Iterator[str]:
    """Yield lines that explain the table of a comparison; a line that applies to none of the table's rows is left out."""
    shown = [row for row in comparison.rows if not (comparison.paired and row.relative)]
    levels = [(row.relative, side.level) for row in shown for side in (row.base, row.other) if side.level]
    if any(relative for relative, _ in levels):
        yield "absolute values: geometric mean of the solo blocks [95 % interval], percentiles of all their requests together"
    if any(not relative and level.n >= MIN_BLOCKS for relative, level in levels):
        yield "what came of a disturbance: median of the blocks [95 % interval of the median]"
    if any(level.n < MIN_BLOCKS for _, level in levels):
        yield FEW_BLOCKS
    if any(row.decision.judged for row in comparison.rows):
        how, test = "effect: the blocks' paired change", "paired t-test"
        if not comparison.paired:
            how = "effect: Hodges–Lehmann's shift between the runs; what drifted between them is part of it"
            test = "rank sum (Mann–Whitney)"
        yield f"{how} [95 % interval]"
        many = " and ".join(map(str, comparison.family)) or "0"
        yield (
            f"p: {test}, Holm-adjusted over {many} comparisons; equivalent: within the margin; ~: inconclusive (p > {ALPHA},"
            " or no more than the baseline shows against itself)"
        )


def _format_level(row: ComparedRow, side: CellStats) -> str:
    """Return the absolute value of one side of a comparison, in the row's unit: `2.31 [2.29, 2.35]`.

    With too few blocks (repetitions) for an interval, the text is their range: `2.2–2.4`. If the blocks fall into two clusters,
    the text has the value of each cluster. It is `–` if nothing was measured.

    Args:
        row: The row of the comparison.
        side: The side.

    """
    absolute, metric = side.absolute, find_metric(row.metric)
    if row.relative:
        text = format_absolute(metric, absolute)
        ends = [*map(metric.text, absolute.interval)] if absolute is not None and absolute.interval else []
        return f"{text} [{', '.join(ends)}]" if {*ends} - {text} else text
    if side.level is None:
        return "–"
    if side.level.n < MIN_BLOCKS:
        return format_absolute(metric, compute_absolute([*side.values.values()], row.metric))
    value, low, high = map(metric.text, (side.level.value, side.level.low, side.level.high))
    return value if side.level.low is None or low == high == value else f"{value} [{low}, {high}]"


def _format_effect(row: ComparedRow) -> str:
    """Return the effect of a comparison's row as text with its interval: `−8.2 % [−9.1, −7.3]`.

    An inconclusive effect has no number: `~ [−1.2, +0.8] %`. Without an effect the text is `–`.
    """
    if row.estimate is None or row.decision is Decision.NOT_JUDGED:
        return "–"
    text = format_change(row, row.estimate)
    if row.decision is Decision.EQUIVALENT:
        return f"equivalent: {text}"
    unit = " %" if row.relative else ""
    return f"~{text[text.index(' [') :]}{unit}" if row.decision is Decision.INCONCLUSIVE else text
