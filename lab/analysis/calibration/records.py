"""What `calibration.json` holds: facts, generators, and every measurement with what was reported and what was true.

Refuses unknown keys. Seconds, counts and shares; null = not known, or fewer than ten requests beyond a percentile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import Field

from lab.analysis.calibration.scenarios import OVER_S
from lab.base.validation import Strict
from lab.model.metrics import QUANTILES
from lab.stats.histogram import Histogram, bucket_edges_s

FAILING = frozenset({"close"})
"""Scenarios in which a generator may fail to report anything: that is what they are to show."""
TOLD = ("p50", "p99", "p99.9")
"""The percentiles that are recorded."""


class Latencies(Strict):
    """A histogram in a few numbers; the histogram itself lies beside the record."""

    kind: Literal["exact", "quantiles"]
    count: int
    quantiles_s: dict[str, float | None] = Field(description="p50, p99, p99.9")
    max_s: float | None
    share_over: float = Field(description=f"of the requests, those of more than {OVER_S:g} s")


class Reported(Strict):
    """What the generator said, as the lab reads it."""

    requests: int = Field(description="answered, with whatever status")
    achieved_rps: float
    duration_s: float
    recorded_s: float = Field(description="what its latencies cover")
    errors: dict[str, int]
    dropped: int
    latency: Latencies
    notes: tuple[str, ...] = ()


class Truth(Strict):
    """What the server did, by its own record. Latencies are those of the time that the generator records."""

    answered: int
    achieved_rps: float | None = Field(description="answers per second, from the first arrival to the last answer")
    connections: int
    closed: int = Field(description="connections closed on purpose")
    broken: int = Field(description="answers that could not be written: the client had gone")
    unstamped: int = Field(description="arrivals without the kernel's stamp; 0 = all are exact")
    service: Latencies
    late_s: dict[str, float | None] = Field(
        description="the server's own error: how late its answers were, by quantile"
    )
    share_over: float | None = Field(
        description=f"of the requests that fall due evenly, those that a pause holds for more than {OVER_S:g} s;"
        " null = the scenario has no pause"
    )
    cpu_s: float


class Measured(Strict):
    """One generator, once, in one scenario."""

    id: str
    repeat: int
    generator: str
    scenario: str
    connections: int
    offered_rps: float | None = Field(description="null = closed loop")
    duration_s: float
    argv: tuple[str, ...]
    started_at: str
    reported: Reported | None
    truth: Truth | None = Field(description="null in the ceiling, whose server is the lab's real backend")
    failure: str = Field(default="", description="why nothing was reported; empty = it was")
    reasons: tuple[str, ...] = Field(
        default=(),
        description="what a run of the lab would call such a sample invalid for; the machine's doing left out",
    )
    detail: str = Field(default="", description="the same in words")
    noise: tuple[str, ...] = Field(default=(), description="what disturbed it: steal, other processes, clock")
    cpu_s: float | None = Field(description="of the generator")
    server_cpu_s: float | None
    steal: float
    others: float | None


class Known(Strict):
    """One generator as this machine has it, or has it not. `refusals`: scenario → why it cannot make that load."""

    name: str
    version: str | None
    installed: bool
    remedy: str
    models: tuple[Literal["closed", "open"], ...]
    latency_from: Literal["due", "sent"]
    refusals: dict[str, str] = Field(default_factory=dict)


class CalibrationRecord(Strict):
    """`calibration.json`. Rewritten whole after every measurement."""

    schema_version: int = 1
    id: str
    created_at: str
    command: tuple[str, ...]
    target: str
    seed: int
    repeats: int
    duration_s: float
    scenarios: dict[str, str] = Field(description="name → what the server does in it")
    generators: tuple[Known, ...]
    planned: int = Field(description="measurements; fewer are there after an interruption")
    facts: dict[str, str]
    git_commit: str | None
    measurements: tuple[Measured, ...] = ()

    @property
    def complete(self) -> bool:
        """All is measured, and every cell has a measurement in which its generator reported something (but see FAILING)."""
        wanted = {
            (each.name, scenario)
            for each in self.generators
            if each.installed
            for scenario in self.scenarios
            if scenario not in each.refusals and scenario not in FAILING
        }
        found = {(each.generator, each.scenario) for each in self.measurements if each.reported is not None}
        return len(self.measurements) == self.planned and wanted <= found


def latencies(histogram: Histogram) -> Latencies:
    filled = np.flatnonzero(histogram.counts)
    low, _ = bucket_edges_s(filled)
    over = int(histogram.counts[filled[low > OVER_S]].sum()) if filled.size else 0
    return Latencies(
        kind=histogram.kind,
        count=histogram.total,
        quantiles_s=quantiles(histogram),
        max_s=histogram.maximum_s,
        share_over=over / histogram.total if histogram.total else 0.0,
    )


def quantiles(histogram: Histogram) -> dict[str, float | None]:
    return {name: histogram.quantile_s(QUANTILES[name]) for name in TOLD}


@dataclass(frozen=True, slots=True)
class Taken:
    """A measurement, and what is stored beside it: the verbatim output, and histograms (latency, service, truth)."""

    measured: Measured
    raw: str
    histograms: Mapping[str, Histogram]
