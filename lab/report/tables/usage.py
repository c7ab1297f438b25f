"""A sample's usage as text: its averages, and second by second, in the columns that `pidstat -u -r -h` prints.

Takes what `lab.pidstat` computes; computes nothing. A share that is not known is `–`, as it is nowhere else zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl
from rich.text import Text

from lab.analysis import pidstat
from lab.base.text import aligned

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


def lines(usage: pl.DataFrame, memory_bytes: int | None, every_second: bool) -> Iterator[Text]:
    """One sample's averages; every second's CPU table and memory table first where that is asked for."""
    if every_second:
        yield from _table(pidstat.cpu_table(usage))
        yield Text()
        yield from _table(pidstat.memory_table(usage, memory_bytes))
        yield Text()
    yield Text("average", style="bold")
    yield from _table(pidstat.summary(usage, memory_bytes))


def as_json(usage: pl.DataFrame, memory_bytes: int | None) -> dict[str, Any]:
    """`cpu` and `memory` (a record per process or thread and second), `average` (one per process or thread)."""
    return {
        "cpu": pidstat.cpu_table(usage).to_dicts(),
        "memory": pidstat.memory_table(usage, memory_bytes).to_dicts(),
        "average": pidstat.summary(usage, memory_bytes).to_dicts(),
    }


def _table(frame: pl.DataFrame) -> Sequence[Text]:
    shown = frame.select([name for name in HEADINGS if name in frame.columns])
    head = [Text(HEADINGS[name], style="bold") for name in shown.columns]
    rows = [[Text(_cell(name, value)) for name, value in row.items()] for row in shown.to_dicts()]
    left = frozenset(number for number, name in enumerate(shown.columns) if name in _LEFT)
    return aligned([head, *rows], left, 2)


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "–"
    if name == "t_s":
        return f"{value:.1f}"
    return f"{value:.2f}" if isinstance(value, float) else str(value)
