"""The effects of reference runs that were replaced: the only replications of what is published, in one small table (data/reference/history.csv).

    a run's folder, replaced  →  a row for each arm, point and metric: effect, 95 % interval, blocks, and where the run is found in git

A run leaves data/reference when a later one takes its place or its room. Its samples are then in git's history alone, and its effects here.
Refuses to judge: whether two effects agree is asked of the table by whoever reads it.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from io import StringIO
from math import exp
from pathlib import Path

from lab.analysis.judge.rows import Row
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


@dataclass(frozen=True, slots=True)
class Past:
    """One effect of a run that was replaced.

    `reference`: the folder that it had in data/reference; `commit`: the last commit in which it lies there; `kind`: `ratio`, or
    `difference` in the metric's own unit (seconds, bytes, counts); `low`, `high`: the 95 % interval, empty below six blocks;
    `scheme`: how the two arms were a pair, empty where each was measured alone; `measured_by`, `computed_by`: commits of the lab.
    """

    run: str
    reference: str
    commit: str
    created_at: str
    boot_id: str
    cpu: str
    target: str
    sweep: str
    arm: str
    baseline: str
    point: str
    metric: str
    kind: str
    effect: str
    low: str
    high: str
    blocks: int
    scheme: str
    measured_by: str
    computed_by: str


def effects_of_run(run: RunStore, reference: str, commit: str, computed_by: str) -> list[Past]:
    """Return the rows of a run: every arm's effects at every point, the A/A twins' among them, of steady and of disturbed loads.

    `reference`: its folder's name in data/reference; `commit`: the last one in which it lies there; `computed_by`: the lab's commit that
    computes the effects now, as rules about which samples count change. UsageError where a file of the run is damaged.
    """
    record, samples = run.record, run.samples()
    origin = (
        record.id, reference, shortened(commit), record.created_at[:16], record.facts.get("boot_id", ""), record.facts["cpu"], record.target, record.sweep,
    )  # fmt: skip
    by = (shortened(record.git_commit or ""), shortened(computed_by))
    summaries = (summarise_run(record, samples, run.histogram, disturbed) for disturbed in (False, True))
    return [Past(*origin, *found, *by) for summary in summaries for row in summary.rows for found in _effects(row)]


def shortened(commit: str) -> str:
    """Return a commit's name in twelve characters, with `+changes` where the work tree differed."""
    name, plus, changes = commit.partition("+")
    return name[:12] + plus + changes


def _effects(row: Row) -> Iterator[tuple[str, str, str, str, str, str, str, str, int, str]]:
    """(arm … scheme) of one row; an effect that pair and arms alone both have is two rows."""
    for effect in row.effects:
        wanted = effect.primary or effect.metric in KEPT
        if not wanted and METRICS[effect.metric].ratio:
            continue
        for estimate, scheme in ((effect.estimate, effect.scheme), (effect.beside, row.point.scheme)):
            if estimate is not None:
                kind = "ratio" if METRICS[effect.metric].ratio else "difference"
                shown, low, high = (
                    "" if value is None else f"{exp(value) if kind == 'ratio' else value:.{DIGITS}g}"
                    for value in (estimate.effect, *(estimate.interval or (None, None)))
                )
                place = (row.arm.name, effect.against, row.point.name, effect.metric, kind)
                yield *place, shown, low, high, estimate.n, scheme or ""


COLUMNS = tuple(field.name for field in fields(Past))


def table_path() -> Path:
    """Return where the table is: beside the reference runs."""
    return reference_folder() / FILE


def known_runs() -> set[str]:
    """Return the ids of the runs that the table has. Empty where there is no table yet; UsageError for a table that cannot be read."""
    return {row["run"] for row in _read(table_path())}


def add_rows(rows: Sequence[Past]) -> None:
    """Append the rows of runs that the table does not have, and sort it by the time of the run. StoreError where it cannot be written."""
    path = table_path()
    have = _read(path)
    runs = {row["run"] for row in have}
    new = [{name: str(value) for name, value in asdict(row).items()} for row in rows if row.run not in runs]
    out = StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(sorted([*have, *new], key=lambda row: (row["created_at"], row["run"])))
    with writing(path, "LAB_REFERENCE"):
        replace(path, out.getvalue().encode())


def _read(path: Path) -> list[dict[str, str]]:
    if not path.is_file():
        return []
    with open(path, newline="", encoding="utf-8") as handle:
        reader = csv.DictReader(handle)
        if tuple(reader.fieldnames or ()) != COLUMNS:
            raise UsageError(str(path), f"its columns are not {', '.join(COLUMNS)}", "restore it from git")
        return list(reader)
