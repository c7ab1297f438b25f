"""The order tests of all committed runs as people read them: a row for each run, then what depends on the order."""

from __future__ import annotations

from lab.analysis.order_report import OrderReport
from lab.report import grid
from lab.report.grid import Grid, Part, columns, plain

HEADERS = ("run", "valid samples", "tests", "smallest p")
LEGEND = (
    "A test compares one metric of one arm at one point by the point that was measured before, or by whether the proxy had opened"
    " many connections shortly before.",
    "Smallest p: of the run's tests, before any adjustment. Runs without tests have one steady point, or too few blocks.",
)


def page(report: OrderReport) -> list[Part]:
    """Return the table, its legend, the conclusion, and a line for each dependence that was found."""
    rows = (
        grid.row(one.run, str(one.samples), str(one.tests), "–" if one.smallest_p is None else f"{one.smallest_p:.2g}")
        for one in report.runs
        if one.samples or one.fault
    )
    below = f"{report.below_5_percent} of {report.tests} tests have p < 0.05 before adjustment"
    holm = "" if report.smallest_holm_p is None else f" (smallest {report.smallest_holm_p:.2g})"
    conclusion = (
        f"{len(report.dependent)} metrics depend on what was measured before{holm}"
        if report.dependent
        else f"No metric depends on what was measured before{holm}"
    )
    return [
        Grid(columns(HEADERS, left=(0,)), tuple(rows)),
        *(plain(text, "dim") for text in LEGEND),
        plain(f"{conclusion}: Holm-adjusted over all tests, at 0.05; {below}.", blank=True),
        *(plain(f"- {text}") for text in report.dependent),
        *(plain(f"- {one.run} at {text}") for one in report.runs for text in one.missing),
        *(plain(f"- {one.run} cannot be read: {one.fault}") for one in report.runs if one.fault),
    ]
