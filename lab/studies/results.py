"""What a finished run says, with its study's tables beside what every run has: as parts of a page, and as `--json` has it."""

from __future__ import annotations

from typing import Any

from lab.analysis.aggregate.generations import Levels
from lab.analysis.summary import Summary
from lab.model.run import RoundTrip
from lab.report.grid import Part
from lab.report.json.runs import LEVELS, NOISE_LINE, OUTCOMES, STEADY, VERDICT, VERDICTS, VERSION_2
from lab.report.json.shape import Key, Shape
from lab.report.result import Result
from lab.studies.study_files import load_study, study_keys
from lab.studies.study_tables import Shaped, ShapedStudy, StudyCell, StudyLevel, page, shaped

STUDY_TABLE = Shape(
    "StudyTable",
    Shaped,
    "title=shape.title unit=shape.unit reference=shape.reference",
    Key("cells", lambda table: tuple(table.cells.values()), tuple[StudyCell, ...]),
    parts=[Shape("StudyCell", StudyCell, parts=[Shape("StudyLevel", StudyLevel)])],
)
RESULT = Shape(
    "Result",
    Summary,
    VERSION_2,
    "target blocks seed complete",
    NOISE_LINE,
    "not_measurable notes",
    VERDICTS,
    "rows",
    Key("roundtrip", None, RoundTrip | None),
    Key("study", None, ShapedStudy | None),
    Key("outcomes", None, Summary | None),
    Key("levels", None, tuple[Levels, ...] | None),
    parts=[VERDICT, STEADY, Shape("Study", ShapedStudy, parts=[STUDY_TABLE]), OUTCOMES, LEVELS],
    title="What `bench --json` and `table --json` print; seconds, requests per second, ratios; null = not known",
    left_out=("study", "outcomes", "levels"),
)
"""Of the steady loads; whoever prints gives what a run has beside them, and whether all of it is complete."""


def shape_study(result: Result) -> ShapedStudy | None:
    """Return the run's study with its tables in the published shape; None where it has none. UsageError for a damaged study's file."""
    key = result.run.record.study
    if key not in study_keys() or result.summaries[0] not in result.told:
        return None
    study = load_study(key)
    return ShapedStudy(study.key, study.file.question, shaped(study, result.summaries[0]))


def study_page(result: Result) -> list[Part]:
    """Return the tables of the run's study in the published shape; empty where it has none."""
    study = shape_study(result)
    return page(study.tables) if study else []


def result_json(result: Result) -> dict[str, Any]:
    """Return a result as `--json` has it."""
    steady, disturbed = result.summaries
    return RESULT.plain(
        steady,
        complete=result.complete,
        roundtrip=result.run.roundtrip(),
        study=shape_study(result),
        outcomes=disturbed if disturbed.rows else None,
        levels=tuple(result.levels) or None,
    )
