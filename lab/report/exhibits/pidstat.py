"""NDS' two pidstat tables, of its two nginx workers second by second, and the same columns of a run's proxy.

    nds_pidstat.csv: …,cpu,15:56:11,proc2,6,6,0,12,… and …,memory,15:56:52,proc1,…,325992,15068,0.37,…
    →  | proc2 | 1.29 | 1.38 | 0 | 2.67 | 12 | …

Of each process its average line, as pidstat prints it, its busiest second, and two ratios that machines can be compared by: the
user's part of its CPU, and its largest resident size against its smallest. Refuses to fill in what the page does not tell: page
faults that could not be read off it are left out of their average.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from lab.analysis import pidstat
from lab.analysis.claims.evidence import Evidence
from lab.model.samples import Sample
from lab.records import published
from lab.report.figures.watched import KIB, Watched
from lab.report.grid import Grid, Part, columns, row
from lab.report.tables.usage import HEADINGS
from lab.stats import paired as stats
from lab.stats.units import digits, with_interval

TABLE = "nds_pidstat"
COLUMNS = (*pidstat.CPU_COLUMNS, "busiest", *pidstat.MEMORY_COLUMNS, "user_share", "growth")
OWN = {
    "busiest": "%CPU in the busiest second",
    "user_share": "%usr of %CPU",
    "growth": "RSS, most against least, all loads",
}
UNITS = {"vsz_kib": " (KiB)", "rss_kib": " (KiB)"}

Line = Mapping[str, float | None]
"""Column → value; None: not told."""


@dataclass(frozen=True, slots=True)
class _Part:
    """One process in one sample: its second-by-second tables, cut to it, its average line, and its resident KiB at every look."""

    name: str
    cpu: pl.DataFrame
    memory: pl.DataFrame
    average: Line
    resident: Sequence[float]


def known() -> dict[str, Line]:
    """Process → its line, of the published seconds. UsageError when the table is damaged."""
    return {name: _line(cpu, _averages(cpu, memory), memory["rss_kib"].to_list()) for name, cpu, memory in _published()}


def measured(run: Evidence, variant: str, point: str) -> dict[str, dict[int, Line]]:
    """Process of the proxy, the busiest first → block → its line at this load; RSS over all of the block's loads, as NDS' tables are.

    UsageError when a usage table is damaged.
    """
    found: dict[str, dict[int, Line]] = {}
    for arm in run.arms(variant)[:1]:
        blocks = run.blocks(arm, point)
        parts = {(sample.block, sample.point.name): _parts(run, sample) for sample in _samples(run, arm)}
        for block in blocks:
            resident: dict[str, list[float]] = {}
            for part in (part for (of, _), each in parts.items() if of == block for part in each):
                resident.setdefault(part.name, []).extend(part.resident)
            for part in parts[block, point]:
                found.setdefault(part.name, {})[block] = _line(part.cpu, part.average, resident[part.name])
    return found


def _samples(run: Evidence, arm: str) -> list[Sample]:
    """Those that count, in the order of their requests at once."""
    points = sorted((point for point in run.points if not point.control), key=lambda point: point.connections)
    return [sample for point in points for sample in run.blocks(arm, point.name).values()]


def page(run: Evidence | None, variants: Sequence[str], point: str) -> list[Part]:
    """A line per process: the published ones, and this run's with the blocks' medians [95 %]."""
    heads = ["process", *(OWN.get(name) or HEADINGS[name] + UNITS.get(name, "") for name in COLUMNS)]
    rows = [row(f"{name}, published", *(digits(line[column]) for column in COLUMNS)) for name, line in known().items()]
    for variant in variants if run else ():
        assert run is not None
        for name, blocks in measured(run, variant, point).items():
            cells = (_middle([line[column] for line in blocks.values()]) for column in COLUMNS)
            rows.append(row(f"{variant} at {point}: {name}", *cells))
    return [Grid(columns(heads, left=[0]), tuple(rows))]


def seconds(run: Evidence | None, variant: str) -> dict[str, dict[str, Watched]]:
    """For `lab.report.figures.watched`: the published seconds, and those of one block of this variant, its loads one after another."""
    found = {"published": {name: _watched(cpu, memory) for name, cpu, memory in _published()}}
    for arm in run.arms(variant)[:1] if run else ():
        assert run is not None
        found |= _one_block(run, arm)
    return found


def _one_block(run: Evidence, arm: str) -> dict[str, dict[str, Watched]]:
    """The first that counts at most loads, in the order of their requests at once."""
    samples = _samples(run, arm)
    counts = Counter(sample.block for sample in samples)
    block = min(counts, key=lambda each: (-counts[each], each), default=0)
    seen: dict[str, Watched] = {}
    begun_s = 0.0
    for sample in (sample for sample in samples if sample.block == block):
        for part in _parts(run, sample):
            more = _watched(part.cpu, part.memory, begun_s)
            before = seen.get(part.name, Watched((), ()))
            seen[part.name] = Watched([*before.cpu, *more.cpu], [*before.memory, *more.memory])
        begun_s += sample.duration_s or 0.0
    return {f"{arm}, block {block}": seen} if seen else {}


def _published() -> Iterator[tuple[str, pl.DataFrame, pl.DataFrame]]:
    """(process, its CPU table, its memory table) with `t_s`, from the first second of each table on."""
    frame = published.frame(TABLE)
    clock = pl.col("time_of_day").str.to_time()
    told = frame.with_columns(t_s=(clock.cast(pl.Int64) - clock.cast(pl.Int64).min().over("table")) / 1e9)
    for name in told["process"].unique(maintain_order=True):
        own = told.filter(pl.col("process") == name).sort("t_s")
        yield str(name), own.filter(pl.col("table") == "cpu"), own.filter(pl.col("table") == "memory")


def _parts(run: Evidence, sample: Sample) -> list[_Part]:
    """The proxy's processes, the busiest first: their ids differ from block to block."""
    memory_bytes = run.run.record.facts.get("memory_bytes", "")
    usage = run.run.usage(sample).filter((pl.col("role") == "proxy") & pl.col("tid").is_null())
    of_all = int(memory_bytes) if memory_bytes.isdecimal() else None
    cpu, memory = pidstat.cpu_table(usage), pidstat.memory_table(usage, of_all)
    averages = {row["pid"]: row for row in pidstat.summary(usage, of_all).iter_rows(named=True)}
    columns = (*pidstat.CPU_COLUMNS, *pidstat.MEMORY_COLUMNS)
    found: list[_Part] = []
    for number, (pid, title, _) in enumerate(_busiest(usage), 1):
        own = pl.col("pid") == pid
        average = {name: averages[pid][name] if pid in averages else None for name in columns}
        resident = (usage.filter(own)["rss_bytes"] / KIB).to_list()
        found.append(_Part(f"{title} {number}", cpu.filter(own), memory.filter(own), average, resident))
    return found


def _busiest(usage: pl.DataFrame) -> Sequence[tuple[int, str, float]]:
    """(pid, title, CPU seconds), the most first."""
    used = (pl.col("cpu_s").last() - pl.col("cpu_s").first()).alias("used_s")
    each = usage.group_by("pid", maintain_order=True).agg(pl.col("title").last(), used)
    return each.sort("used_s", descending=True, maintain_order=True).rows()


def _averages(cpu: pl.DataFrame, memory: pl.DataFrame) -> Line:
    return {name: _float(cpu[name].mean()) for name in pidstat.CPU_COLUMNS} | {
        name: _float(memory[name].mean()) for name in pidstat.MEMORY_COLUMNS
    }


def _line(cpu: pl.DataFrame, average: Line, resident: Sequence[float]) -> Line:
    used, user = average["cpu_percent"], average["usr_percent"]
    return {
        **average,
        "busiest": _float(cpu["cpu_percent"].max()),
        "user_share": user / used if used and user is not None else None,
        "growth": max(resident) / min(resident) if resident else None,
    }


def _watched(cpu: pl.DataFrame, memory: pl.DataFrame, begun_s: float = 0.0) -> Watched:
    def rows(frame: pl.DataFrame, column: str) -> list[tuple[float, float]]:
        return [(begun_s + t_s, float(value)) for t_s, value in frame["t_s", column].rows() if value is not None]

    return Watched(rows(cpu, "cpu_percent"), rows(memory, "rss_kib"))


def _float(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _middle(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    found = stats.middle(known) if known else None
    return with_interval(found.value, found.low, found.high) if found else digits(None)
