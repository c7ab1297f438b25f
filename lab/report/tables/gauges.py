"""What the arms of a run hold and how long they took to load it: a small table under the steady one, where gauges are known.

    what it holds          configuration      loaded in   workers         memory
    okd                         61.2 kB         42.1 ms         1        18.3 MB
    okd-routes-1000           612 kB ×10.0    303 ms ×7.2    1 ×1.00    41.9 MB ×2.3

Shows and compares medians of gauges and means of memory and connections, of fewer than six blocks the smallest and the largest; claims
nothing, as only a primary metric may.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median

from lab.analysis.judge.rows import Row, Summary
from lab.model.metrics import METRICS
from lab.model.plan import Arm
from lab.report.grid import Grid, Part, columns, row
from lab.stats.paired import MIN_BLOCKS
from lab.stats.units import format_bytes, format_seconds, significant

MEMORY, OPENED = "memory", "opened_per_request"
OFTEN = 0.01
"""Upstream connections opened per good answer: below, the proxy keeps those that it has, and there is nothing to tell."""
COLUMNS: Mapping[str, tuple[str, Callable[[float | None], str]]] = {
    "proxy/config_bytes": ("configuration", format_bytes),
    "proxy/load_s": ("loaded in", format_seconds),
    "proxy/workers": ("workers", lambda count: "–" if count is None else f"{count:g}"),
    OPENED: ("opened per answer", lambda share: "–" if share is None else f"{share:.2f}"),
    MEMORY: (MEMORY, format_bytes),
}
"""Gauge → its heading and how it is written; `memory` is what the processes held at most while they were loaded, `opened per answer` the
upstream connections at the point with the most, with the interval of the blocks' median there."""

TITLE = "what it holds"


def page(summary: Summary) -> list[Part]:
    """One line per arm that has gauges, whatever the width; nothing where no arm has any."""
    rows_of = {arm: [row for row in summary.rows if row.arm == arm] for arm in (row.arm for row in summary.rows)}
    held = {arm.name: _held(rows) for arm, rows in rows_of.items()}
    often = any(values.get(OPENED, 0.0) >= OFTEN for values in held.values())
    names = [name for name in COLUMNS if any(name in values for values in held.values()) and (name != OPENED or often)]
    heads = columns([TITLE, *(COLUMNS[name][0] for name in names)], left=[0], style="bold cyan")
    rows = [
        row(arm.name, *(_cell(name, arm, held, own) for name in names))
        for arm, own in rows_of.items()
        if held[arm.name]
    ]
    return [Grid(heads, tuple(rows), gaps=(3,), blank=True)] if names else []


def _held(rows: Sequence[Row]) -> dict[str, float]:
    """Of one arm, over its points: its gauges' medians by name, and the most memory; empty without gauges."""
    names = dict.fromkeys(name for row in rows for name in row.cell.gauges)
    values = {name: median(row.cell.gauges[name] for row in rows if name in row.cell.gauges) for name in names}
    most = {
        name: max(known)
        for name, metric in ((MEMORY, "memory_bytes"), (OPENED, OPENED))
        if (known := [value for row in rows if (value := row.cell.shown(metric)) is not None])
    }
    return values | most if values else values


def _ends(rows: Sequence[Row]) -> str:
    """` [0.93, 0.97]` of the upstream connections at the point with the most; empty where they are few, or have no interval."""
    found = [each for row in rows if (each := row.cell.absolute(OPENED)) is not None and each.value is not None]
    most = max(found, key=lambda each: each.value or 0.0, default=None)
    if most is None or (most.value or 0.0) < OFTEN:
        return ""
    if most.interval is None and most.low < most.high:  # some block opened none
        return ""
    low, high = most.interval or (most.low, most.high)
    return f" [{low:.2f}, {high:.2f}]"


def _few(name: str, rows: Sequence[Row]) -> tuple[float, float] | None:
    """Return the smallest and the largest that fewer than six blocks show, at the point with the most; None where there are six."""
    if name in (MEMORY, OPENED):
        metric = "memory_bytes" if name == MEMORY else OPENED
        found = [each for row in rows if (each := row.cell.absolute(metric)) is not None]
        most = max(found, key=lambda each: each.high, default=None)
        return (most.low, most.high) if most is not None and most.blocks < MIN_BLOCKS else None
    samples = {
        (block, sample.gauges[name])
        for row in rows
        for block, sample in row.cell.counted.items()
        if name in sample.gauges
    }
    values = [value for _, value in samples]
    return (min(values), max(values)) if 0 < len({block for block, _ in samples}) < MIN_BLOCKS else None


def _cell(name: str, arm: Arm, held: Mapping[str, Mapping[str, float]], rows: Sequence[Row]) -> str:
    """The value, of upstream connections with their interval, of few blocks as a range, and how many times the baseline's it is."""
    value, base = held[arm.name].get(name), held.get(arm.baseline or "", {}).get(name)
    text, few = COLUMNS[name][1](value) + (_ends(rows) if name == OPENED else ""), _few(name, rows)
    if few is not None and value is not None and few[0] < few[1]:
        metric = METRICS["memory_bytes" if name == MEMORY else name]
        text = f"{'–'.join(dict.fromkeys(map(metric.coarse, few)))} {metric.unit}".rstrip()
    if value is None or not base or arm.role != "variant":
        return text
    return f"{text} ×{value / base:.2f}" if few is None else f"{text} ×{significant(value / base, 2)}"
