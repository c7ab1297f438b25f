"""One reduction of a log of requests by the lab, in a process of its own: `python -m lab.experiments.selfbench.worker FILE RATE`.

Prints the line of JSON that the script in `by_hand/` prints.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from time import monotonic

from lab.generators.pieces import of_file
from lab.generators.streaming import reduce_k6_log
from lab.model.metrics import QUANTILES


def main(path: str, rate_rps: str) -> None:
    began = monotonic()
    found = reduce_k6_log(partial(of_file, Path(path)), None, float(rate_rps))
    result = {
        "requests": found.requests,
        "answered": found.answered,
        "not_2xx": found.not_2xx,
        "quantiles_s": {str(share): found.latency.quantile_s(share) for share in QUANTILES.values()},
        "begun": found.begun.tolist(),
        "seconds": monotonic() - began,
        "memory": Path("/proc/self/status").read_text(),
    }
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
