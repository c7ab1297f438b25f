"""A run looked at: which one, what is in it, and its variants side by side. What the explorer (notebooks/explore.ipynb) is made of.

Takes any run, yours or a committed one; what cannot be had is said in Markdown and stops nothing. Refuses to draw (`lab.studies.exhibits.exhibits`)
and to pool runs (`lab.analysis.comparison.comparison`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.text import Text

from lab.analysis.aggregate.cells import counted_alone
from lab.analysis.applied import AsApplied
from lab.analysis.comparison.comparison import compare_runs
from lab.analysis.evidence import Evidence, Missing, references
from lab.analysis.noise import BASELINE
from lab.base.errors import LabError
from lab.base.files import reference_folder
from lab.model.metrics import DIFFERENCES, METRICS, RATIOS
from lab.records.store import run_names
from lab.report.grid import Notes, texts
from lab.report.loads import disturbance_text, load_text
from lab.report.markdown import markdown
from lab.report.tables import comparison as comparison_tables
from lab.stats.paired import MIN_BLOCKS
from lab.studies.claims import fits
from lab.studies.exhibits.frames import Run


def picked(name: str = "") -> Run:
    """A run by its name or folder, yours or a committed one. Without a name: the newest of yours, whatever its state, else the first
    committed one, with blocks enough for intervals and a variant to compare if there is one.
    """
    own, folder = run_names(), reference_folder()
    if name or own:
        wanted = f"{folder}/{name}" if name in run_names(folder) else name or own[-1]
        try:
            found = AsApplied.open(wanted)
            samples = tuple(found.samples())
        except LabError as error:
            return Missing(f"{wanted}: {error.fault}")
        return Evidence(found.folder.name, found, samples, counted_alone(samples))
    committed, damaged = references()
    if not committed:
        nothing = "nothing in data/reference of any sweep, and no run of yours: just bench keepalive makes one"
        return Missing("; ".join([nothing, *(each.said for each in damaged)]))
    variants = {run.name: any(arm.role == "variant" for arm in run.run.record.arms) for run in committed}
    return max(committed, key=lambda run: (run.run.record.blocks >= MIN_BLOCKS, variants[run.name]))


def variants(run: Run) -> list[str]:
    """Those that have a valid sample, in plan order."""
    if isinstance(run, Missing):
        return [BASELINE]
    counted = {sample.variant for sample in run.counted.values()}
    return [name for name in dict.fromkeys(arm.variant for arm in run.run.record.arms) if name in counted] or [BASELINE]


def metrics(run: Run) -> list[str]:
    """What came of its disturbances, where it has any; else rate, percentiles and CPU per request."""
    seen = set[str]() if isinstance(run, Missing) else {name for each in run.counted.values() for name in each.outcome}
    known = ((name, METRICS[name]) for name in DIFFERENCES if name in seen)
    return [name for name, metric in known if not metric.detail and metric.better != "neither"] or list(RATIOS)


def overview(run: Run) -> str:
    """Markdown: which run, its variants, its loads, how much of it counts, and the machine."""
    if isinstance(run, Missing):
        return f"*{run.said}*"
    record = run.run.record
    titles = {name: " ".join(variant.title.split()) for name, variant in record.variants.items()}
    arms = [(arm.name, titles[arm.variant], arm.baseline or "–") for arm in record.arms]
    made = {name: filter(None, (by.get("name"), by.get("version"))) for name, by in record.generators.items()}
    loads: list[tuple[str, str, str]] = []
    for point in record.points:
        done = f"; {disturbance_text(point)}" if point.disturbance is not None else ""
        load = f"{load_text(point)}{done}{'; control run' if point.control else ''}"
        loads.append((point.name, load, " ".join(made.get(point.name, ())) or "–"))
    facts = [(name.replace("_", " "), " ".join(value.split())) for name, value in record.facts.items()]
    reasons = Counter(str(sample.reason) for sample in run.samples if sample.reason is not None)
    invalid = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
    lines = [
        run.said,
        f"`{' '.join(record.command)}`, commit {record.git_commit or 'unknown'}",
        *([f"invalid samples: {invalid}"] if invalid else []),
        *map(str, record.not_measurable),
        f"metrics: {', '.join(f'`{name}`' for name in metrics(run))}",
    ]
    parts = [
        Notes(tuple(map(Text, lines))),
        texts(("variant", "what it is", "against"), arms),
        texts(("point", "load", "generator"), loads),
        texts(("machine", ""), facts),
    ]
    return markdown(parts)


def compared(run: Run, other: str = "", only: Sequence[str] = (), point: str = "*", metrics: Sequence[str] = ()) -> str:
    """Markdown: its variants (`only` these) against their baselines, or its arms against those of the run that `other` names.

    Whatever is shown of it, Holm's adjustment and the advice are of the whole comparison: to look at one row makes it no surer.
    """
    second = picked(other) if other else None
    if isinstance(run, Missing) or isinstance(second, Missing):
        return f"*{run.said if isinstance(run, Missing) else second and second.said}*"
    try:
        found = compare_runs(run.run, second.run if second else None)
    except LabError as error:
        return f"*nothing to compare: {error.fault}*"
    arms = {arm.name for arm in run.run.record.arms if not only or arm.variant in only}
    kept = [
        row
        for row in found.rows
        if row.pair[1] in arms and fits(point, row.point.name) and (not metrics or row.metric in metrics)
    ]
    if not kept:
        return "*nothing to compare: no variant is left beside its baseline, or none of these points or metrics*"
    return markdown(comparison_tables.page(found, kept))
