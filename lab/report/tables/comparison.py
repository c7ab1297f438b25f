"""A comparison as people read it, in the manner of benchstat: both medians, the effect, its p, and n.

ceiling  64 connections, closed loop, 5 s, 1kB.bin
  keepalive against baseline
           rate  req/s   64,773 [61,002, 66,120]   62,575 [60,871, 64,330]   −2.4 % [−5.5, +0.9]   0.412   6
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from rich.text import Text

from lab.analysis.aggregate.absolute import absolute_of, absolute_text
from lab.analysis.explain.comparison import advices
from lab.analysis.explain.notes import FEW_BLOCKS
from lab.analysis.explain.run import p_text
from lab.analysis.judge.comparison import Compared, Comparison, change_text
from lab.analysis.judge.decision import SURE_P, Decision
from lab.analysis.judge.meeting import TWO_MACHINES, CellStats
from lab.model.metrics import about
from lab.report.grid import Cell, Fold, Grid, Heading, Notes, Part, Row, Words, advice, columns, row
from lab.report.loads import disturbance_text, load_text
from lab.report.tables.run import STANDS_APART, standing_apart
from lab.stats.paired import MIN_BLOCKS
from lab.stats.units import format_blocks

STYLES = {Decision.BETTER: "bold green", Decision.WORSE: "bold red", Decision.CANNOT_TELL: ""}


def page(comparison: Comparison, shown: Sequence[Compared] | None = None) -> list[Part]:
    """The runs, each point's rows, how to read them, and a sentence per arm; in Markdown each row has its arm.

    `shown`: those of its rows that are printed. Their p-values, and what is advised of their arms, are of the whole comparison.
    """
    part = comparison if shown is None else replace(comparison, rows=tuple(shown))
    base, other = (
        f"{record.id}: {record.target}, sweep {record.sweep}, {format_blocks(record.blocks)}"
        for record in (comparison.base, comparison.other)
    )
    runs = [f"{base}; paired by block"] if comparison.paired else [f"base   {base}", f"other  {other}; unpaired"]
    pairs = {row.pair for row in part.rows}
    advised = [each for each in advices(comparison) if shown is None or (each.base_arm, each.other_arm) in pairs]
    differs = (Text(note, "bold red" if note.startswith(TWO_MACHINES) else "dim") for note in part.notes)
    rows = list(_rows(part))
    heads = ("base", "other", "effect", "p", "n")
    table = Grid(
        columns(("", "", *heads), left=(0, 1, 2, 3, 4, 6)),  # left where an interval or footnotes follow numbers
        tuple(narrow for narrow, _ in rows),
        Fold((0, 1, 2, 3), (4, 5, 6), indent=8),
        gaps=(3, 2, 1),
        indent=4,
        blank=True,
        wide=Grid(columns(("arm", "metric", *heads), left=(0, 1)), tuple(wide for _, wide in rows)),
    )
    return [
        Words(tuple(map(Text, runs)), tuple(f"- {line}" for line in runs)),
        table,
        *standing_apart([(row.other.arm, row.point, row.apart) for row in part.rows if row.apart is not None]),
        Notes(tuple(differs), tuple(Text(line, "dim") for line in _legend(comparison)), blank=True),
        *(
            advice(each.text, each.snippet, bold=each.kind == "apply", blank=not number)
            for number, each in enumerate(advised)
        ),
    ]


def _rows(comparison: Comparison) -> Iterator[tuple[Row, Row]]:
    """Each as a terminal has it, below its pair of arms, and as Markdown has it, with them."""
    for point, rows in groupby(comparison.rows, key=lambda row: row.point):
        at_point = list(rows)
        done = f"; {disturbance_text(point)}" if point.disturbance is not None else ""
        used = {side.generator for each in at_point for side in (each.base, each.other)}
        by = f"; {next(iter(used))}" if len(used) == 1 else ""  # who made the load, where all sides agree
        heading = Heading(point.name, f"{load_text(point)}{done}{by}")
        for each in at_point:
            base, other = each.pair
            pair = other if base == other else f"{other} against {base}"
            levels = _level(each, each.base), _level(each, each.other)
            effect = Cell(_effect(each), STYLES.get(each.decision, "dim"))
            mine, theirs = each.base.values.keys(), each.other.values.keys()
            blocks = str(len(mine & theirs)) if comparison.paired else f"{len(mine)}+{len(theirs)}"
            sure = p_text(each.holm_p), Cell(blocks, notes=each.notes)
            metric = f"{each.title} ({each.unit})" if each.unit else each.title
            under = [heading, Heading(pair, inner=True)]
            narrow = row(each.title, Cell(each.unit, "dim"), *levels, effect, *sure, under=under)
            strong = replace(effect, strong=each.decision.resolved)
            yield narrow, row(pair, metric, *levels, strong, *sure, under=[heading])


def _legend(comparison: Comparison) -> Iterator[str]:
    """How to read the table, as far as it holds for what stands in it."""
    shown = [(row.relative, side.level) for row in comparison.rows for side in (row.base, row.other) if side.level]
    if any(relative for relative, _ in shown):
        yield "absolute values: geometric mean of the solo blocks [95 % interval], percentiles of all their requests together"
    if any(not relative and level.n >= MIN_BLOCKS for relative, level in shown):
        yield "what came of a disturbance: median of the blocks [95 % interval of the median]"
    if any(level.n < MIN_BLOCKS for _, level in shown):
        yield FEW_BLOCKS
    if any(row.decision.judged for row in comparison.rows):
        how, test = "effect: the blocks' paired change", "paired t-test"
        if not comparison.paired:
            how = "effect: Hodges–Lehmann's shift between the runs; what drifted between them is part of it"
            test = "rank sum (Mann–Whitney)"
        yield f"{how} [95 % interval]"
        many = " and ".join(map(str, comparison.family)) or "0"
        yield (
            f"p: {test}, Holm-adjusted over {many} comparisons; same: within what is worth knowing; ~: cannot tell (p > {SURE_P},"
            " or no more than the baseline shows against itself)"
        )


def _level(row: Compared, side: CellStats) -> str:
    """`2.31 [2.29, 2.35]`, in the row's unit, `2.2–2.4` of few blocks, both of two clusters; – where nothing was measured, and a word
    where it stands below.
    """
    found, metric = side.absolute, about(row.metric)
    if row.apart is not None:
        return STANDS_APART
    if row.relative:
        text = absolute_text(metric, found)
        ends = [*map(metric.text, found.interval)] if found is not None and found.interval else []
        return f"{text} [{', '.join(ends)}]" if {*ends} - {text} else text
    if side.level is None:
        return "–"
    if side.level.n < MIN_BLOCKS:
        return absolute_text(metric, absolute_of([*side.values.values()], row.metric))
    value, low, high = map(metric.text, (side.level.value, side.level.low, side.level.high))
    return value if side.level.low is None or low == high == value else f"{value} [{low}, {high}]"


def _effect(row: Compared) -> str:
    """`−8.2 % [−9.1, −7.3]`, `~ [−1.2, +0.8] %`; – for what is not compared."""
    if row.estimate is None or row.decision is Decision.NOT_JUDGED:
        return "–"
    text = change_text(row, row.estimate)
    if row.decision is Decision.SAME:
        return f"same: {text}"
    unit = " %" if row.relative else ""
    return f"~{text[text.index(' [') :]}{unit}" if row.decision is Decision.CANNOT_TELL else text
