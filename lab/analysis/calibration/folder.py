"""A calibration's folder beside the runs; it is none of them, since it has no run.json.

    data/runs/<stamp>-calibration-xxxx/calibration.json
                                       measurements/<id>/raw.zst hist.parquet   verbatim output; latency, service, truth
                                       raw.zip histograms.parquet               instead of them where it is packed

Refuses to keep a measurement's number without what it was read from: the folder is there before the record tells of it.
"""

from __future__ import annotations

from pathlib import Path

from lab.analysis.calibration.records import CalibrationRecord, Taken
from lab.base.errors import UsageError, did_you_mean
from lab.base.files import (
    json_bytes,
    read_record,
    reference_folder,
    replace,
    runs_folder,
    whole_folder,
    write_frame,
    write_synced,
    writing,
)
from lab.records.tables import histogram_frame, pack_raw

FILE = "calibration.json"
REFERENCE = "calibration"
"""The committed one, in `data/reference`."""


def names() -> list[str]:
    """Of the calibrations there are, the oldest first."""
    folder = runs_folder()
    return sorted(path.parent.name for path in folder.glob(f"*/{FILE}")) if folder.is_dir() else []


def is_one(name: str) -> bool:
    """Whether a calibration of this name or folder is there."""
    return _there(Path(name) if "/" in name else runs_folder() / name)


class CalibrationFolder:
    def __init__(self, folder: Path, record: CalibrationRecord) -> None:
        self.folder, self.record = folder, record

    @classmethod
    def create(cls, record: CalibrationRecord) -> CalibrationFolder:
        folder = runs_folder() / record.id
        with writing(folder):
            (folder / "measurements").mkdir(parents=True)
            replace(folder / FILE, json_bytes(record))
        return cls(folder, record)

    @classmethod
    def open(cls, name: str) -> CalibrationFolder:
        """By name or folder; a name that only the reference has is the reference's. UsageError when not there or damaged."""
        folder = Path(name) if "/" in name else runs_folder() / name
        if "/" not in name and not _there(folder) and _there(reference_folder() / name):
            folder = reference_folder() / name
        if not _there(folder):
            remedy = did_you_mean(name, names()) if names() else "`just calibrate` measures one"
            raise UsageError("calibration", f"unknown calibration '{name}'", remedy)
        return cls(folder, read_record(folder / FILE, CalibrationRecord, "restore it from a copy"))

    def add(self, taken: Taken) -> None:
        """The measurement's own folder, whole; then the record."""
        with whole_folder(self.folder / "measurements" / taken.measured.id, "measurement") as partial:
            write_synced(partial / "raw.zst", pack_raw(taken.raw))
            write_frame(partial / "hist.parquet", histogram_frame(taken.histograms))
        told = (*self.record.measurements, taken.measured)
        self.record = self.record.model_copy(update={"measurements": told})
        with writing(self.folder):
            replace(self.folder / FILE, json_bytes(self.record))


def _there(folder: Path) -> bool:
    try:
        return (folder / FILE).is_file()
    except OSError:
        return False
