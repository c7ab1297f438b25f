"""The study files: one TOML file per publication, with its variants, its sweep, and the tables that it published.

    [[tables]]
    published = "okd_router_throughput.csv"     a file of data/published
    value = "transactions_per_s"                its column of numbers, in `unit`
    rows = ["http_mode", "route_encryption"]    its columns that are the table's rows …
    columns = ["endpoint_publishing"]           … and columns
    variants.okd-edge = {route_encryption = "edge", endpoint_publishing = "LoadBalancerService"}
    points.keep-alive = {http_mode = "keep-alive"}
    metrics.rate = {}

Each entry of `variants`, `points` and `metrics` has values of published columns. The values of a variant, a load point and a
metric together identify one cell of the published table. The module refuses unknown keys, variants, sweeps and columns. It also
refuses two measurements for one cell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from lab.base.errors import UsageError, did_you_mean, refuse_if, refuse_unknown
from lab.base.validation import read_toml, refuse_broken_rules, validate_table
from lab.model.metrics import Ratio
from lab.model.names import DEFAULT_TARGET
from lab.model.sweeps import LoadPoint, sweep_names
from lab.model.variants.naming import find_present_name, is_variant
from lab.model.variants.variants import load_chain, load_overlay, variant_names
from lab.records import published as publications
from lab.targets import TARGETS

FOLDER = Path(__file__).parent
"""The folder of the study files."""

LOAD = "load"
"""The value of `NotAKnob.by` for a parameter that the study's loads realise."""

Unit = Literal["req/s", "s", "ms", "µs"]
"""The unit of a table's numbers."""
PublishedKeys = dict[str, str]
"""Published column → value, as its CSV writes it."""


class StrictModel(BaseModel):
    """The base class of models for files written by hand. It refuses unknown keys and values of another type."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Quick(StrictModel):
    """The shortened load of a study for the option `--quick`.

    It is a sweep (a named list of load points) and a number of blocks (repetitions).
    """

    sweep: str
    blocks: int = Field(ge=1, le=1000)


class StudyChange(StrictModel):
    """A `[[changes]]` table: a question of the study about a system that changes during the load.

    A separate run answers it, with a sweep (a list of load points) that disrupts the system.
    """

    question: str = Field(min_length=1)
    variants: list[str] = Field(min_length=1)
    sweep: str = Field(description="one with a disturbance")
    quick: str = Field(description="the same, shortened")
    against: str = Field(default="", description="what they are compared with; none: each with its own baseline")
    target: str = Field(default=DEFAULT_TARGET, description="where the systems run")

    def command(self, quick: bool, place: str) -> str:
        """Return the `just bench` command that makes the run for this question.

        Args:
            quick: Whether to use the shortened sweep.
            place: The options that name the target, for example ` --target kind`; empty for the default target. They do not
                apply to a question about another target than the default one.

        """
        against = f" --against {self.against}" if self.against else ""
        place = place if self.target == DEFAULT_TARGET else f" --target {self.target}"
        return f"just bench {' '.join(self.variants)}{against} --sweep {self.quick if quick else self.sweep}{place}"


class NotAKnob(StrictModel):
    """The reason why no knob (setting) of the lab sets a published parameter, and what covers the parameter instead.

    A published parameter is a row of parameters.csv.
    """

    why: str = Field(min_length=1)
    by: str | None = Field(
        default=None,
        description="what has it all the same: `load` for the study's sweeps, or a variant; none = nothing",
    )


class PublishedLoad(StrictModel):
    """How the lab makes a published load (a row of sweeps.csv): its sweeps and variants, or the reason why there are none."""

    sweeps: list[str] = Field(default_factory=list[str])
    variants: list[str] = Field(default_factory=list[str])
    why: str = Field(default="", description="why nothing does; empty = `sweeps` do")

    @model_validator(mode="after")
    def _check_either(self) -> PublishedLoad:
        refuse_broken_rules(
            (bool(self.why) == bool(self.sweeps and self.variants), "either sweeps and variants, or why there are none")
        )
        return self


class Shape(StrictModel):
    """A `[[tables]]` table: the layout of a published table, and what the lab measures for each of its cells.

    A cell is measured as a metric of one variant at one load point.
    """

    title: str = Field(min_length=1)
    published: str | None = Field(default=None, description="a file of data/published; none = measured here only")
    value: str | None = Field(default=None, description="its column of numbers")
    unit: Unit
    rows: list[str] = Field(min_length=1, description="columns whose values head the table's rows")
    columns: list[str] = Field(description="columns whose values head the table's columns")
    filters: dict[str, list[str]] = Field(
        default_factory=dict[str, list[str]], description="only published rows with one of these values"
    )
    variants: dict[str, PublishedKeys] = Field(min_length=1, description="variant → the published keys it stands for")
    points: dict[str, PublishedKeys] = Field(
        default_factory=dict[str, PublishedKeys], description="point → published keys"
    )
    point_fields: PublishedKeys = Field(
        default_factory=PublishedKeys, description="published column → the field of every point that says its value"
    )
    metrics: dict[Ratio, PublishedKeys] = Field(min_length=1, description="metric → the published keys it stands for")
    reference: PublishedKeys = Field(
        default_factory=PublishedKeys, description="cells are also shown relative to the one with these values"
    )
    note: str | None = None

    @model_validator(mode="after")
    def _check_keys(self) -> Shape:
        parts = (*self.variants.values(), *self.points.values(), *self.metrics.values())
        unknown = [name for part in parts for name in sorted(part.keys() - self.keys)]
        refuse_broken_rules(
            ((self.published is None) != (self.value is None), "tables: published and value go together"),
            (
                bool(self.points and self.point_fields),
                "tables: both points and point_fields say what a point stands for: keep one",
            ),
            (bool(unknown), f"tables: '{''.join(unknown[:1])}' is neither in rows nor in columns"),
        )
        if wrong := sorted(self.point_fields.values() - LoadPoint.model_fields.keys()):
            raise ValueError(f"tables.point_fields: {did_you_mean(wrong[0], LoadPoint.model_fields)}")
        return self

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns of the published data that identify a cell of this table.

        First come those whose values are the headings of the table's rows (`rows`), then those whose values are the headings of its
        columns (`columns`).
        """
        return (*self.rows, *self.columns)

    def of_point(self, point: LoadPoint) -> PublishedKeys | None:
        """Return the values by which a load point identifies its cells of this table: column of the published data → value.

        The result is None if the load point is not in this table. It is empty if no column of the table depends on the load point.
        """
        if not self.points:
            values = {column: getattr(point, name) for column, name in self.point_fields.items()}
            return {name: f"{value:g}" if isinstance(value, float) else str(value) for name, value in values.items()}
        return self.points.get(point.name)


class StudyFile(StrictModel):
    """The content of a study's file, `lab/studies/KEY.toml`: what a publication measured, and how the lab repeats it."""

    title: str = Field(min_length=1)
    source: str = Field(description="who published it, and under which title")
    question: str = Field(min_length=1)
    variants: list[str] = Field(min_length=1)
    sweep: str
    quick: Quick
    not_a_knob: dict[str, NotAKnob] = Field(
        default_factory=dict[str, NotAKnob], description="row of parameters.csv → why no component realises it"
    )
    published_loads: dict[str, PublishedLoad] = Field(
        default_factory=dict[str, PublishedLoad], description="row of sweeps.csv, by its id → what makes that load here"
    )
    tables: list[Shape] = Field(default_factory=list[Shape])
    changes: list[StudyChange] = Field(default_factory=list[StudyChange])


@dataclass(frozen=True, slots=True)
class StudyTableCell:
    """What the lab measures for one cell of a study's table.

    Attributes:
        key: The values that identify the cell in the published data, in the order of the columns `Shape.keys`.
        variant: The name of the variant to measure.
        point: The name of the load point to measure.
        metric: The name of the metric.

    """

    key: tuple[str, ...]
    variant: str
    point: str
    metric: Ratio


def list_studies() -> list[str]:
    """Return the keys of all studies (the stems of the files' names in lab/studies) in alphabetical order."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load_study(key: str) -> StudyFile:
    """Read one study, and check its file against the variants, sweeps and published tables that the file names.

    Args:
        key: The stem of the name of the study's file.

    Raises:
        UsageError: The study is unknown or its file is faulty; the error has the file, the key in it and a remedy.

    """
    place, file = f"lab/studies/{key}.toml", read_study(key)
    _refuse_unknown_variants(
        f"{place}: variants", [*file.variants, *(name for table in file.tables for name in table.variants)]
    )
    _refuse_unknown_names(place, "sweep", [file.sweep, file.quick.sweep], sweep_names())
    for row, entry in file.not_a_knob.items():
        _refuse_unknown_variants(f"{place}: not_a_knob.{row}: by", [entry.by] if entry.by and entry.by != LOAD else [])
    for row, load in file.published_loads.items():
        _refuse_unknown_variants(f"{place}: published_loads.{row}: variants", load.variants)
        _refuse_unknown_names(f"{place}: published_loads.{row}", "sweep", load.sweeps, sweep_names())
    for number, change in enumerate(file.changes):
        names = [*change.variants, *([change.against] if change.against else [])]
        _refuse_unknown_variants(f"{place}: changes.{number}: variants", names)
        _refuse_unknown_names(f"{place}: changes.{number}", "sweep", [change.sweep, change.quick], sweep_names())
        _refuse_unknown_names(f"{place}: changes.{number}", "target", [change.target], TARGETS)
    for number, table in enumerate(file.tables):
        if table.published is None or table.value is None:
            continue
        table_place, files = f"{place}: tables.{number}", [f"{name}.csv" for name in publications.list_names()]
        refuse_unknown(table.published, files, table_place, f"there is no data/published/{table.published}")
        head = list(publications.read_texts(Path(table.published).stem)[0])
        columns = [*table.keys, *table.filters, *table.reference, table.value]
        _refuse_unknown_names(f"{table_place}: {table.published}", "columns", columns, head)
        fault = f"filters: no row of {table.published} has these values"
        refuse_if(not _read_rows(table), table_place, fault, "compare them with the file")
    return file


def read_study(key: str) -> StudyFile:
    """Read one study without checking the names in its file against other files.

    Args:
        key: The stem of the name of the study's file.

    Raises:
        UsageError: The study is unknown or its file is faulty; the error has the file, the key in it and a remedy.

    """
    place = f"lab/studies/{key}.toml"
    try:
        table = read_toml(FOLDER / f"{key}.toml", place, "lab/studies/okd.toml")
    except FileNotFoundError:
        raise UsageError("study", f"unknown study '{key}'", did_you_mean(key, list_studies())) from None
    parts = (Quick, StudyChange, NotAKnob, PublishedLoad, Shape)
    return validate_table(StudyFile, table, place, "lab/schema/study.json", *parts)


def read_published(table: Shape) -> dict[tuple[str, ...], float]:
    """Return the published numbers of a study's table, in the order of the CSV file; empty cells are left out.

    Returns:
        Key of a cell → number in the table's unit. The key has the values of the columns `table.keys` of the published data, in this order.

    """
    return {
        tuple(row[name] for name in table.keys): float(row[table.value])
        for row in _read_rows(table)
        if table.value and row[table.value]
    }


def list_cells(table: Shape, points: Sequence[LoadPoint]) -> tuple[StudyTableCell, ...]:
    """Return the cells of a study's table that can be measured at some load points, in the order of the study's file.

    Args:
        table: The table.
        points: The load points.

    Raises:
        UsageError: A cell lacks the value of one of the columns that identify it, or two measurements fall into one cell.

    """
    place = f"table '{table.title}'"
    by_key: dict[tuple[str, ...], StudyTableCell] = {}
    for (variant, variant_keys), point, (metric, metric_keys) in product(
        table.variants.items(), points, table.metrics.items()
    ):
        point_keys = table.of_point(point)
        if point_keys is None:
            continue
        keys = variant_keys | point_keys | metric_keys
        if missing := [name for name in table.keys if name not in keys]:
            fault = f"{variant} at {point.name}: nothing says its {missing[0]}"
            raise UsageError(place, fault, "let its variant, point or metric say it")
        cell = StudyTableCell(tuple(keys[name] for name in table.keys), variant, point.name, metric)
        first = by_key.setdefault(cell.key, cell)
        fault = f"{variant} at {point.name} and {first.variant} at {first.point} are both {' / '.join(cell.key)}"
        refuse_if(first != cell, place, fault, "let each stand for keys of its own")
    return tuple(by_key.values())


def _read_rows(table: Shape) -> list[Mapping[str, str]]:
    """Return the rows of a table's CSV file that pass the table's filters; empty if the table names no such file."""
    if table.published is None:
        return []
    rows = publications.read_texts(Path(table.published).stem)
    return [row for row in rows if all(row[name] in values for name, values in table.filters.items())]


def _refuse_unknown_names(place: str, key: str, names: Sequence[str], options: Sequence[str]) -> None:
    for name in names:
        refuse_unknown(name, options, f"{place}: {key}", f"there is no '{name}'")


def _refuse_unknown_variants(place: str, names: Sequence[str]) -> None:
    """Raise an error if a study's file names a variant that does not exist, or an old name of a variant.

    A study's runs are found by the present names of their variants.

    Args:
        place: The file and the key in it that has the names, for the error message.
        names: The names of variants.

    Raises:
        UsageError: One of the names is not the present name of a variant.

    """
    for name in names:
        if not is_variant(name) or find_present_name(name) != name:
            raise UsageError(place, f"there is no '{name}'", did_you_mean(find_present_name(name), variant_names()))


def resolve_variants(name: str, as_variant: bool) -> tuple[tuple[str, ...], bool]:
    """Return the variants whose knobs (settings) an ablation measures one by one, for the name of a study or of a variant.

    For a study these are the variants in the study's file. Further variants of the same systems are added if their manifests are
    annotated with the study.

    Args:
        name: A study's key or a variant's name.
        as_variant: Whether a name that is both is read as the variant's.

    Returns:
        (names of the variants, whether the name was read as a study's).

    Raises:
        UsageError: There is no such study or variant.

    """
    if name in list_studies() and not as_variant:
        file = load_study(name)
        listed = [*file.variants, *(variant for change in file.changes for variant in change.variants)]
        roots = {load_chain(variant)[0].name for variant in listed}
        annotated = [
            overlay
            for overlay in variant_names()
            if load_overlay(overlay).study == name and load_chain(overlay)[0].name in roots
        ]
        return tuple(dict.fromkeys((*file.variants, *annotated, *listed))), True
    if "+" not in name and not is_variant(name):
        remedy = did_you_mean(name, [*list_studies(), *variant_names()])
        raise UsageError("ablate", f"unknown study or variant '{name}'", remedy)
    return (load_chain(name)[-1].name,), False
