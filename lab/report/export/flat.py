"""A sample's record as one flat row, and such rows as a table: every scalar, what is nested as `usage_proxy_cpu_s`.

    Sample(block=2, usage={"proxy": Usage(cpu_s=0.6, …)}, …)  →  {"block": 2, "usage_proxy_cpu_s": 0.6, …}

Nothing is dropped, and what is not known is null. Refuses to compute anything that the record and its own histogram do not hold.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import polars as pl
from pydantic import BaseModel

from lab.model.load import ErrorKind
from lab.model.metrics import QUANTILES
from lab.model.samples import Sample
from lab.model.sweeps import Point
from lab.stats.histogram import Histogram

Scalar = str | float | int | bool | None
Row = dict[str, Scalar]
Kind = pl.DataType | type[pl.DataType]

_ERRORS: tuple[ErrorKind, ...] = get_args(ErrorKind)
_LATENCIES = (*(f"latency_{label.replace('.', '_')}_s" for label in QUANTILES), "latency_max_s")
_DERIVED = ("goodput_rps", "cpu_per_request_s", *_LATENCIES)
_NESTED = ("usage", "busy", "counters", "gauges", "outcome", "tls")


def samples_frame(rows: Sequence[Row]) -> pl.DataFrame:
    """Rows of `sample_row` as a table. The fields of the record and the kinds of errors are there whatever was measured."""
    known = _columns()
    names = dict.fromkeys([*known, *(name for row in rows for name in row)])
    return pl.DataFrame([_column(name, [row.get(name) for row in rows], known.get(name)) for name in names])


def sample_row(run: str, sample: Sample, latency: Histogram | None) -> Row:
    """Column → value. `cpu_per_request_s`, `goodput_rps` and `latency_*_s` are as the lab's own tables take them from this sample."""
    row: Row = {"run": run, "sample": sample.id}
    for name in Sample.model_fields:
        value: Any = getattr(sample, name)
        if name == "id":
            continue
        if name == "point":
            row |= {"point": value.name} | {f"point_{key}": found for key, found in _point(value).items()}
        elif name == "errors":
            row |= {f"errors_{kind}": value.get(kind, 0 if sample.requests is not None else None) for kind in _ERRORS}
        elif name == "argv":
            row[name] = shlex.join(value)
        elif name == "notes":
            row[name] = "; ".join(value)
        elif isinstance(value, Mapping) or (value is None and name == "tls"):
            row |= _flat(name, value or {}, row)
        else:
            row[name] = value
        if name == "reason":
            row["valid"] = sample.valid
    row |= {"goodput_rps": sample.goodput_rps, "cpu_per_request_s": sample.cpu_per_request_s}
    if latency is None:
        return row | dict.fromkeys(_LATENCIES)
    found = [*(latency.quantile_s(share) for share in QUANTILES.values()), latency.maximum_s]
    microseconds = (None if value is None else round(value, 6) for value in found)  # as the buckets are
    return row | dict(zip(_LATENCIES, microseconds, strict=True))


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


def _point(point: Point) -> Row:
    """Its fields but the name; routes may be `all`, and a disturbance is its own JSON."""
    told: Row = {name: getattr(point, name) for name in Point.model_fields if name not in ("name", "disturbance")}
    told |= {"routes": str(point.routes), "subject": "; ".join(point.subject)}
    told["answers"] = " ".join(map(str, point.answers))
    return told | {"disturbance": point.disturbance.model_dump_json() if point.disturbance is not None else None}


def _columns() -> dict[str, Kind | None]:
    """The columns that are there whatever was measured, in their order; with the types of numbers, as what nobody knows is not text."""
    found: dict[str, Kind | None] = dict.fromkeys(["run", "sample"])
    for name, about in Sample.model_fields.items():
        if name == "point":
            fields = {key: _kind(key, each.annotation) for key, each in Point.model_fields.items() if key != "name"}
            found |= {"point": None} | {f"point_{key}": kind for key, kind in fields.items()}
        elif name == "errors":
            found |= dict.fromkeys((f"errors_{kind}" for kind in _ERRORS), pl.Int64)
        elif name not in ("id", *_NESTED):
            found[name] = _kind(name, about.annotation)
        if name == "reason":
            found["valid"] = pl.Boolean
    return found | dict.fromkeys(_DERIVED, pl.Float64)


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
