"""The studies' own numbers: `data/published/*.csv`, read by the Table Schema in `datapackage.json` beside them.

    qinng_workers.csv: "qinng,60,1,5534,5534.0,1.0"  →  {"source": "qinng", "worker_cpus": 1, "requests_per_s": 5534, …}

Types and constraints are those of Frictionless' Table Schema (string, integer, number, boolean; required, enum, pattern,
minimum, maximum; a primary key). Refuses a file whose columns, types or bounds are not what it says, with row and column.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Literal

import polars as pl
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lab.base.errors import UsageError, did_you_mean

FOLDER = Path(__file__).resolve().parents[2] / "data" / "published"
PACKAGE = "datapackage.json"
REMEDY = "restore it from git, or mend the row"

Value = str | int | float | bool | None
"""None: not given, or not recoverable."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Source(_Part):
    """One publication. `name` is the study's key; `date` ISO 8601, or a year, as far as it is given."""

    name: str
    title: str
    author: str
    date: str | None


class Constraints(_Part):
    required: bool = False
    enum: tuple[str, ...] | None = None
    pattern: str | None = None
    minimum: float | None = None
    maximum: float | None = None


class Column(_Part):
    name: str
    type: Literal["string", "integer", "number", "boolean"]
    constraints: Constraints = Constraints()
    true_values: tuple[str, ...] = Field(default=("true",), alias="trueValues")
    false_values: tuple[str, ...] = Field(default=("false",), alias="falseValues")

    def read(self, text: str) -> Value:
        """The cell's value. ValueError says what was expected."""
        if text == "":
            if self.constraints.required:
                raise ValueError("expected a value, found none")
            return None
        value = self._typed(text)
        bounds = self.constraints
        if bounds.enum is not None and text not in bounds.enum:
            raise ValueError(f"expected one of {', '.join(bounds.enum)}, got {text!r}")
        if bounds.pattern is not None and not re.fullmatch(bounds.pattern, text):
            raise ValueError(f"expected {bounds.pattern}, got {text!r}")
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            least, most = bounds.minimum, bounds.maximum
            if (least is not None and value < least) or (most is not None and value > most):
                raise ValueError(f"expected {least if least is not None else '…'} to {most or '…'}, got {text}")
        return value

    def _typed(self, text: str) -> Value:
        if self.type == "string":
            return text
        if self.type == "boolean":
            if text not in (*self.true_values, *self.false_values):
                raise ValueError(f"expected {'/'.join((*self.true_values, *self.false_values))}, got {text!r}")
            return text in self.true_values
        if not re.fullmatch(r"-?\d+" if self.type == "integer" else r"-?\d+(\.\d+)?(e-?\d+)?", text):
            raise ValueError(f"expected a{'n' if self.type == 'integer' else ''} {self.type}, got {text!r}")
        return int(text) if self.type == "integer" else float(text)


class TableSchema(_Part):
    fields: tuple[Column, ...]
    primary_key: str | tuple[str, ...] = Field(default=(), alias="primaryKey")

    @property
    def key(self) -> tuple[str, ...]:
        return (self.primary_key,) if isinstance(self.primary_key, str) else self.primary_key


class Resource(_Part):
    name: str
    path: str
    title: str
    columns: TableSchema = Field(alias="schema")


class Package(_Part):
    """`datapackage.json`."""

    name: str
    title: str
    description: str
    sources: tuple[Source, ...]
    resources: tuple[Resource, ...]


@cache
def package() -> Package:
    """UsageError when the description itself is damaged."""
    path = FOLDER / PACKAGE
    try:
        return Package.model_validate_json(path.read_bytes())
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
    return [row for row, _ in _read(name)]


def texts(name: str) -> Sequence[Mapping[str, str]]:
    """The same, every cell as the file writes it."""
    return [dict(zip(row, line, strict=True)) for row, line in _read(name)]


def _resource(name: str) -> Resource:
    found = next((each for each in package().resources if each.name == name), None)
    if found is None:
        raise UsageError("data/published", f"there is no table '{name}'", did_you_mean(name, names()))
    return found


@cache
def _read(name: str) -> Sequence[tuple[Mapping[str, Value], Sequence[str]]]:
    resource = _resource(name)
    place = f"data/published/{resource.path}"
    try:
        with (FOLDER / resource.path).open(newline="", encoding="utf-8") as file:
            head, *lines = csv.reader(file)
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise UsageError(place, f"cannot be read: {error}", "restore it from git") from None
    columns = resource.columns.fields
    if head != [column.name for column in columns]:
        raise UsageError(place, f"its columns are not those of {PACKAGE}: {', '.join(head)}", REMEDY)
    found = [_row(f"{place}: row {number}", columns, line) for number, line in enumerate(lines, start=2)]
    seen = dict[tuple[Value, ...], int]()
    for number, row in enumerate(found, start=2):
        key = tuple(row[column] for column in resource.columns.key)
        if key and (first := seen.setdefault(key, number)) != number:
            raise UsageError(f"{place}: row {number}", f"says again what row {first} says: {key}", REMEDY)
        if row["source"] not in sources():
            raise UsageError(f"{place}: row {number}: source", f"there is no study {row['source']!r}", REMEDY)
    return list(zip(found, lines, strict=True))


def frame(name: str) -> pl.DataFrame:
    """A table as `rows`, with Int64, Float64, Boolean and String columns."""
    types = {"string": pl.String(), "integer": pl.Int64(), "number": pl.Float64(), "boolean": pl.Boolean()}
    columns = _resource(name).columns.fields
    return pl.DataFrame(list(rows(name)), schema={column.name: types[column.type] for column in columns})


def _row(place: str, columns: Sequence[Column], line: Sequence[str]) -> Mapping[str, Value]:
    if len(line) != len(columns):
        raise UsageError(place, f"expected {len(columns)} cells, found {len(line)}", REMEDY)
    found: dict[str, Value] = {}
    for column, text in zip(columns, line, strict=True):
        try:
            found[column.name] = column.read(text)
        except ValueError as error:
            raise UsageError(f"{place}: {column.name}", str(error), REMEDY) from None
    return found
