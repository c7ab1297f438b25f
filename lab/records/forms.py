"""The two forms of a run's folder, as one protocol: a folder per sample (`folders`), or few files (`packed`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import polars as pl

from lab.base.errors import UsageError
from lab.model.samples import Sample
from lab.records.tables import Place
from lab.stats.histogram import Histogram

RUN, ROUNDTRIP, KNEE = "run.json", "roundtrip.json", "knee.json"
"""The same in both forms."""
USAGE, EVENTS, HISTOGRAMS = "usage.parquet", "events.parquet", "hist.parquet"
"""Of a sample, beside its sample.json; in a packed run of all samples, the last one a cache."""
READBACK, DEPLOYED = "readback", "deployed"
"""What is kept of a bring-up."""


class Form(Protocol):
    """How a folder keeps what was recorded. What is read raises OSError, or FrameError for bytes that are not what they should be."""

    def samples(self) -> list[Sample]:
        """Every sample's record, in any order. UsageError names what is damaged, and a part of a sample that is missing."""
        ...

    def raw(self, sample: str) -> Place:
        """Where a sample's verbatim output lies, or should lie."""
        ...

    def holds(self, sample: Sample) -> bool:
        """Whether that output is what the record has the digest of."""
        ...

    def left(self, sample: str, name: str) -> bytes | None:
        """A file that the generator itself wrote; None where it left none."""
        ...

    def histograms(self, sample: Sample) -> Mapping[str, Histogram] | None:
        """Series → histogram; None where none are kept, so that they are read off the verbatim output."""
        ...

    def usage(self, sample: str) -> pl.DataFrame: ...

    def events(self, sample: str) -> pl.DataFrame:
        """FileNotFoundError where none were recorded."""
        ...

    def manifests(self, variant: str) -> str:
        """YAML, a document per object, as it was applied."""
        ...

    def brought_up(self, kind: str, stem: str) -> Any:
        """What was kept of a bring-up: its `readback`, or what was `deployed`."""
        ...

    def path(self, part: str, sample: str) -> Path:
        """The file that has this part (USAGE, EVENTS, HISTOGRAMS) of a sample."""
        ...

    def manifests_path(self, variant: str) -> Path: ...

    def brought_up_path(self, kind: str, stem: str) -> Path: ...


def unreadable(path: Path, error: OSError, remedy: str) -> UsageError:
    """A file or folder that the system does not let us read."""
    return UsageError(str(error.filename or path), f"cannot be read: {error.strerror}", remedy)
