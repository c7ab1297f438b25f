"""Request rows to histograms: the lab's way and plain polars by hand, each in a process of its own, on the same file.

    k6's log, 1,000,000 rows: streamed 0.3 s, polars 0.2 s → rows per second, peak memory, and that both say the same

What differs is a fault and no row: a reducer that is quick and wrong is no reducer. Equal means: as many requests, answers,
wrong statuses and requests in every 100 ms; quantiles to three digits.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from lab.analysis.selfbench import Report, Row, Unit, alone, compared
from lab.base.files import StoreError, check_writable, writing
from lab.experiments.selfbench.process import SHIM, Timed, last_words, patience_s, timed
from lab.experiments.selfbench.rows import FORMATS, ROW_BYTES, Format, RowFile, write_rows
from lab.stats.histogram import UNIT_S, bucket_of
from lab.targets.common.process import scratch

ROWS = (100_000, 1_000_000, 10_000_000)
REPEATS = 6
REPEATED_MOST = 1_000_000
"""More rows than this are reduced once: minutes each, and no interval."""
ROW_S = 30e-6
"""That all ways together take of a row, about, on two shared cores."""
NAMES = {"k6": "k6's log", "oha": "oha's rows"}
_BY_HAND = Path(__file__).parent / "by_hand" / "polars_rows.py"
_ROOT = Path(__file__).parents[3]

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Reduction:
    """What one process made of a file: its JSON, the seconds it worked (without Python's start), its peak memory."""

    told: Mapping[str, Any]
    seconds: float
    peak_bytes: int | None


Way = Literal["streamed", "polars"]
WAYS: tuple[Way, ...] = ("streamed", "polars")
"""The lab's, and plain polars with every row in memory (`by_hand/`)."""

Runner = Callable[[Way, RowFile], Reduction]
"""(way, file) → what came of it; MeasuringError or ValueError when nothing did. A test hands in its own."""


def check_room(sizes: Sequence[int]) -> None:
    """UsageError where the largest file has no room."""
    with scratch() as folder:
        check_writable(folder, max(ROW_BYTES.values()) * max(sizes), "TMPDIR")


def reducing(
    sizes: Sequence[int] = ROWS, say: Say = lambda _: None, run: Runner | None = None, seed: int = 1
) -> Report:
    """Every format at every size (rows, >= 100). A file that there is no room for (any more) is a fault, the others have their rows."""
    found = Report()
    with scratch() as folder:
        for rows in sizes:
            for kind in FORMATS:
                path = folder / f"{kind}.rows"
                try:
                    with writing(folder, "TMPDIR"):
                        made = write_rows(kind, path, rows)
                except StoreError as error:
                    found = found.plus(Report(faults=(f"{_title(RowFile(kind, path, rows))}: {error}",)))
                else:
                    say(f"{NAMES[kind]}: {rows:,} rows")
                    found = found.plus(one_file(made, run or reduced, random.Random(seed)))
                with suppress(FileNotFoundError):
                    path.unlink()
    return found


def one_file(made: RowFile, run: Runner, order: random.Random) -> Report:
    """Speed and memory, lab against by hand: REPEATS pairs (one where the file is large), each in an order drawn by lot.

    A way that fails (plain polars, where memory ends) is a fault and takes no other's rows with it.
    """
    times = REPEATS if made.rows <= REPEATED_MOST else 1
    results: dict[Way, list[Reduction]] = {way: [] for way in WAYS}
    failed: dict[Way, str] = {}
    for _ in range(times):
        for way in order.sample(WAYS, len(WAYS)):
            if way in failed:
                continue
            try:
                results[way].append(run(way, made))
            except Exception as error:  # noqa: BLE001 - one way's failure is a fault of it, whatever it is
                failed[way] = f"{way}: {error}"
    ran = {way: found for way, found in results.items() if way not in failed}
    first = next(iter(ran.values()), [])
    unequal = [fault for found in ran.values() for one in found if (fault := difference(first[0], one))]
    rows = () if unequal or "streamed" not in ran else tuple(_rows(made, ran["streamed"], ran.get("polars", [])))
    faults = tuple(f"{_title(made)}: {fault}" for fault in dict.fromkeys([*failed.values(), *unequal]))
    return Report(rows=rows, faults=faults)


def reduced(way: Way, made: RowFile) -> Reduction:
    """In a process of its own. ValueError for one that failed or printed something else."""
    script = _BY_HAND if way == "polars" else "lab.experiments.selfbench.worker"
    argv = [str(script), made.kind, str(made.path), str(made.rate_rps)]
    paths = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
    env = {**os.environ, "PYTHONPATH": paths}
    done: Timed = timed([sys.executable, "-c", SHIM, *argv], env, patience_s(made.rows * ROW_S))
    if done.status:
        raise ValueError(last_words(done))
    told = json.loads(done.stdout)
    return Reduction(told, float(told["seconds"]), done.peak_bytes)


def difference(first: Reduction, other: Reduction) -> str:
    """In what two results differ that must be the same; empty = they agree."""
    for key in ("requests", "answered", "not_2xx", "begun"):
        if first.told[key] != other.told[key]:
            return f"{key} differ: {_short(first.told[key])} and {_short(other.told[key])}"
    if "buckets" in first.told and "buckets" in other.told and first.told["buckets"] != other.told["buckets"]:
        return "the counts per bucket differ"
    for share, value_s in first.told["quantiles_s"].items():
        other_s = other.told["quantiles_s"][share]
        if value_s is not None and other_s is not None and not same_to_three_digits(value_s, other_s):
            return f"p{float(share) * 100:g} differs: {value_s:.9f} s and {other_s:.9f} s"
    return ""


def same_to_three_digits(one_s: float, other_s: float) -> bool:
    """In the same bucket or the next one: rounding to a microsecond may fall either way."""
    one, other = (int(bucket_of([round(value / UNIT_S)])[0]) for value in (one_s, other_s))
    return abs(one - other) <= 1


def _rows(made: RowFile, lab: Sequence[Reduction], by_hand: Sequence[Reduction]) -> Iterator[Row]:
    """Speed, then memory where the kernel tells it."""
    yield _row(made, "", "rows/s", *([made.rows / one.seconds for one in found] for found in (lab, by_hand)))
    peaks = [[float(one.peak_bytes) for one in found if one.peak_bytes] for found in (lab, by_hand)]
    if peaks[0]:
        yield _row(made, ": peak memory", "bytes", *peaks)


def _row(made: RowFile, what: str, unit: Unit, lab: Sequence[float], by_hand: Sequence[float]) -> Row:
    if len(lab) != len(by_hand):
        return alone("analysis", f"{_title(made)}: streamed{what}", unit, lab)
    return compared("analysis", f"{_title(made)}: streamed, against polars{what}", unit, lab, by_hand)


def _title(made: RowFile) -> str:
    kind: Format = made.kind
    return f"{NAMES[kind]}, {made.rows:,}"


def _short(value: object) -> str:
    return str(value) if not isinstance(value, list) else f"{len(value)} steps"
