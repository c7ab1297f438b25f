"""What the arms of a run hold and how long they took to load it: a small table under the steady one, where gauges are known.

    what it holds          configuration      loaded in   workers         memory
    okd                         61.2 kB         42.1 ms         1        18.3 MB
    okd-routes-1000           612 kB ×10.0    303 ms ×7.2    1 ×1.00    41.9 MB ×2.3

Shows and compares medians; claims nothing, as only a primary metric may.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median

from lab.analysis.rows import Row
from lab.analysis.summary import Summary
from lab.model.metrics import METRICS
from lab.model.plan import Arm
from lab.report.grid import Grid, Part, columns, row
from lab.stats.paired import middle
from lab.stats.units import format_bytes, format_seconds

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
    held = {arm: _held([row for row in summary.rows if row.arm == arm]) for arm in (row.arm for row in summary.rows)}
    often = any(values.get(OPENED, 0.0) >= OFTEN for values in held.values())
    names = [name for name in COLUMNS if any(name in values for values in held.values()) and (name != OPENED or often)]
    by_name = {arm.name: values for arm, values in held.items()}
    ends = {arm: _ends([row for row in summary.rows if row.arm == arm]) for arm in held}
    heads = columns([TITLE, *(COLUMNS[name][0] for name in names)], left=[0], style="bold cyan")
    rows = [
        row(arm.name, *(_cell(name, arm, by_name, ends[arm]) for name in names))
        for arm, values in held.items()
        if values
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
    read = METRICS[OPENED].read
    told = ([read(sample, None) for sample in row.cell.counted.values()] for row in rows)
    known = ([value for value in values if value is not None] for values in told)
    levels = [middle(values) for values in known if values]
    most = max(levels, key=lambda level: level.value, default=None)
    if most is None or most.low is None or most.high is None or most.value < OFTEN:
        return ""
    return f" [{most.low:.2f}, {most.high:.2f}]"


def _cell(name: str, arm: Arm, held: Mapping[str, Mapping[str, float]], ends: str) -> str:
    """The value, of upstream connections with their interval (`ends`), and how many times the baseline's it is."""
    value, base = held[arm.name].get(name), held.get(arm.baseline or "", {}).get(name)
    text = COLUMNS[name][1](value) + (ends if name == OPENED else "")
    return f"{text} ×{value / base:.2f}" if value is not None and base and arm.role == "variant" else text
