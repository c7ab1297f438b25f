"""The result of a finished run with its study's tables: as parts of a page, and as `--json` prints it.

A study's table has the layout of the publication. Each cell has the value that was measured here, with its interval, and the
published number. Absolute values of different machines are never compared. If the study names a reference cell, each value is
also shown as a ratio to this cell on its own machine. A cell that cannot be trusted has a note with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from lab.analysis.aggregate.generations import VarianceComponents
from lab.analysis.explain.notes import LIMIT_NOTES
from lab.analysis.judge.rows import SummaryRow
from lab.analysis.rate_costs import RateCost
from lab.analysis.summary import Summary
from lab.model.metrics import Ratio
from lab.model.run import RoundTrip
from lab.report.grid import Grid, Notes, Part, Sentences, TableCell, TableColumn, make_row
from lab.report.json.runs import LEVELS, NOISE_LINE, OUTCOMES, RATE_COST, STEADY, VERDICT, VERDICTS, VERSION_3
from lab.report.json.shape import JsonKey, JsonShape
from lab.report.result import RunResult
from lab.stats import paired as stats
from lab.stats.units import format_blocks, format_digits, format_range, format_significant, format_with_interval
from lab.studies.study_files import (
    Shape,
    StudyFile,
    StudyTableCell,
    list_cells,
    list_studies,
    load_study,
    read_published,
)

NOTE_OTHER_MACHINES = "published numbers are of other machines: compare patterns, not levels"
"""The note below a table with published numbers."""
MEASURED = (
    "measured: geometric means of the blocks with their 95 % interval, percentiles of all requests, as above;"
    " a–b: the smallest and the largest of fewer than six blocks; a|b: blocks in two clusters"
)
"""The note below every table: how measured values are written."""
SCALES = {"req/s": 1.0, "s": 1.0, "ms": 1e-3, "µs": 1e-6}
"""The size of each unit of a table in seconds or requests per second."""
RelativeToReference = tuple[float, float | None, float | None]
"""A ratio to the reference cell, with the ends of its 95 % interval (None: no interval)."""


@dataclass(frozen=True, slots=True)
class StudyLevel:
    """The measured value of one cell of a study's table, with its interval; all numbers are in the table's unit.

    A block is one repetition of the run's plan.

    Attributes:
        value: The value; None where the blocks fall into two clusters.
        low: The lower end of the 95 % interval of the blocks' geometric mean; None: no interval.
        high: The upper end of that interval; None: no interval.
        n: The number of blocks.
        smallest: The smallest value of a block.
        largest: The largest value of a block.
        clusters: (number of blocks, mean) for each of two clusters of values (bimodal); empty otherwise.

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
    """A cell of a study's table, as measured here and as published.

    Attributes:
        keys: The cell's place in the table: published column → value.
        variant: The variant that is measured for the cell; None: this run has no load point for the cell.
        point: The load point that is measured for the cell; None: this run has none.
        level: The measured value; None: the run did not measure the cell, or no block (repetition) has the metric.
        published: The published value in the table's unit; None: none was published.
        relative: The measured ratio to the table's reference cell: (ratio, lower end, upper end) over the blocks that
            have both cells. With too few such blocks, it is the ratio of the geometric means, without ends. None: one
            of the cells has no block, or the cell is compared with no other.
        published_relative: The ratio of the published values; None: none.
        notes: Reasons why the measured value cannot be trusted or is missing.

    """

    keys: dict[str, str]
    variant: str | None
    point: str | None
    level: StudyLevel | None
    published: float | None
    relative: RelativeToReference | None
    published_relative: float | None
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ShapedTable:
    """A study's table in the form of the publication, with published and measured values in each cell.

    A row or column is headed by the values of one or more published columns, for example `('100', 'tuned')`.

    Attributes:
        shape: The table as the study's file defines it.
        rows: The values that head each row.
        columns: The values that head each column.
        cells: Key of a cell → cell. The key is the row's values, followed by the column's.

    """

    shape: Shape
    rows: tuple[tuple[str, ...], ...]
    columns: tuple[tuple[str, ...], ...]
    cells: Mapping[tuple[str, ...], StudyCell]


@dataclass(frozen=True, slots=True)
class ShapedStudy:
    """The results of a run for a study, as tables in the form of the publication.

    Attributes:
        key: The study's key.
        question: The study's question.
        tables: The tables.

    """

    key: str
    question: str
    tables: tuple[ShapedTable, ...]


STUDY_TABLE = JsonShape(
    "StudyTable",
    ShapedTable,
    "title=shape.title unit=shape.unit reference=shape.reference",
    JsonKey("cells", lambda table: tuple(table.cells.values()), tuple[StudyCell, ...]),
    parts=[JsonShape("StudyCell", StudyCell, parts=[JsonShape("StudyLevel", StudyLevel)])],
)
"""The form of a study's table in `--json`."""
RESULT = JsonShape(
    "Result",
    Summary,
    VERSION_3,
    "target blocks seed complete",
    NOISE_LINE,
    "not_measurable notes",
    VERDICTS,
    "rows",
    JsonKey("roundtrip", None, RoundTrip | None),
    JsonKey("study", None, ShapedStudy | None),
    JsonKey("outcomes", None, Summary | None),
    JsonKey("levels", None, tuple[VarianceComponents, ...] | None),
    JsonKey("rate_costs", None, tuple[RateCost, ...] | None),
    parts=[VERDICT, STEADY, JsonShape("Study", ShapedStudy, parts=[STUDY_TABLE]), OUTCOMES, LEVELS, RATE_COST],
    title="What `bench --json` and `table --json` print; seconds, requests per second, ratios; null = not known",
    left_out=("study", "outcomes", "levels", "rate_costs"),
)
"""The form of a result in `--json`, from the summary of its steady loads.

The caller supplies what a run has in addition, and whether the run is complete.
"""


def shape_study(result: RunResult) -> ShapedStudy | None:
    """Return the tables of the run's study in the form of the publication, filled in with the run's results.

    The result is None for a run without a study or without results of steady loads.

    Raises:
        UsageError: The study's file is faulty.

    """
    key = result.run.record.study
    if key not in list_studies() or result.summaries[0] not in result.shown_summaries:
        return None
    study = load_study(key)
    return ShapedStudy(key, study.question, shape_tables(study, result.summaries[0]))


def make_study_page(result: RunResult) -> list[Part]:
    """Return the page with the tables of the run's study in the form of the publication; empty for a run without a study."""
    study = shape_study(result)
    return page(study.tables) if study else []


def make_result_json(result: RunResult) -> dict[str, Any]:
    """Return a run's result as the JSON data that `bench --json` and `table --json` print."""
    steady, disturbed = result.summaries
    return RESULT.plain(
        steady,
        complete=result.complete,
        roundtrip=result.run.roundtrip(),
        study=shape_study(result),
        outcomes=disturbed if disturbed.rows else None,
        levels=tuple(result.levels) or None,
        rate_costs=tuple(result.rate_costs) or None,
    )


# -- a study's tables, filled in ------------------------------------------------------------------------------


def shape_tables(study: StudyFile, summary: Summary) -> tuple[ShapedTable, ...]:
    """Return the study's tables, filled in with a run's results.

    A cell that the run did not measure still has its published number.

    Args:
        study: The content of the study's file.
        summary: The summary of the run's steady loads.

    """
    points = list({row.point.name: row.point for row in summary.rows}.values())
    rows = {(row.arm.name, row.point.name): row for row in summary.rows}
    absent = {item.variant: f"not measurable: {item.what}: {item.why}" for item in summary.not_measurable}
    tables: list[ShapedTable] = []
    for shape in study.tables:
        measured = {cell.key: cell for cell in list_cells(shape, points)}
        numbers = read_published(shape)
        split = len(shape.rows)
        filled = {
            key: _fill_cell(shape, key, measured, numbers, rows, absent) for key in dict.fromkeys((*numbers, *measured))
        }
        heads, sides = dict.fromkeys(key[:split] for key in filled), dict.fromkeys(key[split:] for key in filled)
        tables.append(ShapedTable(shape, tuple(heads), tuple(sides), filled))
    return tuple(tables)


def _fill_cell(
    shape: Shape,
    key: tuple[str, ...],
    measured: Mapping[tuple[str, ...], StudyTableCell],
    numbers: Mapping[tuple[str, ...], float],
    rows: Mapping[tuple[str, str], SummaryRow],
    absent: Mapping[str, str],
) -> StudyCell:
    """Return one cell of a study's table with its published and measured values.

    Args:
        shape: The definition of the table.
        key: The cell's key: the values of the published columns `shape.keys`, in this order.
        measured: Key of a cell → the variant, load point and metric to measure for it.
        numbers: Key of a cell → published number.
        rows: (arm, load point) → row of the run's table. An arm is a variant in the run.
        absent: Variant → why the run could not measure it.

    """
    keys = dict(zip(shape.keys, key, strict=True))
    reference_key = tuple(shape.reference.get(name, value) for name, value in keys.items())
    compared = bool(shape.reference) and reference_key != key
    number, reference_number = numbers.get(key), numbers.get(reference_key)
    published_ratio = number / reference_number if compared and number and reference_number else None
    cell, reference = measured.get(key), measured.get(reference_key)
    if cell is None:
        return StudyCell(keys, None, None, None, number, None, published_ratio, ("not part of this run's load",))
    row = rows.get((cell.variant, cell.point))
    level = _measure_level(row, cell.metric, SCALES[shape.unit]) if row else None
    relative = None
    if compared and reference is not None and row is not None:
        base = rows.get((reference.variant, reference.point))
        relative = _compute_ratio(row.cell.known(cell.metric), base.cell.known(reference.metric) if base else {})
    notes = (absent[cell.variant],) if cell.variant in absent else _list_notes(row, cell, level)
    return StudyCell(keys, cell.variant, cell.point, level, number, relative, published_ratio, notes)


def _measure_level(row: SummaryRow, metric: Ratio, scale: float) -> StudyLevel | None:
    """Return the measured value for a cell of a study's table, in the table's unit; None where no block has the metric.

    The interval is that of the geometric mean of the blocks (repetitions).

    Args:
        row: The row of the run's table for an arm (variant of the run) at a load point.
        metric: The name of the metric.
        scale: The table's unit in seconds or requests per second, by which values are divided.

    """
    absolute = row.cell.absolute(metric)
    if absolute is None:
        return None
    values = [value / scale for value in row.cell.known(metric).values()]
    enough = len(values) >= stats.MIN_BLOCKS and not absolute.clusters
    mean = stats.estimate_geometric_mean(values) if enough else None
    table_value = row.cell.shown(metric)
    return StudyLevel(
        value=None if table_value is None else table_value / scale,
        low=mean and mean.low,
        high=mean and mean.high,
        n=len(values),
        smallest=absolute.low / scale,
        largest=absolute.high / scale,
        clusters=tuple((cluster.blocks, cluster.value / scale) for cluster in absolute.clusters),
    )


def _compute_ratio(values: Mapping[int, float], reference: Mapping[int, float]) -> RelativeToReference | None:
    """Return the ratio of a cell to its reference cell as (ratio, lower end, upper end); None where one of the cells has no block.

    The two are compared within each block (repetition). If too few blocks have both cells for an interval, the ends are None; the ratio is
    then that of the geometric means.

    Args:
        values: Block → value of the cell.
        reference: Block → value of the reference cell.

    """
    common = sorted(values.keys() & reference.keys())
    if common and (len(common) >= stats.MIN_BLOCKS or len(common) == len(values)):
        estimate = stats.estimate_ratio([values[block] for block in common], [reference[block] for block in common])
        low, high = estimate.ratio_interval or (None, None)
        return estimate.ratio, low, high
    if values and reference:
        mean, reference_mean = (
            stats.estimate_geometric_mean(list(side.values())).value for side in (values, reference)
        )
        return mean / reference_mean, None, None
    return None


def _list_notes(row: SummaryRow | None, cell: StudyTableCell, level: StudyLevel | None) -> tuple[str, ...]:
    """Return the reasons why a cell's measured value is missing or cannot be trusted; empty for a good value.

    Args:
        row: The run's row for the cell's variant and load point; None: they are not part of the run.
        cell: The variant, load point and metric to measure for the cell.
        level: The measured value; None: there is none.

    """
    if row is None:
        return (f"'{cell.variant}' is not part of this run",)
    limits = {"generator": "generator-limited: the proxy could do more", **LIMIT_NOTES}
    limited = [limits[limit] for limit in row.cell.limits if limit in limits and cell.metric != "cpu_per_request"]
    reasons = ", ".join(row.cell.invalid) or "not measured"
    clusters = level.clusters if level is not None else ()
    sizes = " and ".join(str(blocks) for blocks, _ in clusters)
    few = level is not None and not clusters and level.low is None
    conditions = (
        (
            row.cell.valid_blocks < row.cell.planned_blocks,
            f"{row.cell.valid_blocks} of {format_blocks(row.cell.planned_blocks)} valid: {reasons}",
        ),
        (bool(row.cell.stand_in_for), f"{row.cell.generator} stood in for {row.cell.stand_in_for}"),
        (level is None and row.cell.valid_blocks > 0, f"no {cell.metric}: too few requests beyond it"),
        (bool(clusters), f"two clusters, of {sizes} blocks: no mean describes them"),
        (few, f"no interval below {stats.MIN_BLOCKS} blocks"),
    )
    return (*limited, *(text for applies, text in conditions if applies))


def page(tables: Sequence[ShapedTable]) -> list[Part]:
    """Return a study's tables as parts of a page, each with its title above and its notes below."""
    parts: list[Part] = []
    for table in tables:
        name, unit, shape = table.shape.title, table.shape.unit, table.shape
        publication = ["published"] if shape.published else []  # without published numbers, only the measured ones
        sides = ["measured [95 %]", *publication, *(["relative", *publication] if shape.reference else [])]
        rows = [
            make_row(
                *names, *(cell for column in table.columns for cell in _list_parts(table, names + column, len(sides)))
            )
            for names in table.rows
        ]
        columns = [TableColumn(key.replace("_", " "), stands="left") for key in shape.rows]
        for key in table.columns:  # the keys of a published column stand over its first side
            columns += [TableColumn(side, over="" if number else " ".join(key)) for number, side in enumerate(sides)]
        notes = [MEASURED, *([NOTE_OTHER_MACHINES] if shape.published else [])]
        if shape.reference:
            origin = ", here and as published" if shape.published else ""
            references = (f"{key.replace('_', ' ')} {value}" for key, value in shape.reference.items())
            notes.append(f"relative: to {', '.join(references)}{origin}")
        notes += [shape.note] if shape.note else []
        head = Text.assemble((name, "bold cyan"), (f"  {unit}", "dim"))
        parts += [
            Sentences((head,), (f"**{name}** ({unit})",), blank=True),
            Grid(tuple(columns), tuple(rows)),
            Notes(tuple(Text(note, "dim") for note in notes)),
        ]
    return parts


def _list_parts(table: ShapedTable, key: tuple[str, ...], count: int) -> list[str | TableCell]:
    """Return the printed parts of one cell of a study's table: measured value, published value, and both as ratios.

    The measured value has its 95 % interval. With fewer than six blocks (repetitions) it is the range of the blocks, and with two clusters
    of blocks it is two values. The ratios are to the table's reference cell. A table without published values, or without a
    reference cell, has fewer parts.

    Args:
        table: The table.
        key: The key of the cell; for an unknown key all parts are empty.
        count: The number of parts.

    """
    cell = table.cells.get(key)
    if cell is None:
        return [""] * count
    level, text = cell.level, "–"
    if level is not None and level.clusters:
        text = "|".join(format_significant(value, 2) for _, value in level.clusters)
    elif level is not None and level.n >= stats.MIN_BLOCKS:
        text = format_with_interval(level.value, level.low, level.high)
    elif level is not None:
        text = format_range(level.smallest, level.largest)
    parts: list[str | TableCell] = [TableCell(text, notes=cell.notes)]
    parts += [format_digits(cell.published)] if table.shape.published else []
    if table.shape.reference:
        parts.append(_format_ratio(*(cell.relative or [None])))
        parts += [_format_ratio(cell.published_relative)] if table.shape.published else []
    return parts


def _format_ratio(value: float | None, low: float | None = None, high: float | None = None) -> str:
    """Return a ratio with its interval as text: `0.46× [0.44, 0.48]`; `–` for None."""
    ends = f" [{low:.2f}, {high:.2f}]" if low is not None and high is not None else ""
    return "–" if value is None else f"{value:.2f}×{ends}"
