"""A run as tables for other tools: samples, histograms, requests, events and usage, a frame per sample, in CSV, JSON lines or Parquet.

Nothing is dropped: samples that do not count are rows like any other, with their reason, and what is not known is null. A sample's record is one
flat row, every scalar, what is nested as `usage_proxy_cpu_s`:

    Sample(block=2, usage={"proxy": Usage(cpu_s=0.6, …)}, …)  →  {"block": 2, "usage_proxy_cpu_s": 0.6, …}

Refuses to compute anything that the samples' own records and histograms do not hold: effects and verdicts are `just compare`'s. Seconds, bytes
and counts throughout.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, Literal, get_args

import polars as pl
from pydantic import BaseModel

from lab.analysis.aggregate.generations import levels
from lab.base.errors import UsageError
from lab.model.load import ErrorKind
from lab.model.metrics import QUANTILES
from lab.model.samples import Sample
from lab.model.sweeps import Point
from lab.records.levels import Known
from lab.records.store import RunStore
from lab.stats.histogram import Histogram, bucket_edges_s

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
"""The first columns of every table but `samples`, which has them among its own: whose rows these are."""
NONE_THERE = {
    "histograms": ("no sample has recorded a latency", "`--what samples` tells why each does not count"),
    "requests": ("no load of it was logged", "only beside a disturbance every request is: `just bench … --sweep kill`"),
    "events": ("nothing was done to the system", "only disturbances have events: `just bench … --sweep kill`"),
    "usage": ("it has no samples", "`just bench --resume` measures them"),
}
ERRORS: tuple[ErrorKind, ...] = get_args(ErrorKind)
LATENCIES = (*(f"latency_{label.replace('.', '_')}_s" for label in QUANTILES), "latency_max_s")


def tables(run: RunStore, what: str, samples: Sequence[Sample]) -> Iterator[pl.DataFrame]:
    """The frames of one table, to be written one after the other: all of the same columns. UsageError where there are none."""
    if what in ("samples", "levels"):
        rows = [sample_row(run.record.id, sample, run.histogram(sample)) for sample in samples if what == "samples"]
        yield samples_frame(rows) if what == "samples" else _levels(run, samples)
        return
    some = False
    for sample in samples:
        frame = _frame(run, what, sample)
        if frame is not None:
            some = True
            told = {name: getattr(sample, name) for name in LABELS if name not in ("run", "sample", "point")}
            told |= {"run": run.record.id, "sample": sample.id, "point": sample.point.name}
            yield frame.select(*(pl.lit(told[name], kind).alias(name) for name, kind in LABELS.items()), pl.all())
    if not some:
        fault, remedy = NONE_THERE[what]
        raise UsageError(f"run {run.record.id}", f"has no {what}: {fault}", remedy)


def _frame(run: RunStore, what: str, sample: Sample) -> pl.DataFrame | None:
    """One sample's rows; None where it has none, as a load that was not logged, or that has no whole log and says so."""
    if what == "usage":
        return run.usage(sample)
    if what == "histograms":
        return _histograms(run, sample)
    if sample.point.disturbance is None:
        return None
    if what == "events":
        return run.events(sample)
    try:  # by the lab's clock
        return run.requests(sample) if sample.requests is not None else None
    except UsageError:
        if sample.valid:
            raise
        return None  # its reason tells: what the generator left is not a log


def _histograms(run: RunStore, sample: Sample) -> pl.DataFrame | None:
    """One row per series (latency: from when a request was due, where the generator knows that; service: from when it was sent) and bucket that
    is not empty.
    """
    columns = {"series": pl.String, "kind": pl.String, "lower_s": pl.Float64, "upper_s": pl.Float64, "count": pl.Int64}
    found: list[pl.DataFrame] = []
    for series in SERIES:
        if (histogram := run.histogram(sample, series)) is not None:
            filled = histogram.counts.nonzero()[0]
            low, high = bucket_edges_s(filled)  # the upper one is included
            said = {"series": [series] * len(filled), "kind": [histogram.kind] * len(filled)}
            rows = said | {"lower_s": low.round(6), "upper_s": high.round(6), "count": histogram.counts[filled]}
            found.append(pl.DataFrame(rows, schema=columns))
    return pl.concat(found) if found else None


def _levels(run: RunStore, samples: Sequence[Sample]) -> pl.DataFrame:
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


def write(frames: Iterable[pl.DataFrame], form: Format, out: IO[bytes]) -> None:
    """CSV with one header line, JSON lines (null = not known), or one Parquet file."""
    if form == "parquet":
        pl.concat(frames).write_parquet(out)
        return
    for number, frame in enumerate(frames):
        text = frame.write_csv(include_header=not number) if form == "csv" else frame.write_ndjson()
        out.write(text.encode("utf-8", "surrogateescape"))


# -- a sample as one flat row ---------------------------------------------------------------------------------


def samples_frame(rows: Sequence[Row]) -> pl.DataFrame:
    """Rows of `sample_row` as a table. The fields of the record and the kinds of errors are there whatever was measured."""
    known = _columns()
    names = dict.fromkeys([*known, *(name for row in rows for name in row)])
    return pl.DataFrame([_column(name, [row.get(name) for row in rows], known.get(name)) for name in names])


def sample_row(run: str, sample: Sample, latency: Histogram | None) -> Row:
    """Column → value. `cpu_per_request_s`, `goodput_rps` and `latency_*_s` are as the lab's own tables take them from this sample."""
    row: Row = {"run": run, "sample": sample.id, "point": sample.point.name, "valid": sample.valid}
    row |= {f"point_{name}": getattr(sample.point, name) for name in Point.model_fields if name != "name"}
    point, done = sample.point, sample.point.disturbance
    row |= {"point_routes": str(point.routes), "point_subject": "; ".join(point.subject)}
    row |= {"point_answers": " ".join(map(str, point.answers)), "point_disturbance": done and done.model_dump_json()}
    row |= {f"errors_{kind}": sample.errors.get(kind, 0 if sample.requests is not None else None) for kind in ERRORS}
    for name in Sample.model_fields:
        value: Any = getattr(sample, name)
        if isinstance(value, Mapping) or name == "tls":
            row |= _flat(name, value or {}, row) if name != "errors" else {}
        elif name not in ("id", "point"):
            row[name] = value
    row |= {"argv": shlex.join(sample.argv), "notes": "; ".join(sample.notes)}
    row |= {"goodput_rps": sample.goodput_rps, "cpu_per_request_s": sample.cpu_per_request_s}
    if latency is None:
        return row | dict.fromkeys(LATENCIES)
    found = [*(latency.quantile_s(share) for share in QUANTILES.values()), latency.maximum_s]
    microseconds = (None if value is None else round(value, 6) for value in found)  # as the buckets are
    return row | dict(zip(LATENCIES, microseconds, strict=True))


def _flat(prefix: str, nested: Mapping[str, Any], taken: Row) -> Row:
    """`{"proxy/x": 1}` → `{"counters_proxy_x": 1}`; a name that would then be another's keeps its own letters."""
    found: Row = {}
    for key, value in nested.items():
        if isinstance(value, BaseModel):
            found |= _flat(f"{prefix}_{key}", value.model_dump(), taken)
            continue
        name = re.sub(r"\W", "_", f"{prefix}_{key}", flags=re.ASCII)
        found[f"{prefix}_{key}" if name in taken or name in found else name] = value
    return found


def _columns() -> dict[str, Kind | None]:
    """The columns that are there whatever was measured, in their order; with the types of numbers, as what nobody knows is not text."""
    found: dict[str, Kind | None] = dict.fromkeys(["run", "sample"])
    for name, about in Sample.model_fields.items():
        if name == "point":
            fields = {key: _kind(key, each.annotation) for key, each in Point.model_fields.items() if key != "name"}
            found |= {"point": None} | {f"point_{key}": kind for key, kind in fields.items()}
        elif name == "errors":
            found |= dict.fromkeys((f"errors_{kind}" for kind in ERRORS), pl.Int64)
        elif name not in ("id", "usage", "busy", "counters", "gauges", "outcome", "tls"):
            found[name] = _kind(name, about.annotation)
        if name == "reason":
            found["valid"] = pl.Boolean
    return found | dict.fromkeys(("goodput_rps", "cpu_per_request_s", *LATENCIES), pl.Float64)


def _kind(name: str, annotation: Any) -> Kind | None:
    kinds = get_args(annotation) or (annotation,)
    if float in kinds:
        return pl.Float64
    if int in kinds and str not in kinds and name not in ("routes", "answers"):
        return pl.Int64
    return pl.Boolean if bool in kinds else None


def _column(name: str, values: Sequence[Scalar], kind: Kind | None) -> pl.Series:
    known = [value for value in values if value is not None]
    if kind is None and all(isinstance(value, (int, float)) for value in known) and known:
        kind = pl.Float64 if any(isinstance(value, float) for value in known) else pl.Int64
    if kind is None:
        return pl.Series(name, [None if value is None else str(value) for value in values], pl.String)
    return pl.Series(name, values, kind)
