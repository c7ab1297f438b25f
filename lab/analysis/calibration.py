"""A calibration as one row per generator: medians over the repeats with their ranges, and what the generator is good for. Pure.

Refuses to judge from what was not measured: null. Disturbed measurements count, and are counted (`noisy`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from lab.records.calibration import TOLD, CalibrationRecord, Known, Measured

BIASED = ("floor", "fixed", "bimodal")
"""Scenarios in which every request has its truth; `floor` also says the least that the generator can show."""
AT_RATE = "fixed"
"""The scenario whose CPU per request is that at a moderate rate."""
VISIBLE = 0.5
"""A pause is visible if at least this part of the share that it makes wait is reported."""
EXAGGERATED = 1.5


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of the repeats, and their range."""

    median: float
    low: float
    high: float
    count: int


@dataclass(frozen=True, slots=True)
class Bias:
    """Reported minus true, in seconds and as a share of the truth. None = fewer than ten requests beyond it."""

    true_s: Spread | None
    reported_s: Spread | None
    bias_s: Spread | None
    bias_share: Spread | None


@dataclass(frozen=True, slots=True)
class Pause:
    """Of a pause of the server: the share of requests that waited for it, as reported and in truth, and what latencies show of it.

    `sight` hidden = coordinated omission.
    """

    reported_share: Spread
    true_share: Spread
    dropped: Spread
    sight: Literal["visible", "exaggerated", "hidden"]


@dataclass(frozen=True, slots=True)
class Ceiling:
    """As many requests as the generator makes of the lab's own backend, with the server on the same CPU, where they share one.

    `alone_rps`: what one CPU of its own would give it: 1 / CPU per request.
    """

    achieved_rps: Spread
    alone_rps: Spread | None
    cpu_per_request_s: Spread | None


@dataclass(frozen=True, slots=True)
class Row:
    """One generator. `bias`: scenario → p50, p99, p99.9; `cpu_per_request_s`: at the moderate rate.

    `noisy`: scenario → disturbed measurements; `failures`: scenario → why nothing was reported.
    """

    known: Known
    bias: Mapping[str, Mapping[str, Bias]]
    pause: Pause | None
    ceiling: Ceiling | None
    cpu_per_request_s: Spread | None
    measurements: int
    noisy: Mapping[str, int]
    failures: Mapping[str, str]
    advice: str


def rows_of(record: CalibrationRecord) -> list[Row]:
    """Return what a calibration says of each of its generators."""
    return [
        _row(known, [one for one in record.measurements if one.generator == known.name]) for known in record.generators
    ]


def _row(known: Known, mine: Sequence[Measured]) -> Row:
    def found(scenario: str) -> list[Measured]:
        return [each for each in mine if each.scenario == scenario and each.reported]

    pause = _pause(found("pause"))
    return Row(
        known=known,
        bias={name: _biases(those) for name in BIASED if (those := found(name))},
        pause=pause,
        ceiling=_ceiling(found("ceiling")),
        cpu_per_request_s=spread(_costs_s(found(AT_RATE))),
        measurements=len(mine),
        noisy=Counter(each.scenario for each in mine if each.noise),
        failures={each.scenario: each.failure for each in mine if each.failure},
        advice=_advice(known, pause),
    )


def spread(values: Iterable[float | None]) -> Spread | None:
    """Return the median and the range of those that are known."""
    kept = [value for value in values if value is not None]
    return Spread(median=median(kept), low=min(kept), high=max(kept), count=len(kept)) if kept else None


def _certain(values: Iterable[float]) -> Spread:
    found = spread(values)
    assert found is not None  # asked for where there are measurements only
    return found


def _biases(those: Sequence[Measured]) -> dict[str, Bias]:
    """Return the differences, taken per measurement, which has a truth of its own."""
    found: dict[str, Bias] = {}
    for name in TOLD:
        pairs = [
            (each.reported.latency.quantiles_s[name], each.truth.service.quantiles_s[name])
            for each in those
            if each.reported and each.truth
        ]
        both = [(said, true) for said, true in pairs if said is not None and true is not None]
        found[name] = Bias(
            true_s=spread(true for _, true in pairs),
            reported_s=spread(said for said, _ in pairs),
            bias_s=spread(said - true for said, true in both),
            bias_share=spread((said - true) / true for said, true in both if true > 0),
        )
    return found


def _pause(those: Sequence[Measured]) -> Pause | None:
    told = [
        (each.reported, each.truth.share_over)
        for each in those
        if each.reported and each.truth and each.truth.share_over
    ]
    if not told:
        return None
    ratio = median(said.latency.share_over / true for said, true in told)
    return Pause(
        reported_share=_certain(said.latency.share_over for said, _ in told),
        true_share=_certain(true for _, true in told),
        dropped=_certain(said.dropped for said, _ in told),
        sight="hidden" if ratio < VISIBLE else "exaggerated" if ratio > EXAGGERATED else "visible",
    )


def _ceiling(those: Sequence[Measured]) -> Ceiling | None:
    cpu, achieved = _costs_s(those), spread(each.reported.achieved_rps for each in those if each.reported)
    return achieved and Ceiling(achieved, spread(1 / cpu_s for cpu_s in cpu if cpu_s > 0), spread(cpu))


def _costs_s(those: Sequence[Measured]) -> list[float]:
    """Return the CPU seconds per request of each measurement in which they were seen."""
    told = [(each.cpu_s, each.reported.requests) for each in those if each.reported and each.reported.requests]
    return [cpu_s / requests for cpu_s, requests in told if cpu_s is not None]


def _advice(known: Known, pause: Pause | None) -> str:
    """Return what to do with a generator, from what it showed of the pause; nothing where that was not measured."""
    if not known.installed:
        return f"not installed: {known.remedy}"
    if pause is None:
        return ""
    if pause.sight == "visible":
        return "use it for latency at a rate: it counts the wait of requests that were due while nobody answered"
    if pause.sight == "exaggerated":
        return "use it for latency at a rate below the knee only: it sees a pause, and makes more of it than there was, because it catches up late"
    if pause.dropped.median:
        return "use it for latency at a rate only where it drops nothing: a pause is in its dropped requests, not in its percentiles (the lab calls such a sample invalid)"
    return "use it for ceilings and CPU per request; do not read its p99 as what users of a service that pauses meet"
