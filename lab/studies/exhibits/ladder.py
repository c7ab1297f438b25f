"""A system taken apart, a step at a time: what each step costs a request by its pair, hung from the level of what it is measured against.

The first level is of what was measured alone: from there on the pairs' ratios carry, so that the steps add up. What is written of a step is
what the run's table says of it: its ratio, of what its baseline cost alone. Refuses to take a level or a ratio from another run.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import log

from lab.analysis.costs import Cost
from lab.analysis.evidence import Evidence
from lab.model.metrics import about
from lab.report.figures.ladder import Rung
from lab.stats import paired as stats
from lab.stats.units import digits, format_micros, format_range
from lab.studies.exhibits import reproduction

METRIC = "cpu_per_request"
Steps = Mapping[str, tuple[str, str]]
"""What a step is, in words → the variant after it, and the one before."""


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
        alone = whole.end if whole is not None else None
        step = _step(run, words, variant, against, point, levels.get(against), alone)
        if step is None:
            absent = [f": {each} is {why}" for each in (variant, against) if (why := reproduction.absent(run, each))]
            missing.append(f"{words}: no pair of {variant} and {against} at {point} in {run.name}{''.join(absent)}")
            continue
        levels[variant] = step.end
        found.append(step)
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


def _step(
    run: Evidence, words: str, variant: str, against: str, point: str, level: float | None, alone: float | None
) -> Rung | None:
    """`level`: where it begins; `alone`: what its baseline cost by itself, where a block tells."""
    told = next(iter(reproduction.told_gains(run, METRIC, point, [(variant, against)])), None)
    if told is None or told.value is None or level is None:
        return None
    ratio = 1 + told.value / 100
    note = f"{variant} against {against}"
    if told.low is None or told.high is None:
        text = f"{format_micros((alone or level) * (ratio - 1))} µs, too few blocks for an interval"
        return Rung(words, level * ratio, level, text=text, note=note)
    low, high = 1 + told.low / 100, 1 + told.high / 100
    cost = Cost(alone or level, (log(ratio), log(low), log(high)))
    text = f"{cost.text}, {about(METRIC).change(log(ratio))}"
    return Rung(words, level * ratio, level, level * low, level * high, text, note)
