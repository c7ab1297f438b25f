"""What a finished run says, with its study's tables beside what every run has: as parts of a page, and as `--json` has it.

A study's table has the published shape: each cell as measured here, with its interval, beside the published number. Refuses to set absolute
numbers of other machines against each other: it shows both and, where the study names a reference cell, what each is relative to that cell on
its own machine. A cell that cannot be trusted says why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from lab.analysis.aggregate.generations import Levels
from lab.analysis.explain.notes import WHY_NO_MORE
from lab.analysis.judge.rows import Row
from lab.analysis.summary import Summary
from lab.model.metrics import Ratio
from lab.model.run import RoundTrip
from lab.report import grid
from lab.report.grid import Column, Grid, Notes, Part, Words
from lab.report.json.runs import LEVELS, NOISE_LINE, OUTCOMES, STEADY, VERDICT, VERDICTS, VERSION_2
from lab.report.json.shape import Key
from lab.report.json.shape import Shape as JsonShape
from lab.report.result import Result
from lab.stats import paired as stats
from lab.stats.units import digits, format_blocks, format_range, significant, with_interval
from lab.studies.study_files import Cell, Shape, Study, cells, load_study, published, study_keys

HONEST = "published numbers are of other machines: compare patterns, not levels"
MEASURED = (
    "measured: geometric means of the blocks with their 95 % interval, percentiles of all requests, as above;"
    " 19–24: the smallest and the largest of fewer than six blocks; 370|59,000: blocks in two clusters"
)
SCALES = {"req/s": 1.0, "s": 1.0, "ms": 1e-3, "µs": 1e-6}
Relative = tuple[float, float | None, float | None]


@dataclass(frozen=True, slots=True)
class StudyLevel:
    """What was measured, in the table's unit; its interval is that of the geometric mean of `n` blocks.

    `value`: None where the blocks fall into two clusters, of each of which `clusters` has the blocks and their mean.
    """

    value: float | None
    low: float | None
    high: float | None
    n: int
    smallest: float
    largest: float
    clusters: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class StudyCell:
    """One cell: as measured here (`level` None: not part of this run), and as published.

    `keys`: what it is the cell of, by the table's keys. `relative`: to the table's reference cell, over the blocks that have both, with its
    95 % interval.
    """

    keys: dict[str, str]
    variant: str | None
    point: str | None
    level: StudyLevel | None
    published: float | None
    relative: Relative | None
    published_relative: float | None
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Shaped:
    """One table of a study, filled in."""

    shape: Shape
    rows: tuple[tuple[str, ...], ...]
    columns: tuple[tuple[str, ...], ...]
    cells: Mapping[tuple[str, ...], StudyCell]


@dataclass(frozen=True, slots=True)
class ShapedStudy:
    """A study's run in the published shape."""

    key: str
    question: str
    tables: tuple[Shaped, ...]


STUDY_TABLE = JsonShape(
    "StudyTable",
    Shaped,
    "title=shape.title unit=shape.unit reference=shape.reference",
    Key("cells", lambda table: tuple(table.cells.values()), tuple[StudyCell, ...]),
    parts=[JsonShape("StudyCell", StudyCell, parts=[JsonShape("StudyLevel", StudyLevel)])],
)
RESULT = JsonShape(
    "Result",
    Summary,
    VERSION_2,
    "target blocks seed complete",
    NOISE_LINE,
    "not_measurable notes",
    VERDICTS,
    "rows",
    Key("roundtrip", None, RoundTrip | None),
    Key("study", None, ShapedStudy | None),
    Key("outcomes", None, Summary | None),
    Key("levels", None, tuple[Levels, ...] | None),
    parts=[VERDICT, STEADY, JsonShape("Study", ShapedStudy, parts=[STUDY_TABLE]), OUTCOMES, LEVELS],
    title="What `bench --json` and `table --json` print; seconds, requests per second, ratios; null = not known",
    left_out=("study", "outcomes", "levels"),
)
"""Of the steady loads; whoever prints gives what a run has beside them, and whether all of it is complete."""


def shape_study(result: Result) -> ShapedStudy | None:
    """Return the run's study with its tables in the published shape; None where it has none. UsageError for a damaged study's file."""
    key = result.run.record.study
    if key not in study_keys() or result.summaries[0] not in result.told:
        return None
    study = load_study(key)
    return ShapedStudy(study.key, study.file.question, shaped(study, result.summaries[0]))


def study_page(result: Result) -> list[Part]:
    """Return the tables of the run's study in the published shape; empty where it has none."""
    study = shape_study(result)
    return page(study.tables) if study else []


def result_json(result: Result) -> dict[str, Any]:
    """Return a result as `--json` has it."""
    steady, disturbed = result.summaries
    return RESULT.plain(
        steady,
        complete=result.complete,
        roundtrip=result.run.roundtrip(),
        study=shape_study(result),
        outcomes=disturbed if disturbed.rows else None,
        levels=tuple(result.levels) or None,
    )


# -- a study's tables, filled in ------------------------------------------------------------------------------


def shaped(study: Study, summary: Summary) -> tuple[Shaped, ...]:
    """The study's tables for this run; a published cell that the run did not measure stays with its published number."""
    points = list({row.point.name: row.point for row in summary.rows}.values())
    rows = {(row.arm.name, row.point.name): row for row in summary.rows}
    absent = {item.variant: f"not measurable: {item.what}: {item.why}" for item in summary.not_measurable}
    found: list[Shaped] = []
    for shape in study.file.tables:
        measured = {cell.key: cell for cell in cells(shape, points)}
        told = published(shape)
        split = len(shape.rows)
        filled = {key: _cell(shape, key, measured, told, rows, absent) for key in dict.fromkeys((*told, *measured))}
        heads, sides = dict.fromkeys(key[:split] for key in filled), dict.fromkeys(key[split:] for key in filled)
        found.append(Shaped(shape, tuple(heads), tuple(sides), filled))
    return tuple(found)


def _cell(
    shape: Shape,
    key: tuple[str, ...],
    measured: Mapping[tuple[str, ...], Cell],
    told: Mapping[tuple[str, ...], float],
    rows: Mapping[tuple[str, str], Row],
    absent: Mapping[str, str],
) -> StudyCell:
    keys = dict(zip(shape.keys, key, strict=True))
    other = tuple(shape.reference.get(name, value) for name, value in keys.items())
    compared = bool(shape.reference) and other != key
    told_here, told_there = told.get(key), told.get(other)
    told_ratio = told_here / told_there if compared and told_here and told_there else None
    cell, reference = measured.get(key), measured.get(other)
    if cell is None:
        return StudyCell(keys, None, None, None, told_here, None, told_ratio, ("not part of this run's load",))
    row = rows.get((cell.variant, cell.point))
    level = _level(row, cell.metric, SCALES[shape.unit]) if row else None
    relative = None
    if compared and reference is not None and row is not None:
        base = rows.get((reference.variant, reference.point))
        relative = _relative(row.cell.known(cell.metric), base.cell.known(reference.metric) if base else {})
    notes = _notes(row, cell, level)
    if cell.variant in absent:
        notes = (absent[cell.variant],)
    return StudyCell(keys, cell.variant, cell.point, level, told_here, relative, told_ratio, notes)


def _level(row: Row, metric: Ratio, scale: float) -> StudyLevel | None:
    """The value that the run's own table shows, in this table's unit, and the interval of the blocks' geometric mean."""
    found = row.cell.absolute(metric)
    if found is None:
        return None
    values = [value / scale for value in row.cell.known(metric).values()]
    enough = len(values) >= stats.MIN_BLOCKS and not found.clusters
    mean = stats.level(values) if enough else None
    shown = row.cell.shown(metric)
    return StudyLevel(
        value=None if shown is None else shown / scale,
        low=mean and mean.low,
        high=mean and mean.high,
        n=len(values),
        smallest=found.low / scale,
        largest=found.high / scale,
        clusters=tuple((one.blocks, one.value / scale) for one in found.clusters),
    )


def _relative(values: Mapping[int, float], theirs: Mapping[int, float]) -> Relative | None:
    """Paired by block; where the reference was measured in few blocks, mean against mean and without an interval."""
    both = sorted(values.keys() & theirs.keys())
    if both and (len(both) >= stats.MIN_BLOCKS or len(both) == len(values)):
        estimate = stats.paired([values[block] for block in both], [theirs[block] for block in both])
        low, high = estimate.ratio_interval or (None, None)
        return estimate.ratio, low, high
    if values and theirs:
        mine, other = (stats.level(list(side.values())).value for side in (values, theirs))
        return mine / other, None, None
    return None


def _notes(row: Row | None, cell: Cell, level: StudyLevel | None) -> tuple[str, ...]:
    if row is None:
        return (f"'{cell.variant}' is not part of this run",)
    limits = {"generator": "generator-limited: the proxy could do more", **WHY_NO_MORE}
    limited = [limits[limit] for limit in row.cell.limits if limit in limits and cell.metric != "cpu_per_request"]
    reasons = ", ".join(row.cell.invalid) or "not measured"
    clusters = level.clusters if level is not None else ()
    sizes = " and ".join(str(blocks) for blocks, _ in clusters)
    few = level is not None and not clusters and level.low is None
    others = (
        (
            row.cell.valid_blocks < row.cell.planned_blocks,
            f"{row.cell.valid_blocks} of {format_blocks(row.cell.planned_blocks)} valid: {reasons}",
        ),
        (bool(row.cell.stand_in_for), f"{row.cell.generator} stood in for {row.cell.stand_in_for}"),
        (level is None and row.cell.valid_blocks > 0, f"no {cell.metric}: too few requests beyond it"),
        (bool(clusters), f"two clusters, of {sizes} blocks: no mean describes them"),
        (few, f"no interval below {stats.MIN_BLOCKS} blocks"),
    )
    return (*limited, *(text for there, text in others if there))


def page(tables: Sequence[Shaped]) -> list[Part]:
    """Each table, never folded, with its notes."""
    parts: list[Part] = []
    for table in tables:
        name, unit, shape = table.shape.title, table.shape.unit, table.shape
        other = ["published"] if shape.published else []  # where nothing was published, ours alone
        sides = ["measured [95 %]", *other, *(["relative", *other] if shape.reference else [])]
        rows = [
            grid.row(*names, *(cell for column in table.columns for cell in _parts(table, names + column, len(sides))))
            for names in table.rows
        ]
        columns = [Column(key.replace("_", " "), stands="left") for key in shape.rows]
        for key in table.columns:  # over those of a published column stands what it is of
            columns += [Column(side, over="" if number else " ".join(key)) for number, side in enumerate(sides)]
        notes = [MEASURED, *([HONEST] if shape.published else [])]
        if shape.reference:
            both = ", here and as published" if shape.published else ""
            to = (f"{key.replace('_', ' ')} {value}" for key, value in shape.reference.items())
            notes.append(f"relative: to {', '.join(to)}{both}")
        notes += [shape.note] if shape.note else []
        head = Text.assemble((name, "bold cyan"), (f"  {unit}", "dim"))
        parts += [
            Words((head,), (f"**{name}** ({unit})",), blank=True),
            Grid(tuple(columns), tuple(rows)),
            Notes(tuple(Text(note, "dim") for note in notes)),
        ]
    return parts


def _parts(table: Shaped, key: tuple[str, ...], count: int) -> list[str | grid.Cell]:
    """A value with its interval, of fewer than six blocks the smallest and the largest, and two clusters as two; and what stands beside it."""
    shown = table.cells.get(key)
    if shown is None:
        return [""] * count
    level, found = shown.level, "–"
    if level is not None and level.clusters:
        found = "|".join(significant(value, 2) for _, value in level.clusters)
    elif level is not None and level.n >= stats.MIN_BLOCKS:
        found = with_interval(level.value, level.low, level.high)
    elif level is not None:
        found = format_range(level.smallest, level.largest)
    parts: list[str | grid.Cell] = [grid.Cell(found, notes=shown.notes)]
    parts += [digits(shown.published)] if table.shape.published else []
    if table.shape.reference:
        parts.append(_ratio(*(shown.relative or [None])))
        parts += [_ratio(shown.published_relative)] if table.shape.published else []
    return parts


def _ratio(value: float | None, low: float | None = None, high: float | None = None) -> str:
    """`0.46× [0.44, 0.48]`; – for None."""
    ends = f" [{low:.2f}, {high:.2f}]" if low is not None and high is not None else ""
    return "–" if value is None else f"{value:.2f}×{ends}"
