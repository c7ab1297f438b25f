"""Why a knob does something else on another target than on `local`, by the ladder's steps, and how many blocks would decide the others.

    ingress-nginx+access-log-off on kind: −41.0 % [−44.5, −37.4]; log to a file, not a pipe (kind) and no access log (apiserver) make −39 % together: explained

A step is a committed pair of the sweep `ladder`; steps of one cause are multiplied, as each is a share of what the step before left. Where
no step is about a knob, `local`'s time is multiplied by what the same known work costs there. Refuses to guess beyond that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, hypot, log

from lab.analysis.costs import Interval, apart
from lab.analysis.evidence import Evidence
from lab.model.names import DEFAULT_TARGET, WORTH
from lab.stats.power import MAX_BLOCKS
from lab.studies.carrying import METRIC, Carried
from lab.studies.steps import summaries

LADDER = "ladder"
KNOWN_WORK = "ingress-nginx+extra-work-80"
"""The knob that adds the same known work on every target."""
SURE = 1.65
"""A difference so many times as large as half its 95 % interval is found nine times in ten: (1.96 + 1.28) / 1.96."""


@dataclass(frozen=True, slots=True)
class LadderStep:
    """A step of the ladder. `variants`: its names, the present one first (`lab.model.variants.naming`)."""

    target: str
    variants: tuple[str, ...]
    words: str


@dataclass(frozen=True, slots=True)
class Cause:
    """What a knob takes away or adds on a target beside what it does on `local`."""

    steps: tuple[LadderStep, ...]
    words: str


CAUSES: Mapping[tuple[str, str], Cause] = {
    ("ingress-nginx+access-log-off", "kind"): Cause(
        (
            LadderStep("kind", ("pod-address+access-log-memory",), "the log to a file, not a pipe"),
            LadderStep("apiserver", ("ingress-nginx+access-log-off", "metrics-log-off"), "no access log"),
        ),
        "on kind a log line goes through a pipe that the node's runtime empties, on local into a file in memory",
    ),
    ("ingress-nginx+crowded-workers-1", "kind"): Cause(
        (LadderStep("kind", ("pod-address+access-log-memory++one-worker",), "one worker"),),
        "on kind the baseline has two workers, which share that pipe, on local it has one, so that the knob changes nothing",
    ),
}
"""(knob, target) → the ladder's steps that are about the same thing, and what that is."""


@dataclass(frozen=True, slots=True)
class Explained:
    """A knob whose time on a target is another than on `local`. `predicted`: by `by`, in the unit of `measured`; None where nothing predicts.

    Both are log-ratios where `share`, else seconds; each a value and its 95 % interval.
    """

    line: Carried
    target: str
    measured: Interval
    predicted: Interval | None
    share: bool
    by: str

    @property
    def fits(self) -> bool:
        """Whether the interval of the difference between measured and predicted holds 0."""
        if self.predicted is None:
            return False
        gap, half = apart(self.measured, self.predicted)
        return abs(gap) <= half


@dataclass(frozen=True, slots=True)
class Undecided:
    """A knob of which nobody can tell whether `local`'s time is a target's. `blocks`: there, to decide it nine times in ten, if both effects
    are what they were measured to be; None: more than any plan takes, or none, because `local`'s own interval is too wide.
    """

    line: Carried
    target: str
    measured: int
    blocks: int | None
    local_too_wide: bool


def explain_differences(lines: Sequence[Carried], runs: Sequence[Evidence], target: str) -> list[Explained]:
    """Return every knob in the proxy's process whose time on a target is another than on `local`, with what explains it."""
    return [_explained(line, lines, runs, target) for line in _both(lines, target) if line.seconds(target) == "other"]


def list_undecided(lines: Sequence[Carried], target: str) -> list[Undecided]:
    """Return every knob in the proxy's process that nobody can tell of, with the blocks that would decide it."""
    return [_undecided(line, target) for line in _both(lines, target) if line.seconds(target) == "open"]


def _both(lines: Sequence[Carried], target: str) -> list[Carried]:
    return [line for line in lines if line.kind == "process" and {DEFAULT_TARGET, target} <= line.shown.keys()]


def _explained(line: Carried, lines: Sequence[Carried], runs: Sequence[Evidence], target: str) -> Explained:
    there = line.shown[target]
    cause = CAUSES.get((line.variant, target))
    if cause is not None:
        changes = [_step_change(step, runs) for step in cause.steps]
        known = [change for change in changes if change is not None]
        by = f"{' and '.join(f'{step.words} ({step.target})' for step in cause.steps)}: {cause.words}"
        together = _sum(known) if len(known) == len(changes) else None
        return Explained(line, target, there.cost.change, together, share=True, by=by)
    price = next((_price(each, target) for each in _both(lines, target) if each.variant == KNOWN_WORK), None)
    if line.variant == KNOWN_WORK:
        by = "it is the known work itself: what it costs is what CPU time is worth there"
        return Explained(line, target, there.cost.seconds, None, share=False, by=by)
    by = f"what the same known work ({KNOWN_WORK}) costs there, times {DEFAULT_TARGET}'s time; no step of the ladder is about it"
    predicted = None if price is None else _times(line.shown[DEFAULT_TARGET].cost.seconds, price)
    return Explained(line, target, there.cost.seconds, predicted, share=False, by=by)


def _step_change(step: LadderStep, runs: Sequence[Evidence]) -> Interval | None:
    """Return the log-ratio of a step with its interval, of the newest run that has it under the first of its names; None without one."""
    for variant in step.variants:
        for run in runs:
            if run.run.record.sweep != LADDER or run.run.record.target != step.target:
                continue
            rows = [row for summary in summaries(run) for row in summary.rows if row.arm.name == variant]
            for effect in (each for row in rows for each in row.effects if each.metric == METRIC):
                if effect.estimate is not None and effect.estimate.interval is not None:
                    return effect.estimate.effect, *effect.estimate.interval
    return None


def _price(line: Carried, target: str) -> Interval:
    """Return the log-ratio of what known work costs on a target to what it costs on `local`, with its interval."""
    there, here = ([log(each) for each in line.shown[where].cost.seconds] for where in (target, DEFAULT_TARGET))
    value = there[0] - here[0]
    half = hypot((there[2] - there[1]) / 2, (here[2] - here[1]) / 2)
    return value, value - half, value + half


def _sum(changes: Sequence[Interval]) -> Interval:
    """Return the sum of log-ratios that were measured apart: their squares add up."""
    value = sum(change[0] for change in changes)
    half = hypot(*((change[2] - change[1]) / 2 for change in changes))
    return value, value - half, value + half


def _times(seconds: Interval, price: Interval) -> Interval:
    """Return a time with its interval, multiplied by a log-ratio with its own."""
    value = seconds[0] * exp(price[0])
    relative = hypot((seconds[2] - seconds[1]) / 2 / seconds[0], (price[2] - price[1]) / 2)
    return value, value - abs(value) * relative, value + abs(value) * relative


def _undecided(line: Carried, target: str) -> Undecided:
    there, here = line.shown[target], line.shown[DEFAULT_TARGET]
    gap, _ = apart(there.seconds, here.seconds)
    worth = there.cost.level_s * WORTH
    wide_there, wide_here = ((each.seconds[2] - each.seconds[1]) / 2 for each in (there, here))
    allowed = max(abs(gap), worth - abs(gap)) / SURE
    if wide_here >= allowed:
        return Undecided(line, target, there.pairs, None, local_too_wide=True)
    blocks = round(there.pairs * wide_there**2 / (allowed**2 - wide_here**2) + 0.5)
    return Undecided(line, target, there.pairs, blocks if blocks <= MAX_BLOCKS else None, local_too_wide=False)
