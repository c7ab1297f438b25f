"""What selfbench found: the lab's own share of a run, and how it reads a log against plain polars.

Refuses to judge: a ratio has the interval of its pairs, no verdict. Only what could not be measured, or came out unequal where
it must be equal, is a fault, and makes the exit status 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Literal

from pydantic import Field

from lab.base.errors import MeasuringError
from lab.base.validation import Record
from lab.model.samples import Sample, bring_ups_s
from lab.stats import paired as stats

Part = Literal["analysis", "overhead"]
PARTS: tuple[Part, ...] = ("analysis", "overhead")


class Overhead(Record):
    """Where the wall time of a run went. Seconds; `samples` counts attempts, `valid` those of them that count."""

    wall_s: float
    bring_up_s: float
    measuring_s: float
    warm_up_s: float
    samples: int
    valid: int

    @property
    def own_s(self) -> float:
        return self.wall_s - self.bring_up_s - self.measuring_s - self.warm_up_s


class Against(Record):
    """Medians of pairs, and the geometric mean of their ratios, lab / plain polars."""

    lab: float
    polars: float
    ratio: float
    ratio_low: float | None = Field(description="95 % interval; null below six pairs")
    ratio_high: float | None


class Reading(Record):
    """A log of requests to counts and percentiles, by the lab and by plain polars."""

    rows: int
    pairs: int
    rows_per_s: Against
    peak_bytes: Against


class Report(Record):
    """What `selfbench --json` prints. Seconds, bytes, rows per second; null = not asked for, or not to be had."""

    schema_version: Literal[2] = 2
    measured_at: str
    facts: dict[str, str] = Field(description="of the machine, as a run has them")
    analysis: Reading | None
    overhead: Overhead | None
    faults: tuple[str, ...] = Field(description="what could not be measured, or was not equal: exit status 1")


def account(samples: Sequence[Sample], wall_s: float) -> Overhead:
    """Of a whole run's samples. MeasuringError when nothing was measured in it."""
    taken = [sample for sample in samples if sample.requests is not None]
    if not taken:
        why = "; ".join(dict.fromkeys(sample.detail for sample in samples))[:300]
        raise MeasuringError("selfbench: lab bench", f"no sample was measured: {why or 'there is none'}")
    return Overhead(
        wall_s=wall_s,
        bring_up_s=sum(bring_ups_s(samples)),
        measuring_s=sum(sample.point.duration_s for sample in taken),
        warm_up_s=sum(
            max(1.0, sample.point.warmup_s)
            for sample in taken
            if sample.point.warmup_s and sample.warmed_up is not False
        ),
        samples=len(taken),
        valid=sum(sample.valid for sample in taken),
    )


def against(lab: Sequence[float], polars: Sequence[float]) -> Against:
    """From pairs (both shape (n,), n >= 1, positive): the ratio by `stats.paired`. ValueError as that raises it."""
    found = stats.paired(lab, polars)
    low, high = found.ratio_interval or (None, None)
    return Against(lab=median(lab), polars=median(polars), ratio=found.ratio, ratio_low=low, ratio_high=high)
