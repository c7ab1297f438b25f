"""The effects of reference runs that were replaced, in one small table (data/reference/history.csv).

These effects are the only repetitions of published measurements.

    a run's folder, replaced  →  a row for each arm, point and metric: effect, 95 % interval, blocks, and where the run is found in git

A run leaves data/reference when a later run replaces it. From then on, the samples of the earlier run are only in git's
history, and its effects are in this table. The module does not judge whether two effects agree: the reader of the table does.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from io import StringIO
from math import exp

from lab.analysis.explain.notes import shorten_commit
from lab.analysis.summary import summarise_run
from lab.base.errors import refuse_if
from lab.base.files import reference_folder, replace_file, writing
from lab.model.metrics import METRICS
from lab.records.store import RunStore

FILE = "history.csv"
KEPT = ("rate", "cpu_per_request", "p50", "p99")
"""The metrics that are kept of every steady load, in addition to an arm's primary one; the others are in git."""
DIGITS = 5
"""The significant digits of an effect: far finer than any interval's width, and few enough for a small table."""
COLUMNS = (
    *("run", "reference", "commit", "created_at", "boot_id", "cpu", "target", "sweep"),
    *("arm", "baseline", "point", "metric", "kind", "effect", "low", "high", "blocks", "scheme"),
    *("measured_by", "computed_by"),
)
"""The columns of the table.

`reference`: the folder that the run had in data/reference; `commit`: the last commit in which it lies there; `kind`:
`ratio`, or `difference` in the metric's own unit (seconds, bytes, counts); `low`, `high`: the 95 % interval, empty below
six blocks; `scheme`: how the two arms were a pair, empty where each was solo; `measured_by`, `computed_by`: commits of
the lab.
"""
HistoryRow = dict[str, str]


def effects_of_run(run: RunStore, reference: str, commit: str, computed_by: str) -> Iterator[HistoryRow]:
    """Yield a run's rows for the table history.csv: the effects of each arm at each load point, steady and disrupted.

    At a steady load, these are the effects in the metrics of `KEPT` and in the primary metric of the arm (variant in
    the run). The effects of the baseline against itself (A/A) are included. If both a pair (two arms measured at once)
    and solo samples (measured alone) show an effect, it has two rows.

    Args:
        run: The stored run.
        reference: The name of the folder that the run had in data/reference.
        commit: The last commit that has the run in this folder.
        computed_by: The lab's commit that computes the effects now. It is recorded because the rules on which samples
            count may change.

    Raises:
        UsageError: A file of the run is damaged.

    """
    record, samples = run.record, run.samples()
    origin = (
        *(record.id, reference, shorten_commit(commit), record.created_at[:16]),
        *(record.facts.get("boot_id", ""), record.facts["cpu"], record.target, record.sweep),
    )
    by = shorten_commit(record.git_commit or ""), shorten_commit(computed_by)
    summaries = [summarise_run(record, samples, run.histogram, disturbed) for disturbed in (False, True)]
    for row, effect in (
        (line, line_effect) for summary in summaries for line in summary.rows for line_effect in line.effects
    ):
        ratio = METRICS[effect.metric].ratio
        if ratio and not effect.primary and effect.metric not in KEPT:
            continue
        for estimate, scheme in ((effect.estimate, effect.scheme), (effect.pair_estimate, row.point.scheme)):
            if estimate is not None:
                ends = estimate.interval or (None, None)
                numbers = (
                    "" if value is None else f"{exp(value) if ratio else value:.{DIGITS}g}"
                    for value in (estimate.effect, *ends)
                )
                place = row.arm.name, effect.against, row.point.name, effect.metric, "ratio" if ratio else "difference"
                values = (*origin, *place, *numbers, str(estimate.n), scheme or "", *by)
                yield dict(zip(COLUMNS, values, strict=True))


def add_rows(rows: Iterable[HistoryRow]) -> None:
    """Add the rows of runs that are not in history.csv yet, and sort the table by the time of the run.

    Raises:
        UsageError: The table cannot be read.
        StoreError: The table cannot be written.

    """
    path, have = reference_folder() / FILE, list[HistoryRow]()
    if path.is_file():
        with open(path, newline="", encoding="utf-8") as handle:
            reader = csv.DictReader(handle)
            have = [dict(row) for row in reader]
        altered = tuple(reader.fieldnames or ()) != COLUMNS
        refuse_if(altered, str(path), f"its columns are not {', '.join(COLUMNS)}", "restore it from git")
    runs = {row["run"] for row in have}
    out = StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    new = [row for row in rows if row["run"] not in runs]
    writer.writerows(sorted([*have, *new], key=lambda row: (row["created_at"], row["run"])))
    with writing(path, "LAB_REFERENCE"):
        replace_file(path, out.getvalue().encode())
