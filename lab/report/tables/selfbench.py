"""A selfbench as people read it: the lab's numbers, with those by hand, part by part, then what failed."""

from __future__ import annotations

from rich.text import Text

from lab.analysis.selfbench import Report, Row, Unit
from lab.report import grid
from lab.report.grid import Grid, Heading, Part, Words, columns
from lab.report.terminal import terminal
from lab.stats.units import format_bytes, format_rate, format_seconds

HEADERS = ("", "lab", "by hand", "ratio", "n", "")


def page(report: Report) -> list[Part]:
    """The table by parts, then faults."""
    rows = (grid.row(*_cells(row), under=[Heading(row.part)]) for row in report.rows)
    faults = [f"failed: {fault}" for fault in report.faults]
    return [
        *([Grid(columns(HEADERS, left=(0, 5)), tuple(rows))] if report.rows else []),
        *([Words(tuple(Text(fault, "bold red") for fault in faults), tuple(faults))] if faults else []),
    ]


def in_readme(report: Report) -> str:
    """The table as it is printed, and where and when it was measured."""
    table = "\n".join(line.plain for line in terminal(page(report))).strip("\n")
    cpu, cpus = (report.facts.get(name, "?") for name in ("cpu", "cpus"))
    return f"```console\n{table}\n```\n\nMeasured on {report.measured_at[:10]}: {cpus} CPUs, {cpu}.\n"


def shown_value(value: float | None, unit: Unit) -> str:
    """With its unit: 1.20 s, 3.1 %, 12,345 req/s, 61.2 MB; – for None."""
    if value is None:
        return "–"
    if unit == "s":
        return format_seconds(value)
    if unit == "bytes":
        return format_bytes(value)
    return f"{value:.1f} %" if unit == "%" else f"{format_rate(round(value, 1))} {unit}"


def _cells(row: Row) -> tuple[str, ...]:
    ratio = "–" if row.ratio is None else _three(row.ratio)
    if row.ratio_low is not None and row.ratio_high is not None:
        ratio += f" [{_three(row.ratio_low)}, {_three(row.ratio_high)}]"
    return row.what, shown_value(row.lab, row.unit), shown_value(row.by_hand, row.unit), ratio, str(row.n), row.note


def _three(value: float) -> str:
    """Three significant digits, whole numbers from 100 on."""
    return f"{value:,.0f}" if value >= 99.95 else f"{value:#.3g}"
