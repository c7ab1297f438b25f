"""Cells → effects: each arm against its baseline, metric by metric, and whether that may be judged at this point.

Where the two were a pair, its ratio is the effect; where the design has solo samples decide, or a pair does not tell the metric, that of the
arms alone leads, and the pair's stands beside it. Refuses to claim anything but the primary metric. Of steady loads effects are
ratios; of disturbed ones differences in the metric's own unit, as most of it may be 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from math import expm1, hypot

from lab.analysis.aggregate.absolute import split_text
from lab.analysis.aggregate.cells import Cell, Cells, Pair, paired, resolution_s
from lab.analysis.aggregate.order import MissingByOrder
from lab.analysis.judge.decision import UNBOUNDED, Decision, Size, adjusted, decide, guard_of, worth_of
from lab.analysis.judge.rulings import LIMITED, Ruling, carrier, recovers, ruling
from lab.model.design import CONCURRENT, SHARED
from lab.model.metrics import CARRIED, DIFFERENCES, METRICS, QUANTILES, RATIOS, about, compared
from lab.model.names import WORTH
from lab.model.pairs import Scheme
from lab.model.plan import Arm, Place
from lab.model.sweeps import Point
from lab.stats import paired as stats
from lab.stats.histogram import BEYOND
from lab.stats.units import format_blocks, format_micros

ALONE = ("failed", "gap_s")
"""What a baseline that is measured with itself alone shows, beside a disturbance."""
SAME_P = 0.01
"""Lengths of slice that differ by more than this leaves to chance do not agree."""


@dataclass(frozen=True, slots=True)
class Effect:
    """One arm against its baseline in one metric at one point, over the blocks in which both have it.

    `estimate` None: no such block. `size`: what it is held to, of the estimate's kind (log-ratios; of a disturbance differences in the
    metric's own unit). `bound`: as `Ruling.bound`. `holm_p`: adjusted over the run's primary effects, or over all others. Where it is
    not judged `note` says why this point cannot show it (lab/analysis/judge/rulings.py has the rules), and of two clusters which they are. `scheme`: how the two were a pair, None:
    each alone. `beside`: the pair's effect, where the arms alone lead. `level_s`: of what costs a request time on a CPU, what it
    costs the baseline, alone where that was measured.
    """

    metric: str
    against: str
    estimate: stats.Estimate | None
    size: Size
    decision: Decision
    primary: bool
    note: str = ""
    bound: bool = False
    holm_p: float | None = None
    scheme: Scheme | None = None
    beside: stats.Estimate | None = None
    level_s: float | None = None

    @property
    def claimed(self) -> bool:
        """Better or worse, in the metric that may claim."""
        return self.decision.resolved and self.primary

    @property
    def marked(self) -> bool:
        """Better or worse, in another metric."""
        return self.decision.resolved and not self.primary

    @property
    def better(self) -> bool:
        return self.decision is Decision.BETTER

    @property
    def p_value(self) -> float | None:
        """Of the family, where it is one of it."""
        in_family = self.estimate and self.estimate.has_interval and self.decision.judged
        return self.estimate.p_value if self.estimate and in_family else None

    def decided(self, holm_p: float | None) -> Effect:
        """By the rule, where it is judged at all."""
        if self.estimate is None or not self.decision.judged:
            return self
        more = about(self.metric).better == "more"
        decision = decide(self.estimate, self.size, holm_p, more_is_better=more, bound=self.bound)
        note = UNBOUNDED if decision is Decision.NOT_JUDGED else self.note
        return replace(self, decision=decision, note=note, holm_p=holm_p)


Interval = tuple[float, float, float]
"""Value, lower and upper end."""


@dataclass(frozen=True, slots=True)
class Cost:
    """An effect on what a request costs, as seconds: per cent are of what it is compared with, and say less elsewhere.

    `level_s`: CPU seconds a request of what it is compared with; `change`: against that, as log-ratios. The interval is the ratio's, at the
    level as it was measured: how surely that is known is not in it.
    """

    level_s: float
    change: Interval

    @property
    def seconds(self) -> Interval:
        value, low, high = (self.level_s * expm1(end) for end in self.change)
        return value, low, high

    @property
    def text(self) -> str:
        """`+0.5 µs [+0.33, +0.67]`."""
        value, low, high = map(format_micros, self.seconds)
        return f"{value} µs [{low}, {high}]"


def cost_of(effect: Effect) -> Cost | None:
    """None where there is no interval, no level, or the metric is of nothing that a request costs."""
    if effect.level_s is None or effect.estimate is None or effect.estimate.interval is None:
        return None
    return Cost(effect.level_s, (effect.estimate.effect, *effect.estimate.interval))


def apart(one: Interval, other: Interval) -> tuple[float, float]:
    """(difference one − other, half the width of its 95 % interval): both were measured by themselves, so that their squares add up."""
    return one[0] - other[0], hypot((one[2] - one[1]) / 2, (other[2] - other[1]) / 2)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a run was asked. `primary`: arm → its metric; an arm without one claims nothing. `needs`: arm → what its effect needs and no
    sweep does: then nothing is judged. `solo`: where the design has solo samples decide, and why (`Design.places`). `worth`: the share from
    which on an effect is worth knowing.
    """

    primary: Mapping[str, str | None] = field(default_factory=dict[str, str | None])
    needs: Mapping[str, str] = field(default_factory=dict[str, str])
    solo: Mapping[Place, str] = field(default_factory=dict[Place, str])
    worth: float = WORTH


@dataclass(frozen=True, slots=True)
class Effects:
    """Of a run's cells."""

    cells: Cells
    asked: Asked
    missing: Mapping[str, MissingByOrder] = field(default_factory=dict[str, MissingByOrder])
    """Point → how its invalid samples depend on what was measured before: the samples that are left are the good half."""

    def table(self, places: Sequence[tuple[Arm, Point]]) -> list[tuple[Effect, ...]]:
        """Those of each place, decided: what is judged and primary, in the whole run, is one family of Holm's method, all else another.

        Empty of what is compared with nothing, and of control runs.
        """
        table = [
            () if arm.baseline is None or point.control else tuple(self._effects(arm, arm.baseline, point))
            for arm, point in places
        ]
        primary, others = (
            iter(adjusted([one.p_value for effects in table for one in effects if one.primary is each]))
            for each in (True, False)
        )
        return [tuple(one.decided(next(primary if one.primary else others)) for one in effects) for effects in table]

    def _effects(self, arm: Arm, baseline: str, point: Point) -> Iterator[Effect]:
        """What is judged cannot be told yet. Of a disturbance only what has a better side, was measured, or is asked for."""
        wanted, rulings, solo = self._wanted(arm, point), self._rulings(arm, point), self._solo(arm, point)
        alone, asked = self.cells.apart(arm, point), compared(point)
        for metric in [*asked, *sorted(wanted.difference(asked))]:
            sides, scheme, beside = self._sides(arm, point, metric)
            own, base = sides.own, sides.base
            primary, ruled = metric in wanted, rulings.get(metric, Ruling(f"{metric} are counted, not compared"))
            estimate, why = paired(own, base, metric), ruled.why
            decision = Decision.NOT_AVAILABLE
            split = split_text(own.known(metric), base.known(metric), metric, (arm.name, baseline)) if estimate else ""
            if split:
                estimate = None
            silent = METRICS[metric].better == "neither" or not (estimate or why)
            if point.disturbance is not None and silent and not primary:
                continue
            if split:
                decision, why = (Decision.NOT_JUDGED, why) if why else (Decision.BIMODAL, split)
            elif estimate is None and metric in QUANTILES and own.counted and base.counted:
                why = why or f"{metric} needs {BEYOND} requests beyond it in every sample"
            elif estimate is None and alone.unsteady is not None:
                whose = arm.name if alone.own.unsteady else baseline
                why = f"no effect is computed: of {whose}, {alone.unsteady.sentence()}"
            elif why and (estimate or point.disturbance is not None):
                decision = Decision.NOT_JUDGED
            elif estimate is not None:
                decision = Decision.A_A if arm.role == "again" else Decision.CANNOT_TELL
            least = guard(self.cells, baseline, point, metric, scheme is not None)
            size = size_of(metric, sides, least, self.asked.worth)
            size = replace(size, same=scheme is None or recovers(metric, scheme))
            of_pair = solo if solo == CONCURRENT or beside is not None else ""
            note = why or "; ".join(filter(None, [ruled.note, of_pair]))
            level_s, in_pair = alone.base.shown(metric) if METRICS[metric].cost else None, base.level(metric)
            if METRICS[metric].cost and level_s is None and in_pair is not None:
                level_s = in_pair.value
            yield Effect(
                metric, baseline, estimate, size, decision, primary, note, ruled.bound, None, scheme, beside, level_s
            )

    def _solo(self, arm: Arm, point: Point) -> str:
        """Return why solo samples decide although the two were, or could have been, a pair; empty where the pair does."""
        why = self.asked.solo.get((arm.name, point.name), "")
        return why if why in (CONCURRENT, SHARED) else ""

    def _sides(self, arm: Arm, point: Point, metric: str) -> tuple[Pair, Scheme | None, stats.Estimate | None]:
        """(whose ratio is the effect, how they were a pair, the pair's effect where the arms alone lead)"""
        pair, apart = self.cells.pair(arm.name, point), self.cells.apart(arm, point)
        if pair is None:
            return apart, None, None
        told = paired(pair.own, pair.base, metric) if lengths_agree(pair, metric) else None
        if self._solo(arm, point):
            return apart, None, told
        return (pair, point.scheme, None) if told is not None else (apart, None, None)

    def _rulings(self, arm: Arm, point: Point) -> dict[str, Ruling]:
        """Metric → whether it is judged here. An A/A pair is shown where a variant that relies on it is judged."""
        if point.disturbance is not None:
            apart = self.cells.apart(arm, point)
            return {metric: Ruling(untold(apart.own, apart.base, metric)) for metric in compared(point)}
        if needs := self.asked.needs.get(arm.name, ""):
            return dict.fromkeys([*RATIOS, "errors"], Ruling(f"needs {needs}"))
        missing = self.missing.get(point.name)
        if missing is not None and missing.concerns(arm):
            return dict.fromkeys([*RATIOS, "errors"], Ruling(missing.text))
        sides = {metric: self._sides(arm, point, metric)[0] for metric in RATIOS}
        found = {metric: ruling(metric, each.own, each.base, self._points) for metric, each in sides.items()}
        for user in self._users(arm):
            theirs = self._rulings(user, point)
            found |= {metric: Ruling() for metric in RATIOS if not theirs[metric].why}
        return found

    @property
    def _points(self) -> list[Point]:
        """The steady ones: a sweep with a disturbance says nothing of what they can show."""
        return [point for point in self.cells.plan.points if point.disturbance is None]

    def _users(self, arm: Arm) -> list[Arm]:
        """The variants that rely on an A/A pair."""
        others = self.cells.plan.arms if arm.role == "again" else ()
        return [other for other in others if other.role == "variant" and other.baseline == arm.baseline]

    def _wanted(self, arm: Arm, point: Point) -> set[str]:
        """The metrics of the effect column: what carries the arm's primary one; for an A/A pair those of the variants that rely on it."""
        users, own = self._users(arm), self.asked.primary.get(arm.name)
        asked = {metric for user in users for metric in self._wanted(user, point)}
        if point.disturbance is not None:
            carried = beside_disturbance(own)
            return ({carried} if carried else set[str]()) if arm.role == "variant" else asked or set(ALONE)
        rulings = self._rulings(arm, point)
        if arm.role == "variant":
            why = {metric: found.why for metric, found in rulings.items()}
            return {carrier(own, point, self._points, why)} if own else set()
        judged = {metric for metric in asked if metric in rulings and not rulings[metric].why}
        closed = "cpu_per_request" if rulings["rate"].why == LIMITED else "rate"
        return judged or {closed if point.rate_rps is None else "p99"} | (set() if users else {"cpu_per_request"})


def guard(cells: Cells, baseline: str, point: Point, metric: str, beside: bool) -> float:
    """Return what the baseline against itself forbids to claim, measured as it is judged: as a pair (`beside`), or each alone."""
    again = next((arm for arm in cells.plan.arms if arm.role == "again" and arm.baseline == baseline), None)
    sides = None if again is None else cells.pair(again.name, point) if beside else cells.apart(again, point)
    return guard_of(paired(sides.own, sides.base, metric)) if sides else 0.0


def size_of(metric: str, sides: Pair, least: float, worth: float) -> Size:
    """What an effect between two arms is held to. `least`: the guard. `worth`: a share, of differences that of the baseline's level, and no
    less than what the metric resolves.
    """
    if METRICS[metric].ratio:
        return Size(worth_of(worth), least)
    level, clock_s = sides.base.level(metric), max(sides.own.clock_error_s, sides.base.clock_error_s)
    resolved = resolution_s(metric, sides.base.point, clock_s)
    return Size(max(resolved, worth * abs(level.value) if level else 0.0), max(least, resolved))


def lengths_agree(pair: Pair, metric: str) -> bool:
    """Whether a pair in slices tells the metric: rates do where shorter and longer slices show the same one.

    A machine that was faster in some blocks had shorter ones there: there may be more lengths than two.
    """
    if metric != "rate" or pair.own.point.scheme != "slices":
        return True
    by_length: dict[float, list[float]] = {}
    for block, ratio in pair.log_ratios(metric).items():
        side = pair.own.counted[block].pair
        by_length.setdefault((side.slice_s if side else None) or 0.0, []).append(ratio)
    told = [by_length[length_s] for length_s in sorted(by_length)]
    split = [([*chain(*told[:at])], [*chain(*told[at:])]) for at in range(1, len(told))]
    shorter, longer = min(split, key=lambda each: abs(len(each[0]) - len(each[1])), default=((), ()))
    p_value = stats.apart_p(shorter, longer)
    return p_value is not None and p_value > SAME_P


def beside_disturbance(metric: str | None) -> str | None:
    """What stands for a primary metric beside a disturbance; None where nothing does."""
    found = CARRIED.get(metric or "", metric)
    return found if found in DIFFERENCES else None


def untold(own: Cell, base: Cell, metric: str, pairs: bool = True) -> str:
    """Why an outcome is not judged: it could not be told in blocks (of `pairs`: that both have); empty where it could."""
    mine, theirs = own.values.get(metric, {}), base.values.get(metric, {})
    if pairs:
        many = sum(mine[block] is None or theirs[block] is None for block in mine.keys() & theirs.keys())
    else:
        many = sum(value is None for side in (mine, theirs) for value in side.values())
    return f"it could not be told in {format_blocks(many)}, so the others do not show all of it" if many else ""
