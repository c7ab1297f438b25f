"""The ladder of a system's cost per request: a chain of variants, each a step from the one before.

The cost of the first variant is from solo samples (the variant has the machine alone). For each further variant, this cost is
multiplied by the ratio of a pair (two variants measured at once), so the steps add up. The text of a step is as in the run's
table: the ratio, applied to the solo cost of the step's baseline. All numbers of the steps are from one run.

A ladder may end with the remaining difference from an equivalent variant on another target. This is a difference of two costs,
not of a pair:

    pod-address+access-log-memory++one-worker on kind 61 µs   →   other processes −6 µs   →   not explained −18 µs [−23, −13]   →   metrics-off on apiserver 37 µs

Each of the two costs is the median of solo samples, multiplied by the ratios of pairs. They come from two runs, which are not
pooled. The interval of the difference includes the uncertainty of both costs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import hypot, log
from statistics import median

import plotly.graph_objects as go
import polars as pl

from lab.analysis.evidence import Evidence, Missing
from lab.analysis.judge.effects import EffectCost
from lab.base.errors import LabError
from lab.model.metrics import find_metric
from lab.model.samples import Sample
from lab.model.usage import UNCLAIMED
from lab.report import figures
from lab.report.figures.costs import Rung
from lab.report.figures.style import add_note
from lab.stats import paired as stats
from lab.stats.units import format_blocks, format_digits, format_micros, format_range, format_significant
from lab.studies.exhibits.frames import RunOrMissing, add_runs, explain_absence, fold_text
from lab.studies.exhibits.reproduction import list_gains

METRIC, PROXY = "cpu_per_request", "proxy"
"""The metric of the ladder, and the role of the processes whose CPU time the metric counts."""
OTHER_PROCESSES_LABEL, LEFT = "processes other than those that serve", "not explained"
"""The labels of the two rows between a ladder's last step and the cost on the other target."""
Steps = Mapping[str, tuple[str, str]]
"""The steps of a ladder, a chain of variants: words for a step → (variant after the step, variant before it)."""


@dataclass(frozen=True, slots=True)
class OtherTarget:
    """A variant on another target, with which the last variant of a ladder is compared.

    A ladder is a chain of variants, each a step from the one before. A request should cost the same on both.

    Attributes:
        name: The run on the other target, in words.
        run: That run.
        variant: The name of the variant in that run.

    """

    name: str
    run: RunOrMissing
    variant: str


@dataclass(frozen=True, slots=True)
class RequestCost:
    """The CPU seconds that a request costs, with their uncertainty.

    Attributes:
        value: The cost in seconds.
        half: Half the width of the 95 % interval. With too few blocks (repetitions) for an interval, it is the entire range of the blocks.
            None: not known.
        few: The number of blocks, where they are too few for an interval; 0 otherwise.

    """

    value: float
    half: float | None
    few: int = 0


@dataclass(frozen=True, slots=True)
class Remainder:
    """The rows at the end of a ladder: from the cost of its last variant to the cost of a variant on another target.

    A ladder is a chain of variants, each a step from the one before.

    Attributes:
        rungs: The rows.
        notes: Remarks about the rows.
        missing: The rows that lack data, each with the reason.

    """

    rungs: Sequence[Rung] = ()
    notes: Sequence[str] = ()
    missing: Sequence[str] = ()


def choose_steps(run: RunOrMissing, *choices: Steps) -> Steps:
    """Return the first of several ladders (chains of variants) for which a run has measured all variants.

    If the run is missing, or if it lacks a variant of every ladder, the result is the first ladder.

    Args:
        run: The run.
        *choices: The ladders to choose from: words for a step → (variant after the step, variant before it).

    """
    complete = (
        steps for steps in choices if isinstance(run, Evidence) and all(run.arms(name) for name, _ in steps.values())
    )
    return next(complete, choices[0])


def ladder(
    panels: Mapping[str, tuple[RunOrMissing, Steps]], title: str, point: str, elsewhere: OtherTarget | None = None
) -> go.Figure:
    """Draw the CPU cost of a request along a ladder: a chain of variants, each a step from the one before.

    Args:
        panels: A system's name in words → (its run, its steps). Each system has its own chain; the chains are drawn one below the other.
        title: The figure's title.
        point: The load point's name.
        elsewhere: A variant on another target, with which the end of the last chain is compared; None: nothing.

    """
    rows: list[Rung] = []
    missing: list[str] = []
    notes: list[str] = []
    for name, (run, steps) in panels.items():
        if isinstance(run, Missing):
            missing.append(run.said)
            continue
        try:
            panel_rungs, lacks = make_rungs(run, name, steps, point)
            end = Remainder()
            if elsewhere is not None and name == [*panels][-1]:
                end = compute_remainder(run, [*steps.values()][-1][0], elsewhere, point)
        except LabError as error:
            missing.append(f"{error.place}: {error.fault}")
            continue
        rows += [*panel_rungs, *end.rungs]
        missing += [*lacks, *end.missing]
        notes += end.notes
    figure = figures.ladder(rows, title, fold_text("; ".join(missing)))
    if rows and (missing or notes):
        add_note(figure, fold_text("; ".join([*missing, *notes])), missing)
    return add_runs([*(run for run, _ in panels.values()), *([elsewhere.run] if elsewhere else [])], figure)


def make_rungs(run: Evidence, name: str, steps: Steps, point: str) -> tuple[list[Rung], list[str]]:
    """Return the rows of a ladder (a chain of variants), and lines about the steps that lack data.

    A row is either a variant's entire cost per request, or the step between two variants. The cost of a baseline comes before its first
    step, and that of the last variant after the last step.

    Args:
        run: The run.
        name: The run's system in words.
        steps: Words for a step → (variant after the step, variant before it).
        point: The load point's name.

    """
    levels: dict[str, float] = {}
    rows: list[Rung] = []
    missing: list[str] = []
    for label, (variant, against) in steps.items():
        base = _make_level_rung(run, name, against, point)
        if against not in levels and base is not None:
            levels[against] = base.end
            rows.append(base)
        gain = next(iter(list_gains(run, variant, against, METRIC, point)), None)
        if gain is None or gain.value is None or against not in levels:
            lacks = [f": {arm} is {reason}" for arm in (variant, against) if (reason := explain_absence(run, arm))]
            missing.append(f"{label}: no pair of {variant} and {against} at {point} in {run.name}{''.join(lacks)}")
            continue
        start, ratio, note = levels[against], 1 + gain.value / 100, f"{variant} against {against}"
        solo = base.end if base is not None else start  # the baseline's solo cost, where a block has it
        low = high = None
        text = f"{format_micros(solo * (ratio - 1))} µs, too few blocks for an interval"
        if gain.low is not None and gain.high is not None:
            ends = 1 + gain.low / 100, 1 + gain.high / 100
            low, high = (start * end for end in ends)
            text = f"{EffectCost(solo, (log(ratio), log(ends[0]), log(ends[1]))).text}, {find_metric(METRIC).change(log(ratio))}"
        levels[variant] = start * ratio
        rows.append(Rung(label, levels[variant], start, low, high, text, note))
    ends = [variant for variant, _ in steps.values()]
    last = _make_level_rung(run, name, ends[-1], point) if ends and ends[-1] in levels else None
    return [*rows, *([last] if last else [])], missing


def _make_level_rung(run: Evidence, name: str, variant: str, point: str) -> Rung | None:
    """Return a row of the figure with a variant's cost per request, from solo samples (the variant had the machine alone).

    The result is None where no block (repetition) has the cost.

    Args:
        run: The run.
        name: The run's system in words.
        variant: The variant.
        point: The load point's name.

    """
    values = run.list_solo_values(variant, point, METRIC)
    if not values:
        return None
    level = stats.estimate_geometric_mean(values).value
    few = len(values) < stats.MIN_BLOCKS
    text = format_range(1e6 * min(values), 1e6 * max(values)) if few else format_digits(1e6 * level)
    return Rung(f"{variant}, {name}", level, text=f"{text} µs", note=run.run.record.variants[variant].title, whole=True)


# -- what is left against another target --------------------------------------------------------------------


def compute_remainder(run: Evidence, variant: str, elsewhere: OtherTarget, point: str) -> Remainder:
    """Return the rows that lead from the cost of a ladder's last variant to that of an equivalent variant on another target.

    The first row is the CPU time of processes of the proxy that serve no requests, where they were measured. The next one is the rest of
    the difference, which nothing explains. The last row is the cost of the variant on the other target.

    Args:
        run: The run with the ladder (a chain of variants, each a step from the one before).
        variant: The last variant of the ladder.
        elsewhere: The equivalent variant on another target.
        point: The load point's name.

    """
    target_run = elsewhere.run
    if isinstance(target_run, Missing):
        return Remainder(missing=[f"{LEFT}: {target_run.said}"])
    levels = {
        f"{name} on {source.run.record.target}": compute_level(source, name, point)
        for source, name in ((run, variant), (target_run, elsewhere.variant))
    }
    if unknown := [name for name, entry in levels.items() if entry is None]:
        return Remainder(missing=[f"{LEFT}: nothing of {' and '.join(unknown)} at {point}"])
    start, end = (entry for entry in levels.values() if entry is not None)
    usages = [
        target_run.run.usage(sample).filter(pl.col("role") == PROXY)
        for sample in _list_samples(target_run, elsewhere.variant, point)
    ]
    serving_titles = {str(title) for usage in usages for title in usage["title"]}  # the proxy's processes there
    extra = _measure_extra(run, variant, serving_titles, point)
    rows: list[Rung] = []
    if extra is not None:
        serving = RequestCost(start.value - extra.value, _combine_halves(start.half, extra.half))
        note = f"in what {run.run.record.target} counts as the proxy alone"
        rows.append(_make_row(OTHER_PROCESSES_LABEL, start, serving, extra.half, note))
        levels[OTHER_PROCESSES_LABEL] = extra
        start = serving
    rows.append(
        _make_row(LEFT, start, end, _combine_halves(start.half, end.half), f"of {run.name} and {target_run.name}")
    )
    title = target_run.run.record.variants[elsewhere.variant].title
    total_us = 1e6 * end.value
    text = f"{format_significant(total_us, 2) if end.few else format_digits(total_us)} µs"
    rows.append(Rung(f"{elsewhere.variant}, {elsewhere.name}", end.value, text=text, note=title, whole=True))
    notes: list[str] = []
    cores = [
        sample.counters[UNCLAIMED] / 1000 / sample.duration_s
        for sample in _list_samples(run, variant, point)
        if UNCLAIMED in sample.counters and sample.duration_s
    ]
    if cores:  # not a step: a node cannot run without its other processes, and the lab looks into it through them
        used = format_digits(median(cores))
        notes.append(f"meanwhile the node's other processes had {used} of a CPU, which no step takes away")
    if few := [f"{name}: {format_blocks(entry.few)}" for name, entry in levels.items() if entry and entry.few]:
        notes.append(f"in place of intervals all that few blocks range over ({', '.join(few)})")
    return Remainder(rows, notes)


def _combine_halves(*halves: float | None) -> float | None:
    """Return half the width of the interval of a difference between two values, from half the widths of their intervals.

    The values were measured separately, so the result is the root of the sum of squares. It is None if one of the widths is not
    known.
    """
    return hypot(*(half or 0.0 for half in halves)) if None not in halves else None


def _make_row(label: str, start: RequestCost, end: RequestCost, half: float | None, note: str) -> Rung:
    """Return the row for the difference between two costs per request that were measured separately.

    Args:
        label: The row's label.
        start: The first cost.
        end: The cost that it is compared with.
        half: Half the width of the difference's interval; None: too few blocks (repetitions) for one.
        note: The row's note.

    """
    value = f"{format_micros(end.value - start.value)} µs"
    if half is None:
        return Rung(
            label, end.value, start.value, text=f"{value}, too few blocks for an interval", note=note, apart=True
        )
    low, high = end.value - half, end.value + half
    ends = ", ".join(format_micros(end_s - start.value) for end_s in (low, high))
    return Rung(label, end.value, start.value, low, high, f"{value} [{ends}]", note, apart=True)


def compute_level(run: Evidence, variant: str, point: str) -> RequestCost | None:
    """Return a variant's CPU cost per request; None where no block (repetition) has it.

    The cost is that of the variant's baseline, multiplied by the measured ratio of the variant to the baseline. The baseline's cost is
    computed from its own baseline in the same way, and so on. If such a ratio or cost is missing, the cost is the median of the variant's
    solo samples (each variant had the machine alone).

    Args:
        run: The run.
        variant: The variant.
        point: The load point's name.

    """
    record = run.run.record.variants.get(variant)
    if record is not None and record.baseline:
        base = compute_level(run, record.baseline, point)
        gain = next(iter(list_gains(run, variant, record.baseline, METRIC, point)), None)
        if base is not None and gain is not None and gain.value is not None:
            ratio, half = 1 + gain.value / 100, None
            if gain.low is not None and gain.high is not None and base.half is not None:
                half = hypot(base.half * ratio, base.value * (gain.high - gain.low) / 200)
            return RequestCost(base.value * ratio, half, base.few)
    return _find_median(run.list_solo_values(variant, point, METRIC))


def _find_median(values: Sequence[float]) -> RequestCost | None:
    """Return the median cost of several blocks (repetitions) with its uncertainty; None without blocks.

    Args:
        values: The cost in each block, in CPU seconds per request.

    """
    if not values:
        return None
    middle = stats.estimate_median(values)
    if middle.low is not None and middle.high is not None:
        return RequestCost(middle.value, (middle.high - middle.low) / 2)
    return RequestCost(middle.value, max(values) - min(values) if len(values) > 1 else None, len(values))


def _list_samples(run: Evidence, variant: str, point: str) -> Iterator[Sample]:
    for arm in run.arms(variant):
        yield from run.blocks(arm, point).values()


def _measure_extra(run: Evidence, variant: str, titles: Collection[str], point: str) -> RequestCost | None:
    """Return the CPU seconds per request that the proxy's container uses for processes that serve no requests.

    The CPU time of a proxy is that of its container's entire cgroup. So it includes the controller's process, and processes with
    which the lab observes the container. The result is the median over the samples.

    Args:
        run: The run.
        variant: The variant.
        titles: The titles of the processes that serve requests.
        point: The load point's name.

    Returns:
        The cost; None where no sample has both the proxy's CPU time and that of the serving processes.

    """
    values: list[float] = []
    for sample in _list_samples(run, variant, point):
        rows = run.run.usage(sample)
        serving = rows.filter(pl.col("role") == PROXY, pl.col("tid").is_null(), pl.col("title").is_in(list(titles)))
        used = serving.group_by("pid").agg(pl.col("cpu_s").max() - pl.col("cpu_s").min())  # between first and last look
        cost, serving_s = sample.cpu_per_request_s, float(used["cpu_s"].sum())
        if cost and serving_s:
            values.append(cost * max(0.0, 1 - serving_s / sample.usage[PROXY].cpu_s))
    return _find_median(values)
