"""Request rows as k6 and oha write them, any number of them, from a seed: what the reducers are timed on.

Refuses to be a load: no request is made. Latencies are log-normal, one request in 1,000 fails (k6) and one in 500 has a wrong
status; the load lasts LOAD_S whatever the number of rows, so that counts over time stay as many.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl

from lab.generators.oha import HEADER

Format = Literal["k6", "oha"]
FORMATS: tuple[Format, ...] = ("k6", "oha")
LOAD_S = 100.0
AT_ONCE = 500_000
"""Rows made at once; k6 writes them in the order in which they were done, which holds inside one such part."""
ROW_BYTES = {"k6": 110, "oha": 85}
"""More than one takes."""
BEGAN_MS = 1_763_764_412_345.375


@dataclass(frozen=True, slots=True)
class RowFile:
    """Where they lie, and what a reader has to know of their load."""

    kind: Format
    path: Path
    rows: int

    @property
    def rate_rps(self) -> float:
        return self.rows / LOAD_S


def write_rows(kind: Format, path: Path, rows: int, seed: int = 1) -> RowFile:
    """`rows` (>= 1) of a format; an OSError is the caller's."""
    rng = np.random.default_rng(seed)
    made = RowFile(kind, path, rows)
    with open(path, "wb") as out:
        out.write(f"{HEADER}\n".encode() if kind == "oha" else b"")
        for frame in _parts(made, rng):
            frame.write_csv(
                out,
                include_header=False,
                separator="," if kind == "oha" else " ",
                float_precision=9 if kind == "oha" else 3,
                quote_style="never",
            )
    return made


def _parts(made: RowFile, rng: np.random.Generator) -> Iterator[pl.DataFrame]:
    for first in range(0, made.rows, AT_ONCE):
        number = np.arange(first, min(first + AT_ONCE, made.rows))
        taken_ms = np.exp(rng.normal(0.0, 0.7, number.size))
        late_ms = rng.exponential(0.2, number.size)
        status = np.where(rng.random(number.size) < 0.002, 503, 200)
        sent_ms = number * 1000 / made.rate_rps + late_ms
        if made.kind == "oha":
            zero = np.full(number.size, 1e-5)
            yield pl.DataFrame(
                {
                    "start": sent_ms * 1e-3,
                    "dns": zero,
                    "dialup": zero,
                    "delay": taken_ms * 0.9e-3,
                    "duration": taken_ms * 1e-3,
                    "bytes": np.full(number.size, 1024),
                    "status": status,
                }
            )
            continue
        failed = rng.random(number.size) < 0.001
        sent_ms = np.round(sent_ms + 5.0, 3)  # the schedule begins a little after the run
        yield pl.DataFrame(
            {
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
        ).sort("done_ms")
