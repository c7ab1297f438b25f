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
    """The folder of a run in the form that it has while it is measured: with one folder for each sample.

    `run` is the run's name, which error messages mention.
    """

    def __init__(self, folder: Path, run: str) -> None:
        self.folder, self.run = folder, run

    # -- reading ----------------------------------------------------------------------------------------

    def samples(self) -> list[Sample]:
        """Return the records of all samples of the run, in any order.

        Raises:
            UsageError: A record is damaged, or a file of a sample is missing; the message names it.

        """
        try:
            folders = sorted(path for path in (self.folder / SAMPLES).iterdir() if not path.name.startswith("."))
        except OSError as error:
            raise make_unreadable_error(self.folder / SAMPLES, error, "restore the folder") from None
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
        """Return the path of the file with the generator's output of a sample; the file may be missing.

        Args:
            sample: The id of the sample.

        """
        return self.path(RAW, sample)

    def holds(self, sample: Sample) -> bool:
        """Return whether the stored output of the generator has the digest that is in the sample's record."""
        try:
            return tables.compute_digest(tables.read_output(self.raw(sample.id))) == sample.raw_sha256
        except DamagedError:
            return False

    def left(self, sample: str, name: str) -> bytes | None:
        """Return the content of a file that the generator wrote in addition to its output; None if there is no such file.

        Args:
            sample: The id of the sample.
            name: The name of the file, such as `k6-summary.json`.

        """
        path = self.path(name, sample)
        return path.read_bytes() if path.is_file() else None

    def histograms(self, sample: Sample) -> Mapping[str, Histogram] | None:
        """Return the stored latency histograms of a sample, by series ("latency", "service").

        Returns:
            None if no histograms are stored, so that they must be parsed from the generator's output.

        """
        path = self.path(HISTOGRAMS, sample.id)
        return tables.read_histograms(path, sample.histogram or "exact") if path.exists() else None

    def looks(self, samples: Sequence[str]) -> pl.DataFrame:
        """Return the usage of several samples (CPU and memory, second by second) as one table.

        The first column, `sample`, has the sample's id in each row. The other columns are those of `USAGE_SCHEMA`.

        Args:
            samples: The ids of the samples.

        """
        return tables.join_tables({sample: self.usage(sample) for sample in samples}, USAGE_SCHEMA)

    def usage(self, sample: str) -> pl.DataFrame:
        """Return the usage of a sample: the CPU and memory of each process, second by second (`USAGE_SCHEMA`).

        Args:
            sample: The id of the sample.

        """
        return tables.read_table(self.path(USAGE, sample), USAGE_SCHEMA)

    def events(self, sample: str, needed: bool = True) -> pl.DataFrame:
        """Return the events of a sample as a table (`EVENTS_SCHEMA`).

        Args:
            sample: The id of the sample.
            needed: Whether a missing file is an error. If not, a sample without the file has an empty table.

        """
        path = self.path(EVENTS, sample)
        return tables.read_table(path, EVENTS_SCHEMA) if needed or path.exists() else pl.DataFrame(schema=EVENTS_SCHEMA)

    def manifests(self, variant: str) -> str:
        """Return the manifests of a variant as they were applied, as YAML with one document per Kubernetes object.

        Args:
            variant: The name of the variant under which the run stored it.

        """
        return self.manifests_path(variant).read_text("utf-8")

    def brought_up(self, kind: str, stem: str) -> Any:
        """Return a record of one start of a system: its read-backs (checks of its settings) or its pods.

        Args:
            kind: "readback" or "deployed" (the pods).
            stem: The name of the start's file without its ending, such as `b01-keepalive`.

        """
        return json.loads(self.brought_up_path(kind, stem).read_bytes())

    def roundtrip(self) -> RoundTrip | None:
        """Return the round-trip times between client and backend without a proxy; None if they were not measured yet."""
        path = self.folder / ROUNDTRIP
        return RoundTrip.model_validate_json(path.read_bytes()) if path.exists() else None

    def path(self, part: str, sample: str) -> Path:
        """Return the path of a file in a sample's folder.

        Args:
            part: The name of the file: RAW, USAGE, EVENTS, HISTOGRAMS, or a file that the generator wrote.
            sample: The id of the sample.

        """
        return self.folder / SAMPLES / sample / part

    def manifests_path(self, variant: str) -> Path:
        """Return the path of the YAML file with the manifests of a variant."""
        return self.folder / MANIFESTS / f"{variant}.yaml"

    def brought_up_path(self, kind: str, stem: str) -> Path:
        """Return the path of the file with a record of one start of a system.

        Args:
            kind: "readback" (checks of the system's settings) or "deployed" (its pods).
            stem: The name of the file without its ending, such as `b01-keepalive`.

        """
        return self.folder / kind / f"{stem}.json"

    # -- writing ----------------------------------------------------------------------------------------

    def create(self, manifests: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """Create the folder of a new run, with the manifests of its variants; the folder must not exist yet.

        Args:
            manifests: The rendered Kubernetes objects of each variant, by the variant's name.

        """
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
        """Write the folder of one sample in such a way that it appears complete or not at all.

        The arguments are those of `RunStore.write_sample`.
        """
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
        """Write a record of one start of a system, without replacing an earlier one.

        If a file with this name exists, because an interrupted block (repetition) was resumed, `.2`, `.3`, … is
        appended to the name.

        Args:
            kind: "readback" (checks of the system's settings) or "deployed" (its pods).
            stem: The name of the file without its ending, such as `b01-keepalive`.
            records: The checks or pods to write.

        """
        names = (f"{stem}{suffix}" for suffix in ("", *(f".{n}" for n in range(2, 1000))))
        with writing(self.folder):
            (self.folder / kind).mkdir(exist_ok=True)
            path = next(path for name in names if not (path := self.brought_up_path(kind, name)).exists())
            replace_file(path, json.dumps(list(records), indent=1).encode())

    def clear_partial(self) -> None:
        """Remove the incomplete folders of samples that an interrupted process has left."""
        for partial in (self.folder / SAMPLES).glob(".*.partial"):
            shutil.rmtree(partial, ignore_errors=True)
