"""The results of a calibration: the bias of each generator, its ceiling, how it shows a pause, and advice on its use.

Numbers are medians over the repeats with their ranges. Measurements that were disturbed count as well, and `noisy` has their
number. A result that was not measured is None. The module reads and writes no files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from lab.records.calibration import PERCENTILES, CalibrationRecord, Known, Measured

BIASED = ("floor", "fixed", "bimodal")
"""The scenarios in which the true latency of every request is known.

`floor` also shows the smallest latency that the generator can report.
"""
AT_RATE = "fixed"
"""The scenario that gives the CPU per request at a moderate rate."""
LEAST_VISIBLE = 0.5
"""The least part of the true share of waiting requests that must be reported for a pause to count as visible."""
EXAGGERATED = 1.5
"""The part of the true share of waiting requests above which a reported pause counts as exaggerated."""
ADVICE = {
    "visible": "use it for latency at a rate: it counts the wait of requests that were due while nobody answered",
    "exaggerated": "use it for latency at a rate below the knee only: it sees a pause, and makes more of it than there was, because it catches up late",
    "dropped": "use it for latency at a rate only where it drops nothing: a pause is in its dropped requests, not in its percentiles (the lab calls such a sample invalid)",
    "hidden": "use it for ceilings and CPU per request; do not read its p99 as what users of a service that pauses meet",
}
"""How a generator shows a known pause → the advice on its use.

The keys are those of `PauseResult.sight`, and `dropped` for a hidden pause during which requests were dropped.
"""


@dataclass(frozen=True, slots=True)
class Spread:
    """The median and range of one number that a calibration (test of load generators against a known server) repeated.

    Attributes:
        median: The median of the repeats, in the number's own unit.
        low: The smallest repeat.
        high: The largest repeat.

    """

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Bias:
    """The bias of a load generator at one percentile: the latency that it reports minus the true latency.

    Each attribute is None if no measurement has ten requests beyond the percentile.

    Attributes:
        true_s: The true latency in seconds.
        reported_s: The reported latency in seconds.
        bias_s: The difference in seconds.
        bias_share: The difference as a share of the true latency.

    """

    true_s: Spread | None
    reported_s: Spread | None
    bias_s: Spread | None
    bias_share: Spread | None


@dataclass(frozen=True, slots=True)
class PauseResult:
    """The report of one load generator about a known pause of the server, compared with the truth.

    Attributes:
        reported_share: The share of requests that waited because of the pause, by the reported latencies.
        true_share: The true share of requests that waited because of the pause.
        dropped: The number of requests that the generator dropped.
        sight: How well the reported latencies show the pause: `visible`, `exaggerated` or `hidden`. It is hidden if the
            generator did not send, and so did not count, the requests that would have waited (coordinated omission).

    """

    reported_share: Spread
    true_share: Spread
    dropped: Spread
    sight: Literal["visible", "exaggerated", "hidden"]


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The ceiling of a load generator: the highest rate at which it gets answers from the lab's own backend.

    Attributes:
        achieved_rps: The achieved requests per second; the backend may have run on the generator's CPU.
        alone_rps: The requests per second that the generator could make with one CPU to itself, which is 1 / its CPU
            seconds per request. None if these are unknown.
        cpu_per_request_s: The generator's CPU seconds per request; None if unknown.

    """

    achieved_rps: Spread
    alone_rps: Spread | None
    cpu_per_request_s: Spread | None


@dataclass(frozen=True, slots=True)
class GeneratorResult:
    """The results of a calibration for one load generator: how well its report agrees with a test server's own record.

    Attributes:
        known: The generator as the calibration found it: name, whether it is installed, and the remedy if it is not.
        bias: Name of a scenario → percentile (p50, p99, p99.9) → the bias of the generator's latency at this
            percentile.
        pause: What the generator shows of a pause of the server; None if that was not measured.
        ceiling: The generator's highest rate; None if that was not measured.
        cpu_per_request_s: The generator's CPU seconds per request at a moderate rate; None if that was not measured.
        measurements: The number of the generator's measurements.
        noisy: Name of a scenario → number of measurements that the machine disturbed.
        failures: Name of a scenario → reason why a measurement reported nothing.
        advice: What to use the generator for, or how to install it; empty if the pause was not measured.

    """

    known: Known
    bias: Mapping[str, Mapping[str, Bias]]
    pause: PauseResult | None
    ceiling: Ceiling | None
    cpu_per_request_s: Spread | None
    measurements: int
    noisy: Mapping[str, int]
    failures: Mapping[str, str]
    advice: str


def summarise_generators(record: CalibrationRecord) -> list[GeneratorResult]:
    """Return the results of each load generator of a calibration (test against a known server), in the record's order."""
    return [
        _summarise_generator(
            generator, [measurement for measurement in record.measurements if measurement.generator == generator.name]
        )
        for generator in record.generators
    ]


def _summarise_generator(generator: Known, measurements: Sequence[Measured]) -> GeneratorResult:
    def select(scenario: str) -> list[Measured]:
        return [
            measurement for measurement in measurements if measurement.scenario == scenario and measurement.reported
        ]

    pause = _judge_pause(select("pause"))
    return GeneratorResult(
        known=generator,
        bias={name: _compute_biases(reported) for name in BIASED if (reported := select(name))},
        pause=pause,
        ceiling=_summarise_ceiling(select("ceiling")),
        cpu_per_request_s=compute_spread(_list_costs_s(select(AT_RATE))),
        measurements=len(measurements),
        noisy=Counter(measurement.scenario for measurement in measurements if measurement.noise),
        failures={measurement.scenario: measurement.failure for measurement in measurements if measurement.failure},
        advice=_advise(generator, pause),
    )


def compute_spread(values: Iterable[float | None]) -> Spread | None:
    """Return the median and the range of the values that are not None; None if there are none."""
    numbers = [value for value in values if value is not None]
    return _measure_spread(numbers) if numbers else None


def _measure_spread(numbers: Sequence[float]) -> Spread:
    return Spread(median=median(numbers), low=min(numbers), high=max(numbers))


def _compute_biases(measurements: Sequence[Measured]) -> dict[str, Bias]:
    """Return percentile (such as `p99`) → the bias of a load generator at this percentile: reported minus true latency.

    The difference is computed within each measurement.
    """
    biases: dict[str, Bias] = {}
    for name in PERCENTILES:
        pairs = [
            (measurement.reported.latency.quantiles_s[name], measurement.truth.service.quantiles_s[name])
            for measurement in measurements
            if measurement.reported and measurement.truth
        ]
        complete = [(reported, true) for reported, true in pairs if reported is not None and true is not None]
        biases[name] = Bias(
            true_s=compute_spread(true for _, true in pairs),
            reported_s=compute_spread(reported for reported, _ in pairs),
            bias_s=compute_spread(reported - true for reported, true in complete),
            bias_share=compute_spread((reported - true) / true for reported, true in complete if true > 0),
        )
    return biases


def _judge_pause(measurements: Sequence[Measured]) -> PauseResult | None:
    pairs = [
        (measurement.reported, measurement.truth.share_over)
        for measurement in measurements
        if measurement.reported and measurement.truth and measurement.truth.share_over
    ]
    if not pairs:
        return None
    ratio = median(reported.latency.share_over / true for reported, true in pairs)
    return PauseResult(
        reported_share=_measure_spread([reported.latency.share_over for reported, _ in pairs]),
        true_share=_measure_spread([true for _, true in pairs]),
        dropped=_measure_spread([reported.dropped for reported, _ in pairs]),
        sight="hidden" if ratio < LEAST_VISIBLE else "exaggerated" if ratio > EXAGGERATED else "visible",
    )


def _summarise_ceiling(measurements: Sequence[Measured]) -> Ceiling | None:
    costs_s, achieved = (
        _list_costs_s(measurements),
        compute_spread(measurement.reported.achieved_rps for measurement in measurements if measurement.reported),
    )
    return achieved and Ceiling(
        achieved, compute_spread(1 / cpu_s for cpu_s in costs_s if cpu_s > 0), compute_spread(costs_s)
    )


def _list_costs_s(measurements: Sequence[Measured]) -> list[float]:
    """Return the generator's CPU seconds per request for each measurement that recorded CPU time and requests."""
    pairs = [
        (measurement.cpu_s, measurement.reported.requests)
        for measurement in measurements
        if measurement.reported and measurement.reported.requests
    ]
    return [cpu_s / requests for cpu_s, requests in pairs if cpu_s is not None]


def _advise(generator: Known, pause: PauseResult | None) -> str:
    """Return the advice on what to use a load generator for, by how well it reported a known pause of the server.

    Returns:
        The advice. If the generator is not installed, how to install it. Empty if the pause was not measured.

    """
    if not generator.installed:
        return f"not installed: {generator.remedy}"
    if pause is None:
        return ""
    return ADVICE["dropped" if pause.sight == "hidden" and pause.dropped.median else pause.sight]
