"""What was applied in a stored run: held against the digests that its records have of it, and which programs really ran.

Refuses manifests that are not those that were applied, and numbers whose verbatim output has been changed.

knobs-kind  →  baseline ran with the stand-in's own default --enable-metrics=true, where ingress-nginx 1.15.1 has false (…)
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl

from lab.base.errors import LabError, UsageError
from lab.model.run import RunRecord
from lab.model.samples import Sample
from lab.records.renamed import Names
from lab.records.store import RunStore
from lab.records.tables import FrameError
from lab.systems import stand_ins

RESTORE = "restore it from a copy"
LOGS_KEPT = 32
"""Of a run, so many samples' requests: each takes as much memory as a hundred bytes a request."""


class AsApplied(RunStore):
    """A run whose manifests are held against the digest in its run.json: a part of a YAML file is YAML, too, with fewer routes in it.

    So is verbatim output against that in its sample.json: the numbers beside it were read off it, and not off another block's. What was
    read is kept: those of a thousand routes take seconds, and nobody changes them meanwhile.
    """

    def __init__(self, folder: Path, record: RunRecord, names: Names | None = None) -> None:
        super().__init__(folder, record, names)
        self._applied: dict[str, list[dict[str, Any]]] = {}
        self._logs: dict[str, pl.DataFrame] = {}

    def samples(self, wanted: Callable[[Sample], bool] = lambda _: True) -> list[Sample]:
        found = super().samples(wanted)
        for sample in (each for each in found if each.raw_sha256):
            try:
                same = self.raw_held(sample)
            except (OSError, FrameError) as error:
                raise UsageError(self.raw_place(sample), f"cannot be read: {error}", RESTORE) from None
            if not same:
                raise UsageError(self.raw_place(sample), "not what sample.json has the digest of", RESTORE)
        return found

    def requests(self, sample: Sample) -> pl.DataFrame:
        if sample.id not in self._logs:
            if len(self._logs) >= LOGS_KEPT:
                self._logs.clear()
            self._logs[sample.id] = super().requests(sample)
        return self._logs[sample.id]

    def manifests(self, variant: str) -> list[dict[str, Any]]:
        if variant not in self._applied:
            known = self.record.variants.get(variant)
            found: list[dict[str, Any]] = []
            digest = None
            with suppress(TypeError, ValueError):  # a date that there is not, a key that JSON has not
                found = super().manifests(variant)
                digest = hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()
            if digest is None or (known and known.manifests_sha256 not in ("", digest)):
                raise UsageError(str(self.manifests_path(variant)), "not what run.json has the digest of", RESTORE)
            self._applied[variant] = found
        return self._applied[variant]


def describe_programs(run: RunStore) -> list[str]:
    """Return a sentence for each stand-in that ran in a run, and for each costly default of its own that it kept.

    Derived from the manifests that were applied and the facts that were recorded; empty where the manifests cannot be read, which
    whoever needs them reports.
    """
    record = run.record
    return stand_ins.describe_run(record.target, record.facts, _manifests(run))


def describe_kept_defaults(run: RunStore, arms: Collection[str]) -> str:
    """Return one short sentence about the costly defaults that stand-ins kept in some arms of a run; empty where they kept none there."""
    kept = stand_ins.list_kept_defaults(run.record.target, run.record.facts, _manifests(run))
    return "; ".join(
        f"measured with the stand-in's {setting.name}={setting.stand_in}, where {stand_in.named} has {setting.named}: {setting.costs}"
        for stand_in, setting, those in kept
        if not set(arms).isdisjoint(those)
    )


def _manifests(run: RunStore) -> dict[str, list[dict[str, Any]]]:
    """Return what was applied for each arm; empty where that cannot be read."""
    arms = {arm.name: arm.variant for arm in run.record.arms if arm.role in ("baseline", "variant")}
    try:
        return {name: run.manifests(variant) for name, variant in arms.items()}
    except LabError:
        return {}
