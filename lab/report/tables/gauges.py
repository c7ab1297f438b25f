"""Small tables beside the steady one: what the arms of a run hold, by what one system scatters, and what a sample's processes used.

    what it holds          configuration      loaded in   workers         memory
    okd                         61.2 kB         42.1 ms         1        18.3 MB
    okd-routes-1000           612 kB ×10.0    303 ms ×7.2    1 ×1.00    41.9 MB ×2.3

    levels of scatter     load        repeat                generation            bring-up           one start  generations
    baseline              ceiling     0.6 % [0.5, 0.8]      4.1 % [3.1, 6.0]      0 % [0, 2.2]       4.1 %      8 × 4

Shows and compares medians of gauges and means of memory and connections, of fewer than six blocks the smallest and the largest; claims
nothing, as only a primary metric may.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median

import polars as pl

from lab.analysis import pidstat
from lab.analysis.aggregate.generations import Levels
from lab.analysis.judge.rows import Row, Summary
from lab.model.metrics import METRICS
from lab.model.plan import Arm
from lab.report.grid import Grid, Part, columns, plain, row
from lab.report.grid import Row as GridRow
from lab.stats.paired import MIN_BLOCKS
from lab.stats.units import format_bytes, format_seconds, significant

# -- what an arm holds, and how long it took to load it --------------------------------------------------------

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
OF_METRICS = {MEMORY: "memory_bytes", OPENED: OPENED}
"""Columns that are a metric of the run's rows, and no gauge."""


def page(summary: Summary) -> list[Part]:
    """One line per arm that has gauges, whatever the width; nothing where no arm has any."""
    rows_of = {arm: [row for row in summary.rows if row.arm == arm] for arm in (row.arm for row in summary.rows)}
    held = {arm.name: _held(rows) for arm, rows in rows_of.items()}
    often = any(values.get(OPENED, 0.0) >= OFTEN for values in held.values())
    names = [name for name in COLUMNS if any(name in values for values in held.values()) and (name != OPENED or often)]
    heads = columns(["what it holds", *(COLUMNS[name][0] for name in names)], left=[0], style="bold cyan")
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
        for name, metric in OF_METRICS.items()
        if (known := [value for row in rows if (value := row.cell.shown(metric)) is not None])
    }
    return values | most if values else values


def _cell(name: str, arm: Arm, held: Mapping[str, Mapping[str, float]], rows: Sequence[Row]) -> str:
    """The value, of upstream connections with their interval, of few blocks as a range, and how many times the baseline's it is."""
    value, base = held[arm.name].get(name), held.get(arm.baseline or "", {}).get(name)
    text, few = COLUMNS[name][1](value) + (_ends(rows) if name == OPENED else ""), _few(name, rows)
    if few is not None and value is not None and few[0] < few[1]:
        metric = METRICS[OF_METRICS.get(name, name)]
        text = f"{'–'.join(dict.fromkeys(map(metric.coarse, few)))} {metric.unit}".rstrip()
    if value is None or not base or arm.role != "variant":
        return text
    return f"{text} ×{value / base:.2f}" if few is None else f"{text} ×{significant(value / base, 2)}"


def _ends(rows: Sequence[Row]) -> str:
    """` [0.93, 0.97]` of the upstream connections at the point with the most; empty where they are few, or have no interval."""
    found = [each for row in rows if (each := row.cell.absolute(OPENED)) is not None and each.value is not None]
    most = max(found, key=lambda each: each.value or 0.0, default=None)
    if most is None or (most.value or 0.0) < OFTEN or (most.interval is None and most.low < most.high):
        return ""  # without an interval some block opened none
    low, high = most.interval or (most.low, most.high)
    return f" [{low:.2f}, {high:.2f}]"


def _few(name: str, rows: Sequence[Row]) -> tuple[float, float] | None:
    """Return the smallest and the largest that fewer than six blocks show, at the point with the most; None where there are six."""
    if name in OF_METRICS:
        found = [each for row in rows if (each := row.cell.absolute(OF_METRICS[name])) is not None]
        most = max(found, key=lambda each: each.high, default=None)
        return (most.low, most.high) if most is not None and most.blocks < MIN_BLOCKS else None
    samples = [each for row in rows for each in row.cell.counted.items() if name in each[1].gauges]
    values = [sample.gauges[name] for _, sample in samples]
    return (min(values), max(values)) if 0 < len({block for block, _ in samples}) < MIN_BLOCKS else None


# -- by what one system scatters -------------------------------------------------------------------------------


def levels_page(found: Sequence[Levels]) -> list[Part]:
    """Of what was measured on several generations of workers; else empty. One system's, though two were measured: their ratio scatters by √2
    as much.
    """
    if not found:
        return []
    rows: list[GridRow] = []
    for one in found:
        parts = (one.found.repeat, one.found.generation, one.found.bring_up) if one.found else (None, None, None)
        lost = "" if one.whole == one.planned else f" of {one.planned}"
        rows.append(
            row(
                one.arm.variant,
                one.point.name,
                # a level that was not repeated is a dash
                *(
                    "–" if sd is None else f"{100 * sd.sd:.1f} % [{100 * sd.low:.1f}, {100 * sd.high:.1f}]"
                    for sd in parts
                ),
                "–" if one.start is None else f"{100 * one.start:.1f} %",
                f"{one.whole}{lost} × {one.point.generations}",
            )
        )
    names = ["levels of scatter", "load", "repeat", "generation", "bring-up", "one start", "bring-ups × generations"]
    note = (
        "of one system's CPU per request, standard deviation [95 %]: measured again on the same workers, from one generation of workers to the next"
        " (both sides reload, new processes, the old ones gone), from one bring-up to the next; what a single start can be off by (1 sd) is the last two together"
    )
    heads = columns(names, left=[0, 1], style="bold cyan")
    return [Grid(heads, tuple(rows), gaps=(3,), blank=True), plain(note, "dim")]


def levels_text(one: Levels) -> str:
    """`one start is off by 4.1 % (sd; 32 generations, 8 bring-ups), a repeat by 0.6 %`, for a figure."""
    if one.found is None:
        return "no bring-up of which every measurement counts"
    repeat = f", a repeat by {100 * one.found.repeat.sd:.1f} %" if one.found.repeat else ""
    start = "–" if one.start is None else f"{100 * one.start:.1f} %"
    count = one.whole * one.point.generations
    return f"one start is off by {start} (sd; {count} generations, {one.whole} bring-ups){repeat}"


# -- what a sample's processes used ----------------------------------------------------------------------------

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
"""Column of `lab.analysis.pidstat` → pidstat's own heading (`pidstat -u -r -h`)."""


def usage_page(usage: pl.DataFrame, memory_bytes: int | None, every_second: bool) -> list[Part]:
    """One sample's averages; every second's CPU table and memory table first where that is asked for. What is not known is `–`."""
    average: list[Part] = [plain("average", "bold"), _usage(pidstat.summary(usage, memory_bytes))]
    if not every_second:
        return average
    tables = (pidstat.cpu_table(usage), pidstat.memory_table(usage, memory_bytes))
    return [*(part for table in tables for part in (_usage(table), plain(""))), *average]


def _usage(frame: pl.DataFrame) -> Grid:
    shown = frame.select([name for name in HEADINGS if name in frame.columns])
    rows: list[GridRow] = []
    for line in shown.iter_rows(named=True):
        texts: list[str] = []
        for name, value in line.items():
            digits = 1 if name == "t_s" else 2
            texts.append("–" if value is None else f"{value:.{digits}f}" if isinstance(value, float) else str(value))
        rows.append(row(*texts))
    left = [number for number, name in enumerate(shown.columns) if name in ("role", "title")]
    return Grid(columns([HEADINGS[name] for name in shown.columns], left), tuple(rows))
