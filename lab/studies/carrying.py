"""Does it carry over? What each knob does to a request's cost on every target on which its pairs are committed, and what `local` says of the others.

    ingress-nginx+access-log-off  local −3.1 µs of 16.7, −18.6 %;  apiserver −4.6 µs of 37.2, −12.4 %   →   another time, another share

Everything is of data/reference: no list says which knobs. Refuses to pool targets or loads, and to take what was not measured in pairs. By
the lab's one rule: two effects are the same where their difference's 95 % interval lies within what is worth knowing of a request there,
others where it excludes 0, else nobody can tell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import hypot, log
from typing import Literal

from lab.analysis.costs import Cost, Interval, apart, cost_of
from lab.analysis.judge.decision import worth_of
from lab.analysis.evidence import Evidence
from lab.analysis.judge.rows import Row
from lab.model.names import DEFAULT_TARGET, WORTH
from lab.model.sweeps import Point
from lab.model.variants.knobs import Cost as Kind
from lab.stats import paired as stats
from lab.studies import matrix
from lab.studies.steps import summaries

METRIC = "cpu_per_request"
"""What pairs tell at every load, and what is a time and a share at once."""
Held = Literal["same", "other", "open"]


@dataclass(frozen=True, slots=True)
class Shown:
    """A knob's effect on one target, by one run. `doubt`: half the width of its level's 95 % interval, as a share of it; of fewer blocks than
    have one, all that they range over.
    """

    run: str
    pairs: int
    cost: Cost
    doubt: float

    @property
    def seconds(self) -> Interval:
        """As `Cost.seconds`, wider by what is not known of the level."""
        value, low, high = self.cost.seconds
        more = abs(value) * self.doubt
        return value, value - hypot(value - low, more), value + hypot(high - value, more)


@dataclass(frozen=True, slots=True)
class Carried:
    """One knob at one load. `kind`: where its cost can lie, as annotated; `why`: target → why it has nothing in `shown`."""

    variant: str
    against: str
    kind: Kind
    point: Point
    shown: Mapping[str, Shown]
    why: Mapping[str, str]

    def seconds(self, target: str) -> Held:
        """Whether `local`'s seconds are the target's."""
        there = self.shown[target]
        return _held(there.seconds, self.shown[DEFAULT_TARGET].seconds, there.cost.level_s * WORTH)

    def shares(self, target: str) -> Held:
        """Whether `local`'s share is the target's."""
        return _held(self.shown[target].cost.change, self.shown[DEFAULT_TARGET].cost.change, worth_of(WORTH))


@dataclass(frozen=True, slots=True)
class Predicted:
    """Of the knobs of one kind that `local` and this target have both: for how many `local`'s seconds and shares are those there."""

    kind: Kind
    target: str
    knobs: int
    seconds: Mapping[Held, int]
    shares: Mapping[Held, int]


def _held(there: Interval, here: Interval, worth: float) -> Held:
    gap, half = apart(there, here)
    if abs(gap) + half <= worth:
        return "same"
    return "other" if abs(gap) > half else "open"


def carried(runs: Sequence[Evidence]) -> list[Carried]:
    """Every knob with committed pairs on two targets or more at one load, by name: at the load that most targets have, closed loops first."""
    found: dict[tuple[str, str], dict[Point, dict[str, Shown]]] = {}
    kinds: dict[tuple[str, str], Kind] = {}
    for run in runs:
        for knob, kind, point, shown in _of(run):
            kinds.setdefault(knob, kind)
            targets = found.setdefault(knob, {}).setdefault(point, {})
            known = targets.get(run.run.record.target)
            if known is None or shown.pairs > known.pairs:  # else the newest, which comes first
                targets[run.run.record.target] = shown
    lines: list[Carried] = []
    for knob, loads in sorted(found.items()):
        point = max(loads, key=lambda each: (len(loads[each]), each.rate_rps is None))
        if len(loads[point]) > 1:
            why = {each: _why(each, knob[0]) for each in matrix.places() if each not in loads[point]}
            lines.append(Carried(*knob, kinds[knob], point, loads[point], why))
    return lines


def _of(run: Evidence) -> Iterator[tuple[tuple[str, str], Kind, Point, Shown]]:
    """(variant and its baseline, kind, load, effect) of what is a knob, was measured in pairs and has an interval."""
    record = run.run.record
    if not record.pairs:
        return
    variants = {arm.name: record.variants[arm.variant] for arm in record.arms if arm.variant in record.variants}
    for row in (row for summary in summaries(run)[:1] for row in summary.rows if row.pair is not None):
        variant, base = variants[row.arm.name], variants.get(row.arm.baseline or "")
        if row.arm.role != "variant" or not variant.own_knobs or base is None or base.name != variant.baseline:
            continue
        effect = next((each for each in row.effects if each.metric == METRIC), None)
        cost = cost_of(effect) if effect is not None else None
        if effect is not None and effect.estimate is not None and cost is not None:
            kind: Kind = "shared" if variant.shared_cost else "process"
            shown = Shown(run.name, effect.estimate.n, cost, _doubt(row))
            yield (variant.name, base.name), kind, _load(row.point), shown


def _doubt(row: Row) -> float:
    alone = list(row.base.known(METRIC).values()) if row.base else []
    level = stats.middle(alone) if alone else None
    if level is not None and level.low is not None and level.high is not None:
        return (level.high - level.low) / 2 / level.value
    several = alone if len(alone) > 1 or row.pair is None else list(row.pair.base.known(METRIC).values())
    return log(max(several) / min(several)) if several else 0.0


def _load(point: Point) -> Point:
    """Less what says for how long and how often it is made: that changes how surely something is known, and not what."""
    how_long = {"duration_s": 0.0, "warmup_s": 0.0, "generations": 1, "repeats": 1, "singly": False}
    return point.model_copy(update={"threads": 1, "threads_at_most": None, **how_long})


def _why(target: str, variant: str) -> str:
    cell = matrix.of_variants(target, [variant])
    told = {"works": "it comes up there", "measured": "not in pairs at this load", "not possible": cell.said}
    return told.get(cell.kind, "not measured there")


def predicted(lines: Sequence[Carried]) -> list[Predicted]:
    """For each kind of cost and each other target that has one of these beside `local`."""
    found: list[Predicted] = []
    pairs: dict[tuple[Kind, str], None] = {(line.kind, target): None for line in lines for target in matrix.places()}
    for kind, target in pairs:
        both = [line for line in lines if line.kind == kind and {DEFAULT_TARGET, target} <= line.shown.keys()]
        if both and target != DEFAULT_TARGET:
            seconds: Counter[Held] = Counter(each.seconds(target) for each in both)
            shares: Counter[Held] = Counter(each.shares(target) for each in both)
            found.append(Predicted(kind, target, len(both), seconds, shares))
    return sorted(found, key=lambda each: (each.kind, each.target))
