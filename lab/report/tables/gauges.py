"""What the arms of a run hold and how long they took to load it: a small table under the steady one, where gauges are known.

    what it holds          configuration      loaded in         memory
    okd                         61.2 kB         42.1 ms        18.3 MB
    okd-routes-1000           612 kB ×10.0    303 ms ×7.2     41.9 MB ×2.3

Shows and compares medians; claims nothing, as only a primary metric may.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from lab.analysis.rows import Row
from lab.analysis.summary import Summary
from lab.model.plan import Arm
from lab.report.grid import Grid, Part, columns, row
from lab.stats.units import format_bytes, format_seconds

MEMORY = "memory"
COLUMNS: Mapping[str, tuple[str, Callable[[float | None], str]]] = {
    "proxy/config_bytes": ("configuration", format_bytes),
    "proxy/load_s": ("loaded in", format_seconds),
    MEMORY: (MEMORY, format_bytes),
}
"""Gauge → its heading and how it is written; `memory` is what the processes held at most while they were loaded."""

TITLE = "what it holds"


@dataclass(frozen=True, slots=True)
class Held:
    """One arm's gauges by name, `memory` among them; what is not known is left out."""

    arm: Arm
    values: Mapping[str, float]


def held(summary: Summary) -> list[Held]:
    """One per arm that has gauges, in the table's order: over its points the medians, of memory the most."""
    arms = dict.fromkeys(row.arm for row in summary.rows)
    found = [Held(arm, _values([row for row in summary.rows if row.arm == arm])) for arm in arms]
    return [each for each in found if each.values]


def page(summary: Summary) -> list[Part]:
    """One line per arm, whatever the width; nothing where no arm has gauges."""
    found = held(summary)
    names = _known(found)
    by_name = {each.arm.name: each.values for each in found}
    heads = columns([TITLE, *(COLUMNS[name][0] for name in names)], left=[0], style="bold cyan")
    rows = [row(each.arm.name, *(_cell(name, each, by_name) for name in names)) for each in found]
    return [Grid(heads, tuple(rows), gaps=(3,), blank=True)] if names else []


def _values(rows: Sequence[Row]) -> dict[str, float]:
    names = dict.fromkeys(name for row in rows for name in row.cell.gauges)
    values = {name: median(row.cell.gauges[name] for row in rows if name in row.cell.gauges) for name in names}
    memory = [value for row in rows if (value := row.cell.shown("memory_bytes")) is not None]
    return values | {MEMORY: max(memory)} if values and memory else values


def _known(found: Iterable[Held]) -> list[str]:
    names = {name for each in found for name in each.values}
    return [name for name in COLUMNS if name in names]


def _cell(name: str, each: Held, by_name: Mapping[str, Mapping[str, float]]) -> str:
    """The value, and how many times the baseline's it is."""
    value = each.values.get(name)
    text = COLUMNS[name][1](value)
    base = by_name.get(each.arm.baseline or "", {}).get(name)
    return f"{text} ×{value / base:.2f}" if value is not None and base and each.arm.role == "variant" else text
