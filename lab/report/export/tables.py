"""A run as tables for other tools: samples, histograms, requests, events and usage, a frame per sample, in CSV, JSON lines or Parquet.

Nothing is dropped: samples that do not count are rows like any other, with their reason. Refuses to compute anything that the
samples' own records and histograms do not hold: effects and verdicts are `just compare`'s. Seconds, bytes and counts throughout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Literal

import polars as pl

from lab.analysis.aggregate.generations import levels
from lab.base.errors import UsageError
from lab.model.samples import Sample
from lab.records.levels import Known
from lab.records.store import RunStore
from lab.report.export.flat import sample_row, samples_frame
from lab.stats.histogram import bucket_edges_s

Format = Literal["csv", "json", "parquet"]
SERIES: tuple[Literal["latency", "service"], ...] = ("latency", "service")

LABELS = {
    "run": pl.String,
    "sample": pl.String,
    "target": pl.String,
    "variant": pl.String,
    "arm": pl.String,
    "point": pl.String,
    "block": pl.Int64,
    "valid": pl.Boolean,
    "reason": pl.String,
}
"""The first columns of every table but `samples`, which has them among its own: whose rows these are."""
HISTOGRAM_COLUMNS = {
    "series": pl.String,  # latency: from when a request was due, where the generator knows that; service: from when it was sent
    "kind": pl.String,
    "lower_s": pl.Float64,
    "upper_s": pl.Float64,  # included
    "count": pl.Int64,
}


def histograms_table(run: RunStore, sample: Sample) -> pl.DataFrame | None:
    """One row per series and bucket that is not empty."""
    found: list[pl.DataFrame] = []
    for series in SERIES:
        if (histogram := run.histogram(sample, series)) is not None:
            filled = histogram.counts.nonzero()[0]
            low, high = bucket_edges_s(filled)
            said = {"series": [series] * len(filled), "kind": [histogram.kind] * len(filled)}
            rows = said | {"lower_s": low.round(6), "upper_s": high.round(6), "count": histogram.counts[filled]}
            found.append(pl.DataFrame(rows, schema=HISTOGRAM_COLUMNS))
    return pl.concat(found) if found else None


def requests_table(run: RunStore, sample: Sample) -> pl.DataFrame | None:
    """Every request of a logged load by the lab's clock; None where none was logged, or where the load has no whole log and says so."""
    if sample.point.disturbance is None or sample.requests is None:
        return None
    try:
        return run.requests(sample)
    except UsageError:
        if sample.valid:
            raise
        return None  # its reason tells: what the generator left is not a log


def levels_table(run: RunStore, samples: Sequence[Sample]) -> pl.DataFrame:
    """A row for each variant and load that was measured on several generations of workers, as data/levels has it. UsageError without any."""
    rows = [
        Known(
            run=run.record.id,
            target=run.record.target,
            variant=one.arm.variant,
            point=one.point.name,
            scheme=one.point.scheme,
            repeat=one.found.repeat.sd if one.found.repeat else None,
            generation=one.found.generation.sd if one.found.generation else None,
            bring_up=one.found.bring_up.sd if one.found.bring_up else None,
            bring_ups=one.whole,
            generations=one.point.generations,
            load_s=one.point.duration_s,
            bring_up_at_most=one.bring_up_at_most,
        )
        for one in levels(run.record, samples)
        if one.found is not None
    ]
    if not rows:
        fault = "has no levels: no pair of twins was measured on several generations of workers"
        raise UsageError(f"run {run.record.id}", fault, "just bench VARIANT --sweep generations")
    return pl.DataFrame([row.model_dump() for row in rows])


PER_SAMPLE: Mapping[str, Callable[[RunStore, Sample], pl.DataFrame | None]] = {
    "histograms": histograms_table,
    "requests": requests_table,
    "events": lambda run, sample: None if sample.point.disturbance is None else run.events(sample),
    "usage": lambda run, sample: run.usage(sample),
}
NONE_THERE = {
    "histograms": ("no sample has recorded a latency", "`--what samples` tells why each does not count"),
    "requests": ("no load of it was logged", "only beside a disturbance every request is: `just bench … --sweep kill`"),
    "events": ("nothing was done to the system", "only disturbances have events: `just bench … --sweep kill`"),
    "usage": ("it has no samples", "`just bench --resume` measures them"),
}


def tables(run: RunStore, what: str, samples: Sequence[Sample]) -> Iterator[pl.DataFrame]:
    """The frames of one table, to be written one after the other: all of the same columns. UsageError where there are none."""
    if what == "samples":
        yield samples_frame([sample_row(run.record.id, sample, run.histogram(sample)) for sample in samples])
        return
    if what == "levels":
        yield levels_table(run, samples)
        return
    some = False
    for sample in samples:
        frame = PER_SAMPLE[what](run, sample)
        if frame is not None:
            some = True
            yield frame.select(*_labels(run.record.id, sample), pl.all())
    if not some:
        fault, remedy = NONE_THERE[what]
        raise UsageError(f"run {run.record.id}", f"has no {what}: {fault}", remedy)


def write(frames: Iterable[pl.DataFrame], form: Format, out: IO[bytes]) -> None:
    """CSV with one header line, JSON lines (null = not known), or one Parquet file."""
    if form == "parquet":
        pl.concat(frames).write_parquet(out)
        return
    for number, frame in enumerate(frames):
        text = frame.write_csv(include_header=not number) if form == "csv" else frame.write_ndjson()
        out.write(text.encode("utf-8", "surrogateescape"))


def _labels(run: str, sample: Sample) -> list[pl.Expr]:
    told = {
        "run": run,
        "sample": sample.id,
        "target": sample.target,
        "variant": sample.variant,
        "arm": sample.arm,
        "point": sample.point.name,
        "block": sample.block,
        "valid": sample.valid,
        "reason": sample.reason,
    }
    return [pl.lit(told[name], kind).alias(name) for name, kind in LABELS.items()]
