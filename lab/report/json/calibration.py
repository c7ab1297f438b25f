"""What `selfbench calibrate --json` prints."""

from __future__ import annotations

from pydantic import ConfigDict

from lab.analysis.calibration import Row, rows_of
from lab.records.calibration import CalibrationRecord
from lab.report.json.printed import Printed
from lab.report.tables.calibration import notes


class CalibratedJson(Printed):
    """A calibration: what was recorded, and what it says of each generator."""

    model_config = ConfigDict(title="What `selfbench calibrate --json` prints; seconds, requests per second; null = not known")

    schema_version: int
    record: CalibrationRecord
    complete: bool
    rows: tuple[Row, ...]
    notes: tuple[str, ...]


def printed(record: CalibrationRecord) -> CalibratedJson:
    rows = tuple(rows_of(record))
    return CalibratedJson(
        schema_version=2, record=record, complete=record.complete, rows=rows, notes=tuple(notes(record))
    )
