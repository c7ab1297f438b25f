"""Request rows as k6 and oha write them, any number of them, from a seed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl

from lab.generators.oha import HEADER
from lab.generators.pieces import PIECE_BYTES, of_file
from lab.generators.streaming import Reduced, reduce_k6_log, reduce_oha_rows
from lab.model.load import Load

Format = Literal["k6", "oha"]
FORMATS: tuple[Format, ...] = ("k6", "oha")

LOAD_S = 100.0
"""How long every made load lasts, whatever the number of its rows."""
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
    """`rows` (>= 1) of a format: latencies are log-normal, and one request in 500 has a wrong status."""
    if kind == "k6":
        _write_k6(path, rows, np.random.default_rng(seed))
    else:
        _write_oha(path, rows, np.random.default_rng(seed))
    return RowFile(kind, path, rows)


def streamed_rows(made: RowFile, size_bytes: int = PIECE_BYTES) -> Reduced:
    """By the lab, in such pieces."""
    pieces = partial(of_file, made.path, size_bytes)
    if made.kind == "k6":
        return reduce_k6_log(pieces, None, made.rate_rps)
    return reduce_oha_rows(pieces(), Load("http://h/", "", 1, LOAD_S, rate_rps=made.rate_rps))


def _write_oha(path: Path, rows: int, rng: np.random.Generator) -> None:
    taken_s = np.exp(rng.normal(0.0, 0.7, rows)) * 1e-3
    columns = {
        "start": np.arange(rows) * LOAD_S / rows + rng.exponential(0.2e-3, rows),
        "dns": np.full(rows, 1e-5),
        "dialup": np.full(rows, 1e-5),
        "delay": taken_s * 0.9,
        "duration": taken_s,
        "bytes": np.full(rows, 1024),
        "status": np.where(rng.random(rows) < 0.002, 503, 200),
    }
    text = pl.DataFrame(columns).write_csv(include_header=False, float_precision=9, quote_style="never")
    path.write_text(f"{HEADER}\n{text}")


def _write_k6(path: Path, rows: int, rng: np.random.Generator) -> None:
    """Write them in the order in which they were done; one request in 1,000 fails."""
    number = np.arange(rows)
    taken_ms = np.exp(rng.normal(0.0, 0.7, rows))
    late_ms = rng.exponential(0.2, rows)
    status = np.where(rng.random(rows) < 0.002, 503, 200)
    failed = rng.random(rows) < 0.001
    sent_ms = np.round(number * 1000 * LOAD_S / rows + late_ms + 5.0, 3)  # the schedule begins a little after the run
    columns = {
        "word": np.full(rows, "request"),
        "number": number,
        "start_ms": np.full(rows, int(BEGAN_MS + 5.0)),
        "wall_ms": np.floor(BEGAN_MS + sent_ms).astype(np.int64),
        "sent_ms": sent_ms,
        "done_ms": sent_ms + taken_ms,
        "service_ms": taken_ms * 0.95,
        "status": np.where(failed, 0, status),
        "kind": np.where(failed, "timeout", "-"),
        "answer": np.where(failed, "", "backend-0 9003 17"),
    }
    frame = pl.DataFrame(columns).sort("done_ms")
    frame.write_csv(path, include_header=False, separator=" ", float_precision=3, quote_style="never")
