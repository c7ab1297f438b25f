"""The manifests and output of a stored run, checked against its records' digests, and which programs really ran.

Manifests that were not applied are refused, and so are numbers whose stored output has been changed.

A stand-in is a program that runs in place of another one that could not be had, and may have other defaults. The module writes
the sentences about such defaults: baseline ran with the stand-in's own default --enable-metrics=true, where ingress-nginx
1.15.1 has false (…)
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl

from lab.base.errors import LabError, UsageError, refuse_if
from lab.model.run import RunRecord
from lab.model.samples import Sample
from lab.records.renamed import RenamedNames
from lab.records.store import RunStore
from lab.records.tables import DamagedError
from lab.systems import stand_ins

RESTORE = "restore it from a copy"
LOGS_KEPT = 32
"""The number of samples of a run whose requests are kept in memory: each request takes about a hundred bytes."""


class AsApplied(RunStore):
    """A stored run whose manifests and raw output are checked against the digests in its records.

    Manifests are checked because even a part of a YAML file is valid YAML, with fewer routes in it. Output is checked
    because a sample must not have the numbers of another sample's output. Manifests and request logs are stored in
    memory once they are read, because manifests of a thousand routes take seconds to read.
    """

    def __init__(self, folder: Path, record: RunRecord, names: RenamedNames | None = None) -> None:
        super().__init__(folder, record, names)
        self._applied: dict[str, list[dict[str, Any]]] = {}
        self._logs: dict[str, pl.DataFrame] = {}

    def samples(self, wanted: Callable[[Sample], bool] = lambda _: True) -> list[Sample]:
        """Return the selected samples of the run, after a check of their stored raw output against the recorded digests.

        Args:
            wanted: A function that returns True for each sample to be returned.

        Raises:
            UsageError: The verbatim output of a selected sample cannot be read, or was changed.

        """
        samples = super().samples(wanted)
        for sample in (sample for sample in samples if sample.raw_sha256):
            try:
                same = self.raw_held(sample)
            except (OSError, DamagedError) as error:
                raise UsageError(self.raw_place(sample), f"cannot be read: {error}", RESTORE) from None
            if not same:
                raise UsageError(self.raw_place(sample), "not what sample.json has the digest of", RESTORE)
        return samples

    def requests(self, sample: Sample) -> pl.DataFrame:
        """Return the log of a sample's requests; at most `LOGS_KEPT` logs are stored in memory for the next call."""
        if sample.id not in self._logs:
            if len(self._logs) >= LOGS_KEPT:
                self._logs.clear()
            self._logs[sample.id] = super().requests(sample)
        return self._logs[sample.id]

    def manifests(self, variant: str) -> list[dict[str, Any]]:
        """Return the manifests that were applied for a variant.

        Raises:
            UsageError: The stored manifests are not those that were applied.

        """
        if variant not in self._applied:
            recorded = self.record.variants.get(variant)
            manifests: list[dict[str, Any]] = []
            digest = None
            with suppress(TypeError, ValueError):  # a date that does not exist, a key that JSON does not have
                manifests = super().manifests(variant)
                digest = hashlib.sha256(json.dumps(manifests, sort_keys=True).encode()).hexdigest()
            altered = digest is None or (recorded and recorded.manifests_sha256 not in ("", digest))
            refuse_if(altered, str(self.manifests_path(variant)), "not what run.json has the digest of", RESTORE)
            self._applied[variant] = manifests
        return self._applied[variant]


def list_programs(run: RunStore) -> dict[str, list[str]]:
    """Return the programs that ran as proxies in a run: program with version → names of the arms that it ran for.

    An arm is a variant in the run. The programs follow from the applied manifests and the recorded facts. The result is
    empty if the manifests cannot be read; the code that needs them reports that error.
    """
    return stand_ins.list_programs(run.record.target, run.record.facts, _read_manifests(run))


def map_programs(run: RunStore) -> dict[str, str]:
    """Return name of an arm (variant in the run) → the program with version that ran as its proxy.

    Arms whose program is unknown are left out.
    """
    return {arm: program for program, arms in list_programs(run).items() for arm in arms}


def list_notes_on_defaults(run: RunStore) -> list[str]:
    """Return a sentence for each setting that a stand-in program left at a costly default of its own in a run.

    A stand-in runs in place of a program that could not be had. Its defaults may differ from that program's. The
    sentence names the arms (variants of the run) with this default. The result is empty if the manifests cannot be
    read.
    """
    return stand_ins.describe_kept_defaults(run.record.target, run.record.facts, _read_manifests(run))


def describe_kept_defaults(run: RunStore, arms: Collection[str]) -> str:
    """Return a sentence about the settings that stand-in programs left at costly defaults in some arms of a run.

    A stand-in runs in place of a program that could not be had, and may have other defaults.

    Args:
        run: The stored run.
        arms: The names of the arms (variants of the run) to look at.

    Returns:
        The sentence; empty if these arms have no such setting.

    """
    defaults = stand_ins.list_kept_defaults(run.record.target, run.record.facts, _read_manifests(run))
    return "; ".join(
        f"measured with the stand-in's {setting.name}={setting.stand_in}, where {stand_in.named} has {setting.named}: {setting.costs}"
        for stand_in, setting, arms_with in defaults
        if not set(arms).isdisjoint(arms_with)
    )


def _read_manifests(run: RunStore) -> dict[str, list[dict[str, Any]]]:
    """Return name of an arm (variant) → the manifests that were applied for it; empty if any of them cannot be read."""
    arms = {arm.name: arm.variant for arm in run.record.arms if arm.role in ("baseline", "variant")}
    try:
        return {name: run.manifests(variant) for name, variant in arms.items()}
    except LabError:
        return {}
