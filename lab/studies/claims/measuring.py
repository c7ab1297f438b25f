"""The measurement of one test of a claim in one run: the value, its interval, and whether the test holds.

A test stays undecided in four cases:

- There is no interval.
- The log of a block lacks the number.
- The load generator was the limit of a closed loop, so that the true value may lie beyond the interval.
- A latency in an open loop is no different from that of the same load without a proxy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from math import exp, expm1, inf, log

from lab.analysis.aggregate.absolute import describe_split, find_clusters, format_clusters
from lab.analysis.aggregate.cells import compute_resolution_s
from lab.analysis.evidence import Blocks, Damaged, Evidence, further_boots
from lab.analysis.judge.decision import compute_noise_floor
from lab.analysis.judge.rulings import explain_by_retransmission, find_generator_limits
from lab.analysis.judge.thirds import compute_thirds, make_totals_reader
from lab.model.metrics import METRICS, find_metric
from lab.model.sweeps import LoadPoint
from lab.stats import paired as stats
from lab.stats.boots import estimate_over_boots, format_boots
from lab.stats.power import MAX_BLOCKS, count_blocks_to_exclude
from lab.stats.units import format_blocks, format_range
from lab.studies.claims import ClaimTest, Other, format_short, lies_within_bound

UNDERSTATED = ("rate", "link_share", "busiest_second")
"""The metrics whose true value may be larger where the generator was the limit of a closed loop."""
LESS = tuple(name for name, metric in METRICS.items() if metric.histogram and metric.own_unit == "s")
"""The metrics whose true value may be smaller where the generator was the limit of a closed loop: latencies."""


@dataclass(frozen=True, slots=True)
class MeasuredTest:
    """The result of one test of a published claim, for one arm (variant of a run) at one load point.

    Attributes:
        test: The test.
        arm: The arm's name.
        point: The load point's name, or the test's pattern where no load point matches.
        value: The value in the metric's own unit, or a ratio; None: there is none.
        low: The lower end of the 95 % interval; None: no interval.
        high: The upper end of the 95 % interval; None: no interval.
        blocks: The number of blocks (repetitions of the entire plan).
        holds: Whether the test holds; None: open (undecided).
        why: The reason why the result is open, or a caveat about it; empty: none.
        gap: Whether the run lacks what the test asks for: its load point, its variant, or its metric in the samples.
        other: The other side of the comparison: a variant or a load point; empty: no comparison.
        boots: The number of boots of the machine that the interval covers; for one boot it is the run's own interval.
        more: The number of blocks that would decide an open test nine times in ten, if the true value is the measured one. It is above
            MAX_BLOCKS where MAX_BLOCKS would not be enough, and 0 where the test is decided or more blocks cannot decide it.
        remedy: What would decide an open test where more blocks cannot; empty otherwise.
        spread: The smallest and the largest block of an absolute value with too few blocks for an interval; None otherwise.

    """

    test: ClaimTest
    arm: str
    point: str
    value: float | None
    low: float | None
    high: float | None
    blocks: int
    holds: bool | None
    why: str = ""
    gap: bool = False
    other: str = ""
    boots: int = 1
    more: int = 0
    remedy: str = ""
    spread: tuple[float, float] | None = None

    @property
    def text(self) -> str:
        """The result of a claim's test in words: `restarts +3 [2, 4] of okd against okd-probes-5s at cpu-20m`.

        The variant and the load point are part of the text only if the test names them. Without a value, the text has the metric and the
        reason.
        """
        metric = find_metric(self.test.metric)
        unit, scale = (metric.unit, metric.scale) if self.test.ratio_to is None else ("×", 1.0)
        if self.value is None:
            return f"{metric.title}: {self.why}"
        if self.spread is not None:
            parts = [format_range(*(end / metric.scale for end in self.spread)).replace("-", "−"), metric.unit]
        else:
            sign = "+" if self.test.minus is not None and self.value > 0 else ""
            ends = [format_short(end / scale) for end in (self.low, self.high) if end is not None]
            parts = [sign + format_short(self.value / scale), unit, f"[{', '.join(ends)}]" if ends else ""]
        against = f"against {self.other}" if self.other else ""
        at_point = f"at {self.point}" if self.test.points != "*" else ""
        of_variant = f"of {self.test.variant}" if self.test.variant else ""
        over = f"over {format_boots(self.boots)}" if self.boots > 1 else ""
        return " ".join(filter(None, [metric.title, *parts, of_variant, against, at_point, over]))


def measure_test(test: ClaimTest, variant: str, run: Evidence, sustained: bool = False) -> Iterator[MeasuredTest]:
    """Yield the result of a claim's test at each load point of a run that the test names.

    If the run has no such load point, the only result is undecided, with the reason. The result at a load point without a usable
    block (repetition) is undecided, too.

    Args:
        test: The test.
        variant: The variant of the claim's rule, for a test that names none.
        run: The run.
        sustained: Whether only loads made with the option `--sustained` count.

    """
    name = test.variant or variant
    points = [
        point
        for point in run.points
        if fnmatchcase(point.name, test.points)
        and point.control is test.control
        and run.arms(name)
        and (point.sustained or not sustained)
    ]
    if not points:
        reason = f"no {'sustained load' if sustained else 'point'} {test.points} of {name}"
        remedy = "samples of --sustained would decide" if sustained else ""
        yield MeasuredTest(test, name, test.points, None, None, None, 0, None, reason, gap=not sustained, remedy=remedy)
    for point in points:
        yield _measure_at(test, run.arms(name)[0], point, run)


def _measure_at(test: ClaimTest, arm: str, point: LoadPoint, run: Evidence) -> MeasuredTest:
    """Return the result of a test for one arm (variant of a run) at one load point of the run."""
    values = run.values(arm, point.name, test.metric)
    missing = sum(value is None for value in values.values())
    base = test.minus or test.ratio_to
    blank = MeasuredTest(test, arm, point.name, None, None, None, len(values), None)
    if not values or missing:
        reason = (
            f"unknown in {missing} of {format_blocks(len(values))}"
            if missing
            else run.unsteady(arm, point.name) or f"no valid block of {arm} at {point.name}"
        )
        return replace(blank, why=reason, gap=not values and bool(run.blocks(arm, point.name)))
    if base is None:
        numbers = [value for value in values.values() if value is not None]
        if clusters := find_clusters(numbers, test.metric):
            return replace(blank, why=format_clusters(find_metric(test.metric), clusters, len(numbers)))
        level = stats.estimate_median(numbers)
        spread = (min(numbers), max(numbers)) if level.low is None else None
        part = replace(blank, value=level.value, low=level.low, high=level.high, spread=spread)
        part = _decide(
            part, 0.0, _find_hidden(test.metric, True in find_generator_limits(run.blocks(arm, point.name).values()))
        )
        return _check_direct(part, point, None, run)
    return _compare(blank, base, values, arm, point, run)


def _compare(
    blank: MeasuredTest, base: Other, values: Blocks, arm: str, point: LoadPoint, run: Evidence
) -> MeasuredTest:
    """Return the result of a test that compares an arm (variant of a run) with another arm or another load point.

    Args:
        blank: The result to fill in, still without a value.
        base: What the arm is compared with.
        values: Block (number of a repetition) → the arm's value.
        arm: The arm's name.
        point: The arm's load point.
        run: The run.

    """
    arms = run.arms(base.variant) if base.variant else [arm]
    points = [
        entry.name for entry in run.points if not entry.control and fnmatchcase(entry.name, base.points or point.name)
    ]
    if not arms or len(points) != 1:
        return replace(blank, why=f"nothing to compare with: {base.variant or base.points}", gap=True)
    against = arms[0], points[0]
    blank = replace(blank, other=base.variant or against[1])
    pair = run.as_pair(arm, against[0], point.name, blank.test.metric) if base.variant and blank.test.ratio_to else None
    if pair is not None and pair.estimate is not None:
        low, high = pair.estimate.ratio_interval or (None, None)
        part = replace(blank, value=pair.estimate.ratio, low=low, high=high, blocks=pair.estimate.n)
        part = _combine_boots(part, base, arm, point, run)
        return _decide(part, expm1(pair.size.noise_floor), (False, False))
    base_values = run.values(*against, blank.test.metric)
    arm_numbers, base_numbers = _pair_values(values, base_values)
    if not arm_numbers:
        gap = not base_values and bool(run.blocks(*against))
        unsteady = run.unsteady(*against)
        return replace(blank, why=unsteady or f"no block in which both {arm} and {against[0]} count", gap=gap)
    floor, ratio = _compute_floor(blank.test, arm, against, point, run), blank.test.ratio_to is not None
    if ratio and min(*arm_numbers, *base_numbers) <= 0:
        return replace(blank, why="no ratio to 0")
    sides_by_block = dict(enumerate(arm_numbers)), dict(enumerate(base_numbers))
    if ratio and (split := describe_split(*sides_by_block, blank.test.metric, (arm, against[0]))):
        return replace(blank, why=split)
    estimate = (
        stats.estimate_ratio(arm_numbers, base_numbers)
        if ratio
        else stats.estimate_difference(arm_numbers, base_numbers)
    )
    low, high = (estimate.ratio_interval if ratio else estimate.interval) or (None, None)
    value = estimate.ratio if ratio else estimate.effect
    part = _combine_boots(replace(blank, value=value, low=low, high=high, blocks=estimate.n), base, arm, point, run)
    sides = run.blocks(arm, point.name).values(), run.blocks(*against).values()
    middles = stats.estimate_median(arm_numbers).value, stats.estimate_median(base_numbers).value
    limited = [True in find_generator_limits(side) for side in sides]
    if blank.test.metric in LESS and explain_by_retransmission(*sides, middles):
        # The slower side waited for the kernel, not for the generator.
        limited[middles[0] < middles[1]] = False
    part = _decide(part, floor, _find_hidden(blank.test.metric, *limited))
    if ratio and point.sustained and part.holds is not None:
        thirds = compute_thirds(run.blocks(arm, point.name), run.blocks(*against), make_totals_reader(run.run))
        if thirds is not None and part.value:
            effect = blank.test.metric, log(part.value)
            if thirds.holds(*effect) not in (None, "holds"):
                part = replace(part, holds=None, why=thirds.sentence(*effect))
    # Two variants under one load share the generator and the backend.
    return part if base.variant else _check_direct(part, point, against[1], run)


def _combine_boots(part: MeasuredTest, base: Other, arm: str, point: LoadPoint, run: Evidence) -> MeasuredTest:
    """Return a comparison with its mean and interval over all boots of the machine that measured it.

    If fewer than two boots have an interval, the result is `part`. If the run of another boot is damaged, it is `part` with a remark in
    `why`.

    Args:
        part: The comparison in the run of the first boot.
        base: What the arm is compared with.
        arm: The name of the arm (one variant of the run).
        point: The arm's load point.
        run: The run of the first boot, whose reference has those of the other boots.

    """
    parts = [part]
    for boot in further_boots(run):
        if isinstance(boot, Damaged):
            return replace(part, why="; ".join(filter(None, [part.why, boot.said])))
        if boot.arms(arm) and any(entry.name == point.name for entry in boot.points):
            values = boot.values(arm, point.name, part.test.metric)
            parts.append(_compare(replace(part, value=None, low=None, high=None), base, values, arm, point, boot))
    complete = [
        (entry.value, entry.low, entry.high, entry.blocks)
        for entry in parts
        if entry.value is not None and entry.low is not None and entry.high is not None
    ]
    if len(complete) < 2:
        return part
    ratio = part.test.ratio_to is not None
    effects = [log(value) if ratio else value for value, _, _, _ in complete]
    widths = [log(high / low) if ratio else high - low for _, low, high, _ in complete]
    errors = [
        width / 2 / stats.compute_t_quantile(blocks) for width, (_, _, _, blocks) in zip(widths, complete, strict=True)
    ]
    over = estimate_over_boots(effects, errors)
    value, low, high = (exp(end) if ratio else end for end in (over.effect, over.low, over.high))
    return replace(part, value=value, low=low, high=high, boots=over.boots)


def _pair_values(arm_values: Blocks, base_values: Blocks) -> tuple[list[float], list[float]]:
    """Return the values of an arm and of its base as two lists, from the blocks (repetitions) in which both have a value.

    The base is the arm or load point with which the arm is compared.

    Args:
        arm_values: Block → the arm's value; None: unknown.
        base_values: Block → the base's value; None: unknown.

    """
    pairs = [
        (value, base)
        for block, value in arm_values.items()
        if value is not None and (base := base_values.get(block)) is not None
    ]
    return [value for value, _ in pairs], [base for _, base in pairs]


def _compute_floor(test: ClaimTest, arm: str, against: tuple[str, str], point: LoadPoint, run: Evidence) -> float:
    """Return the A/A noise floor of a comparison: the effect that the baseline shows against itself.

    It is computed from the baseline's twin (the baseline measured a second time). For a ratio the result is the ratio of the two minus 1.
    For a difference it is no less than the smallest difference that the metric can resolve.

    Args:
        test: The test.
        arm: The name of the arm (one variant of the run).
        against: (arm, load point) that the arm is compared with.
        point: The load point of the arm.
        run: The run.

    """
    twin = run.twin(against[0])
    base, again = _pair_values(*(run.values(name, against[1], test.metric) for name in twin)) if twin else ([], [])
    if test.ratio_to is not None:
        positive = bool(base) and min(*base, *again) > 0
        return exp(compute_noise_floor(stats.estimate_ratio(again, base) if positive else None)) - 1
    sides = ((arm, point.name), against)
    errors = (sample.outcome.get("clock_error_s") or 0.0 for side in sides for sample in run.blocks(*side).values())
    guard = compute_noise_floor(stats.estimate_difference(again, base) if base else None)
    return max(guard, compute_resolution_s(test.metric, point, max(errors, default=0.0)))


def _find_hidden(metric: str, limited: bool, base_limited: bool = False) -> tuple[bool, bool]:
    """Return whether the true value may be lower or higher than the measured one, because the load generator was the limit.

    With a faster generator, the proxy could have answered more requests. So a rate is measured too low (UNDERSTATED), and a latency may be
    measured too high (LESS). In a comparison, the baseline's error moves the result in the opposite direction.

    Args:
        metric: The name of the metric.
        limited: Whether the generator was the limit of the variant in some block (repetition).
        base_limited: Whether the generator was the limit of its baseline in some block; False without a comparison.

    Returns:
        (whether the true value may be lower than the measured one, whether it may be higher).

    """
    if metric in UNDERSTATED:
        return base_limited, limited
    return (limited, base_limited) if metric in LESS else (False, False)


def _decide(part: MeasuredTest, floor: float, hidden: tuple[bool, bool]) -> MeasuredTest:
    """Decide whether a claim's test holds: compare the measured interval with the test's bound, and return the result with the decision.

    If the interval leaves this open, the result also has what would decide it: a number of blocks (repetitions), or a remedy. Without an
    interval, the reason says how many blocks are needed.

    Args:
        part: The result with its value and interval.
        floor: The A/A noise floor (the effect of the baseline against itself). The bounds `above` and `below` are moved by it, so that they
            are harder to meet: multiplied or divided for a ratio, and otherwise increased or decreased.
        hidden: (whether the true value may lie below the interval, whether it may lie above). On such a side the interval is taken as
            infinite, so only its other end can decide.

    """
    if part.value is None or part.low is None or part.high is None:
        return replace(part, why=f"no interval: {format_blocks(part.blocks)}, {stats.MIN_BLOCKS} are needed")
    test = part.test
    if not test.bounded:
        return part

    def lies(low: float, high: float) -> bool | None:
        ends = -inf if hidden[0] else low, inf if hidden[1] else high
        return lies_within_bound(*ends, test.within, test.above, test.below, partial(_shift_bound, test, floor))

    reason = ""
    if any(hidden):  # a generator made the number smaller or larger
        direction = "may be more or less" if all(hidden) else "is at most that" if hidden[0] else "is at least that"
        reason = f"generator-limited: {find_metric(test.metric).title} {direction}"
    value, low, high = part.value, part.low, part.high
    part = replace(part, holds=lies(low, high), why=reason)
    if part.holds is not None:
        return part
    if part.boots > 1:
        return replace(part, remedy="a run on another boot would narrow the interval, which is over boots")
    if lies(value, value) is None:  # open however narrow the interval is
        remedy = "a generator that is not the limit would decide"
        return replace(part, remedy=remedy) if any(hidden) else replace(part, more=MAX_BLOCKS + 1)
    bounds = [bound for bound in (test.above, test.below) if bound is not None]
    edges = [*(test.within or ()), *(edge for bound in bounds for edge in _shift_bound(test, floor, bound))]
    numbers = [value, low, high, *edges]
    if test.ratio_to is not None:
        if min(numbers) <= 0:
            return replace(part, more=MAX_BLOCKS + 1)
        numbers = [log(number) for number in numbers]
    value, low, high, *edges = numbers
    distance = min(abs(value - edge) for edge in edges)
    needed = count_blocks_to_exclude((high - low) / 2, part.blocks, distance) if distance else None
    return replace(part, more=needed or MAX_BLOCKS + 1)


def _shift_bound(test: ClaimTest, floor: float, bound: float) -> tuple[float, float]:
    """Return a test's bound moved by the noise floor in both directions: (lower bound, higher bound).

    The bound of a ratio is divided and multiplied by 1 + floor. From any other bound the floor is subtracted, and added to it.
    """
    return (bound / (1 + floor), bound * (1 + floor)) if test.ratio_to is not None else (bound - floor, bound + floor)


def _check_direct(part: MeasuredTest, point: LoadPoint, base_point: str | None, run: Evidence) -> MeasuredTest:
    """Return a test's result, but undecided if the same load without a proxy gives the same answer, or was not measured.

    Only latencies of an open loop (an offered rate) are checked, since the generator and the backend are part of them. The answer is the
    same if the value without a proxy is on the same side of the bound. A single latency (not a comparison) below its bound stays
    decided, even if that load gives the same answer. All other results are returned unchanged.

    Args:
        part: The decided result.
        point: The load point.
        base_point: The name of the load point that `point` is compared with; None: load points are not compared.
        run: The run, which may have the load without a proxy as its direct reference.

    """
    test, given = part.test, point.rate_rps is not None and point.disturbance is None
    # Generator and backend are part of a latency in an open loop, too: k6's own pauses grow with its connections.
    if part.holds is None or not find_metric(test.metric).histogram or not given:
        return part
    bare = run.direct(point.name, test.metric)
    if bare is not None and base_point is not None:
        bare_base = run.direct(base_point, test.metric)
        bare = None if not bare_base else bare / bare_base if test.ratio_to else bare - bare_base
    if bare is None:
        reason = "nothing shows what the same load takes without a proxy"
        return replace(
            part, holds=None, why=reason, remedy="a run with the load's own samples without a proxy would decide"
        )
    compared = test.ratio_to is not None or test.minus is not None
    if test.within is not None:
        above = part.low is not None and part.low > test.within[1]
        as_far = not part.holds and above == (bare > test.within[1]) and (above or compared)
    else:
        as_far = part.holds if test.above is not None else compared or not part.holds
    if test.met(bare) != part.holds or not as_far:
        return part
    reason = f"the same without a proxy: {replace(part, value=bare, low=None, high=None).text}"
    return replace(
        part, holds=None, why=reason, remedy="a machine that serves that load faster without a proxy would decide"
    )
