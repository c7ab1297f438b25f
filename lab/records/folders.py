"""A run as it is measured: a folder per sample, which appears whole or not at all. What survives `kill -9`.

    run.json, roundtrip.json, knee.json
    manifests/<variant>.yaml
    readback/b01-<arm>.json               what was read back after a bring-up
    deployed/b01-<arm>.json               the pods, on a cluster
    samples/<id>/sample.json raw.zst hist.parquet usage.parquet
                 events.parquet           where something was done to the system, or a control run of it
                 k6-summary.json …        k6's own, where they were asked for

Refuses to overwrite a sample, and to read a damaged one as if it were whole.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import yaml

from lab import disturbances
from lab.base.errors import UsageError
from lab.base.files import json_bytes, read_record, replace, whole_folder, write_synced, writing
from lab.model.disturbance import known
from lab.model.events import EVENTS_SCHEMA
from lab.model.run import RoundTrip
from lab.model.samples import Sample
from lab.model.usage import USAGE_SCHEMA
from lab.records import tables
from lab.records.tables import EVENTS, HISTOGRAMS, RAW, READBACK, ROUNDTRIP, USAGE, FrameError, Place, unreadable
from lab.stats.histogram import Histogram

SAMPLES, MANIFESTS = "samples", "manifests"
RECORD = "sample.json"


class Folders:
    """One run's folder in this form. `run`: its name, for remedies."""

    def __init__(self, folder: Path, run: str) -> None:
        self.folder, self.run = folder, run

    # -- reading ----------------------------------------------------------------------------------------

    def samples(self) -> list[Sample]:
        """Every sample's record, in any order. UsageError names what is damaged, and a part of a sample that is missing."""
        try:
            folders = sorted(path for path in (self.folder / SAMPLES).iterdir() if not path.name.startswith("."))
        except OSError as error:
            fault = f"cannot be read: {error.strerror}"
            raise UsageError(f"{self.folder}/{SAMPLES}", fault, "restore the folder") from None
        found: list[Sample] = []
        for folder in folders:
            remedy = f"move {folder} away and `--resume {self.run}` measures it again"
            try:
                there = {name: (folder / name).is_file() for name in (RAW, USAGE, EVENTS)}
            except OSError as error:
                raise unreadable(folder, error, "make it readable for you") from None
            if there[RAW] and there[USAGE]:
                found.append(read_record(folder / RECORD, Sample, remedy, known(disturbances.DISTURBANCES)))
                there[EVENTS] |= not found[-1].outcome
            else:
                there[EVENTS] = True
            if missing := [name for name, is_there in there.items() if not is_there]:
                raise UsageError(str(folder), f"{', '.join(missing)} is missing", remedy)
        return found

    def raw(self, sample: str) -> Place:
        """Where a sample's verbatim output lies, or should lie."""
        return self.path(RAW, sample)

    def holds(self, sample: Sample) -> bool:
        """Whether that output is what the record has the digest of."""
        try:
            return tables.digest(tables.unpacked(self.raw(sample.id))) == sample.raw_sha256
        except FrameError:
            return False

    def left(self, sample: str, name: str) -> bytes | None:
        """A file that the generator itself wrote; None where it left none."""
        path = self.path(name, sample)
        return path.read_bytes() if path.is_file() else None

    def histograms(self, sample: Sample) -> Mapping[str, Histogram] | None:
        """Series → histogram; None where none are kept, so that they are read off the verbatim output."""
        path = self.path(HISTOGRAMS, sample.id)
        return tables.read_histograms(path, sample.histogram or "exact") if path.exists() else None

    def looks(self, samples: Sequence[str]) -> pl.DataFrame:
        """Return these samples' usage tables as one, with a column `sample` in front."""
        return tables.joined({sample: self.usage(sample) for sample in samples}, USAGE_SCHEMA)

    def usage(self, sample: str) -> pl.DataFrame:
        return tables.read_table(self.path(USAGE, sample), USAGE_SCHEMA)

    def events(self, sample: str, needed: bool = True) -> pl.DataFrame:
        """No rows where none were recorded and none are `needed`."""
        path = self.path(EVENTS, sample)
        return tables.read_table(path, EVENTS_SCHEMA) if needed or path.exists() else pl.DataFrame(schema=EVENTS_SCHEMA)

    def manifests(self, variant: str) -> str:
        """YAML, a document per object, as it was applied."""
        return self.manifests_path(variant).read_text("utf-8")

    def brought_up(self, kind: str, stem: str) -> Any:
        """What was kept of a bring-up: its `readback`, or what was `deployed`."""
        return json.loads(self.brought_up_path(kind, stem).read_bytes())

    def roundtrip(self) -> RoundTrip | None:
        """The bare network's; None as long as it was not tried."""
        path = self.folder / ROUNDTRIP
        return RoundTrip.model_validate_json(path.read_bytes()) if path.exists() else None

    def path(self, part: str, sample: str) -> Path:
        """The file that has this part (RAW, USAGE, EVENTS, HISTOGRAMS) of a sample."""
        return self.folder / SAMPLES / sample / part

    def manifests_path(self, variant: str) -> Path:
        return self.folder / MANIFESTS / f"{variant}.yaml"

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
            write_synced(self.manifests_path(variant), text.encode())

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
        with whole_folder(self.folder / SAMPLES / sample.id, "sample") as partial:
            write_synced(partial / RAW, tables.pack_raw(raw))
            write_synced(partial / HISTOGRAMS, tables.histogram_frame(histograms))
            write_synced(partial / USAGE, tables.to_the_microsecond(usage))
            if events is not None:
                write_synced(partial / EVENTS, events)
            for name, content in left.items():
                write_synced(partial / name, content)
            noted = sample.model_copy(update={"raw_sha256": tables.digest(tables.raw_bytes(raw))})
            write_synced(partial / RECORD, json_bytes(noted))

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
