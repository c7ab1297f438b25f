"""One reduction of a file of request rows by the lab, in a process of its own: `python -m lab.experiments.selfbench.worker KIND FILE RATE`.

Prints the line of JSON that the script in `by_hand/` prints, with the buckets beside it.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from time import monotonic

import numpy as np

from lab.experiments.selfbench.rows import LOAD_S
from lab.generators.pieces import of_file
from lab.generators.streaming import Reduced, reduce_k6_log, reduce_oha_rows
from lab.model.load import Load
from lab.model.metrics import QUANTILES


def streamed(kind: str, path: Path, rate_rps: float) -> Reduced:
    pieces = partial(of_file, path)
    return reduce_k6_log(pieces, None, rate_rps) if kind == "k6" else reduce_oha_rows(pieces(), _load(rate_rps))


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


def main(kind: str, path: str, rate_rps: str) -> None:
    began = monotonic()
    found = streamed(kind, Path(path), float(rate_rps))
    sys.stdout.write(json.dumps(told(found, monotonic() - began)) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
