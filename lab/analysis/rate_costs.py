"""The idle cost and the marginal cost of a proxy, from the CPU cores that it uses at two rates.

At a low rate, CPU per request is mostly the fixed cost of waking up, so it says little about another rate. Two numbers do:

    idle cost       CPU cores at rate 0
    marginal cost   CPU seconds of each additional request

In each block (repetition), both follow from the line through the cores that were used at the lowest and at the highest rate of
a run. Two arms are compared block by block. If the pair (both arms measured at once) decides in the run's table, the lines are
those of its two sides; otherwise they are those of solo samples (measured alone).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lab.analysis.aggregate.cells import ArmCell
from lab.analysis.judge.rows import Summary, SummaryRow
from lab.base.grouping import group_values
from lab.model.sweeps import LoadPoint
from lab.stats import paired as stats
from lab.stats.units import format_rate

LEAST_SPREAD = 2.0
"""The least ratio of the highest rate to the lowest from which a line through both says something about rate 0."""
Line = tuple[float, float]
"""The idle cost in CPU cores and the marginal cost in CPU seconds per request, of one block."""


@dataclass(frozen=True, slots=True)
class RateCost:
    """The idle cost and the marginal cost of one arm (variant) at two rates, and their differences from its baseline.

    Attributes:
        arm: The name of the arm.
        against: The name of the baseline that it is compared with; empty for a baseline.
        rates: The lowest and the highest rate, in requests per second.
        idle: CPU cores at rate 0.
        marginal: CPU seconds of each additional request.
        idle_change: The difference of the idle cost from the baseline's. None for a baseline, or without a common block
            (repetition).
        marginal_change: The difference of the marginal cost from the baseline's; None as for `idle_change`.

    """

    arm: str
    against: str
    rates: tuple[float, float]
    idle: stats.Estimate
    marginal: stats.Estimate
    idle_change: stats.Estimate | None = None
    marginal_change: stats.Estimate | None = None

    @property
    def even_rate(self) -> float | None:
        """The rate in requests per second at which the idle cost equals the marginal cost of all requests.

        Above it, requests cause most of the cost. It is None if one of the two costs is not positive.
        """
        positive = self.idle.effect > 0 and self.marginal.effect > 0
        return self.idle.effect / self.marginal.effect if positive else None


def format_cost(estimate: stats.Estimate, is_marginal: bool, signed: bool) -> tuple[str, str]:
    """Format an idle cost in thousandths of a CPU core (mCPU), or a marginal cost in µs, and its interval.

    Args:
        estimate: The cost, in CPU cores or in CPU seconds per request.
        is_marginal: Whether it is a marginal cost.
        signed: Whether it is a difference, which has a sign.

    Returns:
        Two texts, such as `+48 mCPU` and `[+45, +52]`; the second is `–` for fewer than six blocks (repetitions).

    """
    scale, unit = (1e6, "µs") if is_marginal else (1e3, "mCPU")
    text = f"{estimate.effect * scale:{'+' if signed else ''}.3g} {unit}"
    ends = "–" if estimate.interval is None else f"[{', '.join(f'{end * scale:+.3g}' for end in estimate.interval)}]"
    return text.replace("-", "−"), ends.replace("-", "−")


def format_even_rate(rate_rps: float) -> str:
    """Format the rate at which all requests together cost as much as the idle proxy, with two significant digits: `150`."""
    return format_rate(float(f"{rate_rps:.2g}"))


def compute_rate_costs(summary: Summary) -> list[RateCost]:
    """Compute the idle cost (CPU cores at rate 0) and marginal cost (CPU seconds per further request) of each arm (variant).

    Args:
        summary: The summary of the run's steady loads.

    Returns:
        The costs in the order of the summary's table. Empty if the run has no load that was measured at two offered
        rates, of which the higher is at least `LEAST_SPREAD` times the lower.

    """
    ends = _find_ends(summary.points)
    if ends is None:
        return []
    rows = {(row.arm.name, row.point.name): row for row in summary.rows}
    names = dict.fromkeys(row.arm.name for row in summary.rows if row.arm.role != "reference")
    both = ((rows.get((name, ends[0].name)), rows.get((name, ends[1].name))) for name in names)
    return [cost for low, high in both if low and high for cost in _compute_cost(low, high)]


def _find_ends(points: Sequence[LoadPoint]) -> tuple[LoadPoint, LoadPoint] | None:
    """Return the points with the lowest and the highest offered rate, among loads that differ only in their rate.

    The result is None if the highest rate is less than LEAST_SPREAD times the lowest, or if no load has a rate.
    """
    alike = group_values(
        (point.model_copy(update={"name": "", "rate_rps": None, "duration_s": 1.0}), (point.rate_rps, point))
        for point in points
        if point.rate_rps is not None and point.disturbance is None
    )
    for rates in alike.values():
        low, high = min(rates, key=lambda item: item[0]), max(rates, key=lambda item: item[0])
        if high[0] >= LEAST_SPREAD * low[0]:
            return low[1], high[1]
    return None


def _compute_cost(low: SummaryRow, high: SummaryRow) -> Iterator[RateCost]:
    """Yield the idle and marginal cost of an arm (variant); nothing if no block (repetition) has a value at both rates.

    Args:
        low: The arm's row at the lowest rate.
        high: The arm's row at the highest rate.

    """
    pairs = [row.pair for row in (low, high) if row.pair is not None and _is_decided_by_pair(row)]
    if len(pairs) == 2:
        own, base = _fit_lines(*(pair.own for pair in pairs)), _fit_lines(*(pair.base for pair in pairs))
    else:
        own = _fit_lines(low.cell, high.cell)
        base = _fit_lines(low.base, high.base) if low.base and high.base else dict[int, Line]()
    if not own:
        return
    rates = (low.point.rate_rps or 0.0, high.point.rate_rps or 0.0)
    idle, marginal = (_estimate(own, {}, place) for place in (0, 1))
    changes = [_estimate(own, base, place) for place in (0, 1)] if own.keys() & base.keys() else [None, None]
    yield RateCost(low.arm.name, low.arm.baseline or "", rates, idle, marginal, *changes)


def _is_decided_by_pair(row: SummaryRow) -> bool:
    """Return whether the row's effect on CPU per request is that of the pair (both arms at once), not that of solo samples."""
    return any(effect.scheme is not None for effect in row.effects if effect.metric == "cpu_per_request")


def _fit_lines(low: ArmCell, high: ArmCell) -> dict[int, Line]:
    """Return block → (CPU cores at rate 0, CPU seconds per further request), by a line through the CPU use at two rates.

    Args:
        low: The arm's samples at the lower rate.
        high: The arm's samples at the higher rate. Only blocks (repetitions) that both have are used.

    """
    lines: dict[int, Line] = {}
    points = [(cell.known("rate"), cell.known("cpu_per_request")) for cell in (low, high)]
    for block in set.intersection(*(set(values) for both in points for values in both)):
        (low_rate, low_cores), (high_rate, high_cores) = (
            (rates[block], rates[block] * costs[block]) for rates, costs in points
        )
        marginal = (high_cores - low_cores) / (high_rate - low_rate)
        lines[block] = low_cores - marginal * low_rate, marginal
    return lines


def _estimate(own: Mapping[int, Line], base: Mapping[int, Line], place: int) -> stats.Estimate:
    """Return the mean of the idle or the marginal cost over blocks or, given a baseline, the mean difference from its cost.

    Args:
        own: Block (repetition) → (idle cost, marginal cost) of the arm (variant).
        base: The same for the baseline; empty to return the arm's own mean.
        place: 0 for the idle cost, 1 for the marginal cost.

    """
    blocks = sorted(own.keys() & base.keys()) if base else sorted(own)
    return stats.estimate_difference(
        [own[block][place] for block in blocks], [base.get(block, (0.0, 0.0))[place] for block in blocks]
    )
