"""The CPU and memory use of a system's processes: the observation during a load, and the form that samples record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl

from lab.base.validation import Record

UNCLAIMED = "cluster/cpu_ms"
"""The counter of the nodes' CPU time, in ms, that is attributed to the cluster itself.

Its pods, kubelets, container runtime and kernel are part of the cluster; the measured system and the generator are not.
"""


@dataclass(frozen=True, slots=True)
class Observation:
    """The CPU time, memory and counters of a system under measurement, as observed between two moments.

    Fractions are of one CPU. The last three attributes are set on a cluster only, where the generator's process is not
    on this machine and no role has CPUs to itself.

    Attributes:
        elapsed_s: The seconds between the two moments.
        usage: CPU seconds and memory, by role ("proxy", "backend", …).
        rows: The table of usage.parquet (USAGE_SCHEMA).
        busy: The busy fraction of each CPU, by its number, for any process.
        steal: The fraction of CPU time that the hypervisor took.
        others: The CPUs that processes other than the lab's used (0.5 = half of one CPU); None = not visible.
        counters: The increase of the kernel's counters, by `role/name`.
        clock_step_s: The seconds by which the wall clock jumped.
        interrupts: The part of `busy` in which a CPU handled interrupts (of a disk or a network card), by the CPU's
            number.
        generator_cpu_s: The CPU seconds of the generator.
        cores: How full the CPUs were that the proxy or the generator could use, by role, for any process.
        busiest_thread: The fraction of one CPU that the generator's busiest thread used while it ran.

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
    """The CPU seconds and the peak memory (bytes) that one role (proxy, backend, …) used during a sample."""

    cpu_s: float
    rss_bytes: int
    processes: int


USAGE_SCHEMA = {
    "t_s": pl.Float64,  # since the sample began
    "role": pl.String,
    "pid": pl.Int32,
    "tid": pl.Int32,  # null: the row is of the process with all its threads; else of this thread
    "title": pl.String,
    "threads": pl.Int32,
    "user_s": pl.Float64,  # cumulative since the process began, as are the next four
    "system_s": pl.Float64,
    "cpu_s": pl.Float64,  # from the scheduler's nanoseconds where the kernel has them
    "minflt": pl.Int64,
    "majflt": pl.Int64,
    "vsz_bytes": pl.Int64,
    "rss_bytes": pl.Int64,
    "sent_bytes": pl.Int64,  # by its network namespace so far, of one process of proxy and of backend each; null: not read
}
"""The columns of usage.parquet, with a row per process and second.

Proxy and backend have a row per thread too, where there are several threads. A sum over all rows counts such processes twice: select the
rows without a `tid`, or those with a `tid`.
"""
