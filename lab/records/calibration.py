"""Calibrations: what each generator reported of a server whose answers are known, and what was true, in a folder of their own.

    data/runs/<stamp>-calibration-xxxx/calibration.json
                                       raw.zip               <measurement>/raw.zst: the generator's verbatim output
                                       histograms.parquet    sample (measurement), series (latency, service, truth), bucket, count

A calibration is no run, since it has no run.json. Refuses unknown keys, and to keep a measurement's number without what it was read from.
Seconds, counts and shares; null = not known, or fewer than ten requests beyond a percentile.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import polars as pl
from pydantic import Field

from lab.base.errors import UsageError, did_you_mean
from lab.base.files import (
    json_bytes,
    read_record,
    reference_folder,
    replace,
    runs_folder,
    write_synced,
    writing,
)
from lab.base.validation import Record
from lab.records import tables
from lab.records.packed import RAW
from lab.records.packing import Member, write_zip
from lab.stats.histogram import Histogram

FILE, COUNTED = "calibration.json", "histograms.parquet"
LEVEL = 12
"""Of zstd: outputs are small, and are kept for good."""
REFERENCE = "calibration"
"""The committed one, in `data/reference`."""
OVER_S = 0.5
"""A pause of one second makes half of the requests that fall due in it wait longer than this."""
TOLD = ("p50", "p99", "p99.9")
"""The percentiles that are recorded."""
MAY_FAIL = "close"
"""A scenario of earlier calibrations: connections are closed without a word, and a generator may report nothing then."""


class Latencies(Record):
    """A histogram in a few numbers; the histogram itself lies beside the record."""

    kind: Literal["exact", "quantiles"]
    count: int
    quantiles_s: dict[str, float | None] = Field(description="p50, p99, p99.9")
    max_s: float | None
    share_over: float = Field(description=f"of the requests, those of more than {OVER_S:g} s")


class Reported(Record):
    """What the generator said, as the lab reads it."""

    requests: int = Field(description="answered, with whatever status")
    achieved_rps: float
    duration_s: float
    recorded_s: float = Field(description="what its latencies cover")
    errors: dict[str, int]
    dropped: int
    latency: Latencies
    notes: tuple[str, ...] = ()


class Truth(Record):
    """What the server did, by its own record. Latencies are those of the time that the generator records."""

    answered: int
    achieved_rps: float | None = Field(default=None, description="of earlier releases: answers per second")
    connections: int
    closed: int = Field(default=0, description="connections that the server closed, in a scenario of earlier releases")
    broken: int = Field(description="answers that could not be written: the client had gone")
    unstamped: int = Field(description="arrivals without the kernel's stamp; 0 = all are exact")
    service: Latencies
    late_s: dict[str, float | None] = Field(
        description="the server's own error: how late its answers were, by quantile"
    )
    share_over: float | None = Field(
        description=f"of the requests that fall due evenly, those that a pause holds for more than {OVER_S:g} s;"
        " null = the scenario has no pause"
    )
    cpu_s: float


class Measured(Record):
    """One generator, once, in one scenario."""

    id: str
    repeat: int
    generator: str
    scenario: str
    connections: int
    offered_rps: float | None = Field(description="null = closed loop")
    duration_s: float
    argv: tuple[str, ...]
    started_at: str
    reported: Reported | None
    truth: Truth | None = Field(description="null in the ceiling, whose server is the lab's real backend")
    failure: str = Field(default="", description="why nothing was reported; empty = it was")
    reasons: tuple[str, ...] = Field(default=(), description="what earlier releases called such a sample invalid for")
    detail: str = Field(default="", description="the same in words")
    noise: tuple[str, ...] = Field(default=(), description="what disturbed it: steal, other processes, clock")
    cpu_s: float | None = Field(description="of the generator")
    server_cpu_s: float | None
    steal: float
    others: float | None


class Known(Record):
    """One generator as this machine has it, or has it not. `refusals`: scenario → why it cannot make that load."""

    name: str
    version: str | None
    installed: bool
    remedy: str
    models: tuple[Literal["closed", "open"], ...]
    latency_from: Literal["due", "sent"]
    refusals: dict[str, str] = Field(default_factory=dict)


class CalibrationRecord(Record):
    """`calibration.json`. Rewritten whole after every measurement."""

    schema_version: int = 1
    id: str
    created_at: str
    command: tuple[str, ...]
    target: str
    seed: int
    repeats: int
    duration_s: float
    scenarios: dict[str, str] = Field(description="name → what the server does in it")
    generators: tuple[Known, ...]
    planned: int = Field(description="measurements; fewer are there after an interruption")
    facts: dict[str, str]
    git_commit: str | None
    measurements: tuple[Measured, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether all is measured, and each generator reported something in each scenario that it can make (but see MAY_FAIL)."""
        wanted = {
            (each.name, scenario)
            for each in self.generators
            if each.installed
            for scenario in self.scenarios.keys() - each.refusals.keys() - {MAY_FAIL}
        }
        found = {(each.generator, each.scenario) for each in self.measurements if each.reported is not None}
        return len(self.measurements) == self.planned and wanted <= found


def calibration_names() -> list[str]:
    """Return the names of the calibrations there are, the oldest first."""
    folder = runs_folder()
    return sorted(path.parent.name for path in folder.glob(f"*/{FILE}")) if folder.is_dir() else []


class CalibrationFolder:
    """A calibration's folder beside the runs, and its record."""

    def __init__(self, folder: Path, record: CalibrationRecord) -> None:
        self.folder, self.record = folder, record
        self._raws, self._counted = list[Member](), dict[str, pl.DataFrame]()

    @classmethod
    def create(cls, record: CalibrationRecord) -> CalibrationFolder:
        folder = runs_folder() / record.id
        with writing(folder):
            folder.mkdir(parents=True)
            replace(folder / FILE, json_bytes(record))
        return cls(folder, record)

    @classmethod
    def open(cls, name: str) -> CalibrationFolder:
        """Open one by name or folder; a name that only the reference has is the reference's. UsageError when not there or damaged."""
        folder = Path(name) if "/" in name else runs_folder() / name
        if "/" not in name and not tables.has(folder, FILE) and tables.has(reference_folder() / name, FILE):
            folder = reference_folder() / name
        if not tables.has(folder, FILE):
            names = calibration_names()
            remedy = did_you_mean(name, names) if names else "`just selfbench calibrate` measures one"
            raise UsageError("calibration", f"unknown calibration '{name}'", remedy)
        return cls(folder, read_record(folder / FILE, CalibrationRecord, "restore it from a copy"))

    def add(self, measured: Measured, raw: str, histograms: Mapping[str, Histogram]) -> None:
        """Keep a measurement: its verbatim output and its histograms, then the record that tells of it."""
        content = tables.raw_bytes(raw)
        member = (f"{measured.id}/{tables.RAW}", tables.pack_raw(raw, LEVEL), tables.digest(content))
        self._raws.append(member)
        self._counted[measured.id] = tables.histogram_frame(histograms)
        self.record = self.record.model_copy(update={"measurements": (*self.record.measurements, measured)})
        partial = self.folder / ".partial"
        with writing(self.folder):
            write_zip(partial, self._raws)
            partial.rename(self.folder / RAW)
            write_synced(partial, tables.joined(self._counted, tables.HISTOGRAM_SCHEMA))
            partial.rename(self.folder / COUNTED)
            replace(self.folder / FILE, json_bytes(self.record))
