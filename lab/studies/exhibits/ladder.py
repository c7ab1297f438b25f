"""A system taken apart, a step at a time: what each step costs a request by its pair, hung from the level of what it is measured against.

The first level is of what was measured alone: from there on the pairs' ratios carry, so that the steps add up. What is written of a step is
what the run's table says of it: its ratio, of what its baseline cost alone. Refuses to take a level or a ratio from another run.

What is left of the last step against the same on another target is a difference of two levels, and no pair's:

    pod-address+access-log-memory++one-worker on kind 61 µs   →   processes beside the serving ones −6 µs   →   not explained −18 µs [−23, −13]   →   metrics-off on apiserver 37 µs

A level is the median of what was measured alone, carried on by the pairs' ratios. The two are of two runs: nothing is pooled, and the
difference's interval has both of theirs in it. Refuses to say why anything is left.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import hypot, log
from statistics import median

import plotly.graph_objects as go
import polars as pl

from lab.analysis.evidence import Evidence, Missing
from lab.analysis.judge.effects import Cost
from lab.base.errors import LabError
from lab.model.metrics import about
from lab.model.samples import Sample
from lab.model.usage import UNCLAIMED
from lab.report import figures
from lab.report.figures.costs import Rung
from lab.report.figures.style import noted
from lab.stats import paired as stats
from lab.stats.units import digits, format_blocks, format_micros, format_range, significant
from lab.studies.exhibits.frames import Run, absent, folded, of_runs
from lab.studies.exhibits.reproduction import told_gains

METRIC, PROXY = "cpu_per_request", "proxy"
BESIDE, LEFT = "processes beside those that serve", "not explained"
Steps = Mapping[str, tuple[str, str]]
"""What a step is, in words → the variant after it, and the one before."""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """What is left against: a run on another target, `name` in words, and the variant that does the same there."""

    name: str
    run: Run
    variant: str


@dataclass(frozen=True, slots=True)
class Level:
    """CPU seconds a request, and half the width of its interval (None: nothing tells). `few`: the blocks behind it, where they are too few
    for 95 % and all that they range over stands in its place.
    """

    value: float
    half: float | None
    few: int = 0


@dataclass(frozen=True, slots=True)
class Remainder:
    """Rows from the last step down to the other target's whole, what is to be said of them, and what there is nothing of."""

    rungs: Sequence[Rung] = ()
    notes: Sequence[str] = ()
    missing: Sequence[str] = ()


def choose_steps(run: Run, *choices: Steps) -> Steps:
    """Return the first of several ladders whose variants a run has all measured; the first of all where it has none of them whole."""
    whole = (
        steps for steps in choices if isinstance(run, Evidence) and all(run.arms(name) for name, _ in steps.values())
    )
    return next(whole, choices[0])


def ladder(
    panels: Mapping[str, tuple[Run, Steps]], title: str, point: str, elsewhere: Elsewhere | None = None
) -> go.Figure:
    """What a request costs, taken apart: what a run is of → the run, and its steps in words, each the variants after and before it.

    `elsewhere`: what the last step of the last panel is left against, on another target.
    """
    rows: list[Rung] = []
    missing: list[str] = []
    notes: list[str] = []
    for name, (run, steps) in panels.items():
        if isinstance(run, Missing):
            missing.append(run.said)
            continue
        try:
            found, lacks = rungs(run, name, steps, point)
            left = Remainder()
            if elsewhere is not None and name == [*panels][-1]:
                left = remainder(run, [*steps.values()][-1][0], elsewhere, point)
        except LabError as error:
            missing.append(f"{error.place}: {error.fault}")
            continue
        rows += [*found, *left.rungs]
        missing += [*lacks, *left.missing]
        notes += left.notes
    figure = figures.ladder(rows, title, folded("; ".join(missing)))
    if rows and (missing or notes):
        noted(figure, folded("; ".join([*missing, *notes])), missing)
    return of_runs([*(run for run, _ in panels.values()), *([elsewhere.run] if elsewhere else [])], figure)


def rungs(run: Evidence, name: str, steps: Steps, point: str) -> tuple[list[Rung], list[str]]:
    """(rows, what there is nothing of): each whole before its first step, the last one after it. `name`: what the run is of."""
    levels: dict[str, float] = {}
    found: list[Rung] = []
    missing: list[str] = []
    for words, (variant, against) in steps.items():
        whole = _whole(run, name, against, point)
        if against not in levels and whole is not None:
            levels[against] = whole.end
            found.append(whole)
        told = next(iter(told_gains(run, variant, against, METRIC, point)), None)
        if told is None or told.value is None or against not in levels:
            lacks = [f": {each} is {why}" for each in (variant, against) if (why := absent(run, each))]
            missing.append(f"{words}: no pair of {variant} and {against} at {point} in {run.name}{''.join(lacks)}")
            continue
        start, ratio, note = levels[against], 1 + told.value / 100, f"{variant} against {against}"
        alone = whole.end if whole is not None else start  # what its baseline cost by itself, where a block tells
        low = high = None
        text = f"{format_micros(alone * (ratio - 1))} µs, too few blocks for an interval"
        if told.low is not None and told.high is not None:
            ends = 1 + told.low / 100, 1 + told.high / 100
            low, high = (start * end for end in ends)
            text = f"{Cost(alone, (log(ratio), log(ends[0]), log(ends[1]))).text}, {about(METRIC).change(log(ratio))}"
        levels[variant] = start * ratio
        found.append(Rung(words, levels[variant], start, low, high, text, note))
    ends = [variant for variant, _ in steps.values()]
    last = _whole(run, name, ends[-1], point) if ends and ends[-1] in levels else None
    return [*found, *([last] if last else [])], missing


def _whole(run: Evidence, name: str, variant: str, point: str) -> Rung | None:
    """What a variant costs alone; None where no block tells."""
    known = run.told(variant, point, METRIC)
    if not known:
        return None
    level = stats.level(known).value
    few = len(known) < stats.MIN_BLOCKS
    text = format_range(1e6 * min(known), 1e6 * max(known)) if few else digits(1e6 * level)
    title = run.run.record.variants[variant].title
    return Rung(f"{variant}, {name}", level, text=f"{text} µs", note=title, whole=True)


# -- what is left against another target --------------------------------------------------------------------


def remainder(run: Evidence, variant: str, elsewhere: Elsewhere, point: str) -> Remainder:
    """Of a variant at a point."""
    there = elsewhere.run
    if isinstance(there, Missing):
        return Remainder(missing=[f"{LEFT}: {there.said}"])
    levels = {
        f"{each} on {of.run.record.target}": level(of, each, point)
        for of, each in ((run, variant), (there, elsewhere.variant))
    }
    if nothing := [name for name, found in levels.items() if found is None]:
        return Remainder(missing=[f"{LEFT}: nothing of {' and '.join(nothing)} at {point}"])
    mine, theirs = (found for found in levels.values() if found is not None)
    seen = [
        there.run.usage(sample).filter(pl.col("role") == PROXY) for sample in _alone(there, elsewhere.variant, point)
    ]
    serving_titles = {str(title) for each in seen for title in each["title"]}  # what counts as the proxy there
    beside = _beside(run, variant, serving_titles, point)
    rows: list[Rung] = []
    if beside is not None:
        serving = Level(mine.value - beside.value, _both(mine.half, beside.half))
        note = f"in what {run.run.record.target} counts as the proxy alone"
        rows.append(_row(BESIDE, mine, serving, beside.half, note))
        levels[BESIDE] = beside
        mine = serving
    rows.append(_row(LEFT, mine, theirs, _both(mine.half, theirs.half), f"of {run.name} and {there.name}"))
    title = there.run.record.variants[elsewhere.variant].title
    whole = 1e6 * theirs.value
    text = f"{significant(whole, 2) if theirs.few else digits(whole)} µs"
    rows.append(Rung(f"{elsewhere.variant}, {elsewhere.name}", theirs.value, text=text, note=title, whole=True))
    notes: list[str] = []
    cores = [
        sample.counters[UNCLAIMED] / 1000 / sample.duration_s
        for sample in _alone(run, variant, point)
        if UNCLAIMED in sample.counters and sample.duration_s
    ]
    if cores:  # no step: a node without what else it runs is none, and the lab looks into it by that
        used = digits(median(cores))
        notes.append(f"meanwhile the node's other processes had {used} of a CPU, which no step takes away")
    if few := [f"{name}: {format_blocks(found.few)}" for name, found in levels.items() if found and found.few]:
        notes.append(f"in place of intervals all that few blocks range over ({', '.join(few)})")
    return Remainder(rows, notes)


def _both(*halves: float | None) -> float | None:
    """Of a difference: both were measured by themselves, so that their squares add up."""
    return hypot(*(half or 0.0 for half in halves)) if None not in halves else None


def _row(label: str, start: Level, end: Level, half: float | None, note: str) -> Rung:
    value = f"{format_micros(end.value - start.value)} µs"
    if half is None:
        return Rung(
            label, end.value, start.value, text=f"{value}, too few blocks for an interval", note=note, apart=True
        )
    low, high = end.value - half, end.value + half
    ends = ", ".join(format_micros(each - start.value) for each in (low, high))
    return Rung(label, end.value, start.value, low, high, f"{value} [{ends}]", note, apart=True)


def level(run: Evidence, variant: str, point: str) -> Level | None:
    """By the pairs that lead to it from what was measured alone; by itself, where none does. None where no block tells."""
    record = run.run.record.variants.get(variant)
    if record is not None and record.baseline:
        base = level(run, record.baseline, point)
        told = next(iter(told_gains(run, variant, record.baseline, METRIC, point)), None)
        if base is not None and told is not None and told.value is not None:
            ratio, half = 1 + told.value / 100, None
            if told.low is not None and told.high is not None and base.half is not None:
                half = hypot(base.half * ratio, base.value * (told.high - told.low) / 200)
            return Level(base.value * ratio, half, base.few)
    return _middle(run.told(variant, point, METRIC))


def _middle(known: Sequence[float]) -> Level | None:
    if not known:
        return None
    found = stats.middle(known)
    if found.low is not None and found.high is not None:
        return Level(found.value, (found.high - found.low) / 2)
    return Level(found.value, max(known) - min(known) if len(known) > 1 else None, len(known))


def _alone(run: Evidence, variant: str, point: str) -> Iterator[Sample]:
    for arm in run.arms(variant):
        yield from run.blocks(arm, point).values()


def _beside(run: Evidence, variant: str, titles: Collection[str], point: str) -> Level | None:
    """CPU seconds a request of all that the proxy's count has beside such processes: a container's is its whole cgroup's, the controller's own
    process and whoever looks into it included. None where no sample has such processes.
    """
    found: list[float] = []
    for sample in _alone(run, variant, point):
        rows = run.run.usage(sample)
        mine = rows.filter(pl.col("role") == PROXY, pl.col("tid").is_null(), pl.col("title").is_in(list(titles)))
        used = mine.group_by("pid").agg(pl.col("cpu_s").max() - pl.col("cpu_s").min())  # between first and last sight
        cost, serving_s = sample.cpu_per_request_s, float(used["cpu_s"].sum())
        if cost and serving_s:
            found.append(cost * max(0.0, 1 - serving_s / sample.usage[PROXY].cpu_s))
    return _middle(found)
