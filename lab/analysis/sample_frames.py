"""A sample as one flat row of scalars, and the samples of a run as a frame: for exports and for notebooks.

A nested value has a name such as `usage_proxy_cpu_s`:

    Sample(block=2, usage={"proxy": Usage(cpu_s=0.6, …)}, …)  →  {"block": 2, "usage_proxy_cpu_s": 0.6, …}

Every sample has a row, valid or not, with the reason if it is invalid. Unknown values are null. All values are in seconds, bytes
and counts.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

import polars as pl
from pydantic import BaseModel

from lab.model.load import ErrorKind
from lab.model.metrics import QUANTILES
from lab.model.samples import Sample
from lab.model.sweeps import LoadPoint
from lab.records.store import RunStore
from lab.stats.histogram import Histogram

Scalar = str | float | int | bool | None
Row = dict[str, Scalar]
Kind = pl.DataType | type[pl.DataType]
ERRORS: tuple[ErrorKind, ...] = get_args(ErrorKind)
LATENCIES = (*(f"latency_{label.replace('.', '_')}_s" for label in QUANTILES), "latency_max_s")


def frame_samples(run: RunStore, samples: Iterable[Sample]) -> pl.DataFrame:
    """Return samples of a run as a frame with one row each.

    The columns are those of `make_samples_frame`.

    Args:
        run: The run.
        samples: The samples.

    """
    return make_samples_frame([flatten_sample(run.record.id, sample, run.histogram(sample)) for sample in samples])


def make_samples_frame(rows: Sequence[Row]) -> pl.DataFrame:
    """Convert flat rows, as `flatten_sample` returns them, into a frame.

    Columns for the record's plain fields, for the fields of the load point and for all kinds of errors are always present.
    Nested fields, such as `usage`, `counters` and `outcome`, have columns only for the names that occur in the rows.
    """
    kinds = _list_columns()
    names = dict.fromkeys([*kinds, *(name for row in rows for name in row)])
    return pl.DataFrame([_make_column(name, [row.get(name) for row in rows], kinds.get(name)) for name in names])


def flatten_sample(run: str, sample: Sample, latency: Histogram | None) -> Row:
    """Return a sample as a flat row: column → value.

    `cpu_per_request_s`, `goodput_rps` and `latency_*_s` are computed as for the lab's own tables.

    Args:
        run: The id of the run.
        sample: The sample.
        latency: The latency histogram of the sample; None without latencies.

    """
    point, disruption = sample.point, sample.point.disturbance
    row: Row = {"run": run, "sample": sample.id, "point": point.name, "valid": sample.valid}
    row |= {f"point_{name}": getattr(point, name) for name in LoadPoint.model_fields if name != "name"}
    row |= {
        "point_routes": str(point.routes),
        "point_subject": "; ".join(point.subject),
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
    row |= {
        "argv": shlex.join(sample.argv),
        "notes": "; ".join(sample.notes),
        "goodput_rps": sample.goodput_rps,
        "cpu_per_request_s": sample.cpu_per_request_s,
    }
    if latency is None:
        return row | dict.fromkeys(LATENCIES)
    latencies = [*(latency.quantile_s(share) for share in QUANTILES.values()), latency.maximum_s]
    microseconds = (None if value is None else round(value, 6) for value in latencies)  # the resolution of the buckets
    return row | dict(zip(LATENCIES, microseconds, strict=True))


def _flatten(prefix: str, nested: Mapping[str, Any], taken: Row) -> Row:
    """Return nested values by flat names: `counters` with `{"proxy/x": 1}` becomes `{"counters_proxy_x": 1}`.

    In a name, every character except letters, digits and `_` becomes `_`. If the name then equals an earlier name, its
    characters stay as they are.

    Args:
        prefix: The beginning of every name.
        nested: The nested values.
        taken: The row so far, whose names must not be used again.

    """
    flat: Row = {}
    for key, value in nested.items():
        if isinstance(value, BaseModel):
            flat |= _flatten(f"{prefix}_{key}", value.model_dump(), taken)
        else:
            name = re.sub(r"\W", "_", f"{prefix}_{key}", flags=re.ASCII)
            flat[f"{prefix}_{key}" if name in taken or name in flat else name] = value
    return flat


def _list_columns() -> dict[str, Kind | None]:
    """Return the columns that are always present, in their order: name → type, or None for text.

    The types prevent a column of unknown numbers from becoming text.
    """
    kinds: dict[str, Kind | None] = dict.fromkeys(["run", "sample"])
    for name, field in Sample.model_fields.items():
        if name == "point":
            kinds |= {"point": None} | {
                f"point_{key}": _choose_kind(key, point_field.annotation)
                for key, point_field in LoadPoint.model_fields.items()
                if key != "name"
            }
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
