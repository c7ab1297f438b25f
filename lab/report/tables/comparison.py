"""A comparison as a terminal table and as Markdown, in the manner of benchstat: both medians, the effect, its p, and n.

    ceiling  64 connections, closed loop, 5 s, 1kB.bin
      keepalive against baseline
               rate  req/s   64,773 [61,002, 66,120]   62,575 [60,871, 64,330]   −2.4 % [−5.5, +0.9]   0.412   6

Milliseconds and microseconds only here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from lab.analysis.comparison.comparison import Comparison
from lab.analysis.comparison.meeting import TWO_MACHINES
from lab.analysis.comparison.rows import Compared, change_text, size_text
from lab.analysis.comparison.sides import Side
from lab.analysis.comparison.verdicts import advices
from lab.analysis.summary import MARK_P
from lab.base.text import aligned
from lab.model.metrics import METRICS
from lab.model.run import RunRecord
from lab.model.sweeps import Point
from lab.report.tables.outcomes import disturbance_text
from lab.report.tables.steady import load_text, superscript
from lab.stats import paired as stats
from lab.stats.units import format_blocks, format_rate, three_digits

LEFT_ABOVE, LEFT_BELOW = frozenset({0, 1, 2, 3}), frozenset({0, 2})
LEFT = frozenset({0, 1, 2, 3, 4, 6})
"""Numbers stand left where an interval or footnotes follow them."""
STYLES = {"better": "bold green", "worse": "bold red", "unresolved": "", "no-interval": "dim", "not-compared": "dim"}
UNRESOLVED = "~"


def print_table(console: Console, comparison: Comparison, width: int | None = None) -> None:
    """The runs, each point's rows, numbered notes, and a sentence per arm. One line per row where it fits, else two.

    What is not a terminal gets one line per row whatever its length, so that logs can be searched.
    """
    limit = width or (console.width if console.is_terminal else None)
    found = [*table_lines(comparison, limit), Text("")]
    for advice in advices(comparison):
        found.append(Text(advice.text, style="bold" if advice.kind == "apply" else ""))
        found += [Text(f"  {line}") for line in advice.snippet.splitlines()]
    for line in found:
        line.rstrip()
        console.print(line, soft_wrap=limit is None, highlight=False)


def table_lines(comparison: Comparison, width: int | None) -> list[Text]:
    numbers = _numbered(comparison)
    head = [Text(title, style="bold") for title in ("", "", "base", "other", "effect", "p", "n")]
    grid = [
        head,
        *(
            [Text(text, style=style) for text, style in _cells(row, numbers, comparison.paired)]
            for row in comparison.rows
        ),
    ]
    layouts = ((_one_line, 3), (_one_line, 2), (_one_line, 1), (_two_lines, 2), (_two_lines, 1))
    made = (layout(grid, gap) for layout, gap in layouts)
    blocks = next((found for found in made if width is None or _width(found) <= width), _two_lines(grid, 1))
    lines = [*(Text(line) for line in runs_text(comparison)), Text(""), *blocks[0]]
    place = 1
    for point, rows in _by_point(comparison):
        lines += [Text(""), _heading(point, rows)]
        for pair, own in groupby(rows, key=lambda row: row.pair):
            lines.append(Text(f"  {_pair_text(*pair)}", style="bold"))
            for _ in own:
                lines += blocks[place]
                place += 1
    return [*lines, Text(""), *(Text(note, style=style) for note, style in _notes(comparison, numbers))]


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


def _heading(point: Point, rows: Sequence[Compared]) -> Text:
    """The load in words, and who made it where all sides agree."""
    done = f"; {disturbance_text(point)}" if point.disturbance is not None else ""
    used = {side.generator for row in rows for side in (row.base, row.other)}
    by = f"; {next(iter(used))}" if len(used) == 1 else ""
    return Text.assemble((point.name, "bold cyan"), (f"  {load_text(point)}{done}{by}", "dim"))


def _one_line(grid: Sequence[Sequence[Text]], gap: int) -> list[list[Text]]:
    return [[Text.assemble("    ", line)] for line in aligned(grid, LEFT, gap)]


def _two_lines(grid: Sequence[Sequence[Text]], gap: int) -> list[list[Text]]:
    """Both sides above, the effect with its p and n below."""
    above = aligned([row[:4] for row in grid], LEFT_ABOVE, gap)
    below = aligned([row[4:] for row in grid], LEFT_BELOW, gap)
    pairs = zip(above, below, strict=True)
    return [[Text.assemble("    ", one), Text.assemble("        ", two)] for one, two in pairs]


def _width(blocks: Sequence[Sequence[Text]]) -> int:
    return max(cell_len(line.plain.rstrip()) for block in blocks for line in block)


def _numbered(comparison: Comparison) -> dict[str, int]:
    notes = dict.fromkeys(note for row in comparison.rows for note in row.notes)
    return {note: number for number, note in enumerate(notes, 1)}


def _notes(comparison: Comparison, numbers: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """What is compared at all stands first; then the rows' footnotes, then how to read the table."""
    for note in comparison.notes:
        yield note, "bold red" if note.startswith(TWO_MACHINES) else "dim"
    for note, number in numbers.items():
        yield f"{superscript(number)} {note}", "dim"
    yield from ((line, "dim") for line in legend(comparison))


def legend(comparison: Comparison) -> Iterator[str]:
    """How to read the table, as far as it holds for what stands in it."""
    judgements = {row.judgement for row in comparison.rows}
    if any(row.base.level or row.other.level for row in comparison.rows):
        yield f"median of the blocks [95 % interval of the median, from {stats.MIN_BLOCKS} blocks on]"
    if judgements & {"better", "worse", "unresolved"}:
        many = sum(row.tested for row in comparison.rows)
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


def _cells(row: Compared, numbers: Mapping[str, int], paired: bool) -> list[tuple[str, str]]:
    refs = ",".join(superscript(numbers[note]) for note in row.notes)
    style = STYLES[row.judgement]
    return [
        (row.title, ""),
        (row.unit, "dim"),
        (level_text(row, row.base), ""),
        (level_text(row, row.other), ""),
        (effect_text(row), style),
        (p_text(row.holm_p), ""),
        (f"{n_text(row, paired)}{refs}", ""),
    ]


def level_text(row: Compared, side: Side) -> str:
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
    if not row.relative:
        return METRICS[row.metric].text(value)
    return format_rate(value) if row.metric == "rate" else three_digits(value, 1e6 if row.unit == "µs" else 1e3)


def effect_text(row: Compared) -> str:
    """`−8.2 % [−9.1, −7.3]`, `~ [−1.2, +0.8] %`; – for what is not compared."""
    if row.estimate is None or row.judgement == "not-compared":
        return "–"
    if row.judgement == "no-interval":
        return change_text(row, row.estimate)
    text = change_text(row, row.estimate)
    unit = " %" if row.relative else ""
    return f"{UNRESOLVED}{text[text.index(' [') :]}{unit}" if row.judgement == "unresolved" else text


def p_text(p_value: float | None) -> str:
    if p_value is None:
        return "–"
    return "<0.001" if p_value < 0.001 else f"{p_value:.3f}"


def n_text(row: Compared, paired: bool) -> str:
    """Pairs of one run, or blocks of base and other: `6+6`."""
    mine, theirs = row.base.values.keys(), row.other.values.keys()
    return str(len(mine & theirs)) if paired else f"{len(mine)}+{len(theirs)}"


def as_markdown(comparison: Comparison, shown: Sequence[Compared] | None = None) -> str:
    """One table per point with an arm's name in each row, then the same notes and sentences.

    `shown`: those of its rows that are printed. Their p-values, and what is advised of their arms, are of the whole comparison.
    """
    part = comparison if shown is None else replace(comparison, rows=tuple(shown))
    numbers, pairs = _numbered(part), {row.pair for row in part.rows}
    lines = [f"- {line}" for line in runs_text(comparison)]
    for point, rows in _by_point(part):
        lines += ["", f"**{_heading(point, rows).plain.replace('  ', '**: ', 1)}", ""]
        lines += [
            "| arm | metric | base | other | effect | floor | p | n |",
            "| :-- | :-- | --: | --: | --: | --: | --: | --: |",
        ]
        for row in rows:
            title, unit, base, other, effect, p_value, n = (text for text, _ in _cells(row, numbers, comparison.paired))
            metric = f"{title} ({unit})" if unit else title
            floor = size_text(row, row.floor) if row.floor is not None else "–"
            told = f"**{effect}**" if row.judgement in ("better", "worse") else effect
            lines.append(f"| {' | '.join((_pair_text(*row.pair), metric, base, other, told, floor, p_value, n))} |")
    lines += ["", *(f"- {note}" for note, _ in _notes(comparison, numbers))]
    for advice in (each for each in advices(comparison) if (each.base_arm, each.other_arm) in pairs):
        lines += ["", advice.text, *(["", "```", advice.snippet.rstrip(), "```"] if advice.snippet else [])]
    return "\n".join(lines) + "\n"
