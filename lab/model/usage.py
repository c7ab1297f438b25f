"""What a look at a system's processes yields, and the schema in which a sample keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl

from lab.base.validation import Record

UNCLAIMED = "cluster/cpu_ms"
"""The counter of what nodes did that is nobody's but the cluster's own: its pods, kubelets, runtime, kernel."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What the sampler saw between `elapsed_s` apart ends. Fractions are of one CPU, `others` in cores (None: not visible).

    `busy` counts every clock tick that found the CPU at work, for whomever, `interrupts` those of them that found it at an interrupt
    (a disk's that has written, a network card's). On a cluster, where the generator's process is
    none of this machine's and no role has CPUs of its own, `generator_cpu_s` is what the generator used, `cores` how full
    the CPUs were that the proxy and the generator could use (fractions, over the whole time, whoever filled them), and
    `busiest_thread` the share of one CPU that the generator's busiest thread had while it ran.
    """

    elapsed_s: float
    usage: Mapping[str, Usage]
    rows: pl.DataFrame
    busy: Mapping[int, float]
    steal: float
    others: float | None
    counters: Mapping[str, int]
    clock_step_s: float
    interrupts: Mapping[int, float] = field(default_factory=dict[int, float])
    generator_cpu_s: float | None = None
    cores: Mapping[str, float] | None = None
    busiest_thread: float | None = None


class Usage(Record):
    """CPU seconds and peak memory (bytes) of one role over the sample."""

    cpu_s: float
    rss_bytes: int
    processes: int


USAGE_SCHEMA = {
    "t_s": pl.Float64,  # since the sample began
    "role": pl.String,
    "pid": pl.Int32,
    "tid": pl.Int32,  # null: the row is the whole process's, its threads included; else this thread's own
    "title": pl.String,
    "threads": pl.Int32,
    "user_s": pl.Float64,  # cumulative since the process began, as are the next four
    "system_s": pl.Float64,
    "cpu_s": pl.Float64,  # from the scheduler's nanoseconds where the kernel has them
    "minflt": pl.Int64,
    "majflt": pl.Int64,
    "vsz_bytes": pl.Int64,
    "rss_bytes": pl.Int64,
    "sent_bytes": pl.Int64,  # by its network namespace so far, of one process of proxy and of backend each; null: not asked
}
"""Columns of usage.parquet: one row per process and second, and of proxy and backend one per thread, where there are several.

A sum over all rows counts such processes twice: take those without a `tid`, or with.
"""
