"""A run as tables for other tools, in CSV, JSON lines or Parquet: samples, histograms, requests, events and usage.

Nothing is dropped: samples that do not count are rows like any other, with their reason, and what is not known is null. The record of a
sample is one flat row of scalars, where a nested value has a name such as `usage_proxy_cpu_s`:

    Sample(block=2, usage={"proxy": Usage(cpu_s=0.6, …)}, …)  →  {"block": 2, "usage_proxy_cpu_s": 0.6, …}

Nothing is computed that the records and histograms of the samples do not have: effects and verdicts are up to `just compare`. All values
are in seconds, bytes and counts.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, Literal, get_args

import polars as pl
from pydantic import BaseModel

from lab.analysis.aggregate.generations import compute_variance_components
from lab.base.errors import UsageError
from lab.model.load import ErrorKind
from lab.model.metrics import QUANTILES
from lab.model.samples import Sample
from lab.model.sweeps import LoadPoint
from lab.records.levels import SystemComponents
from lab.records.store import RunStore
from lab.stats.histogram import Histogram, compute_bucket_edges_s

Format = Literal["csv", "json", "parquet"]
SERIES: tuple[Literal["latency", "service"], ...] = ("latency", "service")
Scalar = str | float | int | bool | None
Row = dict[str, Scalar]
Kind = pl.DataType | type[pl.DataType]
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
    "requests": ("no load of it was logged", "only beside a disturbance every request is: `just bench … --sweep kill`"),
    "events": ("nothing was done to the system", "only disturbances have events: `just bench … --sweep kill`"),
    "usage": ("it has no samples", "`just bench --resume` measures them"),
}
ERRORS: tuple[ErrorKind, ...] = get_args(ErrorKind)
LATENCIES = (*(f"latency_{label.replace('.', '_')}_s" for label in QUANTILES), "latency_max_s")


def yield_tables(run: RunStore, table: str, samples: Sequence[Sample]) -> Iterator[pl.DataFrame]:
    """Yield the frames of one table, to be written one after the other; all have the same columns.

    Args:
        run: The run.
        table: The name of the table: `samples`, `levels`, `histograms`, `requests`, `events` or `usage`.
        samples: The samples to export.

    Raises:
        UsageError: The run has nothing for this table.

    """
    if table in ("samples", "levels"):
        rows = [
            flatten_sample(run.record.id, sample, run.histogram(sample)) for sample in samples if table == "samples"
        ]
        yield make_samples_frame(rows) if table == "samples" else _make_levels_frame(run, samples)
        return
    any_frame = False
    for sample in samples:
        frame = _read_frame(run, table, sample)
        if frame is not None:
            any_frame = True
            labels = {name: getattr(sample, name) for name in LABELS if name not in ("run", "sample", "point")}
            labels |= {"run": run.record.id, "sample": sample.id, "point": sample.point.name}
            yield frame.select(*(pl.lit(labels[name], kind).alias(name) for name, kind in LABELS.items()), pl.all())
    if not any_frame:
        fault, remedy = EMPTY_TABLES[table]
        raise UsageError(f"run {run.record.id}", f"has no {table}: {fault}", remedy)


def _read_frame(run: RunStore, table: str, sample: Sample) -> pl.DataFrame | None:
    """Return the rows of one sample; None where it has none.

    A load without a log has none, nor has an invalid sample whose log is damaged.
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
    """Return one row per series and bucket that is not empty; None where the sample has no histogram.

    Series `latency` counts from when a request was due, where the generator knows that; `service` from when it was sent.
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
    """Return the variance components of each variant and load, in the form of data/levels.

    Raises:
        UsageError: No pair of twins was measured on several generations of workers.

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
    if not rows:
        fault = "has no levels: no pair of twins was measured on several generations of workers"
        raise UsageError(f"run {run.record.id}", fault, "just bench VARIANT --sweep generations")
    return pl.DataFrame([row.model_dump() for row in rows])


def write(frames: Iterable[pl.DataFrame], form: Format, out: IO[bytes]) -> None:
    """Write frames as CSV with one header line, as JSON lines (null = not known), or as one Parquet file."""
    if form == "parquet":
        pl.concat(frames).write_parquet(out)
        return
    for number, frame in enumerate(frames):
        text = frame.write_csv(include_header=not number) if form == "csv" else frame.write_ndjson()
        out.write(text.encode("utf-8", "surrogateescape"))


# -- a sample as one flat row ---------------------------------------------------------------------------------


def make_samples_frame(rows: Sequence[Row]) -> pl.DataFrame:
    """Return rows of `flatten_sample` as a table.

    It always has the fields of the record and the kinds of errors, whatever was measured.
    """
    kinds = _list_columns()
    names = dict.fromkeys([*kinds, *(name for row in rows for name in row)])
    return pl.DataFrame([_make_column(name, [row.get(name) for row in rows], kinds.get(name)) for name in names])


def flatten_sample(run: str, sample: Sample, latency: Histogram | None) -> Row:
    """Return a sample as a flat row by column.

    `cpu_per_request_s`, `goodput_rps` and `latency_*_s` are computed as for the lab's own tables.

    Args:
        run: The id of the run.
        sample: The sample.
        latency: The latency histogram of the sample; None where there is none.

    """
    row: Row = {"run": run, "sample": sample.id, "point": sample.point.name, "valid": sample.valid}
    row |= {f"point_{name}": getattr(sample.point, name) for name in LoadPoint.model_fields if name != "name"}
    point, disruption = sample.point, sample.point.disturbance
    row |= {"point_routes": str(point.routes), "point_subject": "; ".join(point.subject)}
    row |= {
        "point_answers": " ".join(map(str, point.answers)),
        "point_disturbance": disruption and disruption.model_dump_json(),
        "point_traffic": point.traffic and point.traffic.digest,
    }
    row |= {f"errors_{kind}": sample.errors.get(kind, 0 if sample.requests is not None else None) for kind in ERRORS}
    for name in Sample.model_fields:
        value: Any = getattr(sample, name)
        if isinstance(value, Mapping) or name == "tls":
            row |= _flatten(name, value or {}, row) if name != "errors" else {}
        elif name not in ("id", "point"):
            row[name] = value
    row |= {"argv": shlex.join(sample.argv), "notes": "; ".join(sample.notes)}
    row |= {"goodput_rps": sample.goodput_rps, "cpu_per_request_s": sample.cpu_per_request_s}
    if latency is None:
        return row | dict.fromkeys(LATENCIES)
    latencies = [*(latency.quantile_s(share) for share in QUANTILES.values()), latency.maximum_s]
    microseconds = (None if value is None else round(value, 6) for value in latencies)  # the resolution of the buckets
    return row | dict(zip(LATENCIES, microseconds, strict=True))


def _flatten(prefix: str, nested: Mapping[str, Any], taken: Row) -> Row:
    """Return nested values by flat names: `{"proxy/x": 1}` becomes `{"counters_proxy_x": 1}`.

    A name that would be the same as another one keeps its own characters.
    """
    flat: Row = {}
    for key, value in nested.items():
        if isinstance(value, BaseModel):
            flat |= _flatten(f"{prefix}_{key}", value.model_dump(), taken)
            continue
        name = re.sub(r"\W", "_", f"{prefix}_{key}", flags=re.ASCII)
        flat[f"{prefix}_{key}" if name in taken or name in flat else name] = value
    return flat


def _list_columns() -> dict[str, Kind | None]:
    """Return the columns that are there whatever was measured, in their order, with the types of numbers.

    The types prevent a column of unknown numbers from becoming text.
    """
    kinds: dict[str, Kind | None] = dict.fromkeys(["run", "sample"])
    for name, field in Sample.model_fields.items():
        if name == "point":
            fields = {
                key: _choose_kind(key, point_field.annotation)
                for key, point_field in LoadPoint.model_fields.items()
                if key != "name"
            }
            kinds |= {"point": None} | {f"point_{key}": kind for key, kind in fields.items()}
        elif name == "errors":
            kinds |= dict.fromkeys((f"errors_{kind}" for kind in ERRORS), pl.Int64)
        elif name not in ("id", "usage", "busy", "counters", "gauges", "outcome", "tls"):
            kinds[name] = _choose_kind(name, field.annotation)
        if name == "reason":
            kinds["valid"] = pl.Boolean
    return kinds | dict.fromkeys(("goodput_rps", "cpu_per_request_s", *LATENCIES), pl.Float64)


def _choose_kind(name: str, annotation: Any) -> Kind | None:
    kinds = get_args(annotation) or (annotation,)
    if float in kinds:
        return pl.Float64
    if int in kinds and str not in kinds and name not in ("routes", "answers"):
        return pl.Int64
    return pl.Boolean if bool in kinds else None


def _make_column(name: str, values: Sequence[Scalar], kind: Kind | None) -> pl.Series:
    present = [value for value in values if value is not None]
    if kind is None and all(isinstance(value, (int, float)) for value in present) and present:
        kind = pl.Float64 if any(isinstance(value, float) for value in present) else pl.Int64
    if kind is None:
        return pl.Series(name, [None if value is None else str(value) for value in values], pl.String)
    return pl.Series(name, values, kind)
