"""The effects of reference runs that were replaced: the only replications of what is published, in one small table (data/reference/history.csv).

    a run's folder, replaced  →  a row for each arm, point and metric: effect, 95 % interval, blocks, and where the run is found in git

A run leaves data/reference when a later one takes its place or its room. Its samples are then in git's history alone, and its effects here.
Refuses to judge: whether two effects agree is asked of the table by whoever reads it.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from io import StringIO
from math import exp
from pathlib import Path

from lab.analysis.summary import summarise_run
from lab.base.errors import UsageError
from lab.base.files import reference_folder, replace, writing
from lab.model.metrics import METRICS
from lab.records.store import RunStore

FILE = "history.csv"
KEPT = ("rate", "cpu_per_request", "p50", "p99")
"""Metrics that are kept of every steady load beside an arm's primary one; the rest is in git."""
DIGITS = 5
"""Significant digits of an effect: far below every interval's width, and they keep the table small."""
OF_RUN = ("run", "reference", "commit", "created_at", "boot_id", "cpu", "target", "sweep")
OF_EFFECT = ("arm", "baseline", "point", "metric", "kind", "effect", "low", "high", "blocks", "scheme")
BY = ("measured_by", "computed_by")
COLUMNS: tuple[str, ...] = (*OF_RUN, *OF_EFFECT, *BY)
"""`reference`: the folder that it had in data/reference; `commit`: the last commit in which it lies there; `kind`: `ratio`, or
`difference` in the metric's own unit (seconds, bytes, counts); `low`, `high`: the 95 % interval, empty below six blocks;
`scheme`: how the two arms were a pair, empty where each was measured alone; `measured_by`, `computed_by`: commits of the lab.
"""
Row = dict[str, str]


def effects_of_run(run: RunStore, reference: str, commit: str, computed_by: str) -> list[Row]:
    """Return the rows of a run: every arm's effects at every point, the A/A twins' among them, of steady and of disturbed loads.

    `reference`: its folder's name in data/reference; `commit`: the last one in which it lies there; `computed_by`: the lab's commit that
    computes the effects now, as rules about which samples count change. An effect that pair and arms alone both have is two rows.
    UsageError where a file of the run is damaged.
    """
    record, samples = run.record, run.samples()
    facts = record.facts.get("boot_id", ""), record.facts["cpu"]
    origin = record.id, reference, shortened(commit), record.created_at[:16], *facts, record.target, record.sweep
    by = shortened(record.git_commit or ""), shortened(computed_by)
    summaries = [summarise_run(record, samples, run.histogram, disturbed) for disturbed in (False, True)]
    found: list[Row] = []
    for row, effect in ((line, one) for summary in summaries for line in summary.rows for one in line.effects):
        ratio = METRICS[effect.metric].ratio
        if ratio and not effect.primary and effect.metric not in KEPT:
            continue
        for estimate, scheme in ((effect.estimate, effect.scheme), (effect.beside, row.point.scheme)):
            if estimate is not None:
                ends = estimate.interval or (None, None)
                shown = (
                    "" if value is None else f"{exp(value) if ratio else value:.{DIGITS}g}"
                    for value in (estimate.effect, *ends)
                )
                place = row.arm.name, effect.against, row.point.name, effect.metric, "ratio" if ratio else "difference"
                values = (*origin, *place, *shown, str(estimate.n), scheme or "", *by)
                found.append(dict(zip(COLUMNS, values, strict=True)))
    return found


def shortened(commit: str) -> str:
    """Return a commit's name in twelve characters, with `+changes` where the work tree differed."""
    name, plus, changes = commit.partition("+")
    return name[:12] + plus + changes


def table_path() -> Path:
    """Return where the table is: beside the reference runs."""
    return reference_folder() / FILE


def add_rows(rows: Sequence[Row]) -> None:
    """Append the rows of runs that the table does not have, and sort it by the time of the run.

    UsageError for a table that cannot be read, StoreError where it cannot be written.
    """
    path, have = table_path(), list[Row]()
    if path.is_file():
        with open(path, newline="", encoding="utf-8") as handle:
            reader = csv.DictReader(handle)
            have = [dict(row) for row in reader]
        if tuple(reader.fieldnames or ()) != COLUMNS:
            raise UsageError(str(path), f"its columns are not {', '.join(COLUMNS)}", "restore it from git")
    runs = {row["run"] for row in have}
    out = StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    new = [row for row in rows if row["run"] not in runs]
    writer.writerows(sorted([*have, *new], key=lambda row: (row["created_at"], row["run"])))
    with writing(path, "LAB_REFERENCE"):
        replace(path, out.getvalue().encode())
