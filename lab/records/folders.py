"""The form of a run's folder while it is measured: a folder per sample, which appears complete or not at all.

This form survives `kill -9`.

    run.json, roundtrip.json, knee.json
    manifests/<variant>.yaml
    readback/b01-<arm>.json               the read-backs after a bring-up
    deployed/b01-<arm>.json               the pods, on a cluster
    samples/<id>/sample.json raw.zst hist.parquet usage.parquet
                 events.parquet           for a sample with a disruption, and for its control run
                 k6-summary.json …        the files of k6 itself, where they were requested

Refuses to overwrite a sample, and to read a damaged sample as if it were complete.
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
from lab.base.files import create_folder_atomically, json_bytes, read_record, replace_file, write_synced, writing
from lab.model.disturbance import make_validation_context
from lab.model.events import EVENTS_SCHEMA
from lab.model.run import RoundTrip
from lab.model.samples import Sample
from lab.model.usage import USAGE_SCHEMA
from lab.records import tables
from lab.records.tables import (
    EVENTS,
    HISTOGRAMS,
    RAW,
    READBACK,
    ROUNDTRIP,
    USAGE,
    DamagedError,
    OutputPlace,
    make_unreadable_error,
)
from lab.stats.histogram import Histogram

SAMPLES, MANIFESTS = "samples", "manifests"
SAMPLE_RECORD = "sample.json"


class FolderForm:
    """One run's folder with a folder per sample; `run` is the run's name, which remedies mention."""

    def __init__(self, folder: Path, run: str) -> None:
        self.folder, self.run = folder, run

    # -- reading ----------------------------------------------------------------------------------------

    def samples(self) -> list[Sample]:
        """Return the record of every sample, in any order.

        Raises:
            UsageError: A record is damaged, or a part of a sample is missing; the message names it.

        """
        try:
            folders = sorted(path for path in (self.folder / SAMPLES).iterdir() if not path.name.startswith("."))
        except OSError as error:
            fault = f"cannot be read: {error.strerror}"
            raise UsageError(f"{self.folder}/{SAMPLES}", fault, "restore the folder") from None
        samples: list[Sample] = []
        for folder in folders:
            remedy = f"move {folder} away and `--resume {self.run}` measures it again"
            try:
                present = {name: (folder / name).is_file() for name in (RAW, USAGE, EVENTS)}
            except OSError as error:
                raise make_unreadable_error(folder, error, "make it readable for you") from None
            if present[RAW] and present[USAGE]:
                samples.append(
                    read_record(
                        folder / SAMPLE_RECORD, Sample, remedy, make_validation_context(disturbances.DISTURBANCES)
                    )
                )
                present[EVENTS] |= not samples[-1].logged
            else:
                present[EVENTS] = True
            if missing := [name for name, is_present in present.items() if not is_present]:
                raise UsageError(str(folder), f"{', '.join(missing)} is missing", remedy)
        return samples

    def raw(self, sample: str) -> OutputPlace:
        """Return the file where a sample's verbatim output lies, or should lie."""
        return self.path(RAW, sample)

    def holds(self, sample: Sample) -> bool:
        """Return whether the verbatim output has the digest that the sample's record notes."""
        try:
            return tables.compute_digest(tables.read_output(self.raw(sample.id))) == sample.raw_sha256
        except DamagedError:
            return False

    def left(self, sample: str, name: str) -> bytes | None:
        """Return a file that the generator itself wrote; None where it left no such file."""
        path = self.path(name, sample)
        return path.read_bytes() if path.is_file() else None

    def histograms(self, sample: Sample) -> Mapping[str, Histogram] | None:
        """Return the stored histograms by series; None where they must be read from the verbatim output."""
        path = self.path(HISTOGRAMS, sample.id)
        return tables.read_histograms(path, sample.histogram or "exact") if path.exists() else None

    def looks(self, samples: Sequence[str]) -> pl.DataFrame:
        """Return the usage tables of several samples as one, with `sample` as the first column."""
        return tables.join_tables({sample: self.usage(sample) for sample in samples}, USAGE_SCHEMA)

    def usage(self, sample: str) -> pl.DataFrame:
        """Return the usage table of a sample."""
        return tables.read_table(self.path(USAGE, sample), USAGE_SCHEMA)

    def events(self, sample: str, needed: bool = True) -> pl.DataFrame:
        """Return the events of a sample; an empty table where none were recorded and none are `needed`."""
        path = self.path(EVENTS, sample)
        return tables.read_table(path, EVENTS_SCHEMA) if needed or path.exists() else pl.DataFrame(schema=EVENTS_SCHEMA)

    def manifests(self, variant: str) -> str:
        """Return the manifests of a variant as they were applied: YAML, a document per object."""
        return self.manifests_path(variant).read_text("utf-8")

    def brought_up(self, kind: str, stem: str) -> Any:
        """Return what was stored of a bring-up: its `readback`, or what was `deployed`."""
        return json.loads(self.brought_up_path(kind, stem).read_bytes())

    def roundtrip(self) -> RoundTrip | None:
        """Return the round trip of the bare network; None while it has not been tried."""
        path = self.folder / ROUNDTRIP
        return RoundTrip.model_validate_json(path.read_bytes()) if path.exists() else None

    def path(self, part: str, sample: str) -> Path:
        """Return the file that has a part (RAW, USAGE, EVENTS, HISTOGRAMS) of a sample."""
        return self.folder / SAMPLES / sample / part

    def manifests_path(self, variant: str) -> Path:
        """Return the file that has the manifests of a variant."""
        return self.folder / MANIFESTS / f"{variant}.yaml"

    def brought_up_path(self, kind: str, stem: str) -> Path:
        """Return the file that has what was stored of a bring-up."""
        return self.folder / kind / f"{stem}.json"

    # -- writing ----------------------------------------------------------------------------------------

    def create(self, manifests: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """Create the folder, which must not exist yet, with the rendered manifests of each variant in it."""
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
        """Write the folder of one sample, complete or not at all, with the arguments of `RunStore.write_sample`."""
        with create_folder_atomically(self.folder / SAMPLES / sample.id, "sample") as partial:
            write_synced(partial / RAW, tables.pack_raw(raw))
            write_synced(partial / HISTOGRAMS, tables.histogram_frame(histograms))
            write_synced(partial / USAGE, tables.round_to_microseconds(usage))
            if events is not None:
                write_synced(partial / EVENTS, events)
            for name, content in left.items():
                write_synced(partial / name, content)
            noted = sample.model_copy(update={"raw_sha256": tables.compute_digest(tables.raw_bytes(raw))})
            write_synced(partial / SAMPLE_RECORD, json_bytes(noted))

    def write_brought_up(self, kind: str, stem: str, records: Sequence[Mapping[str, Any]]) -> None:
        """Write what is stored of a bring-up under the first free name.

        A resumed block adds a file and replaces none.
        """
        names = (f"{stem}{suffix}" for suffix in ("", *(f".{n}" for n in range(2, 1000))))
        with writing(self.folder):
            (self.folder / kind).mkdir(exist_ok=True)
            path = next(path for name in names if not (path := self.brought_up_path(kind, name)).exists())
            replace_file(path, json.dumps(list(records), indent=1).encode())

    def clear_partial(self) -> None:
        """Remove what an interrupted lab left half written."""
        for partial in (self.folder / SAMPLES).glob(".*.partial"):
            shutil.rmtree(partial, ignore_errors=True)
