"""The reader of tables of numbers that others published: `data/published/*.csv`, with the schema in `datapackage.json`.

    qinng_workers.csv: "qinng,60,1,5534,5534.0,1.0"  →  {"source": "qinng", "worker_cpus": 1, "requests_per_s": 5534, …}

Types are those of Frictionless' Table Schema (string, integer, number, boolean). Refuses a file whose columns or types differ from the
schema, and names row and column. A test checks that cells keep their constraints (required, enum, pattern, bounds, a primary key).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Literal

import polars as pl
from pydantic import AliasPath, BaseModel, Field, ValidationError

from lab.base.errors import UsageError, did_you_mean, refuse_if

FOLDER = Path(__file__).resolve().parents[2] / "data" / "published"
PACKAGE = "datapackage.json"
REMEDY = f"restore it from git, or mend it: {PACKAGE} says what it holds"

Value = str | int | float | bool | None
"""A cell's value; None where it is not given or not recoverable."""


class Source(BaseModel):
    """One publication (a benchmark that others published) that a study examines.

    `name` is the key of the study. `date` is in ISO 8601 form or only a year, as the publication states it.
    """

    name: str
    title: str
    author: str
    date: str | None


class PublishedColumn(BaseModel):
    """The description of one column of a table that others published: its name, its type, and the texts for true and false."""

    name: str
    type: Literal["string", "integer", "number", "boolean"]
    true_values: tuple[str, ...] = Field(default=("true",), alias="trueValues")
    false_values: tuple[str, ...] = Field(default=("false",), alias="falseValues")

    def typed(self, texts: pl.Series) -> pl.Series:
        """Convert the cells of this column from text to its type.

        The result is null for an empty cell, and for a cell that cannot be converted.

        Args:
            texts: The cells as the file has them.

        """
        if self.type == "boolean":
            values = dict.fromkeys(self.true_values, True) | dict.fromkeys(self.false_values, False)
            return texts.replace_strict(values, default=None, return_dtype=pl.Boolean)
        kinds = {"string": pl.String, "integer": pl.Int64, "number": pl.Float64}
        return texts.cast(kinds[self.type], strict=False)


class Resource(BaseModel):
    """The description of one table of numbers that others published: its name, its file and its columns."""

    name: str
    path: str
    columns: tuple[PublishedColumn, ...] = Field(validation_alias=AliasPath("schema", "fields"))


class Package(BaseModel):
    """The parts of `datapackage.json` that the lab reads: the publications and the tables."""

    sources: tuple[Source, ...]
    resources: tuple[Resource, ...]


@cache
def read_package() -> Package:
    """Read `data/published/datapackage.json`, which describes all tables of numbers that others published.

    Raises:
        UsageError: The file cannot be read, or lacks what the lab needs.

    """
    try:
        return Package.model_validate_json((FOLDER / PACKAGE).read_bytes())
    except (OSError, ValidationError) as error:
        raise UsageError(f"data/published/{PACKAGE}", f"cannot be read: {error}", "restore it from git") from None


def list_sources() -> Mapping[str, Source]:
    """Return the publications that the lab's studies examine, each by the key of its study."""
    return {source.name: source for source in read_package().sources}


def list_names() -> list[str]:
    """Return the names of the tables in `data/published`, which have the numbers that others published."""
    return [resource.name for resource in read_package().resources]


@cache
def read_rows(name: str) -> Sequence[Mapping[str, Value]]:
    """Return the rows of a table in `data/published`, in the file's order, each as column → value in the column's type.

    The table has numbers that others published. An empty cell is None.

    Args:
        name: The name of the table.

    Raises:
        UsageError: There is no such table, its file is faulty, or a cell does not fit its column (as for `read_frame`).

    """
    return read_frame(name).to_dicts()


@cache
def read_texts(name: str) -> Sequence[Mapping[str, str]]:
    """Return the rows of a table in `data/published`, in the file's order, each as column → text as in the file.

    The table has numbers that others published.

    Args:
        name: The name of the table.

    Raises:
        UsageError: There is no such table, or its file is faulty.

    """
    return _read_table(name)[1].fill_null("").to_dicts()


@cache
def read_frame(name: str) -> pl.DataFrame:
    """Return a table in `data/published` (numbers that others published) as a data frame with typed columns.

    The types are Int64, Float64, Boolean and String. An empty cell is null.

    Args:
        name: The name of the table.

    Raises:
        UsageError: There is no such table, its file cannot be read or has other columns than the schema, or a cell does
            not fit its column. For a cell, the message names file, row and column.

    """
    resource, written = _read_table(name)
    table = pl.DataFrame([column.typed(written[column.name]) for column in resource.columns])
    for column in resource.columns:
        wrong = (table[column.name].is_null() & written[column.name].is_not_null()).arg_true()
        if wrong.len():
            place = f"data/published/{resource.path}: row {wrong[0] + 2}: {column.name}"
            raise UsageError(place, f"expected {column.type}, got {written[column.name][wrong[0]]!r}", REMEDY)
    return table


@cache
def _read_table(name: str) -> tuple[Resource, pl.DataFrame]:
    """Return the description of a table in `data/published` (numbers that others published), and its cells as text.

    Args:
        name: The name of the table.

    Raises:
        UsageError: There is no such table, or its file is faulty.

    """
    resource = next((resource for resource in read_package().resources if resource.name == name), None)
    if resource is None:
        raise UsageError("data/published", f"there is no table '{name}'", did_you_mean(name, list_names()))
    place = f"data/published/{resource.path}"
    try:
        written = pl.read_csv(FOLDER / resource.path, infer_schema=False)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise UsageError(place, f"cannot be read: {error}", REMEDY) from None
    refuse_if(
        written.columns != [column.name for column in resource.columns],
        place,
        f"its columns are {', '.join(written.columns)}",
        REMEDY,
    )
    return resource, written
