"""hist.parquet of a packed run: its samples' histograms as they were read off the verbatim output, so that it is read once.

A row a sample and series, with the output's state and that of the code which read it: where either is another now, the row is
not believed. Written whole or not at all, by whoever comes first; where nothing may be written (a read-only checkout), or what lies there is
damaged, everything works without it. Git ignores it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache, cached_property
from pathlib import Path
from secrets import token_hex
from typing import Any

import polars as pl

from lab import generators
from lab.base.files import write_synced
from lab.model.samples import Sample
from lab.records.tables import FrameError, Ints, histogram_of
from lab.stats import histogram
from lab.stats.histogram import Histogram

SCHEMA: dict[str, Any] = {
    "sample": pl.String,
    "state": pl.String,  # of the output, and of who read it
    "series": pl.String,
    "bucket": pl.List(pl.Int64),
    "count": pl.List(pl.Int64),
}
KEY = ("sample", "state", "series")


@cache
def reader() -> str:
    """Of the parsers' own text: another one may read another histogram."""
    folder = Path(generators.__file__).parent
    files = [*sorted(folder.glob("*.py")), Path(histogram.__file__)]
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:16]


class HistogramCache:
    """One run's. `path`: where it lies, or will."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._begun = False

    @cached_property
    def _found(self) -> Mapping[tuple[str, str], Mapping[str, tuple[Ints, Ints]]]:
        """(sample, state) → series → buckets and their counts; none where there is no cache, or none that can be believed."""
        try:
            frame = pl.read_parquet(self.path.read_bytes())
        except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException):
            return {}
        if dict(frame.schema) != SCHEMA or frame.null_count().sum_horizontal().item():
            return {}
        found: dict[tuple[str, str], dict[str, tuple[Ints, Ints]]] = {}
        rows = zip(frame.select(KEY).iter_rows(), frame["bucket"], frame["count"], strict=True)
        for (sample, state, series), buckets, counts in rows:
            found.setdefault((sample, state), {})[series] = buckets.to_numpy(), counts.to_numpy()
        return found

    def of(self, sample: Sample, state: str) -> Mapping[str, Histogram] | None:
        """Series → histogram; None where they have to be read off the output."""
        mine = self._found.get((sample.id, _key(state)))
        if mine is None:
            return None
        try:
            return {series: histogram_of(*row, sample.histogram or "exact") for series, row in mine.items()}
        except FrameError:
            return None

    def begin(self) -> bool:
        """Whether to read all of the run now and write it: tried once, and not where nothing may be written."""
        begun, self._begun = self._begun, True
        return not begun and os.access(self.path.parent, os.W_OK)

    def write(self, found: Iterable[tuple[str, str, Mapping[str, Histogram]]]) -> None:
        """(sample, state of its output, series → histogram) of all of the run. What cannot be written is done without."""
        rows = [
            (sample, _key(state), series, pl.Series(filled), pl.Series(each.counts[filled]))
            for sample, state, named in found
            for series, each in named.items()
            for filled in [each.counts.nonzero()[0]]
            if filled.size
        ]
        columns = zip(SCHEMA, zip(*rows, strict=True), strict=True) if rows else ()
        frame = pl.DataFrame({name: list(values) for name, values in columns}, schema=SCHEMA)
        partial = self.path.with_name(f".{self.path.name}.{token_hex(4)}.partial")
        try:
            write_synced(partial, frame)
            partial.replace(self.path)
        except OSError:
            with suppress(OSError):
                partial.unlink(missing_ok=True)
        self.__dict__.pop("_found", None)


def _key(state: str) -> str:
    return f"{state}-{reader()}"
