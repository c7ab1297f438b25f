"""The texts of the notebook `explore.ipynb` about one run: its verdict, its contents, and a comparison of its variants.

The notebook can show any run, the user's or a committed one. If the run or a part of it is missing, the text has the reason, and
the notebook continues. Figures are in `lab.studies.exhibits.exhibits`. Runs are never pooled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatchcase
from itertools import takewhile

from rich.text import Text

from lab.analysis.aggregate.cells import select_counted_solo_samples
from lab.analysis.applied import AsApplied
from lab.analysis.comparison.comparison import compare_runs
from lab.analysis.evidence import Evidence, Missing, load_references
from lab.analysis.noise import BASELINE, PRIMARY
from lab.base.errors import LabError
from lab.base.files import reference_folder
from lab.model.metrics import DIFFERENCES, METRICS, RATIOS
from lab.records.store import run_names
from lab.report.grid import Grid, Notes, make_text_table
from lab.report.loads import describe_disruption, describe_load
from lab.report.markdown import render_markdown
from lab.report.result import RunResult
from lab.report.tables import comparison as comparison_tables
from lab.stats.paired import MIN_BLOCKS
from lab.studies.exhibits.frames import RunOrMissing, writes_run


def pick_run(name: str = "") -> RunOrMissing:
    """Return a run by its name or folder, or the user's newest run if no name is given.

    Without a name and without any run of the user, the result is a committed run. Runs with enough blocks (repetitions) for
    intervals are preferred, and among these, runs with a variant to compare.

    Args:
        name: The run's name or folder; empty: none.

    Returns:
        The run. If there is no such run, or if it cannot be read, a `Missing` with the reason.

    """
    user_runs, folder = run_names(), reference_folder()
    if name or user_runs:
        path = f"{folder}/{name}" if name in run_names(folder) else name or user_runs[-1]
        try:
            store = AsApplied.open(path)
            samples = tuple(store.samples())
        except LabError as error:
            return Missing(f"{path}: {error.fault}")
        return Evidence(store.folder.name, store, samples, select_counted_solo_samples(samples))
    committed, damaged = load_references()
    if not committed:
        empty = "nothing in data/reference of any sweep, and no run of yours: just bench keepalive makes one"
        return Missing("; ".join([empty, *(run.said for run in damaged)]))
    variants = {run.name: any(arm.role == "variant" for arm in run.run.record.arms) for run in committed}
    return max(committed, key=lambda run: (run.run.record.blocks >= MIN_BLOCKS, variants[run.name]))


def variants(run: RunOrMissing) -> list[str]:
    """Return the names of a run's variants that have a counted solo sample (measured alone), in the order of the plan.

    Without any such variant, or without a run, the result is the baseline's name alone.
    """
    if isinstance(run, Missing):
        return [BASELINE]
    counted = {sample.variant for sample in run.counted.values()}
    return [name for name in dict.fromkeys(arm.variant for arm in run.run.record.arms) if name in counted] or [BASELINE]


def pairs(run: RunOrMissing) -> list[tuple[str, str]]:
    """Return (variant, the variant that it is compared with) for each comparison of a run, in the order of the plan."""
    arms = () if isinstance(run, Missing) else run.run.record.arms
    variant_of = {arm.name: arm.variant for arm in arms}
    return [(arm.variant, variant_of[arm.baseline]) for arm in arms if arm.role == "variant" and arm.baseline]


@writes_run
def verdict(run: Evidence | None) -> str:
    """Return a run's result in words, as Markdown: the sentences above the tables of its result page; empty for None."""
    parts = RunResult(run.run).page() if run else ()
    return render_markdown([*takewhile(lambda part: not isinstance(part, Grid), parts)])


def metrics(run: RunOrMissing) -> list[str]:
    """Return the names of the metrics by which a run can be explored.

    For a run with disruptions, streams of events or WebSockets, these are the outcomes of its counted samples, which are solo
    samples that are used for results. Details of other outcomes are left out, and so are outcomes of which neither direction is
    better. If no outcome remains, and for any other run, these are the metrics of steady loads, with CPU per request first.
    """
    outcomes = (
        set[str]() if isinstance(run, Missing) else {name for sample in run.counted.values() for name in sample.outcome}
    )
    available = ((name, METRICS[name]) for name in DIFFERENCES if name in outcomes)
    return [name for name, metric in available if not metric.detail and metric.better != "neither"] or [
        *dict.fromkeys([PRIMARY, *RATIOS])
    ]


def overview(run: RunOrMissing) -> str:
    """Return a run's overview as Markdown: its variants, its loads, how many of its samples are valid, and the machine."""
    if isinstance(run, Missing):
        return f"*{run.said}*"
    record = run.run.record
    titles = {name: " ".join(variant.title.split()) for name, variant in record.variants.items()}
    arms = [(arm.name, titles[arm.variant], arm.baseline or "–") for arm in record.arms]
    generators = {
        name: filter(None, (entry.get("name"), entry.get("version"))) for name, entry in record.generators.items()
    }
    loads: list[tuple[str, str, str]] = []
    for point in record.points:
        disruption = f"; {describe_disruption(point)}" if point.disturbance is not None else ""
        load = f"{describe_load(point)}{disruption}{'; control run' if point.control else ''}"
        loads.append((point.name, load, " ".join(generators.get(point.name, ())) or "–"))
    facts = [(name.replace("_", " "), " ".join(value.split())) for name, value in record.facts.items()]
    reasons = Counter(str(sample.reason) for sample in run.all_samples if sample.reason is not None)
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
        make_text_table(("variant", "what it is", "against"), arms),
        make_text_table(("point", "load", "generator"), loads),
        make_text_table(("machine", ""), facts),
    ]
    return render_markdown(parts)


def compare_variants(
    run: RunOrMissing, other: str = "", only: Sequence[str] = (), point: str = "*", metrics: Sequence[str] = ()
) -> str:
    """Return a comparison as Markdown: a run's variants with their baselines, or with the variants of another run.

    Even if only a part of the comparison is shown, the advice and the adjustment of p-values (Holm's method) are those of the
    whole. So a row does not become more certain when it is shown alone. If nothing can be compared, the text is the reason.

    Args:
        run: The run.
        other: The name of a second run to compare with; empty: none.
        only: The variants to show; empty: all.
        point: The pattern of the load points' names, with `*` as a wildcard.
        metrics: The names of the metrics to show; empty: all.

    """
    second = pick_run(other) if other else None
    if isinstance(run, Missing) or isinstance(second, Missing):
        return f"*{run.said if isinstance(run, Missing) else second and second.said}*"
    try:
        comparison = compare_runs(run.run, second.run if second else None)
    except LabError as error:
        return f"*nothing to compare: {error.fault}*"
    arms = {arm.name for arm in run.run.record.arms if not only or arm.variant in only}
    rows = [
        row
        for row in comparison.rows
        if row.pair[1] in arms and fnmatchcase(row.point.name, point) and (not metrics or row.metric in metrics)
    ]
    if not rows:
        return "*nothing to compare: no variant is left with its baseline, or none of these points or metrics*"
    return render_markdown(comparison_tables.make_page(comparison, rows))
