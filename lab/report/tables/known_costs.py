"""Known costs as people read them: what was put in, and what pairs and the arms alone show of it."""

from __future__ import annotations

from lab.analysis.known_costs import METRIC, WHOLE, KnownCosts
from lab.model.metrics import about
from lab.report.grid import Cell, Part, plain, texts
from lab.stats import paired as stats

NONE = "No cost was measured both ways, as a pair and alone, in enough blocks."
HEADS = ("needless lines", "each alone", "as a pair", "pair − alone", "known to ±", "SD of a block, alone", "as a pair")


def page(known: KnownCosts | None) -> list[Part]:
    """The table, fewest lines first, and the slope."""
    if known is None:
        return [plain(NONE)]
    rows = [
        (
            str(one.lines),
            _estimate(one.alone),
            Cell(_estimate(one.pair), strong=True),
            _estimate(one.apart),
            "–" if one.doubt is None else f"{one.doubt:.2f} of it",
            *("–" if each.sd is None else f"{100 * each.sd:.1f} %" for each in (one.alone, one.pair)),
        )
        for one in known.costs
    ]
    first = known.costs[0].apart
    rule = (
        f"{about(METRIC).title} in {first.n} blocks, 95 % intervals; of pair − alone {100 * first.confidence:g} %, so that all but the last, which is"
        " there for the slope, are right together with 95 %."
    )
    return [texts(HEADS, rows), plain(rule), plain(_slope(known))]


def _slope(known: KnownCosts) -> str:
    if known.slope is None or known.slope.ratio_interval is None:
        return "What pairs show of a line over what the arms alone show of it cannot be told."
    low, high = known.slope.ratio_interval
    least, most = WHOLE
    return f"Pairs show {known.slope.ratio:.2f} [{low:.2f}, {high:.2f}] of what a line costs alone, which is to be {least:g} to {most:g}."


def _estimate(estimate: stats.Estimate) -> str:
    metric = about(METRIC)
    return metric.change(estimate.effect) + metric.ends(*(estimate.interval or (None, None)))
