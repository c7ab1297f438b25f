"""Request rows to histograms: the lab's two ways, polars and DuckDB by hand, each in a process of its own, on the same file.

    k6's log, 1,000,000 rows: streamed 6.1 s, polars 4.0 s → rows per second, peak memory, and that both say the same

What differs is a fault and no row: a reducer that is quick and wrong is no reducer. Equal means: as many requests, answers,
wrong statuses and requests in every 100 ms; the lab's two ways in every bucket; those by hand in quantiles to three digits.
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.files import check_writable, writing
from lab.histogram import UNIT_S, bucket_of
from lab.process import scratch
from lab.selfbench.process import SHIM, Timed, last_words, timed
from lab.selfbench.report import Report, Row, Unit, alone, compared
from lab.selfbench.rows import FORMATS, ROW_BYTES, Format, RowFile, write_rows

ROWS = (100_000, 1_000_000, 10_000_000)
WHOLE_MOST = 1_000_000
"""With all of it in memory a row takes 1 to 2 kB: more rows than this are streamed only."""
REPEATS = 6
REPEATED_MOST = 1_000_000
"""More rows than this are reduced once: minutes each, and no interval."""
NAMES = {"k6": "k6's log", "oha": "oha's rows"}
NO_DUCKDB = "duckdb: not in this Python, so nothing is said of it: run this by scripts/shell, which brings it"
_BY_HAND = Path(__file__).parent / "by_hand"
_ROOT = Path(__file__).parents[2]

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Reduction:
    """What one process made of a file: its JSON, the seconds it worked (without Python's start), its peak memory."""

    told: Mapping[str, Any]
    seconds: float
    peak_bytes: int | None


Runner = Callable[[str, RowFile], Reduction]
"""(way, file) → what came of it; MeasuringError or ValueError when nothing did. A test hands in its own."""


def reducing(
    sizes: Sequence[int] = ROWS, say: Say = lambda _: None, run: Runner | None = None, seed: int = 1
) -> Report:
    """Every format at every size (rows, >= 100). StoreError or UsageError where the files have no room."""
    by_hand = ["polars", *(["duckdb"] if importlib.util.find_spec("duckdb") else [])]
    found = Report(notes=() if "duckdb" in by_hand else (NO_DUCKDB,))
    with scratch() as folder:
        for rows in sizes:
            check_writable(folder, max(ROW_BYTES.values()) * rows)
            for kind in FORMATS:
                with writing(folder, "TMPDIR"):
                    made = write_rows(kind, folder / f"{kind}.rows", rows)
                say(f"{NAMES[kind]}: {rows:,} rows")
                found = found.plus(one_file(made, by_hand, run or reduced, random.Random(seed)))
                made.path.unlink()
    return found


def one_file(made: RowFile, by_hand: Sequence[str], run: Runner, order: random.Random) -> Report:
    """Rows of a file that every way reduces REPEATS times (once where it is large), in shuffled order."""
    lab = ["streamed", *(["whole"] if made.rows <= WHOLE_MOST else [])]
    ways = [*lab, *by_hand]
    times = REPEATS if made.rows <= REPEATED_MOST else 1
    results: dict[str, list[Reduction]] = {way: [] for way in ways}
    for _ in range(times):
        for way in order.sample(ways, len(ways)):
            try:
                results[way].append(run(way, made))
            except Exception as error:  # noqa: BLE001 - one way's failure is a fault of it, whatever it is
                return Report(faults=(f"{_title(made)}: {way}: {error}",))
    faults = [fault for way in ways for one in results[way] if (fault := difference(results[lab[0]][0], one))]
    if faults:
        return Report(faults=tuple(f"{_title(made)}: {fault}" for fault in dict.fromkeys(faults)))
    rows = [_row(made, f"{way}, against {hand}", results[way], results[hand]) for way in lab for hand in by_hand]
    return Report(rows=tuple(rows + _memory(made, lab, by_hand, results)))


def reduced(way: str, made: RowFile) -> Reduction:
    """In a process of its own. ValueError for one that failed or printed something else."""
    rest = [made.kind, str(made.path), str(made.rate_rps)]
    script = str(_BY_HAND / f"{way}_rows.py")
    argv = [script, *rest] if way in ("polars", "duckdb") else ["lab.selfbench.worker", way, *rest]
    paths = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
    done: Timed = timed([sys.executable, "-c", SHIM, *argv], {**os.environ, "PYTHONPATH": paths})
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


def _row(made: RowFile, what: str, lab: Sequence[Reduction], by_hand: Sequence[Reduction]) -> Row:
    unit: Unit = "rows/s"
    first, second = ([made.rows / one.seconds for one in side] for side in (lab, by_hand))
    return compared("analysis", f"{_title(made)}: {what}", unit, first, second)


def _memory(
    made: RowFile, lab: Sequence[str], by_hand: Sequence[str], results: Mapping[str, Sequence[Reduction]]
) -> list[Row]:
    peaks = {way: [one.peak_bytes for one in found if one.peak_bytes] for way, found in results.items()}
    rows: list[Row] = []
    for way in lab:
        for hand in by_hand:
            what = f"{_title(made)}: {way}, against {hand}: peak memory"
            if peaks[way] and len(peaks[way]) == len(peaks[hand]):
                rows.append(compared("analysis", what, "bytes", peaks[way], peaks[hand]))
            elif peaks[way]:
                rows.append(alone("analysis", what, "bytes", peaks[way]))
    return rows


def _title(made: RowFile) -> str:
    kind: Format = made.kind
    return f"{NAMES[kind]}, {made.rows:,}"


def _short(value: object) -> str:
    return str(value) if not isinstance(value, list) else f"{len(value)} steps"
