"""A run as it is measured: a folder per sample, which appears whole or not at all. What survives `kill -9`.

    run.json, roundtrip.json, knee.json
    manifests/<variant>.yaml              (earlier reference runs: .yaml.xz)
    readback/b01-<arm>.json               what was read back after a bring-up
    deployed/b01-<arm>.json               the pods, on a cluster
    samples/<id>/sample.json raw.zst hist.parquet usage.parquet
                 events.parquet           where something was done to the system, or a control run of it
                 k6-summary.json …        k6's own, where they were asked for

Refuses to overwrite a sample, and to read a damaged one as if it were whole.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import yaml

from lab import disturbances
from lab.base.errors import UsageError
from lab.base.files import json_bytes, read_record, replace, whole_folder, write_frame, write_synced, writing
from lab.model.disturbance import known
from lab.model.events import EVENTS_SCHEMA
from lab.model.run import RoundTrip
from lab.model.samples import Sample
from lab.model.usage import USAGE_SCHEMA
from lab.records import tables
from lab.records.forms import EVENTS, HISTOGRAMS, READBACK, USAGE, roundtrip_of, unreadable
from lab.records.tables import Place
from lab.stats.histogram import Histogram

SAMPLES, MANIFESTS = "samples", "manifests"
RECORD = "sample.json"


class Folders:
    """One run's folder in this form. `run`: its name, for remedies."""

    def __init__(self, folder: Path, run: str) -> None:
        self.folder, self.run = folder, run

    def of(self, sample: str) -> Path:
        return self.folder / SAMPLES / sample

    # -- reading ----------------------------------------------------------------------------------------

    def samples(self) -> list[Sample]:
        """Every sample's record, in any order. UsageError names what is damaged, and a part of a sample that is missing."""
        found: list[Sample] = []
        for folder in sorted(self._sample_folders()):
            remedy = f"move {folder} away and `--resume {self.run}` measures it again"
            try:
                parts = tables.raw_path(folder), folder / USAGE
                missing = [path.name for path in parts if not path.is_file()]
                told = (folder / EVENTS).is_file()
            except OSError as error:
                raise unreadable(folder, error, "make it readable for you") from None
            if not missing:
                found.append(read_record(folder / RECORD, Sample, remedy, known(disturbances.DISTURBANCES)))
                missing = [EVENTS] if found[-1].outcome and not told else []
            if missing:
                raise UsageError(str(folder), f"{', '.join(missing)} is missing", remedy)
        return found

    def _sample_folders(self) -> Iterator[Path]:
        try:
            yield from (path for path in (self.folder / SAMPLES).iterdir() if not path.name.startswith("."))
        except OSError as error:
            fault = f"cannot be read: {error.strerror}"
            raise UsageError(f"{self.folder}/{SAMPLES}", fault, "restore the folder") from None

    def raw(self, sample: str) -> Place:
        """Where a sample's verbatim output lies, or should lie."""
        return tables.raw_path(self.of(sample))

    def holds(self, sample: Sample) -> bool:
        """Whether that output is what the record has the digest of."""
        path = tables.raw_path(self.of(sample.id))
        with open(path, "rb") as packed:  # earlier labs took the digest of the file as it lies there
            if hashlib.file_digest(packed, "sha256").hexdigest() == sample.raw_sha256:
                return True
        try:
            return tables.digest(tables.unpacked(path)) == sample.raw_sha256
        except tables.FrameError:
            return False

    def left(self, sample: str, name: str) -> bytes | None:
        """A file that the generator itself wrote; None where it left none."""
        path = self.of(sample) / name
        return path.read_bytes() if path.is_file() else None

    def histograms(self, sample: Sample) -> Mapping[str, Histogram] | None:
        """Series → histogram; None where none are kept, so that they are read off the verbatim output."""
        path = self.path(HISTOGRAMS, sample.id)
        return tables.read_histograms(path, sample.histogram or "exact") if path.exists() else None

    def looks(self, samples: Sequence[str]) -> pl.DataFrame:
        """Return these samples' usage tables as one, with a column `sample` in front."""
        return tables.joined({sample: self.usage(sample) for sample in samples}, USAGE_SCHEMA)

    def usage(self, sample: str) -> pl.DataFrame:
        return tables.read_usage(self.path(USAGE, sample))

    def events(self, sample: str, needed: bool = True) -> pl.DataFrame:
        """No rows where none were recorded and none are `needed`."""
        path = self.path(EVENTS, sample)
        return tables.read_events(path) if needed or path.exists() else pl.DataFrame(schema=EVENTS_SCHEMA)

    def manifests(self, variant: str) -> str:
        """YAML, a document per object, as it was applied."""
        path = self.manifests_path(variant)
        try:
            content = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
            return content.decode("utf-8")
        except (lzma.LZMAError, UnicodeDecodeError) as error:
            raise tables.FrameError(" ".join(str(error).split())) from None

    def brought_up(self, kind: str, stem: str) -> Any:
        """What was kept of a bring-up: its `readback`, or what was `deployed`."""
        try:
            return json.loads(self.brought_up_path(kind, stem).read_bytes())
        except ValueError as error:
            raise tables.FrameError(str(error)) from None

    def roundtrip(self) -> RoundTrip | None:
        """The bare network's; None as long as it was not tried."""
        return roundtrip_of(self.folder)

    def path(self, part: str, sample: str) -> Path:
        """The file that has this part (USAGE, EVENTS, HISTOGRAMS) of a sample."""
        return self.of(sample) / part

    def manifests_path(self, variant: str) -> Path:
        plain = self.folder / MANIFESTS / f"{variant}.yaml"
        packed = plain.with_name(f"{plain.name}.xz")
        return packed if packed.is_file() and not plain.is_file() else plain

    def brought_up_path(self, kind: str, stem: str) -> Path:
        return self.folder / kind / f"{stem}.json"

    # -- writing ----------------------------------------------------------------------------------------

    def create(self, manifests: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """The folder, which is not there yet, with the rendered manifests in it."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        self.folder.mkdir()
        for part in (MANIFESTS, READBACK, SAMPLES):
            (self.folder / part).mkdir()
        for variant, objects in manifests.items():
            text = yaml.dump_all(objects, Dumper=yaml.CSafeDumper, sort_keys=False)
            write_synced(self.folder / MANIFESTS / f"{variant}.yaml", text.encode())

    def write_sample(
        self,
        sample: Sample,
        raw: str,
        histograms: Mapping[str, Histogram],
        usage: pl.DataFrame,
        events: pl.DataFrame | None,
        left: Mapping[str, bytes],
    ) -> None:
        """As `RunStore.write_sample`."""
        with whole_folder(self.of(sample.id), "sample") as partial:
            write_synced(partial / tables.RAW, tables.pack_raw(raw))
            write_frame(partial / HISTOGRAMS, tables.histogram_frame(histograms))
            write_frame(partial / USAGE, tables.to_the_microsecond(usage))
            if events is not None:
                write_frame(partial / EVENTS, events)
            for name, content in left.items():
                write_synced(partial / name, content)
            noted = sample.model_copy(update={"raw_sha256": tables.digest(tables.raw_bytes(raw))})
            write_synced(partial / RECORD, json_bytes(noted))

    def write_record(self, sample: Sample) -> None:
        """In the place of the record that it had."""
        with writing(self.folder):
            replace(self.of(sample.id) / RECORD, json_bytes(sample))

    def write_brought_up(self, kind: str, stem: str, found: Sequence[Mapping[str, Any]]) -> None:
        """Under the first name that is free: a resumed block adds a file, it replaces none."""
        names = (f"{stem}{suffix}" for suffix in ("", *(f".{n}" for n in range(2, 1000))))
        with writing(self.folder):
            (self.folder / kind).mkdir(exist_ok=True)
            path = next(path for name in names if not (path := self.brought_up_path(kind, name)).exists())
            replace(path, json.dumps(list(found), indent=1).encode())

    def clear_partial(self) -> None:
        """Remove what an interrupted lab left half written."""
        for partial in (self.folder / SAMPLES).glob(".*.partial"):
            shutil.rmtree(partial, ignore_errors=True)
