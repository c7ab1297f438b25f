"""A study's run in the published shape: each cell as measured here, with its interval, beside the published number.

Refuses to set absolute numbers of other machines against each other: it shows both and, where the study names a reference
cell, what each is relative to that cell on its own machine. A cell that cannot be trusted says why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.text import Text

from lab.analysis.explain.notes import WHY_NO_MORE
from lab.analysis.judge.rows import Row
from lab.analysis.summary import Summary
from lab.report import grid
from lab.report.grid import Column, Grid, Notes, Part, Words
from lab.stats import paired as stats
from lab.stats.units import digits, format_blocks, format_range, significant, with_interval
from lab.studies.study_files import Cell, Shape, Study, cells, headings, published

HONEST = "published numbers are of other machines: compare patterns, not levels"
MEASURED = (
    "measured: geometric means of the blocks with their 95 % interval, percentiles of all requests, as above;"
    " 19–24: the smallest and the largest of fewer than six blocks; 370|59,000: blocks in two clusters"
)
SCALES = {"req/s": 1.0, "s": 1.0, "ms": 1e-3, "µs": 1e-6}


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
    relative: tuple[float, float | None, float | None] | None
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


def shaped(study: Study, summary: Summary) -> tuple[Shaped, ...]:
    """The study's tables for this run; a published cell that the run did not measure stays with its published number."""
    return tuple(_shaped(shape, summary) for shape in study.file.tables)


def _shaped(shape: Shape, summary: Summary) -> Shaped:
    points = list({row.point.name: row.point for row in summary.rows}.values())
    measured = {cell.key: cell for cell in cells(shape, points)}
    told = published(shape)
    rows = {(row.arm.name, row.point.name): row for row in summary.rows}
    absent = {item.variant: f"not measurable: {item.what}: {item.why}" for item in summary.not_measurable}
    every = dict.fromkeys((*told, *measured))
    found = {key: _cell(shape, key, measured, told, rows, absent) for key in every}
    heads = headings(shape, measured)
    return Shaped(shape, tuple(heads[0]), tuple(heads[1]), found)


def _cell(
    shape: Shape,
    key: tuple[str, ...],
    measured: Mapping[tuple[str, ...], Cell],
    told: Mapping[tuple[str, ...], float],
    rows: Mapping[tuple[str, str], Row],
    absent: Mapping[str, str],
) -> StudyCell:
    other = tuple(shape.reference.get(name, value) for name, value in zip(shape.keys, key, strict=True))
    compared = bool(shape.reference) and other != key
    told_here, told_there = told.get(key), told.get(other)
    cell, reference = measured.get(key), measured.get(other)
    level = _level(cell, rows, SCALES[shape.unit]) if cell else None
    return StudyCell(
        keys=dict(zip(shape.keys, key, strict=True)),
        variant=cell.variant if cell else None,
        point=cell.point if cell else None,
        level=level,
        published=told_here,
        relative=_relative(cell, reference, rows) if compared and cell and reference else None,
        published_relative=told_here / told_there if compared and told_here and told_there else None,
        notes=_notes(cell, rows, level, absent) if cell else ("not part of this run's load",),
    )


def _level(cell: Cell, rows: Mapping[tuple[str, str], Row], scale: float) -> StudyLevel | None:
    """The value that the run's own table shows, in this table's unit, and the interval of the blocks' geometric mean."""
    row, values = rows.get((cell.variant, cell.point)), _values(cell, rows)
    found = row.cell.absolute(cell.metric) if row else None
    if row is None or found is None:
        return None
    enough = len(values) >= stats.MIN_BLOCKS and not found.clusters
    mean = stats.level([value / scale for value in values.values()]) if enough else None
    shown = row.cell.shown(cell.metric)
    return StudyLevel(
        value=None if shown is None else shown / scale,
        low=mean and mean.low,
        high=mean and mean.high,
        n=len(values),
        smallest=found.low / scale,
        largest=found.high / scale,
        clusters=tuple((one.blocks, one.value / scale) for one in found.clusters),
    )


def _relative(
    cell: Cell, reference: Cell, rows: Mapping[tuple[str, str], Row]
) -> tuple[float, float | None, float | None] | None:
    """Paired by block; where the reference was measured in few blocks, mean against mean and without an interval."""
    values, theirs = _values(cell, rows), _values(reference, rows)
    both = sorted(values.keys() & theirs.keys())
    if len(both) >= stats.MIN_BLOCKS or len(both) == len(values):
        if not both:
            return None
        estimate = stats.paired([values[block] for block in both], [theirs[block] for block in both])
        low, high = estimate.ratio_interval or (None, None)
        return estimate.ratio, low, high
    if values and theirs:
        mine, other = (stats.level(list(side.values())).value for side in (values, theirs))
        return mine / other, None, None
    return None


def _values(cell: Cell, rows: Mapping[tuple[str, str], Row]) -> Mapping[int, float]:
    """Block → value, in seconds or requests per second."""
    row = rows.get((cell.variant, cell.point))
    return row.cell.known(cell.metric) if row else {}


def _notes(
    cell: Cell, rows: Mapping[tuple[str, str], Row], level: StudyLevel | None, absent: Mapping[str, str]
) -> tuple[str, ...]:
    row = rows.get((cell.variant, cell.point))
    if cell.variant in absent:
        return (absent[cell.variant],)
    if row is None:
        return (f"'{cell.variant}' is not part of this run",)
    notes: list[str] = []
    if cell.metric != "cpu_per_request":
        limits = {"generator": "generator-limited: the proxy could do more", **WHY_NO_MORE}
        notes += [limits[limit] for limit in row.cell.limits if limit in limits]
    if row.cell.valid_blocks < row.cell.planned_blocks:
        reasons = ", ".join(row.cell.invalid) or "not measured"
        notes.append(f"{row.cell.valid_blocks} of {format_blocks(row.cell.planned_blocks)} valid: {reasons}")
    if row.cell.stand_in_for:
        notes.append(f"{row.cell.generator} stood in for {row.cell.stand_in_for}")
    if level is None and row.cell.valid_blocks:
        notes.append(f"no {cell.metric}: too few requests beyond it")
    elif level is not None and level.clusters:
        (few, _), (more, _) = level.clusters
        notes.append(f"two clusters, of {few} and {more} blocks: no mean describes them")
    elif level is not None and level.low is None:
        notes.append(f"no interval below {stats.MIN_BLOCKS} blocks")
    return tuple(notes)


def page(tables: Sequence[Shaped]) -> list[Part]:
    """Each table, never folded, with its notes."""
    parts: list[Part] = []
    for table in tables:
        name, unit, shape = table.shape.title, table.shape.unit, table.shape
        head = Text.assemble((name, "bold cyan"), (f"  {unit}", "dim"))
        rows = [
            grid.row(*names, *(cell for column in table.columns for cell in _parts(table, names + column)))
            for names in table.rows
        ]
        first, *rest = _sides(shape)
        columns = (
            *(Column(key.replace("_", " "), stands="left") for key in shape.rows),
            *(
                column
                for key in table.columns  # over those of a published column stands what it is of
                for column in (Column(first, over=" ".join(key)), *(Column(side) for side in rest))
            ),
        )
        notes = [MEASURED, *([HONEST] if shape.published else [])]
        if shape.reference:
            both = ", here and as published" if shape.published else ""
            to = (f"{key.replace('_', ' ')} {value}" for key, value in shape.reference.items())
            notes.append(f"relative: to {', '.join(to)}{both}")
        notes += [shape.note] if shape.note else []
        parts += [
            Words((head,), (f"**{name}** ({unit})",), blank=True),
            Grid(columns, tuple(rows)),
            Notes(tuple(Text(note, "dim") for note in notes)),
        ]
    return parts


def _sides(shape: Shape) -> list[str]:
    """What stands in each of the published columns; where nothing was published, ours alone."""
    other = ["published"] if shape.published else []
    return ["measured [95 %]", *other, *(["relative", *other] if shape.reference else [])]


def _parts(table: Shaped, key: tuple[str, ...]) -> list[str | grid.Cell]:
    """A value with its interval, of fewer than six blocks the smallest and the largest, and two clusters as two; and what stands beside it."""
    shown = table.cells.get(key)
    if shown is None:
        return [""] * len(_sides(table.shape))
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
