"""The effects of a run: each arm (variant) against its baseline, metric by metric, and whether each may be judged.

If an arm and its baseline were a pair (measured at once), the effect is the ratio within the pair. If the design lets solo
samples (each arm measured alone) decide, the effect is that of solo samples, and the pair's effect is reported with it. If a
pair cannot show a metric, only the solo samples' effect is reported. Only an effect in the primary metric can be claimed.
Effects of steady loads are ratios. Those of disrupted loads are differences in the metric's own unit, as most values may be 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from math import expm1, hypot

from lab.analysis.aggregate.absolute import describe_split
from lab.analysis.aggregate.cells import ArmCell, CellPair, Cells, compute_resolution_s, estimate_effect
from lab.analysis.aggregate.order import MissingByOrder
from lab.analysis.judge.decision import (
    UNBOUNDED,
    Decision,
    Thresholds,
    adjust_p_values,
    compute_noise_floor,
    decide,
    to_log_margin,
)
from lab.analysis.judge.rulings import LIMITED, Ruling, choose_metric, recovers, rule_on
from lab.base.grouping import group_values
from lab.model.design import CONCURRENT, SHARED
from lab.model.metrics import (
    DIFFERENCES,
    EVENT_OUTCOME_OF_METRIC,
    MESSAGE_OUTCOME_OF_METRIC,
    METRICS,
    OUTCOME_OF_METRIC,
    QUANTILES,
    RATIOS,
    find_metric,
    list_compared_metrics,
)
from lab.model.names import EQUIVALENCE_MARGIN
from lab.model.pairs import Scheme
from lab.model.plan import Arm, ArmAndPoint
from lab.model.sweeps import LoadPoint
from lab.stats import paired as stats
from lab.stats.histogram import LEAST_BEYOND
from lab.stats.units import format_blocks, format_micros

ALWAYS_SHOWN_OUTCOMES = ("failed", "gap_s")
"""The outcomes of a disruption that are shown of a baseline against itself, unless a variant has others."""
NO_FLOOR = "the A/A noise floor of solo samples was not measured"
"""The note of a difference that is decided by its interval and p-value alone."""
LENGTHS_DIFFER_P = 0.01
"""The p-value up to which two lengths of slice do not agree: chance does not explain their difference."""


@dataclass(frozen=True, slots=True)
class Effect:
    """The effect of one arm (variant in a run) against its baseline in one metric at one load, over the blocks (repetitions).

    Attributes:
        metric: The metric's name in the catalogue.
        against: The name of the baseline that the arm is compared with.
        estimate: The effect with its interval: a log-ratio, or for a disruption a difference in the metric's own unit.
            It is None if no block has both values, or if the blocks fall into two clusters.
        size: The thresholds for the decision (equivalence margin and noise floor), on the effect's scale.
        decision: The decision about the effect.
        primary: True if the metric is the arm's primary one, the only one in which a difference is claimed.
        note: For an effect without a decision, the reason why the load cannot show it (`lab.analysis.judge.rulings`).
            For blocks in two clusters, the clusters. Otherwise a remark, or empty.
        bound: True if the load generator limited one side. The effect can be claimed, but the true one may be larger.
        holm_p: The p-value adjusted by Holm's method. Effects in primary metrics of the run are adjusted together, and
            all others together. It is None if the effect is not judged.
        scheme: The kind of pair (two arms measured at once) that gives the effect; None if solo samples (each arm
            measured alone) give it.
        pair_estimate: The pair's effect, if there is a pair but solo samples decide; otherwise None.
        level_s: For a metric of CPU time per request, the baseline's CPU seconds per request. They come from solo
            samples or, if there are none, from the pair. None for other metrics, or if unknown.

    """

    metric: str
    against: str
    estimate: stats.Estimate | None
    size: Thresholds
    decision: Decision
    primary: bool
    note: str = ""
    bound: bool = False
    holm_p: float | None = None
    scheme: Scheme | None = None
    pair_estimate: stats.Estimate | None = None
    level_s: float | None = None

    @property
    def claimed(self) -> bool:
        """True if the run claims this effect: it is decided as better or worse, and in the arm's primary metric."""
        return self.decision.resolved and self.primary

    @property
    def marked(self) -> bool:
        """True if the effect is decided as better or worse, but not in the primary metric.

        Tables only mark such an effect, because a run claims differences in the primary metric alone.
        """
        return self.decision.resolved and not self.primary

    @property
    def remark(self) -> str:
        """The note about this effect; for a difference without a measured noise floor, a sentence about that is added."""
        unfloored = self.decision.resolved and not self.size.floor_measured
        return "; ".join(filter(None, [self.note, NO_FLOOR if unfloored else ""]))

    @property
    def better(self) -> bool:
        """True if the decision about this effect is `better`."""
        return self.decision is Decision.BETTER

    @property
    def p_value(self) -> float | None:
        """The unadjusted p-value of this effect; None if it has no interval or is not judged.

        A run adjusts the p-values of its effects together, without those that are None.
        """
        in_family = self.estimate and self.estimate.has_interval and self.decision.judged
        return self.estimate.p_value if self.estimate and in_family else None

    def decided(self, holm_p: float | None) -> Effect:
        """Return this effect with its decision (`lab.analysis.judge.decision.decide`); an effect that is not judged is unchanged.

        Args:
            holm_p: The effect's p-value, adjusted by Holm's method; None if the effect has no p-value.

        """
        if self.estimate is None or not self.decision.judged:
            return self
        more_is_better = find_metric(self.metric).better == "more"
        decision = decide(self.estimate, self.size, holm_p, more_is_better=more_is_better, bound=self.bound)
        note = UNBOUNDED if decision is Decision.NOT_JUDGED else self.note
        return replace(self, decision=decision, note=note, holm_p=holm_p)


Interval = tuple[float, float, float]
"""A tuple of value, lower end and upper end."""


@dataclass(frozen=True, slots=True)
class EffectCost:
    """An effect on the CPU time of a request, in seconds instead of per cent.

    Seconds can be transferred to another baseline better than per cent, which depend on the baseline's cost. The
    interval is that of the ratio times the baseline's cost; the uncertainty of this cost is left out.

    Attributes:
        level_s: The CPU seconds per request of the baseline.
        change: The change against the baseline as log-ratios: (effect, lower end, upper end of its interval).

    """

    level_s: float
    change: Interval

    @property
    def seconds(self) -> Interval:
        """The change of a request's CPU time in seconds: (change, lower end, upper end of its interval)."""
        value, low, high = (self.level_s * expm1(end) for end in self.change)
        return value, low, high

    @property
    def text(self) -> str:
        """The change of a request's CPU time with its interval, for people: `+0.5 µs [+0.33, +0.67]`."""
        value, low, high = map(format_micros, self.seconds)
        return f"{value} µs [{low}, {high}]"


def compute_cost(effect: Effect) -> EffectCost | None:
    """Convert an effect on the CPU time of a request from a ratio to seconds.

    Returns:
        The effect in seconds. It is None if the effect has no interval, if the baseline's cost is unknown, or if the
        metric is not the cost of a request.

    """
    if effect.level_s is None or effect.estimate is None or effect.estimate.interval is None:
        return None
    return EffectCost(effect.level_s, (effect.estimate.effect, *effect.estimate.interval))


def subtract_intervals(first: Interval, second: Interval) -> tuple[float, float]:
    """Subtract two independently measured values, each with its 95 % interval.

    Args:
        first: (value, lower end, upper end).
        second: (value, lower end, upper end) of the value to subtract.

    Returns:
        (first − second, half the width of the difference's 95 % interval). The half width is the square root of the sum
        of both squared half widths.

    """
    return first[0] - second[0], hypot((first[2] - first[1]) / 2, (second[2] - second[1]) / 2)


@dataclass(frozen=True, slots=True)
class RunQuestions:
    """The questions that a run must answer, fixed before it was measured.

    Attributes:
        primary: Name of the arm (variant in the run) → its primary metric. For an arm without one (None) no difference
            is claimed.
        needs: Name of the arm → what its effect requires that no load of the lab has; empty if it requires nothing. If
            it requires something, the arm's effects get no decision.
        solo: (arm, load point) → the reason why solo samples (each arm measured alone) decide, as in `Design.places`.
            It is empty if the pair (both measured at once) decides.
        margin: The equivalence margin, as a share (0.02 = 2 %).

    """

    primary: Mapping[str, str | None] = field(default_factory=dict[str, str | None])
    needs: Mapping[str, str] = field(default_factory=dict[str, str])
    solo: Mapping[ArmAndPoint, str] = field(default_factory=dict[ArmAndPoint, str])
    margin: float = EQUIVALENCE_MARGIN


@dataclass(frozen=True, slots=True)
class Effects:
    """The effects of a run: each arm (variant) against its baseline at each load point, computed from the samples.

    Attributes:
        cells: The samples of each arm at each load point.
        asked: The questions that the run must answer.

    """

    cells: Cells
    asked: RunQuestions
    missing: Mapping[str, MissingByOrder] = field(default_factory=dict[str, MissingByOrder])
    """Point → how invalid samples there depend on what was measured before; nothing is judged from the valid rest."""

    def table(self, places: Sequence[tuple[Arm, LoadPoint]]) -> list[tuple[Effect, ...]]:
        """Return the effects, with their decisions, for each row of a table.

        The p-values are adjusted by Holm's method in two groups: those of effects in primary metrics, and those of all
        other effects. Effects that are not judged have no p-value.

        Args:
            places: The (arm, load point) of each row of the table.

        Returns:
            The effects of each row, in the same order. A row has none if its arm has no baseline, or if its point is a
            control run (a load without its disruption).

        """
        table = [
            () if arm.baseline is None or point.control else tuple(self._list_effects(arm, arm.baseline, point))
            for arm, point in places
        ]
        primary, secondary = (
            iter(
                adjust_p_values(
                    [effect.p_value for effects in table for effect in effects if effect.primary is is_primary]
                )
            )
            for is_primary in (True, False)
        )
        return [
            tuple(effect.decided(next(primary if effect.primary else secondary)) for effect in effects)
            for effects in table
        ]

    def _list_effects(self, arm: Arm, baseline: str, point: LoadPoint) -> Iterator[Effect]:
        """Yield the effects of an arm (variant) at a load point as they are before decisions are made.

        An effect that will get a decision is yielded as inconclusive. A disruption has an effect in each primary
        metric, and in each metric that was measured and of which less or more is better.
        """
        primary_metrics, rulings, solo = (
            self._list_primary_metrics(arm, point),
            self._list_rulings(arm, point),
            self._explain_solo(arm, point),
        )
        solo_cells, metrics = self.cells.apart(arm, point), list_compared_metrics(point)
        for metric in [*metrics, *sorted(primary_metrics.difference(metrics))]:
            sides, scheme, pair_estimate = self._choose_sides(arm, point, metric)
            arm_cell, base_cell = sides.own, sides.base
            primary, ruled = (
                metric in primary_metrics,
                rulings.get(metric, Ruling(f"{metric} are counted, not compared")),
            )
            estimate, reason = estimate_effect(arm_cell, base_cell, metric), ruled.why
            decision = Decision.NOT_AVAILABLE
            split = (
                describe_split(arm_cell.known(metric), base_cell.known(metric), metric, (arm.name, baseline))
                if estimate
                else ""
            )
            estimate = None if split else estimate
            silent = METRICS[metric].better == "neither" or not (estimate or reason)
            if point.has_outcome and silent and not primary:
                continue
            if split:
                decision, reason = (Decision.NOT_JUDGED, reason) if reason else (Decision.BIMODAL, split)
            elif estimate is None and metric in QUANTILES and arm_cell.counted and base_cell.counted:
                reason = reason or f"{metric} needs {LEAST_BEYOND} requests beyond it in every sample"
            elif estimate is None and solo_cells.unsteady is not None:
                unsteady_arm = arm.name if solo_cells.own.unsteady else baseline
                reason = f"no effect is computed: of {unsteady_arm}, {solo_cells.unsteady.sentence()}"
            elif reason and (estimate or point.has_outcome):
                decision = Decision.NOT_JUDGED
            elif estimate is not None:
                decision = Decision.A_A if arm.role == "again" else Decision.INCONCLUSIVE
            noise_floor, measured = find_noise_floor(self.cells, baseline, point, metric, scheme is not None)
            size = compute_thresholds(metric, sides, noise_floor, self.asked.margin)
            may_be_equivalent = scheme is None or recovers(metric, scheme)
            size = replace(size, may_be_equivalent=may_be_equivalent, floor_measured=measured)
            pair_note = solo if solo == CONCURRENT or pair_estimate is not None else ""
            note = reason or "; ".join(filter(None, [ruled.note, pair_note]))
            level_s, pair_level = (
                solo_cells.base.shown(metric) if METRICS[metric].cost else None,
                base_cell.level(metric),
            )
            if METRICS[metric].cost and level_s is None and pair_level is not None:
                level_s = pair_level.value
            yield Effect(
                metric,
                baseline,
                estimate,
                size,
                decision,
                primary,
                note,
                ruled.bound,
                None,
                scheme,
                pair_estimate,
                level_s,
            )

    def _explain_solo(self, arm: Arm, point: LoadPoint) -> str:
        """Return why solo samples (each variant measured alone) decide at a load point, and not the pair (both measured at once).

        The result is empty if the pair decides.
        """
        reason = self.asked.solo.get((arm.name, point.name), "")
        return reason if reason in (CONCURRENT, SHARED) else ""

    def _choose_sides(
        self, arm: Arm, point: LoadPoint, metric: str
    ) -> tuple[CellPair, Scheme | None, stats.Estimate | None]:
        """Choose whether a pair (both arms measured at once) or solo samples give the effect of an arm (variant) in a metric.

        Returns:
            A tuple of three parts:

            - The samples of the arm and its baseline whose ratio is the effect.
            - The scheme of the pair (how its sides are loaded) if the pair gives the effect; None for solo samples.
            - The pair's effect, if solo samples give the effect although there is a usable pair; otherwise None.

        """
        pair, solo_cells = self.cells.pair(arm.name, point), self.cells.apart(arm, point)
        if pair is None:
            return solo_cells, None, None
        estimate = estimate_effect(pair.own, pair.base, metric) if lengths_agree(pair, metric) else None
        if self._explain_solo(arm, point):
            return solo_cells, None, estimate
        return (pair, point.scheme, None) if estimate is not None else (solo_cells, None, None)

    def _list_rulings(self, arm: Arm, point: LoadPoint) -> dict[str, Ruling]:
        """Return metric → the ruling on whether the arm's effect in this metric may get a decision at a load point.

        For the baseline against itself (A/A), a metric may also get a decision if it may for any variant with this
        baseline.
        """
        if needs := self.asked.needs.get(arm.name, ""):
            return dict.fromkeys([*RATIOS, "errors", *list_compared_metrics(point)], Ruling(f"needs {needs}"))
        if point.has_outcome:
            solo_cells = self.cells.apart(arm, point)
            return {
                metric: Ruling(explain_unknown(solo_cells.own, solo_cells.base, metric))
                for metric in list_compared_metrics(point)
            }
        missing = self.missing.get(point.name)
        if missing is not None and missing.concerns(arm):
            return dict.fromkeys([*RATIOS, "errors"], Ruling(missing.text))
        sides = {metric: self._choose_sides(arm, point, metric)[0] for metric in RATIOS}
        rulings = {
            metric: rule_on(metric, cells.own, cells.base, self._steady_points) for metric, cells in sides.items()
        }
        for user in self._list_users(arm):
            of_user = self._list_rulings(user, point)
            rulings |= {metric: Ruling() for metric in RATIOS if not of_user[metric].why}
        return rulings

    @property
    def _steady_points(self) -> list[LoadPoint]:
        """The load points of a run's plan that are steady: without disruptions, streams of events and WebSockets."""
        return [point for point in self.cells.plan.points if not point.has_outcome]

    def _list_users(self, arm: Arm) -> list[Arm]:
        """Return the variants that are compared with the same baseline as an A/A arm; empty for any other arm.

        An A/A arm is a second measurement of a baseline. It shows the noise floor for all variants with that baseline:
        the size of effect up to which no difference is decided.
        """
        arms = self.cells.plan.arms if arm.role == "again" else ()
        return [candidate for candidate in arms if candidate.role == "variant" and candidate.baseline == arm.baseline]

    def _list_primary_metrics(self, arm: Arm, point: LoadPoint) -> set[str]:
        """Return the primary metrics of an arm at a load point: the only metrics in which a run claims a difference.

        For a variant, this is its primary metric, or the metric that replaces it at this point. The set is empty if the
        variant has no primary metric, or if none of the point's outcomes corresponds to it.

        For a baseline against itself (A/A), these are the primary metrics of all variants with this baseline. At a
        steady load, metrics that cannot be judged are left out. If none remains, the defaults are:

        - for disruptions, streams of events and WebSockets: `ALWAYS_SHOWN_OUTCOMES`
        - for a closed loop: `rate`, or `cpu_per_request` if the load generator limited the rate
        - for an offered rate: `p99`
        - for every steady load, if no variant has this baseline: `cpu_per_request` in addition
        """
        users, own_primary = self._list_users(arm), self.asked.primary.get(arm.name)
        of_users = {metric for user in users for metric in self._list_primary_metrics(user, point)}
        if point.has_outcome:
            carried = outcome_metric(own_primary, point)
            return (
                ({carried} if carried else set[str]())
                if arm.role == "variant"
                else of_users or set(ALWAYS_SHOWN_OUTCOMES)
            )
        rulings = self._list_rulings(arm, point)
        if arm.role == "variant":
            reasons = {metric: ruled.why for metric, ruled in rulings.items()}
            return {choose_metric(own_primary, point, self._steady_points, reasons)} if own_primary else set()
        judged = {metric for metric in of_users if metric in rulings and not rulings[metric].why}
        closed = "cpu_per_request" if rulings["rate"].why == LIMITED else "rate"
        return judged or {closed if point.rate_rps is None else "p99"} | (set() if users else {"cpu_per_request"})


def find_noise_floor(cells: Cells, baseline: str, point: LoadPoint, metric: str, as_pair: bool) -> tuple[float, bool]:
    """Return the A/A noise floor of a baseline, which is the effect that the baseline shows against itself.

    If pairs are measured, a baseline has no second solo arm (measured alone). The floor of solo effects is then unknown.
    The floor of pairs is returned as its lower bound, because solo samples contain the noise that pairs remove.

    Args:
        cells: The samples of the run by arm and load point.
        baseline: The name of the baseline.
        point: The load point.
        metric: The metric's name in the catalogue.
        as_pair: True to compare the baseline and its repetition as measured at once (as a pair), False to compare them
            as each measured alone.

    Returns:
        Two parts: the floor, as a log-ratio, or for a disruption as a difference in the metric's own unit; and whether
        it was measured in the requested way. Without any measurement in six blocks or more, they are (0, False).

    """
    again = next((arm for arm in cells.plan.arms if arm.role == "again" and arm.baseline == baseline), None)
    pair = cells.pair(again.name, point) if again else None
    ways = [pair] if as_pair or again is None else [cells.apart(again, point), pair]
    for sides in ways:
        estimate = estimate_effect(sides.own, sides.base, metric) if sides else None
        if estimate is not None and estimate.has_interval:
            return compute_noise_floor(estimate), sides is ways[0]
    return 0.0, False


def compute_thresholds(metric: str, sides: CellPair, noise_floor: float, margin: float) -> Thresholds:
    """Return the thresholds that an effect between two arms (variants) is compared with.

    Args:
        metric: The metric's name in the catalogue.
        sides: The samples of the two arms.
        noise_floor: The A/A noise floor (the effect of the baseline against itself): a log-ratio, or for a disruption a
            difference in the metric's own unit.
        margin: The equivalence margin as a share. If the metric is compared by difference, the margin is this share of
            the baseline's absolute value, and at least the smallest difference that the metric resolves.

    """
    if METRICS[metric].ratio:
        return Thresholds(to_log_margin(margin), noise_floor)
    level, clock_s = sides.base.level(metric), max(sides.own.clock_error_s, sides.base.clock_error_s)
    resolved = compute_resolution_s(metric, sides.base.point, clock_s)
    return Thresholds(max(resolved, margin * abs(level.value) if level else 0.0), max(noise_floor, resolved))


def lengths_agree(pair: CellPair, metric: str) -> bool:
    """Return whether a pair can show a ratio of rates: the ratio is independent of the length of the pair's time slices.

    An interleaved pair runs its two arms (variants) in alternating slices of time. Some blocks (repetitions) have short
    slices and others long ones, and the ratios of both groups are compared. The result is False if they differ, or if a
    group has fewer than two blocks. It is True for other kinds of pairs and for all other metrics.

    Args:
        pair: The samples of both sides of the pair.
        metric: The metric's name in the catalogue.

    """
    if metric != "rate" or pair.own.point.scheme != "slices":
        return True
    sides = {block: sample.pair for block, sample in pair.own.counted.items()}
    lengths_s = {block: (side.slice_s if side else None) or 0.0 for block, side in sides.items()}
    by_length = group_values((lengths_s[block], ratio) for block, ratio in pair.log_ratios(metric).items())
    groups = [by_length[length_s] for length_s in sorted(by_length)]
    splits = [([*chain(*groups[:index])], [*chain(*groups[index:])]) for index in range(1, len(groups))]
    shorter, longer = min(splits, key=lambda split: abs(len(split[0]) - len(split[1])), default=((), ()))
    p_value = stats.compute_welch_p(shorter, longer)
    return p_value is not None and p_value > LENGTHS_DIFFER_P


def outcome_metric(metric: str | None, point: LoadPoint) -> str | None:
    """Return the outcome of a load point that corresponds to a variant's primary metric; None if there is none.

    An outcome is a metric of a disruption or of streams of events or WebSockets, such as `failed`.
    """
    own_rate = MESSAGE_OUTCOME_OF_METRIC if point.websocket else EVENT_OUTCOME_OF_METRIC
    outcomes = OUTCOME_OF_METRIC if point.disturbance is not None else own_rate
    carried = outcomes.get(metric or "", metric)
    return carried if carried in DIFFERENCES else None


def explain_unknown(arm: ArmCell, base: ArmCell, metric: str, pairs: bool = True) -> str:
    """Return the reason why an outcome of a disruption gets no decision: its value is unknown in some blocks (repetitions).

    The reason is empty if the value is known in all blocks.

    Args:
        arm: The samples of the arm.
        base: The samples of the arm that it is compared with.
        metric: The metric's name in the catalogue.
        pairs: True if both are arms of one run, so that only blocks that both have are examined. False if they are of
            two runs, so that all blocks are examined.

    """
    arm_values, base_values = arm.values.get(metric, {}), base.values.get(metric, {})
    common = arm_values.keys() & base_values.keys()
    count = (
        sum(arm_values[block] is None or base_values[block] is None for block in common)
        if pairs
        else sum(value is None for side in (arm_values, base_values) for value in side.values())
    )
    return f"it is unknown in {format_blocks(count)}, so the others do not show all of it" if count else ""
