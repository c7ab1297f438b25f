"""The records of calibrations: comparisons of each load generator's report with the record of a test server.

Each calibration has its own folder:

    data/runs/<stamp>-calibration-xxxx/calibration.json
                                       raw.zip               <measurement>/raw.zst: the generator's verbatim output
                                       histograms.parquet    sample (measurement), series (latency, service, truth), bucket, count

A calibration is no run, since it has no run.json. Unknown keys are refused, and a measurement's numbers are stored only together with the
output that they were read from. Numbers are seconds, counts and shares; null = not known, or fewer than ten requests beyond a percentile.
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
    replace_file,
    runs_folder,
    write_synced,
    writing,
)
from lab.base.validation import Record
from lab.records import tables
from lab.records.packed import RAW
from lab.records.packing import ZipMember, write_zip
from lab.stats.histogram import Histogram

FILE, COUNTED = "calibration.json", "histograms.parquet"
LEVEL = 12
"""The compression level of zstd: high, since outputs are small and are kept for good."""
REFERENCE = "calibration"
"""The name of the committed calibration in `data/reference`."""
OVER_S = 0.5
"""The wait, in seconds, that half of the requests due in a pause of one second exceed."""
PERCENTILES = ("p50", "p99", "p99.9")
"""The percentiles that are recorded."""
MAY_FAIL = "close"
"""The scenario of earlier calibrations in which a generator may report nothing.

The server closes connections without notice there.
"""


class Latencies(Record):
    """The key numbers of a latency histogram; the histogram itself is in `histograms.parquet` in the folder."""

    kind: Literal["exact", "quantiles"]
    count: int
    quantiles_s: dict[str, float | None] = Field(description="p50, p99, p99.9")
    max_s: float | None
    share_over: float = Field(description=f"of the requests, those of more than {OVER_S:g} s")


class Reported(Record):
    """The numbers that a load generator reported, as the lab parsed them from its output."""

    requests: int = Field(description="answered, with whatever status")
    achieved_rps: float
    duration_s: float
    recorded_s: float = Field(description="what its latencies cover")
    errors: dict[str, int]
    dropped: int
    latency: Latencies
    notes: tuple[str, ...] = ()


class Truth(Record):
    """The numbers that the test server itself recorded about the requests, with which a generator's report is compared.

    The latencies are those of the requests in the part of the load for which the generator reports latencies.
    """

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
    """The record of one load generator, run once against a server in one scenario (how the server answers)."""

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
    """A load generator, and whether it is installed on this machine.

    `refusals` maps each scenario (how the test server answers) that the generator cannot measure to the reason.
    """

    name: str
    version: str | None
    installed: bool
    remedy: str
    models: tuple[Literal["closed", "open"], ...]
    latency_from: Literal["due", "sent"]
    refusals: dict[str, str] = Field(default_factory=dict)


class CalibrationRecord(Record):
    """The content of `calibration.json`, which compares load generators with a test server's own record.

    The file is rewritten after every measurement.
    """

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
        """True if all planned measurements exist, and every installed generator reported numbers in each possible scenario.

        A scenario is a way in which the test server answers. The scenario `MAY_FAIL` needs no report, because
        generators may fail there.
        """
        required = {
            (generator.name, scenario)
            for generator in self.generators
            if generator.installed
            for scenario in self.scenarios.keys() - generator.refusals.keys() - {MAY_FAIL}
        }
        reported = {
            (measurement.generator, measurement.scenario)
            for measurement in self.measurements
            if measurement.reported is not None
        }
        return len(self.measurements) == self.planned and required <= reported


def list_calibrations() -> list[str]:
    """Return the names of the calibrations (comparisons of load generators with a test server) among the runs, the oldest first.

    The committed calibration in `data/reference` is not included.
    """
    folder = runs_folder()
    return sorted(path.parent.name for path in folder.glob(f"*/{FILE}")) if folder.is_dir() else []


class CalibrationFolder:
    """The folder of a calibration (a comparison of load generators with a test server), with the record in it."""

    def __init__(self, folder: Path, record: CalibrationRecord) -> None:
        self.folder, self.record = folder, record
        self._raws, self._counted = list[ZipMember](), dict[str, pl.DataFrame]()

    @classmethod
    def create(cls, record: CalibrationRecord) -> CalibrationFolder:
        """Create the folder of a new calibration (a comparison of load generators with a test server), with its record.

        Raises:
            StoreError: The folder cannot be written.

        """
        folder = runs_folder() / record.id
        with writing(folder):
            folder.mkdir(parents=True)
            replace_file(folder / FILE, json_bytes(record))
        return cls(folder, record)

    @classmethod
    def open(cls, name: str) -> CalibrationFolder:
        """Open a calibration by its name or by the path of its folder.

        A name is looked up in the folder of runs first, then in `data/reference`.

        Raises:
            UsageError: There is no such calibration, or it is damaged.

        """
        places = [Path(name)] if "/" in name else [top / name for top in (runs_folder(), reference_folder())]
        folder = next((place for place in places if tables.has_file(place, FILE)), None)
        if folder is None:
            names = list_calibrations()
            remedy = did_you_mean(name, names) if names else "`just selfbench calibrate` measures one"
            raise UsageError("calibration", f"unknown calibration '{name}'", remedy)
        return cls(folder, read_record(folder / FILE, CalibrationRecord, "restore it from a copy"))

    def add(self, measured: Measured, raw: str, histograms: Mapping[str, Histogram]) -> None:
        """Store a measurement in the calibration's folder.

        The record that includes it is written last, so that an interruption leaves no record without its data.

        Args:
            measured: The record of the measurement.
            raw: The generator's output, unchanged.
            histograms: The latency histograms, by series ("latency", "service" or "truth").

        Raises:
            StoreError: The folder cannot be written.

        """
        content = tables.raw_bytes(raw)
        member = (f"{measured.id}/{tables.RAW}", tables.pack_raw(raw, LEVEL), tables.compute_digest(content))
        self._raws.append(member)
        self._counted[measured.id] = tables.histogram_frame(histograms)
        self.record = self.record.model_copy(update={"measurements": (*self.record.measurements, measured)})
        partial = self.folder / ".partial"
        with writing(self.folder):
            write_zip(partial, self._raws)
            partial.rename(self.folder / RAW)
            write_synced(partial, tables.join_tables(self._counted, tables.HISTOGRAM_SCHEMA))
            partial.rename(self.folder / COUNTED)
            replace_file(self.folder / FILE, json_bytes(self.record))
