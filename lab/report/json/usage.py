"""What `usage --json` prints: a sample's processes and threads, second by second and on average, as pidstat counts them."""

from __future__ import annotations

from typing import Annotated

import polars as pl
from pydantic import ConfigDict, Field, RootModel

from lab.analysis import pidstat
from lab.model.samples import Sample
from lab.report.json.printed import Count, Printed

Tid = Annotated[int | None, Field(description="null = the whole process")]
Percent = Annotated[float | None, Field(description="100 = one CPU; null = not known")]


class _Process(Printed):
    role: str
    pid: int
    tid: Tid
    title: str


class _Second(Printed):
    t_s: float = Field(description="end of the second, since the sample began")


class _Span(Printed):
    span_s: float


class _Cpu(Printed):
    usr_percent: Percent
    system_percent: Percent
    guest_percent: Percent
    cpu_percent: Percent


class _Memory(Printed):
    minflt_per_s: float | None
    majflt_per_s: float | None
    vsz_kib: int | None
    rss_kib: int | None
    mem_percent: float | None = Field(description="of the machine's memory; null = that is not known")


# Fields are printed in the order in which Python would look for them last: those of the last base come first.


class CpuJson(_Cpu, _Process, _Second):
    """A process or thread in one second."""


class MemoryJson(_Memory, _Process, _Second):
    """A process or thread in one second: page faults per second, and sizes at its end."""


class AverageJson(_Memory, _Cpu, _Span, _Process):
    """A process or thread over the whole sample: rates over its time, sizes as their mean."""


class UsageJson(Printed):
    """One sample."""

    sample: str
    arm: str
    point: str
    block: Count
    cpu: tuple[CpuJson, ...]
    memory: tuple[MemoryJson, ...]
    average: tuple[AverageJson, ...]


class UsagesJson(RootModel[tuple[UsageJson, ...]]):
    """One entry per sample."""

    model_config = ConfigDict(title="What `usage --json` prints; %, per second, KiB; null = not known")


def printed(sample: Sample, usage: pl.DataFrame, memory_bytes: int | None) -> UsageJson:
    """`memory_bytes`: of the machine; None = not known."""
    cpu, memory = pidstat.cpu_table(usage), pidstat.memory_table(usage, memory_bytes)
    return UsageJson(
        sample=sample.id,
        arm=sample.arm,
        point=sample.point.name,
        block=sample.block,
        cpu=tuple(CpuJson(**each) for each in cpu.to_dicts()),
        memory=tuple(MemoryJson(**each) for each in memory.to_dicts()),
        average=tuple(AverageJson(**each) for each in pidstat.summary(usage, memory_bytes).to_dicts()),
    )
