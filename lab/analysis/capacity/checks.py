"""How well do the prices predict what was measured, but not used? Each load is held out, and its rate predicted from the others.

    rate = CPUs · busy / c        CPUs (that its workers fill) and busy (how full) of the load held out, c from other loads alone

Refuses to check where the proxy has no CPUs of its own: how busy it was is not known then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from lab.analysis.capacity.cells import Load
from lab.analysis.capacity.costs import NEAR, Cost, OutOfRangeError, cost_of, interval, median_draws

NONE = "no held-out point in this run"


@dataclass(frozen=True, slots=True)
class Check:
    """One load held out. Rates in req/s; `low` and `high`: the 95 % interval of the prediction, the held-out noise included; None
    below six blocks. `bound`: the prediction is from less load alone, so that the rate can only be higher. `repeat`: it is from the
    same load of the A/A twin, which shows how far two measurements of one thing differ, and nothing of the model.
    """

    arm: str
    point: str
    source: str
    predicted_rps: float
    low_rps: float | None
    high_rps: float | None
    measured_rps: float
    bound: bool = False
    repeat: bool = False

    @property
    def error(self) -> float:
        """Predicted / measured − 1."""
        return self.predicted_rps / self.measured_rps - 1

    @property
    def inside(self) -> bool | None:
        """None without an interval. A bound is met from above."""
        if self.low_rps is None or self.high_rps is None:
            return None
        return self.low_rps <= self.measured_rps and (self.bound or self.measured_rps <= self.high_rps)


def checks(loads: Sequence[Load]) -> list[Check]:
    """Of every load that others of its run predict; empty where the proxy had no CPUs of its own.

    page     a ceiling of the proxy's, from its arm's closed loops at other page sizes
    again    a ceiling of the A/A arm, from the baseline's at the same point: other processes, other minutes
    load     any load, from its arm's other loads of the same page, if there are some on both sides; a ceiling also from less load
    """
    return [check for load in loads for check in _of(load, loads)]


def _of(held: Load, loads: Sequence[Load]) -> Iterator[Check]:
    if held.busy is None:
        return
    siblings = [load for load in loads if load.arm == held.arm and load.kind == held.kind and load is not held]
    ceiling = bool(held.ceilings_rps)
    pages = [load for load in siblings if load.page_bytes != held.page_bytes and load.point.rate_rps is None]
    if ceiling and pages:
        try:
            cost = cost_of(pages, held.page_bytes, held.busy)
        except OutOfRangeError:
            pass
        else:
            yield _check(held, cost, f"from {len({load.page_bytes for load in pages})} other page sizes")
    if ceiling and held.arm.role == "again":
        twin = [load for load in loads if load.arm.name == held.arm.baseline and load.point == held.point]
        if twin:
            yield _check(held, cost_of(twin, held.page_bytes, held.busy), f"from {twin[0].arm.name}", repeat=True)
    same = [load for load in siblings if load.page_bytes == held.page_bytes and load.busy is not None]
    less = [load for load in same if (load.busy or 0) < held.busy - NEAR]
    between = bool(less) and any((load.busy or 0) > held.busy + NEAR for load in same)
    alone = not any(abs((load.busy or 0) - held.busy) <= NEAR for load in same)
    if same and (between or (ceiling and bool(less) and alone)):
        others = [load for load in same if abs((load.busy or 0) - held.busy) > NEAR]
        cost = cost_of(others, held.page_bytes, held.busy)
        yield _check(held, cost, f"from {' and '.join(load.text for load in cost.loads)}", bound=not between)


def _check(held: Load, cost: Cost, source: str, bound: bool = False, repeat: bool = False) -> Check:
    filled = (held.workers or 0) * (held.busy or 0.0)
    predicted = filled / cost.value_s
    own = median_draws(list(held.costs_s.values()), seed=1)
    low = high = None
    if cost.draws is not None and own is not None:
        low, high = interval(filled / cost.draws * own / median(held.costs_s.values()))
    measured = median(held.rates_rps.values())
    return Check(held.arm.name, held.point.name, source, predicted, low, high, measured, bound, repeat)
