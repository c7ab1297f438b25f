"""A selfbench as people read it: a line for each number of the lab's, then what failed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rich.text import Text

from lab.analysis.selfbench import Against, Report
from lab.report.grid import Part, Words
from lab.stats.units import format_bytes, format_rate, format_seconds


def page(report: Report) -> list[Part]:
    """What was found, then faults."""
    found, faults = tuple(_lines(report)), tuple(f"failed: {fault}" for fault in report.faults)
    return [
        *([Words(tuple(map(Text, found)), found)] if found else []),
        *([Words(tuple(Text(fault, "bold red") for fault in faults), faults)] if faults else []),
    ]


def in_readme(report: Report) -> str:
    """The lines as they are printed, and where and when it was measured."""
    cpu, cpus = (report.facts.get(name, "?") for name in ("cpu", "cpus"))
    lines = "\n".join(_lines(report))
    return f"```console\n{lines}\n```\n\nMeasured on {report.measured_at[:10]}: {cpus} CPUs, {cpu}.\n"


def _lines(report: Report) -> Iterator[str]:
    if (reading := report.analysis) is not None:
        yield f"k6's log, {reading.rows:,} rows, {reading.pairs} pairs against plain polars"
        yield f"  rows per second: {_against(reading.rows_per_s, lambda rate: format_rate(round(rate)))}"
        yield f"  peak memory: {_against(reading.peak_bytes, format_bytes)}"
    if (whole := report.overhead) is not None:
        invalid = f", {whole.samples - whole.valid} of them invalid" if whole.valid < whole.samples else ""
        yield f"a whole run of {whole.samples} samples{invalid}, {format_seconds(whole.wall_s)}"
        yield f"  bring-ups: {format_seconds(whole.bring_up_s)}, measuring: {format_seconds(whole.measuring_s)}"
        own = f"{format_seconds(whole.own_s / whole.samples)} per sample"
        yield f"  the lab's own time: {own}, {whole.own_s / whole.measuring_s:.1%} of measuring"


def _against(found: Against, shown: Callable[[float], str]) -> str:
    """`3,100,000 against 4,300,000: 0.721 [0.702, 0.740]`."""
    ratio = f"{found.ratio:#.3g}"
    if found.ratio_low is not None and found.ratio_high is not None:
        ratio += f" [{found.ratio_low:#.3g}, {found.ratio_high:#.3g}]"
    return f"{shown(found.lab)} against {shown(found.polars)}: {ratio}"
