"""The rows of a comparison: two sides in one metric at one point, whether they are compared, what is decided.

The two sides are two arms of one run, or one arm of each of two runs. A row also reports how much the baseline that two
runs have in common changed between them. Two sides are not compared if different generators measured them, if the rulings
(`lab.analysis.judge.rulings`) exclude it, or if samples could not show the metric.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import comb

from lab.analysis.aggregate.absolute import describe_split
from lab.analysis.aggregate.cells import ArmCell, CellPair, estimate_effect
from lab.analysis.judge.decision import ALPHA, UNBOUNDED, Decision, Thresholds, adjust_p_values, decide
from lab.analysis.judge.effects import (
    ALWAYS_SHOWN_OUTCOMES,
    NO_FLOOR,
    Effect,
    compute_thresholds,
    explain_unknown,
    find_noise_floor,
)
from lab.analysis.judge.meeting import CellStats, ComparedRuns
from lab.analysis.judge.rulings import Ruling, describe_failures, rule_on
from lab.model.design import CONCURRENT
from lab.model.metrics import METRICS, QUANTILES, find_metric, list_compared_metrics
from lab.model.plan import Arm
from lab.model.run import RunRecord, VariantRecord
from lab.model.sweeps import LoadPoint
from lab.stats import paired as stats
from lab.stats.histogram import LEAST_BEYOND
from lab.stats.units import format_blocks
from lab.stats.unpaired import estimate_unpaired_difference, estimate_unpaired_ratio

NOT_STEADY = "not steady"
"""The beginning of the reason why nothing is compared if samples of an arm change within themselves."""
NO_COMMON_BLOCK = "no block in which both are valid"
TWO_CLUSTERS = "its blocks fall into two clusters, so that no difference describes it"
WITHIN_NOISE_FLOOR = "surer than chance, but the baseline against itself shows as much as"
WHY_OPEN = (WITHIN_NOISE_FLOOR, UNBOUNDED)
"""The beginnings of notes that come with a decision."""
TOO_FEW = "comparisons of so few blocks"


@dataclass(frozen=True, slots=True)
class ComparedRow:
    """One row of a comparison: the second side (`other`) against the first side (`base`) in one metric at one load point.

    The sides are two arms (variants) of one run, or an arm in each of two runs.

    Attributes:
        point: The load point.
        metric: The metric's name in the catalogue.
        title: The metric's name for people.
        unit: The unit in which the metric is shown.
        more_is_better: True if a larger value of the metric is better.
        relative: True if `estimate` and `size` are log-ratios, False if they are differences in the metric's own unit.
        base: The numbers of the first side.
        other: The numbers of the second side.
        estimate: The effect of the second side against the first; None if the two are not compared.
        size: The thresholds for the decision (equivalence margin and noise floor). They are those of the run's table if
            it has this effect. If not, the noise floor is the larger A/A noise floor (effect of a baseline against
            itself) of the two sides.
        decision: The decision about the effect.
        holm_p: The p-value, adjusted by Holm's method; None without an interval.
        notes: Notes for the reader of the row. For a row that is not judged, they include the reason.
        primary: True if the run's table claims differences in this metric. The p-values of such rows are adjusted
            together.
        baseline_move: For two runs, how much this metric changed between them for the baseline that both have with
            equal manifests. None without such a baseline.
        bound: True if the load generator limited one side, so that its number is only a bound
            (`lab.analysis.judge.rulings`). An effect that is neither better nor worse may then have any size.

    """

    point: LoadPoint
    metric: str
    title: str
    unit: str
    more_is_better: bool
    relative: bool
    base: CellStats
    other: CellStats
    estimate: stats.Estimate | None
    size: Thresholds
    decision: Decision
    holm_p: float | None
    notes: tuple[str, ...]
    primary: bool = False
    baseline_move: stats.Estimate | None = None
    bound: bool = False
    counted: tuple[int, int] = (0, 0)
    """The numbers (base, other) of valid blocks, whatever the metric."""
    begun: tuple[int, int] = (0, 0)
    """The numbers (base, other) of blocks that were begun."""

    @property
    def tested(self) -> bool:
        """True if the row's p-value takes part in the joint adjustment by Holm's method.

        It does not take part if the row has no interval, or if all values of both sides are equal. In the latter case
        the p-value can only be 1, so it may be left out without a bias (Tarone 1990).
        """
        has_p = self.estimate is not None and self.estimate.has_interval and self.estimate.p_value is not None
        return has_p and len({*self.base.values.values(), *self.other.values.values()}) > 1

    def decided(self, decision: Decision, holm_p: float | None, primary: bool = False) -> ComparedRow:
        """Return this row with its decision and, if no difference is claimed for a known reason, a note with the reason.

        Args:
            decision: The decision.
            holm_p: The p-value, adjusted by Holm's method. None for fewer than six blocks (repetitions), or if nothing
                is compared.
            primary: True if the run's table claims differences in the row's metric.

        """
        is_surer = decision is Decision.INCONCLUSIVE and holm_p is not None and holm_p <= ALPHA
        reasons = (
            UNBOUNDED if decision is Decision.NOT_JUDGED else "",
            NO_FLOOR if decision.resolved and not self.size.floor_measured else "",
            f"{WITHIN_NOISE_FLOOR} {find_metric(self.metric).size(self.size.noise_floor)}" if is_surer else "",
        )
        notes = tuple(dict.fromkeys([*self.notes, *filter(None, reasons)]))
        return replace(self, decision=decision, holm_p=holm_p, primary=primary, notes=notes)

    @property
    def pair(self) -> tuple[str, str]:
        """The names of the two arms (variants) that the row compares: (first side, second side)."""
        return self.base.arm, self.other.arm

    @property
    def arms(self) -> str:
        """The names of the two compared arms (variants) for people: `keepalive against baseline`; one name if they are equal."""
        base, other = self.pair
        return other if base == other else f"{other} against {base}"

    @property
    def place(self) -> str:
        """The compared arms (variants) and the load point of the row, for people: `keepalive against baseline at ceiling`."""
        return f"{self.arms} at {self.point.name}"

    @property
    def fell(self) -> str:
        """The phrase about how often the second side failed, if it failed in more samples than the first; otherwise empty.

        Example: `6 of 10 blocks, proxy-died 4`. It has the number of blocks (repetitions) with a result, and the
        reasons of the failures.
        """
        return describe_failures(
            self.other.invalid, self.base.invalid, f"{self.counted[1]} of {format_blocks(self.begun[1])}"
        )

    @property
    def unserved(self) -> bool:
        """True if the first side served its offered rate and the second side did not.

        The second side then has no valid block (repetition). For disrupted loads it is always False.
        """
        base, other = self.counted
        return self.relative and base > 0 and not other and any(reason.unserved for reason in self.other.invalid)

    @property
    def beyond_baseline(self) -> bool:
        """True if the effect between two runs is clearly larger than the change of their common baseline.

        The whole interval of the effect must lie beyond the largest change that the baseline's interval allows. If one
        of the two has no interval, it is False. Without a common baseline, and within one run, it is always True.
        """
        if self.baseline_move is None:
            return True
        interval, move = self.estimate.interval if self.estimate else None, self.baseline_move.interval
        if interval is None or move is None:
            return False
        largest = max(map(abs, move))
        return interval[0] > largest or interval[1] < -largest


def format_change(row: ComparedRow, estimate: stats.Estimate) -> str:
    """Format an effect in the row's metric for people, with its interval if it has one: `−8.2 % [−9.1, −7.3]`."""
    metric = find_metric(row.metric)
    return metric.change(estimate.effect) + (metric.ends(*estimate.interval) if estimate.interval else " (no interval)")


def build_rows(
    meeting: ComparedRuns,
    points: Sequence[LoadPoint],
    pairs: Sequence[tuple[Arm, Arm]],
    requested: Collection[str],
    effects: Mapping[tuple[str, str, str], Effect],
) -> Iterator[ComparedRow]:
    """Yield the rows of a comparison: one for each load point, pair of arms and metric.

    There is no row if one of the two arms is not planned at the point. The rows have no decision yet, except those that
    take it from the run's table.

    Args:
        meeting: The two runs that are compared; for arms of one run, this run twice.
        points: The load points of the first run to compare at.
        pairs: The arms (variants) to compare: (arm of the first run, arm of the second).
        requested: Outcomes of disruptions that get a row even if they are 0 in every block (repetition).
        effects: For one run, (arm, load point, metric) → the effect in its table, whose decision the row takes. Empty
            for two runs.

    """
    for point, (base_arm, other_arm) in product(points, pairs):
        base = meeting.base.at(base_arm.name, point.name)
        other = meeting.other.at(other_arm.name, meeting.points[point.name].name)
        if base is not None and other is not None:
            for metric in _list_outcomes(base, other, requested) if point.has_outcome else list_compared_metrics(point):
                yield _build_row(meeting, base, other, metric, effects.get((other_arm.name, point.name, metric)))


def _list_outcomes(base: ArmCell, other: ArmCell, requested: Collection[str]) -> Iterator[str]:
    """Yield the outcomes of a disruption that get a row in a comparison of two arms (variants).

    An outcome (metric of a disruption) gets a row if less or more of it is better, and if it is not 0 in every block
    (repetition) of both arms. Outcomes that are requested, or that tables always show, may be 0. If neither arm has a
    valid block, only ALWAYS_SHOWN_OUTCOMES and the requested outcomes get a row.

    Args:
        base: The samples of the first arm.
        other: The samples of the second arm.
        requested: The names of the requested outcomes.

    """
    if not base.values and not other.values:
        yield from dict.fromkeys((*ALWAYS_SHOWN_OUTCOMES, *requested))
    for metric in list_compared_metrics(base.point):
        values = [*base.values.get(metric, {}).values(), *other.values.get(metric, {}).values()]
        visible = METRICS[metric].always or metric in requested or any(value != 0 for value in values)
        if METRICS[metric].better != "neither" and values and visible:
            yield metric


def _build_row(
    meeting: ComparedRuns, base: ArmCell, other: ArmCell, metric: str, table_effect: Effect | None
) -> ComparedRow:
    relative, point = not base.point.has_outcome, base.point
    paired_with = meeting.base.cells.pair(other.arm.name, point) if table_effect and table_effect.scheme else None
    sides = paired_with or CellPair(other, base)
    ruled, entry = _rule_on(meeting, sides.base, sides.own, metric), METRICS[metric]
    split = "" if ruled.why else _describe_split(meeting, sides, metric)
    move = None if ruled.why else _estimate_baseline_move(meeting, base, other, metric)
    if table_effect:
        size = table_effect.size
    else:  # an arm that is compared with nothing has the noise floor of itself
        floors = [
            find_noise_floor(run.cells, cell.arm.baseline or cell.arm.name, cell.point, metric, as_pair=False)
            for run, cell in ((meeting.base, base), (meeting.other, other))
        ]
        size = compute_thresholds(metric, sides, max(floor for floor, _ in floors), meeting.margin)
        size = replace(size, floor_measured=all(measured for _, measured in floors))
    row = ComparedRow(
        point=point,
        metric=metric,
        title=entry.short,
        unit=entry.unit,
        more_is_better=entry.better == "more",
        relative=relative,
        base=meeting.base.stats(base, metric, sides.base),
        other=meeting.other.stats(other, metric, sides.own),
        estimate=None if ruled.why or split else _estimate_effect(meeting, sides.own, sides.base, metric),
        size=size,
        decision=Decision.NOT_JUDGED,
        holm_p=None,
        notes=(),
        baseline_move=move,
        bound=ruled.bound,
        counted=(len(sides.base.counted), len(sides.own.counted)),
        begun=(sides.base.tried, sides.own.tried),
    )
    lonely = "" if ruled.why or split or row.estimate else NO_COMMON_BLOCK
    concurrent = CONCURRENT if table_effect and CONCURRENT in table_effect.note else ""
    moved = (
        f"the baseline itself, the same in both runs, moved by {format_change(row, move)}"
        if move is not None and (move.effect, move.interval) != (0.0, (0.0, 0.0))
        else ""
    )
    notes = [
        *meeting.remarks(base, other),
        ruled.why,
        ruled.note,
        split,
        lonely,
        concurrent,
        *_list_estimate_notes(row),
        moved,
    ]
    row = replace(row, notes=tuple(dict.fromkeys(filter(None, notes))))
    return (
        row.decided(table_effect.decision, table_effect.holm_p, table_effect.primary)
        if table_effect and row.estimate
        else row
    )


def _describe_split(meeting: ComparedRuns, sides: CellPair, metric: str) -> str:
    """Describe the two clusters that the values of one of the two sides fall into, by block (repetition).

    With two clusters, no difference is estimated, because no average describes them. If both sides are of one run, the
    ratios of the two sides by block are examined as well. The text is empty without such clusters.
    """
    arm_values, base_values = sides.own.known(metric), sides.base.known(metric)
    names = sides.own.arm.name, sides.base.arm.name
    separate = arm_values if meeting.paired else {-1 - block: value for block, value in arm_values.items()}
    clusters = describe_split(separate, base_values, metric, names if names[0] != names[1] else ("other", "base"))
    return f"{TWO_CLUSTERS}: {clusters}" if clusters else ""


def _rule_on(meeting: ComparedRuns, base: ArmCell, other: ArmCell, metric: str) -> Ruling:
    """Return the ruling on whether two arms (variants) are compared in a metric, with the reason if they are not."""
    first, second = meeting.base.tool(base), meeting.other.tool(other)
    if first.differs(second):
        return Ruling(f"generators differ: {first} / {second}")
    if changes := [cell.unsteady.sentence() for cell in (base, other) if cell.unsteady]:
        return Ruling(f"{NOT_STEADY}: {'; '.join(dict.fromkeys(changes))}")
    if missing := [meeting.name(cell, base) for cell in (base, other) if not cell.counted]:
        return Ruling(f"no valid block of {' and '.join(dict.fromkeys(missing))}")
    lacking = [cell for cell in (base, other) if not cell.known(metric)]
    if needs := next((variant.needs for variant in meeting.variants(base.arm, other.arm) if variant.needs), ""):
        return Ruling(f"needs {needs}")
    if base.point.has_outcome:
        none = f"{meeting.name(lacking[0], base)} has no such number" if lacking else ""
        return Ruling(explain_unknown(other, base, metric, pairs=meeting.paired) or none)
    ruled = rule_on(metric, other, base, meeting.loads, pairs=meeting.paired)
    if ruled.why or not lacking:
        return ruled
    if metric in QUANTILES:
        return Ruling(f"{metric} needs {LEAST_BEYOND} requests beyond it in every sample")
    return Ruling(f"no {find_metric(metric).title} was recorded")


def _estimate_effect(meeting: ComparedRuns, other: ArmCell, base: ArmCell, metric: str) -> stats.Estimate | None:
    if meeting.paired:
        return estimate_effect(other, base, metric)
    after, before = (list(cell.known(metric).values()) for cell in (other, base))
    if not after or not before:
        return None
    return (
        estimate_unpaired_difference(after, before)
        if base.point.has_outcome
        else estimate_unpaired_ratio(after, before)
    )


def _estimate_baseline_move(meeting: ComparedRuns, base: ArmCell, other: ArmCell, metric: str) -> stats.Estimate | None:
    """Estimate how much a metric of the common baseline changed between two runs.

    Returns:
        The change. It is None if the sides are of one run or are the baseline itself, and if the two runs have no
        common baseline that can be compared.

    """
    name = meeting.shared_baseline(base.arm, other.arm)
    if name is None or base.arm.name == other.arm.name == name:
        return None
    before, after = meeting.base.at(name, base.point.name), meeting.other.at(name, other.point.name)
    if before is None or after is None or _rule_on(meeting, before, after, metric).why:
        return None
    return _estimate_effect(meeting, after, before, metric)


def _list_estimate_notes(row: ComparedRow) -> Iterator[str]:
    estimate = row.estimate
    if estimate is None:
        return
    if not estimate.has_interval:
        yield stats.NEED_BLOCKS
        return
    if stats.ALL_EQUAL in estimate.notes:
        yield f"{stats.ALL_EQUAL}: the interval has no width"
    if stats.OUTLIERS in estimate.notes:
        middle = replace(estimate, effect=estimate.hodges_lehmann, low=estimate.hl_low, high=estimate.hl_high)
        robust = "" if middle.effect == estimate.effect else f": Hodges–Lehmann {format_change(row, middle)}"
        yield f"{stats.OUTLIERS}{robust}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of two runs, or of arms (variants) of one run, with a decision for each metric.

    Attributes:
        base: The record of the first run.
        other: The record of the second run; for one run, the same as `base`.
        paired: True if both sides are arms of one run, which are compared block by block.
        rows: The rows by load point in plan order, then by pair of arms, then by metric.
        notes: The differences between the runs, and other notes about them.
        family: The number of p-values in each set that was adjusted together.
        missing_arms: For two runs, the arms of the first run that the second lacks. Empty if the user named the arms.
        missing_points: For two runs, the load points of the first run that the second run was not to measure.

    """

    base: RunRecord
    other: RunRecord
    paired: bool
    rows: tuple[ComparedRow, ...]
    notes: tuple[str, ...]
    family: tuple[int, ...]
    missing_arms: tuple[str, ...] = ()
    missing_points: tuple[LoadPoint, ...] = ()

    def variants(self, pair: tuple[str, str]) -> tuple[VariantRecord, VariantRecord]:
        """Return the variants of two compared arms: (the one in the first run, the one in the second).

        Args:
            pair: The names of the arms: (first side, second side).

        """
        sides = zip((self.base, self.other), pair, strict=True)
        before, after = (
            record.variants[next(arm.variant for arm in record.arms if arm.name == name)] for record, name in sides
        )
        return before, after

    def same_settings(self, pair: tuple[str, str]) -> bool:
        """Return whether two compared arms (variants) have equal manifests, so that no setting can explain a difference.

        Args:
            pair: The names of the arms: (first side, second side).

        """
        before, after = self.variants(pair)
        return before.manifests_sha256 == after.manifests_sha256


def judge_rows(rows: Sequence[ComparedRow]) -> list[ComparedRow]:
    """Adjust the p-values of all given rows together by Holm's method, and return the rows with their decisions."""
    holm_p = adjust_p_values([row.estimate.p_value if row.estimate and row.tested else None for row in rows])
    return [_judge_row(row, adjusted_p) for row, adjusted_p in zip(rows, holm_p, strict=True)]


def _judge_row(row: ComparedRow, adjusted_p: float | None) -> ComparedRow:
    """Return a row with its decision; a row whose two sides are not compared is returned unchanged.

    Args:
        row: The row.
        adjusted_p: The row's p-value, adjusted by Holm's method; None if it takes no part in the adjustment.

    """
    if row.estimate is None:
        return row
    p_value = 1.0 if adjusted_p is None and row.estimate.has_interval else adjusted_p  # outside the family
    decision = decide(row.estimate, row.size, p_value, more_is_better=row.more_is_better, bound=row.bound)
    return row.decided(decision, p_value)


def count_needed_blocks(rows: Sequence[ComparedRow]) -> int:
    """Return how many blocks (repetitions) each of two runs needs so that a comparison can be significant at all.

    With m and n blocks, the p-value of a rank sum is at least 2 / C(m+n, m). Holm's method multiplies it by the number
    of comparisons.

    Args:
        rows: The rows of the comparison.

    Returns:
        The blocks that each run needs; 0 if the runs have enough.

    """
    family = [row for row in rows if row.tested]
    sizes = [(len(row.other.values), len(row.base.values)) for row in family]
    least = min((2 / comb(m + n, m) for m, n in sizes), default=0.0)
    if least * len(family) <= ALPHA:
        return 0
    return next(k for k in range(stats.MIN_BLOCKS, 100) if 2 / comb(2 * k, k) * len(family) <= ALPHA)
