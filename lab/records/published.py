"""The studies' own numbers: `data/published/*.csv`, read by the Table Schema in `datapackage.json` beside them.

    qinng_workers.csv: "qinng,60,1,5534,5534.0,1.0"  →  {"source": "qinng", "worker_cpus": 1, "requests_per_s": 5534, …}

Types are those of Frictionless' Table Schema (string, integer, number, boolean). Refuses a file whose columns or types are not what it says,
with row and column; that cells keep their constraints (required, enum, pattern, bounds, a primary key) is a test's affair.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Literal

import polars as pl
from pydantic import AliasPath, BaseModel, Field, ValidationError

from lab.base.errors import UsageError, did_you_mean

FOLDER = Path(__file__).resolve().parents[2] / "data" / "published"
PACKAGE = "datapackage.json"

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

    def read(self, text: str) -> Value:
        """The cell's value. ValueError."""
        if text == "" or self.type == "string":
            return text or None
        if self.type == "boolean":
            if text not in (*self.true_values, *self.false_values):
                raise ValueError
            return text in self.true_values
        return int(text) if self.type == "integer" else float(text)


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


def rows(name: str) -> Sequence[Mapping[str, Value]]:
    """A table's rows in the file's order, every cell typed. UsageError with file, row and column for what does not fit."""
    return _read(name)[0]


def texts(name: str) -> Sequence[Mapping[str, str]]:
    """The same, every cell as the file writes it."""
    return _read(name)[1]


def frame(name: str) -> pl.DataFrame:
    """A table as `rows`, with Int64, Float64, Boolean and String columns."""
    types = {"string": pl.String(), "integer": pl.Int64(), "number": pl.Float64(), "boolean": pl.Boolean()}
    return pl.DataFrame(
        list(rows(name)), schema={column.name: types[column.type] for column in _resource(name).columns}
    )


def _resource(name: str) -> Resource:
    found = next((each for each in package().resources if each.name == name), None)
    if found is None:
        raise UsageError("data/published", f"there is no table '{name}'", did_you_mean(name, names()))
    return found


@cache
def _read(name: str) -> tuple[Sequence[Mapping[str, Value]], Sequence[Mapping[str, str]]]:
    """(rows, texts)"""
    resource = _resource(name)
    place, columns = f"data/published/{resource.path}", resource.columns
    remedy = f"restore it from git, or mend it: {PACKAGE} says what it holds"
    try:
        with (FOLDER / resource.path).open(newline="", encoding="utf-8") as file:
            head, *lines = csv.reader(file)
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise UsageError(place, f"cannot be read: {error}", remedy) from None
    if head != [column.name for column in columns]:
        raise UsageError(place, f"its columns are {', '.join(head)}", remedy)
    found: list[Mapping[str, Value]] = []
    for number, line in enumerate(lines, start=2):
        if len(line) != len(columns):
            raise UsageError(f"{place}: row {number}", f"expected {len(columns)} cells, found {len(line)}", remedy)
        row: dict[str, Value] = {}
        for column, text in zip(columns, line, strict=True):
            try:
                row[column.name] = column.read(text)
            except ValueError:
                fault = f"expected {column.type}, got {text!r}"
                raise UsageError(f"{place}: row {number}: {column.name}", fault, remedy) from None
        found.append(row)
    return found, [dict(zip(head, line, strict=True)) for line in lines]
