"""Request rows as k6 and oha write them, any number of them, from a seed; k6's are those that selfbench times."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl

from lab.experiments.selfbench.rows import LOAD_S, write_log
from lab.generators.oha import HEADER
from lab.generators.pieces import PIECE_BYTES, of_file
from lab.generators.streaming import Reduced, reduce_k6_log, reduce_oha_rows
from lab.model.load import Load

Format = Literal["k6", "oha"]
FORMATS: tuple[Format, ...] = ("k6", "oha")


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
        write_log(path, rows, seed)
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
