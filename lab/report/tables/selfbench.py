"""What `selfbench` says of the lab itself, as people read it: known costs as pairs and the arms alone show them, and the order tests of all committed runs."""

from __future__ import annotations

from lab.analysis.known_costs import METRIC, WHOLE, KnownCosts
from lab.analysis.order_report import OrderReport
from lab.model.metrics import about
from lab.report.grid import Cell, Grid, Part, columns, plain, row, texts
from lab.stats import paired as stats


def known_costs(known: KnownCosts | None) -> list[Part]:
    """What was put in and what is seen of it, fewest lines first, and the slope."""
    if known is None:
        return [plain("No cost was measured both ways, as a pair and alone, in enough blocks.")]
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
    heads = (
        "needless lines",
        "each alone",
        "as a pair",
        "pair − alone",
        "known to ±",
        "SD of a block, alone",
        "as a pair",
    )
    first = known.costs[0].apart
    rule = (
        f"{about(METRIC).title} in {first.n} blocks, 95 % intervals; of pair − alone {100 * first.confidence:g} %, so that all but the last, which is"
        " there for the slope, are right together with 95 %."
    )
    slope = "What pairs show of a line over what the arms alone show of it cannot be told."
    if known.slope is not None and known.slope.ratio_interval is not None:
        low, high = known.slope.ratio_interval
        wanted = f"which is to be {WHOLE[0]:g} to {WHOLE[1]:g}"
        slope = f"Pairs show {known.slope.ratio:.2f} [{low:.2f}, {high:.2f}] of what a line costs alone, {wanted}."
    return [texts(heads, rows), plain(rule), plain(slope)]


def _estimate(estimate: stats.Estimate) -> str:
    metric = about(METRIC)
    return metric.change(estimate.effect) + metric.ends(*(estimate.interval or (None, None)))


def orders(report: OrderReport) -> list[Part]:
    """A row for each run, how to read it, the conclusion, and a line for each dependence that was found."""
    rows = (
        row(one.run, str(one.samples), str(one.tests), "–" if one.smallest_p is None else f"{one.smallest_p:.2g}")
        for one in report.runs
        if one.samples or one.fault
    )
    legend = (
        "A test compares one metric of one arm at one point by the point that was measured before, or by whether the proxy had opened"
        " many connections shortly before.",
        "Smallest p: of the run's tests, before any adjustment. Runs without tests have one steady point, or too few blocks.",
    )
    below = f"{report.below_5_percent} of {report.tests} tests have p < 0.05 before adjustment"
    holm = "" if report.smallest_holm_p is None else f" (smallest {report.smallest_holm_p:.2g})"
    many = f"{len(report.dependent)} metrics depend" if report.dependent else "No metric depends"
    return [
        Grid(columns(("run", "valid samples", "tests", "smallest p"), left=(0,)), tuple(rows)),
        *(plain(text, "dim") for text in legend),
        plain(f"{many} on what was measured before{holm}: Holm-adjusted over all tests, at 0.05; {below}.", blank=True),
        *(plain(f"- {text}") for text in report.dependent),
        *(plain(f"- {one.run} at {text}") for one in report.runs for text in one.missing),
        *(plain(f"- {one.run} cannot be read: {one.fault}") for one in report.runs if one.fault),
    ]
