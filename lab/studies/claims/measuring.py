"""One test of a rule on one run: a number of every block, its interval, and whether that lies where the test wants it.

Refuses to decide without an interval, where a block's log cannot tell, where the
generator was the limit of a closed loop and the truth may lie beyond the interval, and where a latency at a rate shows no more than
the same load does without a proxy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import exp, expm1, inf, log

from lab.analysis.aggregate.absolute import clusters_of, clusters_text, split_text
from lab.analysis.aggregate.cells import resolution_s
from lab.analysis.evidence import Blocks, Damaged, Evidence, further_boots
from lab.analysis.judge.decision import guard_of
from lab.analysis.judge.rulings import limited as limits
from lab.analysis.judge.rulings import resent
from lab.analysis.judge.thirds import seconds_in, thirds_of
from lab.model.metrics import METRICS, about
from lab.model.sweeps import Point
from lab.stats import paired as stats
from lab.stats.boots import format_boots, over_boots
from lab.stats.power import MAX_BLOCKS, blocks_to_leave_out
from lab.stats.units import format_blocks, format_range
from lab.studies.claims import Other, Test, fits, holds, short

MORE = ("rate", "link_share", "busiest_second")
LESS = tuple(name for name, metric in METRICS.items() if metric.histogram and metric.own_unit == "s")
"""Where the generator was the limit of a closed loop, the proxy can do more than MORE tells and takes less time than LESS does."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One test at one point: `value` with its interval in the metric's own unit (or a ratio), and whether it holds (None: open)."""

    test: Test
    arm: str
    point: str
    value: float | None
    low: float | None
    high: float | None
    blocks: int
    holds: bool | None
    why: str = ""
    gap: bool = False
    """Whether the run was not asked for it: another point, another variant, or a metric that its samples have not."""
    other: str = ""
    """What it is compared with: a variant, or the point that the test's pattern names."""
    boots: int = 1
    """How many boots the interval is over: of one it is the run's own."""
    more: int = 0
    """Blocks that would tell nine times in ten, were the value what it is here: beyond MAX_BLOCKS where so many would not; 0 = it is told, or
    they are not what it takes."""
    remedy: str = ""
    """What it would take instead."""
    spread: tuple[float, float] | None = None
    """The smallest and the largest block of an absolute value that too few blocks have."""

    @property
    def text(self) -> str:
        """For people: `restarts +3 [2, 4] of okd against okd-probes-5s at cpu-20m`, with whose and where as far as the test names them."""
        metric = about(self.test.metric)
        unit, scale = (metric.unit, metric.scale) if self.test.ratio_to is None else ("×", 1.0)
        if self.value is None:
            return f"{metric.title}: {self.why}"
        if self.spread is not None:
            parts = [format_range(*(end / metric.scale for end in self.spread)).replace("-", "−"), metric.unit]
        else:
            sign = "+" if self.test.minus is not None and self.value > 0 else ""
            ends = [short(end / scale) for end in (self.low, self.high) if end is not None]
            parts = [sign + short(self.value / scale), unit, f"[{', '.join(ends)}]" if ends else ""]
        against = f"against {self.other}" if self.other else ""
        where = f"at {self.point}" if self.test.points != "*" else ""
        whose = f"of {self.test.variant}" if self.test.variant else ""
        over = f"over {format_boots(self.boots)}" if self.boots > 1 else ""
        return " ".join(filter(None, [metric.title, *parts, whose, against, where, over]))


def measured(test: Test, variant: str, run: Evidence, sustained: bool = False) -> Iterator[Measured]:
    """The test at each of its points; one that is open with the reason where there is no point or no block.

    `sustained`: at points of `--sustained` alone.
    """
    name = test.variant or variant
    points = [
        point
        for point in run.points
        if fits(test.points, point.name)
        and point.control is test.control
        and run.arms(name)
        and (point.sustained or not sustained)
    ]
    if not points:
        why = f"no {'sustained load' if sustained else 'point'} {test.points} of {name}"
        remedy = "samples of --sustained would tell" if sustained else ""
        yield Measured(test, name, test.points, None, None, None, 0, None, why, gap=not sustained, remedy=remedy)
    for point in points:
        yield _at(test, run.arms(name)[0], point, run)


def _at(test: Test, arm: str, point: Point, run: Evidence) -> Measured:
    values = run.values(arm, point.name, test.metric)
    untold = sum(value is None for value in values.values())
    other = test.minus or test.ratio_to
    blank = Measured(test, arm, point.name, None, None, None, len(values), None)
    if not values or untold:
        why = (
            f"not told in {untold} of {format_blocks(len(values))}"
            if untold
            else run.unsteady(arm, point.name) or f"no valid block of {arm} at {point.name}"
        )
        return replace(blank, why=why, gap=not values and bool(run.blocks(arm, point.name)))
    if other is None:
        known = [value for value in values.values() if value is not None]
        if clusters := clusters_of(known, test.metric):
            return replace(blank, why=clusters_text(about(test.metric), clusters, len(known)))
        level = stats.middle(known)
        spread = (min(known), max(known)) if level.low is None else None
        found = replace(blank, value=level.value, low=level.low, high=level.high, spread=spread)
        found = _held(found, 0.0, _hidden(test.metric, mine=True in limits(run.blocks(arm, point.name).values())))
        return _beside_direct(found, point, None, run)
    return _compared(blank, other, values, arm, point, run)


def _compared(blank: Measured, other: Other, values: Blocks, arm: str, point: Point, run: Evidence) -> Measured:
    arms = run.arms(other.variant) if other.variant else [arm]
    points = [each.name for each in run.points if not each.control and fits(other.points or point.name, each.name)]
    if not arms or len(points) != 1:
        return replace(blank, why=f"nothing to compare with: {other.variant or other.points}", gap=True)
    against = arms[0], points[0]
    blank = replace(blank, other=other.variant or against[1])
    pair = (
        run.as_pair(arm, against[0], point.name, blank.test.metric) if other.variant and blank.test.ratio_to else None
    )
    if pair is not None and pair.estimate is not None:
        low, high = pair.estimate.ratio_interval or (None, None)
        found = replace(blank, value=pair.estimate.ratio, low=low, high=high, blocks=pair.estimate.n)
        found = _over_boots(found, other, arm, point, run)
        return _held(found, expm1(pair.size.guard), (False, False))
    theirs = run.values(*against, blank.test.metric)
    mine, known = _pairs(values, theirs)
    if not mine:
        gap = not theirs and bool(run.blocks(*against))
        moved = run.unsteady(*against)
        return replace(blank, why=moved or f"no block in which both {arm} and {against[0]} count", gap=gap)
    guard, ratio = _guard(blank.test, arm, against, point, run), blank.test.ratio_to is not None
    if ratio and min(*mine, *known) <= 0:
        return replace(blank, why="no ratio to 0")
    sides_by_block = dict(enumerate(mine)), dict(enumerate(known))
    if ratio and (split := split_text(*sides_by_block, blank.test.metric, (arm, against[0]))):
        return replace(blank, why=split)
    estimate = stats.paired(mine, known) if ratio else stats.difference(mine, known)
    low, high = (estimate.ratio_interval if ratio else estimate.interval) or (None, None)
    value = estimate.ratio if ratio else estimate.effect
    found = _over_boots(replace(blank, value=value, low=low, high=high, blocks=estimate.n), other, arm, point, run)
    sides = run.blocks(arm, point.name).values(), run.blocks(*against).values()
    middles = stats.middle(mine).value, stats.middle(known).value
    limited = [True in limits(side) for side in sides]
    if blank.test.metric in LESS and resent(*sides, middles):
        # the slower side waited for the kernel, not for the generator
        limited[middles[0] < middles[1]] = False
    found = _held(found, guard, _hidden(blank.test.metric, *limited))
    if ratio and point.sustained and found.holds is not None:
        thirds = thirds_of(run.blocks(arm, point.name), run.blocks(*against), seconds_in(run.run))
        if thirds is not None and found.value:
            told = blank.test.metric, log(found.value)
            if thirds.holds(*told) not in (None, "holds"):
                found = replace(found, holds=None, why=thirds.sentence(*told))
    # two variants under one load have the generator and the backend in common
    return found if other.variant else _beside_direct(found, point, against[1], run)


def _over_boots(found: Measured, other: Other, arm: str, point: Point, run: Evidence) -> Measured:
    """With the mean and interval over the boots of the run's reference, where others of them measured the same comparison."""
    parts = [found]
    for boot in further_boots(run):
        if isinstance(boot, Damaged):
            return replace(found, why="; ".join(filter(None, [found.why, boot.said])))
        if boot.arms(arm) and any(each.name == point.name for each in boot.points):
            values = boot.values(arm, point.name, found.test.metric)
            parts.append(_compared(replace(found, value=None, low=None, high=None), other, values, arm, point, boot))
    whole = [
        (part.value, part.low, part.high, part.blocks)
        for part in parts
        if part.value is not None and part.low is not None and part.high is not None
    ]
    if len(whole) < 2:
        return found
    ratio = found.test.ratio_to is not None
    effects = [log(value) if ratio else value for value, _, _, _ in whole]
    widths = [log(high / low) if ratio else high - low for _, low, high, _ in whole]
    errors = [width / 2 / stats.t_quantile(blocks) for width, (_, _, _, blocks) in zip(widths, whole, strict=True)]
    over = over_boots(effects, errors)
    value, low, high = (exp(each) if ratio else each for each in (over.effect, over.low, over.high))
    return replace(found, value=value, low=low, high=high, boots=over.boots)


def _pairs(mine: Blocks, theirs: Blocks) -> tuple[list[float], list[float]]:
    """What both tell, block by block."""
    told = [
        (value, other)
        for block, value in mine.items()
        if value is not None and (other := theirs.get(block)) is not None
    ]
    return [value for value, _ in told], [other for _, other in told]


def _guard(test: Test, arm: str, against: tuple[str, str], point: Point, run: Evidence) -> float:
    """What the baseline against itself forbids to claim, and of differences what the metric resolves; of ratios exp of it - 1."""
    twin = run.twin(against[0])
    base, again = _pairs(*(run.values(name, against[1], test.metric) for name in twin)) if twin else ([], [])
    if test.ratio_to is not None:
        told = bool(base) and min(*base, *again) > 0
        return exp(guard_of(stats.paired(again, base) if told else None)) - 1
    sides = ((arm, point.name), against)
    errors = (sample.outcome.get("clock_error_s") or 0.0 for side in sides for sample in run.blocks(*side).values())
    guard = guard_of(stats.difference(again, base) if base else None)
    return max(guard, resolution_s(test.metric, point, max(errors, default=0.0)))


def _hidden(metric: str, mine: bool, theirs: bool = False) -> tuple[bool, bool]:
    """Whether the truth may lie below, and above, what was measured, by whose limit the generator was in some block."""
    if metric in MORE:
        return theirs, mine
    return (mine, theirs) if metric in LESS else (False, False)


def _held(found: Measured, guard: float, hidden: tuple[bool, bool]) -> Measured:
    """With whether the interval lies where the test wants it: `above` and `below` are moved by the guard, away from what is claimed,
    a ratio's by it as a factor; where that stays open, with what it would take to decide it.

    Where the truth may lie beyond an end (`hidden`), the interval has none there, so that only the other end can decide.
    """
    if found.value is None or found.low is None or found.high is None:
        return replace(found, why=f"no interval: {format_blocks(found.blocks)}, {stats.MIN_BLOCKS} are needed")
    test = found.test
    if not test.bounded:
        return found

    def lies(low: float, high: float) -> bool | None:
        ends = -inf if hidden[0] else low, inf if hidden[1] else high
        return holds(*ends, test.within, test.above, test.below, partial(_moved, test, guard))

    why = ""
    if any(hidden):  # a generator made the number smaller or larger
        which = "may be more or less" if all(hidden) else "is at most that" if hidden[0] else "is at least that"
        why = f"generator-limited: {about(test.metric).title} {which}"
    value, low, high = found.value, found.low, found.high
    found = replace(found, holds=lies(low, high), why=why)
    if found.holds is not None:
        return found
    if lies(value, value) is None:  # however narrow the interval
        remedy = "a generator that is not the limit would tell"
        return replace(found, remedy=remedy) if any(hidden) else replace(found, more=MAX_BLOCKS + 1)
    bounds = [bound for bound in (test.above, test.below) if bound is not None]
    edges = [*(test.within or ()), *(edge for bound in bounds for edge in _moved(test, guard, bound))]
    numbers = [value, low, high, *edges]
    if test.ratio_to is not None:
        if min(numbers) <= 0:
            return replace(found, more=MAX_BLOCKS + 1)
        numbers = [log(number) for number in numbers]
    value, low, high, *edges = numbers
    distance = min(abs(value - edge) for edge in edges)
    needed = blocks_to_leave_out((high - low) / 2, found.blocks, distance) if distance else None
    return replace(found, more=needed or MAX_BLOCKS + 1)


def _moved(test: Test, guard: float, bound: float) -> tuple[float, float]:
    """The bound, moved down and up by the guard."""
    return (bound / (1 + guard), bound * (1 + guard)) if test.ratio_to is not None else (bound - guard, bound + guard)


def _beside_direct(found: Measured, point: Point, other: str | None, run: Evidence) -> Measured:
    """Open where the same load without a proxy goes beyond the same bound, or was not measured. `other`: the point compared with.

    It goes as far where it lies above the bound that the finding is above or, of two points compared, below the one that it is below:
    that nothing changes, or stays low, needs no proxy to explain it.
    """
    test, given = found.test, point.rate_rps is not None and point.disturbance is None
    # in a latency the generator and the backend have a part at a rate, too: k6's own pauses grow with its connections
    if found.holds is None or not about(test.metric).histogram or not given:
        return found
    bare = run.direct(point.name, test.metric)
    if bare is not None and other is not None:
        theirs = run.direct(other, test.metric)
        bare = None if not theirs else bare / theirs if test.ratio_to else bare - theirs
    if bare is None:
        why = "nothing tells what the same load takes without a proxy"
        return replace(
            found, holds=None, why=why, remedy="a run with the load's own samples without a proxy would tell"
        )
    compared = test.ratio_to is not None or test.minus is not None
    if test.within is not None:
        above = found.low is not None and found.low > test.within[1]
        as_far = not found.holds and above == (bare > test.within[1]) and (above or compared)
    else:
        as_far = found.holds if test.above is not None else compared or not found.holds
    if test.met(bare) != found.holds or not as_far:
        return found
    why = f"the same without a proxy: {replace(found, value=bare, low=None, high=None).text}"
    return replace(
        found, holds=None, why=why, remedy="a machine that serves that load faster without a proxy would tell"
    )
