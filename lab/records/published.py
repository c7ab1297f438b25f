"""The studies' own numbers: `data/published/*.csv`, read by the Table Schema in `datapackage.json` beside them.

    qinng_workers.csv: "qinng,60,1,5534,5534.0,1.0"  →  {"source": "qinng", "worker_cpus": 1, "requests_per_s": 5534, …}

Types are those of Frictionless' Table Schema (string, integer, number, boolean). Refuses a file whose columns or types are not what it says,
with row and column; that cells keep their constraints (required, enum, pattern, bounds, a primary key) is a test's affair.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Literal

import polars as pl
from pydantic import AliasPath, BaseModel, Field, ValidationError

from lab.base.errors import UsageError, did_you_mean

FOLDER = Path(__file__).resolve().parents[2] / "data" / "published"
PACKAGE = "datapackage.json"
REMEDY = f"restore it from git, or mend it: {PACKAGE} says what it holds"

Value = str | int | float | bool | None
"""None: not given, or not recoverable."""


class Source(BaseModel):
    """One publication. `name` is the study's key; `date` ISO 8601, or a year, as far as it is given."""

    name: str
    title: str
    author: str
    date: str | None


class Column(BaseModel):
    name: str
    type: Literal["string", "integer", "number", "boolean"]
    true_values: tuple[str, ...] = Field(default=("true",), alias="trueValues")
    false_values: tuple[str, ...] = Field(default=("false",), alias="falseValues")

    def typed(self, texts: pl.Series) -> pl.Series:
        """The cells' values; null for an empty cell, and for one that is not of the type."""
        if self.type == "boolean":
            values = dict.fromkeys(self.true_values, True) | dict.fromkeys(self.false_values, False)
            return texts.replace_strict(values, default=None, return_dtype=pl.Boolean)
        kinds = {"string": pl.String, "integer": pl.Int64, "number": pl.Float64}
        return texts.cast(kinds[self.type], strict=False)


class Resource(BaseModel):
    name: str
    path: str
    columns: tuple[Column, ...] = Field(validation_alias=AliasPath("schema", "fields"))


class Package(BaseModel):
    """Of `datapackage.json`, what is needed."""

    sources: tuple[Source, ...]
    resources: tuple[Resource, ...]


@cache
def package() -> Package:
    """UsageError when the description itself is damaged."""
    try:
        return Package.model_validate_json((FOLDER / PACKAGE).read_bytes())
    except (OSError, ValidationError) as error:
        raise UsageError(f"data/published/{PACKAGE}", f"cannot be read: {error}", "restore it from git") from None


def sources() -> Mapping[str, Source]:
    """Study key → its publication."""
    return {source.name: source for source in package().sources}


def names() -> list[str]:
    """Of the tables there are."""
    return [resource.name for resource in package().resources]


@cache
def rows(name: str) -> Sequence[Mapping[str, Value]]:
    """A table's rows in the file's order, every cell typed. UsageError with file, row and column for what does not fit."""
    return frame(name).to_dicts()


@cache
def texts(name: str) -> Sequence[Mapping[str, str]]:
    """The same, every cell as the file writes it."""
    return _read(name)[1].fill_null("").to_dicts()


@cache
def frame(name: str) -> pl.DataFrame:
    """A table as `rows`, with Int64, Float64, Boolean and String columns."""
    resource, written = _read(name)
    found = pl.DataFrame([column.typed(written[column.name]) for column in resource.columns])
    for column in resource.columns:
        wrong = (found[column.name].is_null() & written[column.name].is_not_null()).arg_true()
        if wrong.len():
            place = f"data/published/{resource.path}: row {wrong[0] + 2}: {column.name}"
            raise UsageError(place, f"expected {column.type}, got {written[column.name][wrong[0]]!r}", REMEDY)
    return found


@cache
def _read(name: str) -> tuple[Resource, pl.DataFrame]:
    """A table's description, and the table with every cell as it is written."""
    found = next((each for each in package().resources if each.name == name), None)
    if found is None:
        raise UsageError("data/published", f"there is no table '{name}'", did_you_mean(name, names()))
    place = f"data/published/{found.path}"
    try:
        written = pl.read_csv(FOLDER / found.path, infer_schema=False)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise UsageError(place, f"cannot be read: {error}", REMEDY) from None
    if written.columns != [column.name for column in found.columns]:
        raise UsageError(place, f"its columns are {', '.join(written.columns)}", REMEDY)
    return found, written
