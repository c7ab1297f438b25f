"""One reduction of a file of request rows by the lab, in a process of its own: `python -m lab.selfbench.worker WAY KIND FILE RATE`.

WAY is `streamed` (lab/streaming.py) or `whole` (the generator's own reader, which has every row at once). Prints the line of JSON
that the scripts in `by_hand/` print, with the buckets beside it.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from time import monotonic

import numpy as np

from lab.experiments.selfbench.rows import LOAD_S
from lab.generators import generator
from lab.generators._k6_log import requests_of
from lab.generators.pieces import of_file
from lab.generators.streaming import STEP_S, Reduced, reduce_k6_log, reduce_oha_rows
from lab.model.load import Load
from lab.model.metrics import QUANTILES
from lab.stats.histogram import Histogram


def streamed(kind: str, path: Path, rate_rps: float) -> Reduced:
    pieces = partial(of_file, path)
    return reduce_k6_log(pieces, None, rate_rps) if kind == "k6" else reduce_oha_rows(pieces(), _load(rate_rps))


def whole(kind: str, path: Path, rate_rps: float) -> Reduced:
    """With every row in memory, as a sample is read when it was measured."""
    if kind == "oha":
        text = path.read_text()
        told = generator("oha").parse(text, "", 0, _load(rate_rps))
        begun = _steps(np.array([float(line.partition(",")[0]) for line in text.splitlines()[1:]]) / STEP_S)
        wrong, over_s = told.errors.get("status", 0), told.duration_s
        return Reduced(told.requests, told.requests, wrong, told.latency, begun, over_s, told.size_bytes)
    frame = requests_of(partial(of_file, path), None, rate_rps)
    answered = frame["error"].to_numpy() == ""
    status = frame["status"].to_numpy()[answered]
    taken_s = (frame["done_s"] - frame["due_s"]).to_numpy()[answered]
    wrong = int(np.count_nonzero((status < 200) | (status > 299)))
    begun = _steps(frame["number"].to_numpy() * 1000 / rate_rps / (STEP_S * 1000))
    over_s = float((frame["done_s"] - frame["due_s"][0]).to_numpy().max())
    return Reduced(frame.height, int(answered.sum()), wrong, Histogram.of_values(taken_s), begun, over_s, None)


def _load(rate_rps: float) -> Load:
    return Load("http://192.0.2.1/", "", connections=1, duration_s=LOAD_S, rate_rps=rate_rps)


def told(found: Reduced, seconds: float) -> dict[str, object]:
    filled = np.flatnonzero(found.latency.counts)
    return {
        "requests": found.requests,
        "answered": found.answered,
        "not_2xx": found.not_2xx,
        "quantiles_s": {str(share): found.latency.quantile_s(share) for share in QUANTILES.values()},
        "begun": found.begun.tolist(),
        "buckets": {int(bucket): int(found.latency.counts[bucket]) for bucket in filled},
        "seconds": seconds,
    }


def _steps(since: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return np.bincount(np.floor(since).astype(np.int64)).astype(np.int64)


def main(way: str, kind: str, path: str, rate_rps: str) -> None:
    began = monotonic()
    found = {"streamed": streamed, "whole": whole}[way](kind, Path(path), float(rate_rps))
    sys.stdout.write(json.dumps(told(found, monotonic() - began)) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
