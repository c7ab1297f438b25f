"""A log of requests as k6 writes it, any number of them, from a seed: what the reducers are timed on.

Refuses to be a load: no request is made. Latencies are log-normal, one request in 1,000 fails and one in 500 has a wrong
status; the load lasts LOAD_S whatever the number of rows, so that counts over time stay as many.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

LOAD_S = 100.0
AT_ONCE = 500_000
"""Rows made at once; k6 writes them in the order in which they were done, which holds inside one such part."""
ROW_BYTES = 110
"""More than one takes."""
BEGAN_MS = 1_763_764_412_345.375


def write_log(path: Path, rows: int, seed: int = 1) -> None:
    """`rows` (>= 1) of a load of rows / LOAD_S per second; an OSError is the caller's."""
    rng = np.random.default_rng(seed)
    with open(path, "wb") as out:
        for first in range(0, rows, AT_ONCE):
            number = np.arange(first, min(first + AT_ONCE, rows))
            frame = _part(number, rows / LOAD_S, rng)
            frame.write_csv(out, include_header=False, separator=" ", float_precision=3, quote_style="never")


def _part(number: np.ndarray, rate_rps: float, rng: np.random.Generator) -> pl.DataFrame:
    taken_ms = np.exp(rng.normal(0.0, 0.7, number.size))
    late_ms = rng.exponential(0.2, number.size)
    status = np.where(rng.random(number.size) < 0.002, 503, 200)
    failed = rng.random(number.size) < 0.001
    sent_ms = np.round(number * 1000 / rate_rps + late_ms + 5.0, 3)  # the schedule begins a little after the run
    columns = {
        "word": np.full(number.size, "request"),
        "number": number,
        "start_ms": np.full(number.size, int(BEGAN_MS + 5.0)),
        "wall_ms": np.floor(BEGAN_MS + sent_ms).astype(np.int64),
        "sent_ms": sent_ms,
        "done_ms": sent_ms + taken_ms,
        "service_ms": taken_ms * 0.95,
        "status": np.where(failed, 0, status),
        "kind": np.where(failed, "timeout", "-"),
        "answer": np.where(failed, "", "backend-0 9003 17"),
    }
    return pl.DataFrame(columns).sort("done_ms")
