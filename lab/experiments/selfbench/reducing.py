"""A log of requests to histograms: the lab's way and plain polars by hand, each in a process of its own, on the same file.

    10,000,000 rows of k6's log: the lab 3 s, polars 2 s → rows per second, peak memory, and that both say the same

What differs is a fault: a reducer that is quick and wrong is no reducer. Equal means: as many requests, answers, wrong
statuses and requests in every 100 ms; quantiles to three digits. Peak memory is VmHWM, which the process reads in the end: a
child's ru_maxrss begins with the memory of its parent, whose copy it was.
"""

from __future__ import annotations

import json
import os
import random
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from lab.analysis.selfbench import Against, Reading, against
from lab.base.errors import MeasuringError
from lab.base.files import check_writable, writing
from lab.experiments.selfbench.process import last_words, timed
from lab.experiments.selfbench.rows import LOAD_S, ROW_BYTES, write_log
from lab.stats.histogram import UNIT_S, bucket_of
from lab.targets.common.scratch import scratch

ROWS = 10_000_000
PAIRS = 6
TAKES_S = 60e-6
"""Of a row, about, on two shared cores: making it, and all pairs."""
_ROOT = Path(__file__).parents[3]

Way = Literal["lab", "polars"]
WAYS: Mapping[Way, list[str]] = {
    "lab": ["-m", "lab.experiments.selfbench.worker"],
    "polars": [str(Path(__file__).parent / "by_hand" / "plain_polars.py")],
}
"""The lab's, and plain polars with every row in memory."""


@dataclass(frozen=True, slots=True)
class Reduction:
    """What one process made of a log: its JSON, the seconds it worked (without Python's start), its peak memory."""

    told: Mapping[str, Any]
    seconds: float
    peak_bytes: int


def reducing(rows: int, say: Callable[[str], None], seed: int) -> Reading:
    """Speed and memory, the lab against by hand: PAIRS pairs, each in an order drawn by lot; `rows` >= 100.

    UsageError where the log has no room. MeasuringError where a way fails, and where results differ.
    """
    order = random.Random(seed)
    done: dict[Way, list[Reduction]] = {way: [] for way in WAYS}
    with scratch() as folder:
        log = folder / "k6.log"
        check_writable(folder, ROW_BYTES * rows, "TMPDIR")
        with writing(folder, "TMPDIR"):
            write_log(log, rows)
        for pair in range(1, PAIRS + 1):
            for way in order.sample(list(WAYS), len(WAYS)):
                done[way].append(reduced(way, log, rows))
            if fault := difference(done["lab"][-1], done["polars"][-1]):
                raise MeasuringError(f"k6's log, {rows:,} rows", f"the lab and polars differ: {fault}")
            say(
                f"pair {pair} of {PAIRS}: " + ", ".join(f"{way} {each[-1].seconds:.2f} s" for way, each in done.items())
            )

    def compared(number: Callable[[Reduction], float]) -> Against:
        return against([number(one) for one in done["lab"]], [number(one) for one in done["polars"]])

    speed, peak = compared(lambda one: rows / one.seconds), compared(lambda one: one.peak_bytes)
    return Reading(rows=rows, pairs=PAIRS, rows_per_s=speed, peak_bytes=peak)


def reduced(way: Way, log: Path, rows: int) -> Reduction:
    """In a process of its own. MeasuringError for one that failed."""
    argv = [sys.executable, *WAYS[way], str(log), str(rows / LOAD_S)]
    paths = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
    done = timed(argv, {"PYTHONPATH": paths}, rows * TAKES_S)
    if done.status:
        raise MeasuringError(f"k6's log, {rows:,} rows: {way}", last_words(done))
    told = json.loads(done.stdout)
    peak = re.search(r"VmHWM:\s+(\d+) kB", told.pop("memory"))
    assert peak is not None, "every process has one"
    return Reduction(told, told["seconds"], int(peak[1]) * 1024)


def difference(first: Reduction, other: Reduction) -> str:
    """In what two results differ that must be the same; empty = they agree."""
    for key in ("requests", "answered", "not_2xx", "begun"):
        if first.told[key] != other.told[key]:
            return f"{key}: {_short(first.told[key])} and {_short(other.told[key])}"
    for share, value_s in first.told["quantiles_s"].items():
        other_s = other.told["quantiles_s"][share]
        if value_s is not None and other_s is not None and not same_to_three_digits(value_s, other_s):
            return f"p{float(share) * 100:g}: {value_s:.9f} s and {other_s:.9f} s"
    return ""


def same_to_three_digits(one_s: float, other_s: float) -> bool:
    """In the same bucket or the next one: rounding to a microsecond may fall either way."""
    one, other = bucket_of([round(value / UNIT_S) for value in (one_s, other_s)]).tolist()
    return abs(one - other) <= 1


def _short(value: object) -> str:
    return str(value) if not isinstance(value, list) else f"{len(value)} steps"
