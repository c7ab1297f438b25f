"""The transcribed tables are what their Table Schema says, and a cell that is not of its type is named."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from lab.base.errors import UsageError
from lab.records import published
from lab.studies.study_files import list_studies
from lab.tests.support.transcribed import copied

__all__ = ["copied"]  # a fixture

WORKERS = "qinng_workers"
NUMBER = re.compile(r"-?\d+(\.\d+)?(e-?\d+)?")


def described() -> list[dict[str, Any]]:
    return json.loads((published.FOLDER / published.PACKAGE).read_text())["resources"]


@pytest.mark.parametrize("name", published.list_names())
def test_every_table_fits_its_schema(name: str) -> None:
    (schema,) = (each["schema"] for each in described() if each["name"] == name)
    frame, texts = published.read_frame(name), published.read_texts(name)
    assert frame.height == len(published.read_rows(name)) == len(texts) > 0
    assert set(frame["source"].unique()) <= published.list_sources().keys()
    assert frame.select(schema.get("primaryKey") or frame.columns).is_unique().all()
    for field in schema["fields"]:
        values, bounds = frame[field["name"]], field.get("constraints", {})
        cells = [text for row in texts if (text := row[field["name"]])]
        assert not (bounds.get("required") and len(cells) < frame.height), field
        assert all(cell in bounds.get("enum", [cell]) for cell in cells), field
        assert all(re.fullmatch(bounds.get("pattern", ".*"), cell) for cell in cells), field
        if field["type"] in ("integer", "number"):
            assert all(map(NUMBER.fullmatch, cells)), field
            least, most = bounds.get("minimum", -1e300), bounds.get("maximum", 1e300)
            assert values.drop_nulls().is_between(least, most).all(), field


def test_every_table_is_described_and_every_study_has_a_publication_with_title_and_author() -> None:
    """As Frictionless' tools ask for it. Rows name the study, not the file that they were once read from."""
    assert {path.stem for path in published.FOLDER.glob("*.csv")} == set(published.list_names())
    assert all((published.FOLDER / each["path"]).is_file() and each["schema"]["fields"] for each in described())
    assert published.list_sources().keys() == set(list_studies())
    assert all(source.title and source.author for source in published.list_sources().values())


def test_cells_are_typed() -> None:
    first = published.read_rows(WORKERS)[0]
    assert first["worker_cpus"] == 1 and first["requests_per_s"] == 5534
    assert published.read_frame(WORKERS).schema["requests_per_s"] == pl.Int64
    assert {row["is_last_version"] for row in published.read_rows("nds_boom_summary")} == {True, False}
    assert any(row["published_value"] is None for row in published.read_rows("claims"))
    assert published.read_texts(WORKERS)[0]["speedup_over_1_cpu_derived"] == "1.0"


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("qinng_workers.csv", "5534,", "many,", "row 2: requests_per_s: expected integer, got 'many'"),
        ("qinng_workers.csv", "worker_cpus", "workers", "its columns are"),
        ("qinng_workers.csv", "qinng,60,1,", "qinng,60,1,1,", "cannot be read"),
        ("nds_boom_summary.csv", "yes", "maybe", "expected boolean, got 'maybe'"),
        (published.PACKAGE, '"type": "integer"', '"type": "whole"', ""),
    ],
)
def test_what_does_not_fit_is_refused(
    copied: Callable[[str, str, str], None], name: str, old: str, new: str, said: str
) -> None:
    copied(name, old, new)
    with pytest.raises(UsageError, match=f"^data/published/{name}") as error:
        published.read_rows(WORKERS if name == published.PACKAGE else Path(name).stem)
    assert said in str(error.value)
    with pytest.raises(UsageError, match=f"did you mean 'qinng_workers'|{published.PACKAGE}"):
        published.read_rows("qinng_worker")
