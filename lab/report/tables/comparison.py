"""A comparison as people read it, in the manner of benchstat: both medians, the effect, its p, and n.

    ceiling  64 connections, closed loop, 5 s, 1kB.bin
      keepalive against baseline
               rate  req/s   64,773 [61,002, 66,120]   62,575 [60,871, 64,330]   −2.4 % [−5.5, +0.9]   0.412   6

Milliseconds and microseconds only here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from rich.text import Text

from lab.analysis.comparison.comparison import Comparison
from lab.analysis.comparison.meeting import TWO_MACHINES
from lab.analysis.comparison.rows import Compared, change_text, size_text
from lab.analysis.comparison.run_cells import CellStats
from lab.analysis.comparison.verdicts import advices
from lab.analysis.decision import MARK_P, Decision
from lab.model.metrics import about
from lab.model.run import RunRecord
from lab.model.sweeps import Point
from lab.report.grid import Cell, Fold, Grid, Heading, Notes, Part, Row, Words, advice, columns, row
from lab.report.loads import disturbance_text, load_text
from lab.stats import paired as stats
from lab.stats.units import format_blocks

COLUMNS = columns(("", "", "base", "other", "effect", "p", "n"), left=(0, 1, 2, 3, 4, 6))
"""Numbers stand left where an interval or footnotes follow them."""
WIDE = columns(("arm", "metric", "base", "other", "effect", "floor", "p", "n"), left=(0, 1))
STYLES = {Decision.BETTER: "bold green", Decision.WORSE: "bold red", Decision.CANNOT_TELL: ""}
UNRESOLVED = "~"


def page(comparison: Comparison, shown: Sequence[Compared] | None = None) -> list[Part]:
    """The runs, each point's rows, how to read them, and a sentence per arm; in Markdown each row has its arm and its floor.

    `shown`: those of its rows that are printed. Their p-values, and what is advised of their arms, are of the whole comparison.
    """
    part = comparison if shown is None else replace(comparison, rows=tuple(shown))
    runs, pairs = runs_text(comparison), {row.pair for row in part.rows}
    advised = [each for each in advices(comparison) if shown is None or (each.base_arm, each.other_arm) in pairs]
    differs = (Text(note, "bold red" if note.startswith(TWO_MACHINES) else "dim") for note in part.notes)
    return [
        Words(tuple(map(Text, runs)), tuple(f"- {line}" for line in runs)),
        Grid(
            COLUMNS,
            tuple(_rows(part)),
            Fold((0, 1, 2, 3), (4, 5, 6), indent=8),
            gaps=(3, 2, 1),
            indent=4,
            blank=True,
            wide=Grid(WIDE, tuple(_wide_rows(part))),
        ),
        Notes(tuple(differs), tuple(Text(line, "dim") for line in legend(comparison)), blank=True),
        *(
            advice(each.text, each.snippet, bold=each.kind == "apply", blank=not number)
            for number, each in enumerate(advised)
        ),
    ]


def _rows(comparison: Comparison) -> Iterator[Row]:
    for point, rows in _by_point(comparison):
        heading = _heading(point, rows)
        for each in rows:
            pair = Heading(_pair_text(*each.pair), inner=True)
            yield row(*_cells(each, comparison.paired), under=[heading, pair])


def _wide_rows(comparison: Comparison) -> Iterator[Row]:
    for point, rows in _by_point(comparison):
        heading = _heading(point, rows)
        for each in rows:
            title, unit, base, other, effect, p_value, n = _cells(each, comparison.paired)
            metric = f"{title.text} ({unit.text})" if unit.text else title.text
            floor = size_text(each, each.floor) if each.floor is not None else "–"
            told = replace(effect, strong=each.decision.resolved)
            yield row(_pair_text(*each.pair), metric, base, other, told, floor, p_value, n, under=[heading])


def _by_point(comparison: Comparison) -> Iterator[tuple[Point, list[Compared]]]:
    return ((point, list(rows)) for point, rows in groupby(comparison.rows, key=lambda row: row.point))


def runs_text(comparison: Comparison) -> list[str]:
    """Which runs stand side by side."""
    if comparison.paired:
        return [f"{_run_text(comparison.base)}; paired by block"]
    return [f"base   {_run_text(comparison.base)}", f"other  {_run_text(comparison.other)}; unpaired"]


def _run_text(record: RunRecord) -> str:
    return f"{record.id}: {record.target}, sweep {record.sweep}, {format_blocks(record.blocks)}"


def _pair_text(base: str, other: str) -> str:
    return other if base == other else f"{other} against {base}"


def _heading(point: Point, rows: Sequence[Compared]) -> Heading:
    """The load in words, and who made it where all sides agree."""
    done = f"; {disturbance_text(point)}" if point.disturbance is not None else ""
    used = {side.generator for row in rows for side in (row.base, row.other)}
    by = f"; {next(iter(used))}" if len(used) == 1 else ""
    return Heading(point.name, f"{load_text(point)}{done}{by}")


def legend(comparison: Comparison) -> Iterator[str]:
    """How to read the table, as far as it holds for what stands in it."""
    if any(row.base.level or row.other.level for row in comparison.rows):
        yield f"median of the blocks [95 % interval of the median, from {stats.MIN_BLOCKS} blocks on]"
    if any(row.decision.judged for row in comparison.rows):
        many = " and ".join(map(str, comparison.family)) or "0"
        how = (
            "effect: the blocks' paired change"
            if comparison.paired
            else "effect: Hodges–Lehmann's shift between the runs; what drifted between them is part of it"
        )
        yield f"{how} [95 % interval]"
        test = "paired t-test" if comparison.paired else "rank sum (Mann–Whitney)"
        yield (
            f"p: {test}, Holm-adjusted over {many} comparisons; ~: not resolved (p > {MARK_P}, or within the A/A floor)"
        )
        if any(row.primary and row.decision.judged for row in comparison.rows):
            yield "a variant's primary metric, as in `just table`: p is its own; ~: not wholly beyond the A/A floor"


def _cells(row: Compared, paired: bool) -> list[Cell]:
    return [
        Cell(row.title),
        Cell(row.unit, "dim"),
        Cell(level_text(row, row.base)),
        Cell(level_text(row, row.other)),
        Cell(effect_text(row), STYLES.get(row.decision, "dim")),
        Cell(p_text(row.p_value)),
        Cell(n_text(row, paired), notes=row.notes),
    ]


def level_text(row: Compared, side: CellStats) -> str:
    """`2.31 [2.29, 2.35]`, in the row's unit; – where nothing was measured."""
    level = side.level
    if level is None:
        return "–"
    text = _value(row, level.value)
    if level.low is None or level.high is None:
        return text
    low, high = _value(row, level.low), _value(row, level.high)
    return text if low == high == text else f"{text} [{low}, {high}]"


def _value(row: Compared, value: float) -> str:
    return about(row.metric).text(value)


def effect_text(row: Compared) -> str:
    """`−8.2 % [−9.1, −7.3]`, `~ [−1.2, +0.8] %`; – for what is not compared."""
    if row.estimate is None or row.decision is Decision.NOT_JUDGED:
        return "–"
    if row.decision is Decision.NO_INTERVAL:
        return change_text(row, row.estimate)
    text = change_text(row, row.estimate)
    unit = " %" if row.relative else ""
    return f"{UNRESOLVED}{text[text.index(' [') :]}{unit}" if row.decision is Decision.CANNOT_TELL else text


def p_text(p_value: float | None) -> str:
    if p_value is None:
        return "–"
    return "<0.001" if p_value < 0.001 else f"{p_value:.3f}"


def n_text(row: Compared, paired: bool) -> str:
    """Pairs of one run, or blocks of base and other: `6+6`."""
    mine, theirs = row.base.values.keys(), row.other.values.keys()
    return str(len(mine & theirs)) if paired else f"{len(mine)}+{len(theirs)}"
