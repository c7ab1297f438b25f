"""A calibration as one row per generator: medians over the repeats with their ranges, and what the generator is good for. Pure.

Refuses to judge from what was not measured: null. Disturbed measurements count, and are counted (`noisy`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from statistics import median

from lab.analysis.calibration.findings import Bias, Ceiling, Close, Pause, RateCeiling, Row, Spread
from lab.analysis.calibration.records import TOLD, CalibrationRecord, Known, Measured
from lab.model.samples import Reason

BIASED = ("floor", "fixed", "bimodal")
"""Scenarios in which every request has its truth; `floor` also says the least that the generator can show."""
AT_RATE = "fixed"
"""The scenario whose CPU per request is that at a moderate rate."""
VISIBLE = 0.5
"""A pause is visible if at least this part of the share that it makes wait is reported."""
EXAGGERATED = 1.5
REFUSED = frozenset(str(reason) for reason in Reason if reason.unserved)
"""Either says that the rate offered was not the rate made."""


def rows_of(record: CalibrationRecord) -> list[Row]:
    return [
        _row(known, [each for each in record.measurements if each.generator == known.name])
        for known in record.generators
    ]


def _row(known: Known, mine: Sequence[Measured]) -> Row:
    def found(scenario: str) -> list[Measured]:
        return [each for each in mine if each.scenario == scenario and each.reported]

    pause = _pause(found("pause"))
    bias = {name: _biases(those) for name in BIASED if (those := found(name))}
    return Row(
        known=known,
        bias=bias,
        pause=pause,
        close=_close([each for each in mine if each.scenario == "close"]),
        rate_ceiling=_rate_ceiling(found("rate-ceiling")),
        ceiling=_ceiling(found("ceiling")),
        cpu_per_request_s=spread(_cpus(found(AT_RATE), lambda each: each.cpu_s)),
        measurements=len(mine),
        noisy=dict(Counter(each.scenario for each in mine if each.noise)),
        failures={each.scenario: each.failure for each in mine if each.failure},
        advice=_advice(known, pause),
    )


def spread(values: Iterable[float | None]) -> Spread | None:
    """Of those that are known."""
    kept = [value for value in values if value is not None]
    return Spread(median=median(kept), low=min(kept), high=max(kept), count=len(kept)) if kept else None


def _certain(values: Iterable[float]) -> Spread:
    found = spread(values)
    assert found is not None  # asked for where there are measurements only
    return found


def _biases(those: Sequence[Measured]) -> dict[str, Bias]:
    """The differences are taken per measurement, which has a truth of its own."""
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


def _close(those: Sequence[Measured]) -> Close | None:
    true = [each.truth for each in those if each.truth]
    if not true:
        return None
    return Close(
        reported=spread(each.reported.requests for each in those if each.reported),
        true=_certain(each.answered for each in true),
        errors=spread(sum(each.reported.errors.values()) for each in those if each.reported),
        closed=_certain(each.closed for each in true),
    )


def _rate_ceiling(those: Sequence[Measured]) -> RateCeiling | None:
    told = [
        (each, each.reported, each.truth.achieved_rps)
        for each in those
        if each.reported and each.truth and each.truth.achieved_rps
    ]
    if not told:
        return None
    offered_rps = told[0][0].offered_rps
    reasons = tuple(dict.fromkeys(reason for each, _, _ in told for reason in each.reasons))
    return RateCeiling(
        offered_rps=offered_rps,
        achieved_rps=_certain(said.achieved_rps for _, said, _ in told),
        true_rps=_certain(true for _, _, true in told),
        reasons=reasons,
        recognised=None if offered_rps is None else all(REFUSED & set(each.reasons) for each, _, _ in told),
    )


def _ceiling(those: Sequence[Measured]) -> Ceiling | None:
    rates = [each.reported.achieved_rps for each in those if each.reported]
    if not rates:
        return None
    cpu = _cpus(those, lambda each: each.cpu_s)
    return Ceiling(
        achieved_rps=_certain(rates),
        alone_rps=spread(1 / cpu_s for cpu_s in cpu if cpu_s > 0),
        cpu_per_request_s=spread(cpu),
        server_cpu_per_request_s=spread(_cpus(those, lambda each: each.server_cpu_s)),
    )


def _cpus(those: Sequence[Measured], used: Callable[[Measured], float | None]) -> list[float]:
    """CPU seconds per request of each measurement in which they were seen."""
    return [
        cpu_s / each.reported.requests
        for each in those
        if each.reported and each.reported.requests and (cpu_s := used(each)) is not None
    ]


def _advice(known: Known, pause: Pause | None) -> str:
    """What to do with it, from what it showed of the pause; nothing where that was not measured."""
    if not known.installed:
        return f"not installed: {known.remedy}"
    if pause is None:
        return ""
    if pause.sight == "visible":
        return "use it for latency at a rate: it counts the wait of requests that were due while nobody answered"
    if pause.sight == "exaggerated":
        return (
            "use it for latency at a rate below the knee only: it sees a pause, and makes more of it than there was,"
            " because it catches up late"
        )
    if pause.dropped.median:
        return (
            "use it for latency at a rate only where it drops nothing: a pause is in its dropped requests, not in its"
            " percentiles (the lab calls such a sample invalid)"
        )
    return "use it for ceilings and CPU per request; do not read its p99 as what users of a service that pauses meet"
