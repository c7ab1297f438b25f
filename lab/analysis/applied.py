"""A committed run as evidence: what was applied and what was printed, held against the digests that its records have of them.

Refuses manifests that are not those that were applied, and numbers whose verbatim output has been changed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

from lab.base.errors import UsageError
from lab.model.run import RunRecord
from lab.model.samples import Sample
from lab.records.renamed import Names
from lab.records.store import RunStore
from lab.records.tables import FrameError

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
            noted = known.manifests_sha256 if known else ""
            try:
                found = super().manifests(variant)
                whole = noted in ("", hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest())
            except (TypeError, ValueError):  # a date that there is not, a key that JSON has not
                found, whole = [], False
            if not whole:
                raise UsageError(str(self.manifests_path(variant)), "not what run.json has the digest of", RESTORE)
            self._applied[variant] = found
        return self._applied[variant]
