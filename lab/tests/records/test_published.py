"""The transcribed tables are what their Table Schema says, and a row that is not is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from lab.base.errors import UsageError
from lab.records import published
from lab.studies.study_files import study_keys
from lab.tests.support.transcribed import copied

__all__ = ["copied"]  # a fixture

WORKERS = "qinng_workers"


@pytest.mark.parametrize("name", published.names())
def test_every_table_fits_its_schema(name: str) -> None:
    """Every cell has its column's type, and every table has rows."""
    frame = published.frame(name)
    assert frame.height == len(published.rows(name)) > 0
    assert set(frame["source"].unique()) <= published.sources().keys()


def test_every_study_has_a_publication_with_title_and_author() -> None:
    """Rows name the study, not the file that they were once read from."""
    assert published.sources().keys() == set(study_keys())
    assert all(source.title and source.author for source in published.sources().values())


def test_cells_are_typed() -> None:
    """Numbers are numbers, yes and no are booleans, and an empty cell is nothing."""
    first = published.rows(WORKERS)[0]
    assert first["worker_cpus"] == 1 and first["requests_per_s"] == 5534
    assert published.frame(WORKERS).schema["requests_per_s"] == pl.Int64
    assert {row["is_last_version"] for row in published.rows("nds_boom_summary")} == {True, False}
    assert any(row["published_value"] is None for row in published.rows("claims"))
    assert published.texts(WORKERS)[0]["speedup_over_1_cpu_derived"] == "1.0"


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("qinng_workers.csv", "5534,", "many,", "row 2: requests_per_s: expected an integer, got 'many'"),
        ("qinng_workers.csv", "qinng,60", "qing,60", "row 2: source: there is no study 'qing'"),
        ("qinng_workers.csv", ",5534,", ",-5534,", "row 2: requests_per_s: expected 1.0 to …, got -5534"),
        ("qinng_workers.csv", "worker_cpus", "workers", "its columns are not those of"),
        ("qinng_workers.csv", "61,2,", "61,1,", "row 3: says again what row 2 says"),
        ("qinng_workers.csv", ",5534,", ",,", "row 2: requests_per_s: expected a value, found none"),
        ("qinng_workers.csv", "qinng,60,1,", "qinng,60,1,1,", "row 2: expected 6 cells, found 7"),
        ("okd_router_throughput.csv", "re-encrypt", "reencrypt", "expected one of"),
        ("nds_boom_summary.csv", "yes", "maybe", "expected yes/no, got 'maybe'"),
    ],
)
def test_what_does_not_fit_is_refused(
    copied: Callable[[str, str, str], None], name: str, old: str, new: str, said: str
) -> None:
    """With file, row, column and what was expected."""
    copied(name, old, new)
    with pytest.raises(UsageError, match=f"^data/published/{name}") as error:
        published.rows(Path(name).stem)
    assert said in str(error.value)


def test_a_table_that_is_none_and_a_damaged_description_are_refused(copied: Callable[[str, str, str], None]) -> None:
    with pytest.raises(UsageError, match="did you mean 'qinng_workers'"):
        published.rows("qinng_worker")
    copied(published.PACKAGE, '"type": "integer"', '"type": "whole"')
    with pytest.raises(UsageError, match=published.PACKAGE):
        published.rows(WORKERS)


def test_the_description_is_a_data_package() -> None:
    """What Frictionless' tools ask for: a name, and for every resource a path and its fields. Of every table, and of no other."""
    assert {path.stem for path in published.FOLDER.glob("*.csv")} == set(published.names())
    told = json.loads((published.FOLDER / published.PACKAGE).read_text())
    assert all((published.FOLDER / each["path"]).is_file() and each["schema"]["fields"] for each in told["resources"])
