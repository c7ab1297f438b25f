"""A sample's usage as text: its averages, and second by second, in the columns that `pidstat -u -r -h` prints.

Takes what `lab.analysis.pidstat` computes; computes nothing. A share that is not known is `–`, as it is nowhere else zero.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from lab.analysis import pidstat
from lab.report.grid import Grid, Part, columns, plain, row

HEADINGS = {
    "t_s": "s",
    "role": "role",
    "pid": "PID",
    "tid": "TID",
    "title": "Command",
    "usr_percent": "%usr",
    "system_percent": "%system",
    "guest_percent": "%guest",
    "cpu_percent": "%CPU",
    "minflt_per_s": "minflt/s",
    "majflt_per_s": "majflt/s",
    "vsz_kib": "VSZ",
    "rss_kib": "RSS",
    "mem_percent": "%MEM",
}
"""Column → pidstat's own heading."""

_LEFT = ("role", "title")


def page(usage: pl.DataFrame, memory_bytes: int | None, every_second: bool) -> list[Part]:
    """One sample's averages; every second's CPU table and memory table first where that is asked for."""
    average: list[Part] = [plain("average", "bold"), _table(pidstat.summary(usage, memory_bytes))]
    if not every_second:
        return average
    tables = (pidstat.cpu_table(usage), pidstat.memory_table(usage, memory_bytes))
    return [*(part for table in tables for part in (_table(table), plain(""))), *average]


def _table(frame: pl.DataFrame) -> Grid:
    shown = frame.select([name for name in HEADINGS if name in frame.columns])
    left = [number for number, name in enumerate(shown.columns) if name in _LEFT]
    rows = (row(*(_cell(name, value) for name, value in each.items())) for each in shown.to_dicts())
    return Grid(columns([HEADINGS[name] for name in shown.columns], left), tuple(rows))


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "–"
    if name == "t_s":
        return f"{value:.1f}"
    return f"{value:.2f}" if isinstance(value, float) else str(value)
