"""Levels of scatter as a table, as JSON and for export."""

from __future__ import annotations

import io

import pytest

from lab.base.errors import UsageError
from lab.records.levels import Known
from lab.report.export.tables import tables, write
from lab.report.result import Result
from lab.report.tables import generations
from lab.report.terminal import terminal
from lab.studies.results import result_json
from lab.tests.analysis.test_generations import known, planned
from lab.tests.support.made_runs import made


def test_table_and_json_name_each_level_and_every_generation() -> None:
    result = Result(made(planned=planned(), change=known))
    text = "\n".join(line.plain for line in terminal(generations.page(result.levels), 160))
    assert "levels of scatter" in text and "2 × 2" in text and "1.0 % [" in text
    told = result_json(result)["levels"][0]
    assert [len(each["log_ratios"]) for each in told["generations"]] == [2, 2, 2, 2] and told["bring_up"]["sd"] == 0


def test_levels_are_exported_as_data_levels_has_them() -> None:
    run = made(planned=planned(), change=known)
    (frame,) = tables(run, "levels", run.samples())
    line = io.BytesIO()
    write([frame], "json", line)
    told = Known.model_validate_json(line.getvalue())
    assert (told.variant, told.target, told.scheme, told.bring_ups, told.generations) == (
        "baseline",
        "local",
        "slices",
        2,
        2,
    )
    assert told.repeat == pytest.approx(0.01) and told.bring_up == 0
    with pytest.raises(UsageError, match="has no levels"):
        list(tables(made(), "levels", made().samples()))


def test_a_run_without_generations_says_nothing_of_levels() -> None:
    result = Result(made())
    assert generations.page(result.levels) == [] and "levels" not in result_json(result)
