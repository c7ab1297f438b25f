"""NDS' two pidstat tables, of its two nginx workers, and the same columns of a run's proxy: of each process its average line.

    nds_pidstat.csv: …,cpu,15:56:11,proc2,6,6,0,12,… and …,memory,15:56:52,proc1,…,325992,15068,0.37,…
    →  | proc2, published | 0.762 | 0.857 | 0 | 1.62 | …

Refuses to fill in what the page does not tell: page faults that could not be read off it are left out of their average.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from lab.analysis import pidstat
from lab.analysis.evidence import Evidence
from lab.records import published
from lab.report.grid import Grid, Part, columns, row
from lab.report.tables.usage import HEADINGS
from lab.stats import paired as stats
from lab.stats.units import digits, format_range, with_interval

TABLE = "nds_pidstat"
COLUMNS = (*pidstat.CPU_COLUMNS, *pidstat.MEMORY_COLUMNS)
UNITS = {"vsz_kib": " (KiB)", "rss_kib": " (KiB)"}

Line = Sequence[float | None]
"""COLUMNS' values; None: not told."""


def page(run: Evidence | None, variants: Sequence[str], point: str) -> list[Part]:
    """A line per process: the published ones, and this run's with the blocks' medians [95 %]. UsageError when a table is damaged."""
    heads = ["process", *(HEADINGS[name] + UNITS.get(name, "") for name in COLUMNS)]
    known = published.frame(TABLE).group_by("process", maintain_order=True).agg(pl.col(COLUMNS).mean())
    rows = [row(f"{name}, published", *map(digits, line)) for name, *line in known.iter_rows()]
    for variant in variants if run else ():
        assert run is not None
        for name, blocks in measured(run, variant, point).items():
            rows.append(row(f"{variant} at {point}: {name}", *map(_middle, zip(*blocks, strict=True))))
    return [Grid(columns(heads, left=[0]), tuple(rows))]


def measured(run: Evidence, variant: str, point: str) -> dict[str, list[Line]]:
    """Process of the proxy, the busiest first (ids differ from block to block) → its line in each block. UsageError as `page`."""
    memory_bytes = run.run.record.facts.get("memory_bytes", "")
    of_all = int(memory_bytes) if memory_bytes.isdecimal() else None
    found: dict[str, list[Line]] = {}
    for arm in run.arms(variant)[:1]:
        for sample in run.blocks(arm, point).values():
            usage = run.run.usage(sample).filter((pl.col("role") == "proxy") & pl.col("tid").is_null())
            averages = pidstat.summary(usage, of_all).sort("cpu_percent", descending=True, maintain_order=True)
            for number, (title, *line) in enumerate(averages.select("title", *COLUMNS).iter_rows(), 1):
                found.setdefault(f"{title} {number}", []).append(line)
    return found


def _middle(values: Line) -> str:
    known = [value for value in values if value is not None]
    found = stats.middle(known) if known else None
    if found is not None and found.low is None:
        return format_range(min(known), max(known))
    return with_interval(found.value, found.low, found.high) if found else digits(None)
