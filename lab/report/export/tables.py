"""A run as tables for other tools, in CSV, JSON lines or Parquet: samples, histograms, requests, events and usage.

Invalid samples are rows, too, with the reason why they do not count (`lab.analysis.sample_frames`). The tables have no effects
and no verdicts; `just compare` computes these. All values are in seconds, bytes or counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Literal

import polars as pl

from lab.analysis.aggregate.generations import compute_variance_components
from lab.analysis.sample_frames import frame_samples
from lab.base.errors import UsageError, refuse_if
from lab.model.samples import Sample
from lab.records.levels import SystemComponents
from lab.records.store import RunStore
from lab.stats.histogram import compute_bucket_edges_s

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
"""The first columns of every table, which identify the sample of a row.

The table `samples` has them among its other columns.
"""
EMPTY_TABLES = {
    "histograms": ("no sample has recorded a latency", "`--what samples` shows why each does not count"),
    "requests": (
        "no load of it was logged",
        "every request is logged during a disturbance only: `just bench … --sweep kill`",
    ),
    "events": ("nothing was done to the system", "only disturbances have events: `just bench … --sweep kill`"),
    "usage": ("it has no samples", "`just bench --resume` measures them"),
}


def yield_tables(run: RunStore, table: str, samples: Sequence[Sample]) -> Iterator[pl.DataFrame]:
    """Yield a run's data for one table of the export, as frames to be written one after the other.

    All frames have the same columns.

    Args:
        run: The run.
        table: The name of the table: `samples`, `levels`, `histograms`, `requests`, `events` or `usage`.
        samples: The samples to export.

    Raises:
        UsageError: The run has nothing for this table.

    """
    if table in ("samples", "levels"):
        yield (frame_samples if table == "samples" else _make_levels_frame)(run, samples)
        return
    any_frame = False
    for sample in samples:
        frame = _read_frame(run, table, sample)
        if frame is not None:
            any_frame = True
            labels = {name: getattr(sample, name) for name in LABELS if name not in ("run", "sample", "point")}
            labels |= {"run": run.record.id, "sample": sample.id, "point": sample.point.name}
            yield frame.select(*(pl.lit(labels[name], kind).alias(name) for name, kind in LABELS.items()), pl.all())
    fault, remedy = EMPTY_TABLES[table]
    refuse_if(not any_frame, f"run {run.record.id}", f"has no {table}: {fault}", remedy)


def _read_frame(run: RunStore, table: str, sample: Sample) -> pl.DataFrame | None:
    """Return the rows that a sample has in one table of the export; None where it has none.

    A steady load has neither requests nor events, since only disrupted loads are logged. An invalid sample with a damaged log has no
    requests.

    Args:
        run: The run.
        table: The name of the table: `histograms`, `requests`, `events` or `usage`.
        sample: The sample.

    """
    if table == "usage":
        return run.usage(sample)
    if table == "histograms":
        return _make_histogram_frame(run, sample)
    if sample.point.disturbance is None:
        return None
    if table == "events":
        return run.events(sample)
    try:  # by the lab's clock
        return run.requests(sample) if sample.requests is not None else None
    except UsageError:
        if sample.valid:
            raise
        return None  # the sample's reason explains why the generator left no log


def _make_histogram_frame(run: RunStore, sample: Sample) -> pl.DataFrame | None:
    """Return a row for each bucket of a sample's histograms that is not empty; None where the sample has no histogram.

    There are two series. In `service`, the time of a request begins when the request was sent. In `latency`, it begins when the
    request was due, if the load generator records that time.
    """
    columns = {"series": pl.String, "kind": pl.String, "lower_s": pl.Float64, "upper_s": pl.Float64, "count": pl.Int64}
    frames: list[pl.DataFrame] = []
    for series in SERIES:
        if (histogram := run.histogram(sample, series)) is not None:
            filled = histogram.counts.nonzero()[0]
            low, high = compute_bucket_edges_s(filled)  # the upper one is included
            labels = {"series": [series] * len(filled), "kind": [histogram.kind] * len(filled)}
            rows = labels | {"lower_s": low.round(6), "upper_s": high.round(6), "count": histogram.counts[filled]}
            frames.append(pl.DataFrame(rows, schema=columns))
    return pl.concat(frames) if frames else None


def _make_levels_frame(run: RunStore, samples: Sequence[Sample]) -> pl.DataFrame:
    """Return the variance components (how much repeats, reloads and restarts vary) of each variant and load, as a frame.

    Its columns are those of the files in data/levels.

    Raises:
        UsageError: No pair of equal variants was measured on several worker generations (the worker processes between two reloads).

    """
    rows = [
        SystemComponents(
            run=run.record.id,
            target=run.record.target,
            variant=of_variant.arm.variant,
            point=of_variant.point.name,
            scheme=of_variant.point.scheme,
            repeat=of_variant.found.repeat.sd if of_variant.found.repeat else None,
            generation=of_variant.found.generation.sd if of_variant.found.generation else None,
            bring_up=of_variant.found.bring_up.sd if of_variant.found.bring_up else None,
            bring_ups=of_variant.whole,
            generations=of_variant.point.generations,
            load_s=of_variant.point.duration_s,
            bring_up_at_most=of_variant.bring_up_at_most,
        )
        for of_variant in compute_variance_components(run.record, samples)
        if of_variant.found is not None
    ]
    fault = "has no variance components: no A/A pair was measured on several worker generations"
    refuse_if(not rows, f"run {run.record.id}", fault, "just bench VARIANT --sweep generations")
    return pl.DataFrame([row.model_dump() for row in rows])


def write(frames: Iterable[pl.DataFrame], form: Format, out: IO[bytes]) -> None:
    """Write the rows of several frames to a file, one frame after the other.

    Args:
        frames: The frames, which have the same columns.
        form: `csv` (with a single header line), `parquet`, or `json` (an object per line; a value that is not known is null).
        out: The file.

    """
    if form == "parquet":
        pl.concat(frames).write_parquet(out)
        return
    for number, frame in enumerate(frames):
        text = frame.write_csv(include_header=not number) if form == "csv" else frame.write_ndjson()
        out.write(text.encode("utf-8", "surrogateescape"))
