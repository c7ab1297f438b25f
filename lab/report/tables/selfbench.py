"""The pages of the command `selfbench`: whether pairs show a known cost correctly, and whether the order of a run matters."""

from __future__ import annotations

from lab.analysis.known_costs import FULL_SLOPE, METRIC, KnownCosts
from lab.analysis.order_report import OrderReport
from lab.model.metrics import find_metric
from lab.report.grid import Grid, Part, TableCell, make_columns, make_row, make_sentence, make_text_table
from lab.stats import paired as stats


def known_costs_page(costs: KnownCosts | None) -> list[Part]:
    """Return the page about known costs: whether pairs (two variants measured at once) show the same costs as solo samples.

    Some variants do a known amount of needless work on purpose. In a solo sample, one variant has the machine to itself. The
    table has a row for each variant with needless work, the one with the least work first. Sentences below the table explain the
    intervals, and state how much of the cost is visible in pairs.

    Args:
        costs: The measured costs; None: there are none, and the page is one sentence.

    """
    if costs is None:
        return [make_sentence("No cost was measured both ways, as a pair and alone, in enough blocks.")]
    rows = [
        (
            str(cost.lines),
            _format_effect(cost.alone),
            TableCell(_format_effect(cost.pair), strong=True),
            _format_effect(cost.apart),
            "–" if cost.doubt is None else f"{cost.doubt:.2f} of it",
            *("–" if estimate.sd is None else f"{100 * estimate.sd:.1f} %" for estimate in (cost.alone, cost.pair)),
        )
        for cost in costs.costs
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
    first, last = costs.costs[0].apart, costs.costs[-1].lines
    rule = (
        f"{find_metric(METRIC).title} in {first.n} blocks, with 95 % intervals. The column pair − alone has {100 * first.confidence:g} % intervals: all but the last are"
        f" then jointly right with 95 %. The row of {last} lines serves only the slope."
    )
    slope = "What pairs show of a line over what the solo arms show of it is unknown."
    if costs.slope is not None and costs.slope.ratio_interval is not None:
        low, high = costs.slope.ratio_interval
        target = f"the self-check passes if this ratio is {FULL_SLOPE[0]:g} to {FULL_SLOPE[1]:g}"
        slope = f"Pairs show {costs.slope.ratio:.2f} [{low:.2f}, {high:.2f}] of what a line costs alone; {target}."
    return [make_text_table(heads, rows), make_sentence(rule), make_sentence(slope)]


def _format_effect(estimate: stats.Estimate) -> str:
    metric = find_metric(METRIC)
    return metric.change(estimate.effect) + metric.ends(*(estimate.interval or (None, None)))


def order_page(report: OrderReport) -> list[Part]:
    """Return the page about the question whether results depend on the order of a run (what was measured before).

    The page has a table of the committed runs, an explanation of the table, and the conclusion. Runs without a valid sample of a
    steady load are not in the table. Below the conclusion there is a line for each metric that depends on the order, for each
    load point whose invalid samples depend on the order, and for each run that cannot be read. Runs that cannot be read are in
    the table, too.

    Args:
        report: The order tests of all committed runs.

    """
    rows = (
        make_row(
            run_order.run,
            str(run_order.samples),
            str(run_order.tests),
            "–" if run_order.smallest_p is None else f"{run_order.smallest_p:.2g}",
        )
        for run_order in report.runs
        if run_order.samples or run_order.fault
    )
    legend = (
        "A test compares one metric of one arm at one point by the point that was measured before, or by whether the proxy had opened"
        " many connections shortly before.",
        "Smallest p: of the run's tests, before any adjustment. Runs without tests have one steady point, or too few blocks.",
    )
    unadjusted = f"{report.below_5_percent} of {report.tests} tests have p < 0.05 before adjustment"
    holm = "" if report.smallest_holm_p is None else f" (smallest {report.smallest_holm_p:.2g})"
    many = f"{len(report.dependent)} metrics depend" if report.dependent else "No metric depends"
    return [
        Grid(make_columns(("run", "valid samples", "tests", "smallest p"), left=(0,)), tuple(rows)),
        *(make_sentence(text, "dim") for text in legend),
        make_sentence(
            f"{many} on what was measured before{holm}: Holm-adjusted over all tests, at 0.05; {unadjusted}.",
            blank=True,
        ),
        *(make_sentence(f"- {text}") for text in report.dependent),
        *(make_sentence(f"- {run_order.run} at {text}") for run_order in report.runs for text in run_order.missing),
        *(
            make_sentence(f"- {run_order.run} cannot be read: {run_order.fault}")
            for run_order in report.runs
            if run_order.fault
        ),
    ]
