"""The usage per process and thread, second by second, as `pidstat -u -r -h` shows it: two tables and a summary.

The tables are made from a run's usage.parquet. A row has the increase since the previous observation of the same process, per
second of the time between the two. It comes from the same clock ticks that pidstat reads: 1 % is one tick of 100 in a
second, 100 % is one CPU. Cells are null if the usage table does not have the number: CPU time of guests, and the share
of memory if the machine's memory is not known. The columns are those of data/published/nds_pidstat.csv.
"""

from __future__ import annotations

import polars as pl

LEAST_S = 0.5
"""The least seconds between two observations of a process: closer ones show nothing in clock ticks of 10 ms.

The last observation of a sample comes when the sample ends, so it may be closer.
"""

KEY = ["role", "pid", "tid"]
HEAD = ["t_s", *KEY, "title"]
CPU_COLUMNS = ("usr_percent", "system_percent", "guest_percent", "cpu_percent")
MEMORY_COLUMNS = ("minflt_per_s", "majflt_per_s", "vsz_kib", "rss_kib", "mem_percent")


def build_cpu_table(usage: pl.DataFrame) -> pl.DataFrame:
    """Return the CPU usage of each process and thread in each second, from a sample's usage table.

    Columns: `t_s` (end of the second), role, pid, tid (null for the whole process), title, and CPU_COLUMNS in % of one
    CPU.
    """
    return _split_seconds(usage).select(*HEAD, *_compute_cpu())


def memory_table(usage: pl.DataFrame, memory_bytes: int | None = None) -> pl.DataFrame:
    """Return the memory usage of each process and thread in each second, from a sample's usage table.

    Columns: those of `build_cpu_table`, but with MEMORY_COLUMNS instead of CPU_COLUMNS. These are page faults per
    second, sizes at the end of the second, and the share of the machine's memory in %.

    Args:
        usage: The sample's usage table.
        memory_bytes: The machine's memory. None if unknown; `mem_percent` is then null.

    """
    return _split_seconds(usage).select(*HEAD, *_compute_memory(memory_bytes))


def summary(usage: pl.DataFrame, memory_bytes: int | None = None) -> pl.DataFrame:
    """Return one row per process and thread for a whole sample, as pidstat's `Average:` lines.

    CPU usage and page faults are per second over the whole time of the process. Sizes are means over all observations.

    Args:
        usage: The sample's usage table.
        memory_bytes: The machine's memory. None if unknown; `mem_percent` is then null.

    """
    looks = usage.group_by(KEY, maintain_order=True).agg(
        pl.len().alias("looks"),
        pl.col("title").last(),
        pl.col("t_s").last(),
        *((pl.col(name).last() - pl.col(name).first()).alias(f"{name}_more") for name in ("t_s", *_COUNTED)),
        pl.col("vsz_bytes", "rss_bytes").mean(),
    )
    spans = looks.filter(pl.col("t_s_more") >= LEAST_S).rename({"t_s_more": "span_s"})
    return spans.select(*KEY, "title", "span_s", *_compute_cpu(), *_compute_memory(memory_bytes))


_COUNTED = ("user_s", "system_s", "minflt", "majflt")


def _split_seconds(usage: pl.DataFrame) -> pl.DataFrame:
    """Return each observation of a process, with the increases (`…_more`) and the time (`span_s`) since its last observation.

    The first observation of each process is left out. So is the last one if it came less than LEAST_S after the
    previous one.
    """
    last = pl.col("t_s").last().over(KEY)
    before = pl.col("t_s").shift().over(KEY)
    hasty = (pl.col("t_s") == last) & (last - before < LEAST_S)
    steady = usage.sort("t_s", maintain_order=True).filter(~hasty.fill_null(value=False))
    increases = [(pl.col(name) - pl.col(name).shift().over(KEY)).alias(f"{name}_more") for name in _COUNTED]
    span = (pl.col("t_s") - pl.col("t_s").shift().over(KEY)).alias("span_s")
    return steady.with_columns(*increases, span).filter(pl.col("span_s") > 0).sort("t_s", "role", "pid", "tid")


def _compute_cpu() -> list[pl.Expr]:
    def percent(name: str) -> pl.Expr:
        return 100 * pl.col(f"{name}_more") / pl.col("span_s")

    return [
        percent("user_s").alias("usr_percent"),
        percent("system_s").alias("system_percent"),
        pl.lit(None, pl.Float64).alias("guest_percent"),
        (percent("user_s") + percent("system_s")).alias("cpu_percent"),
    ]


def _compute_memory(memory_bytes: int | None) -> list[pl.Expr]:
    share = 100 * pl.col("rss_bytes") / memory_bytes if memory_bytes else pl.lit(None, pl.Float64)
    return [
        (pl.col("minflt_more") / pl.col("span_s")).alias("minflt_per_s"),
        (pl.col("majflt_more") / pl.col("span_s")).alias("majflt_per_s"),
        (pl.col("vsz_bytes") / 1024).round().cast(pl.Int64).alias("vsz_kib"),
        (pl.col("rss_bytes") / 1024).round().cast(pl.Int64).alias("rss_kib"),
        share.alias("mem_percent"),
    ]
