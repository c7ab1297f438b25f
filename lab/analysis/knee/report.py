"""The report of a search for knees (`knee.json`): each trial, each variant's knee and its limit, every rate tried.

A knee is the highest rate that a variant serves within its latency bound. The report is computed from the samples of the
run each time. Where the generator or the backend was the limit, or the generator did not end well, a knee is *at least* the
rate found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from statistics import median, multimode
from typing import Literal

from pydantic import Field

from lab.analysis import rerun
from lab.analysis.aggregate.cells import HistogramOf, list_cpus
from lab.base.validation import Record
from lab.model.bottleneck import BUSY, FULL
from lab.model.plan import Slot
from lab.model.run import KneeSearch, RunRecord
from lab.model.samples import Reason, Sample, is_settled, key_of_measurement
from lab.model.sweeps import LoadPoint
from lab.records.store import RunStore
from lab.stats.histogram import Histogram, find_buckets
from lab.stats.knee_search import KneeFound, KneeNotFound, KneeSearchSettings, KneeTrial, SearchStep, choose_step
from lab.stats.units import format_rate, format_seconds

SWEEP = "knee"
"""The name under which a search is recorded; other runs are recorded with the name of their sweep."""
CONTRADICT = "contradict each other"
"""The words for a search whose trials contradict each other.

If such a search is resumed, it shows nothing more, because its trials stay as they are.
"""
SAME = ("connections", "page", "keepalive", "tls", "routes", "accept_encoding", "link_mbit", "traffic")
"""The keys that the load of a search and a point at a share of its knee must have in common: another page has another knee."""
QUANTILE = 0.99
SILENT = {
    Reason.GENERATOR_FAILED,
    Reason.GENERATOR_HUNG,
    Reason.GENERATOR_OUTPUT,
    Reason.GENERATOR_TIME,
    Reason.GENERATOR_COUNT,
}
"""The faults with which the generator did not end well."""
NEVER = {Reason.BRING_UP_FAILED, Reason.KNOB_NOT_APPLIED, Reason.LIMIT_NOT_APPLIED, Reason.RESUMPTION}
"""The faults that no other rate would mend: they end the search."""
SICK = SILENT | {Reason.WRONG_BACKEND, Reason.WRONG_SIZE, Reason.TOO_SHORT}
"""The faults that an overload may cause once a rate has passed; before that they end the search, too."""
Outcome = Literal["pass", "fail", "unclear", "broken"]
Limiter = Literal["proxy", "generator", "backend", "p99", "unknown"]


@dataclass(frozen=True, slots=True)
class RateTrial:
    """One trial of a rate in a search for the knee (highest rate within the latency bound), and whether it passed.

    Attributes:
        slot: The planned measurement.
        sample: The sample that was measured.
        histogram: The sample's latencies; None without any.
        outcome: `pass`, `fail`, `unclear` (the trial shows nothing), or `broken` (the system does not work).
        why: The reason why the rate did not pass; empty if it passed.
        limiter: What was the limit if the rate failed: `proxy`, `generator`, `backend`, `p99` or `unknown`. None if it
            did not fail.

    """

    slot: Slot
    sample: Sample
    histogram: Histogram | None
    outcome: Outcome
    why: str = ""
    limiter: Limiter | None = None

    @property
    def decided(self) -> bool:
        """True if the trial has a clear outcome: the rate passed or failed."""
        return self.outcome in ("pass", "fail")

    @property
    def rate_rps(self) -> int:
        """The offered rate of the trial, in whole requests per second."""
        return round(self.slot.point.rate_rps or 0)


def classify_trial(
    slot: Slot, sample: Sample, histogram: Histogram | None, record: RunRecord, passed_before: bool
) -> RateTrial:
    """Decide the outcome of a trial of a rate: it passed, it failed, it is unclear, or the system is broken.

    Args:
        slot: The planned measurement.
        sample: The sample, which is not going to be measured again.
        histogram: The sample's latencies; None without any.
        record: The record of the search.
        passed_before: True if some rate of this variant has passed already. If not, faults that an overload may cause
            (SICK) mean that the system is broken.

    """
    assert record.knee is not None
    if sample.reason is not None and sample.reason.environmental:
        return RateTrial(slot, sample, histogram, "unclear", str(sample.reason))
    if sample.reason in NEVER or (sample.reason in SICK and not passed_before):
        reason = sample.detail.splitlines()[0] if sample.detail else str(sample.reason)
        return RateTrial(slot, sample, histogram, "broken", reason)
    late = _explain_late(histogram, record.knee.p99_s) if sample.valid else ""
    if sample.valid and not late:
        return RateTrial(slot, sample, histogram, "pass")
    backend, generator = (list_cpus(record, role) for role in ("backend", "generator"))
    limiter = find_limiter(sample, () if backend & generator else [str(cpu) for cpu in sorted(backend)])
    return RateTrial(slot, sample, histogram, "fail", late or str(sample.reason), limiter)


def find_limiter(sample: Sample, backend_cpus: Collection[str]) -> Limiter:
    """Return what was the limit when a rate failed, by the first of these rules that applies.

    - `generator`: the load generator did not end well, or was too busy for the rate.
    - `proxy`: the proxy's CPUs were 95 % busy, and the generator's were less than 95 % busy or unknown.
    - `generator`: the generator's CPUs were 80 % busy.
    - `backend`: the backend's CPUs were 95 % busy.
    - `p99`: the sample is valid, so only its p99 was too high.
    - `unknown`: none of the above.

    Args:
        sample: The sample that failed.
        backend_cpus: The numbers of the backend's CPUs, as text. Empty if it shares them with the generator.

    """
    generator, proxy = sample.generator_core, sample.proxy_core
    backend = min((sample.busy[cpu] for cpu in backend_cpus if cpu in sample.busy), default=0.0)
    rules: Sequence[tuple[Limiter, bool]] = (
        ("generator", sample.reason in {*SILENT, Reason.GENERATOR_SATURATED}),
        ("proxy", proxy is not None and proxy >= FULL and (generator is None or generator < FULL)),
        ("generator", generator is not None and generator >= BUSY),
        ("backend", backend >= FULL),
        ("p99", sample.valid),
        ("unknown", True),
    )
    return next(limiter for limiter, applies in rules if applies)


def _explain_late(histogram: Histogram | None, p99_s: float) -> str:
    """Return the reason why a sample's latencies exceed the limit on the p99; empty if they do not.

    If the sample has too few slow requests to know its p99, the requests slower than the limit are counted instead.
    The limit is then exceeded if they are more than 1 % of all requests.

    Args:
        histogram: The latencies of the sample. None means that none were recorded, which counts as exceeding the limit.
        p99_s: The highest p99 allowed, in seconds.

    """
    if histogram is None:
        return "no latency was recorded"
    quantile_s = histogram.quantile_s(QUANTILE)
    if quantile_s is not None:
        return f"p99 {format_seconds(quantile_s)}, more than {format_seconds(p99_s)}" if quantile_s > p99_s else ""
    slow = int(histogram.counts[int(find_buckets([p99_s * 1e6])[0]) + 1 :].sum())
    if slow <= (1 - QUANTILE) * histogram.total:
        return ""
    return f"{slow} of {histogram.total} requests took more than {format_seconds(p99_s)}"


class Rate(Record):
    """The results for one rate that a search for the knee (highest rate within the latency bound) tried, over all its trials."""

    rate_rps: float
    passed: int
    failed: int
    unclear: int
    achieved_rps: float | None = Field(description="the trials' median")
    p99_s: float | None = Field(description="of the trials' merged latencies; null = fewer than ten requests beyond it")
    cpu_per_request_s: float | None
    proxy_core: float | None = Field(description="as in sample.json, the trials' median")
    generator_core: float | None = Field(description="as in sample.json, the trials' median")
    why: tuple[str, ...] = Field(description="what failed, or why it is unknown")


class Knee(Record):
    """The knee of one variant: the highest rate that it serves within its latency bound.

    If `rate_rps` is None, none was found, and `why` has the reason.
    """

    variant: str
    rate_rps: float | None = Field(description="the highest rate that met every condition, confirmed; null = not found")
    passes_rps: float | None = Field(description="the highest rate that passed, confirmed or not")
    fails_rps: float | None = Field(description="the lowest rate that failed; null = none did")
    at_least: bool = Field(description="the proxy was not the limit: its own knee is no lower")
    limited_by: Limiter | None = Field(description="at the rate that failed; null = none failed")
    why: str = Field(description="what failed above the knee; or why none was found")
    generator: str | None
    generator_version: str | None
    stand_in_for: str | None
    p99_s: float | None = Field(description="at the knee, over its trials")
    cpu_per_request_s: float | None = Field(description="of the proxy at the knee, the trials' median")
    proxy_core: float | None
    generator_core: float | None
    trials: int
    rates: tuple[Rate, ...] = Field(description="every rate tried, the lowest first")


class KneeReport(Record):
    """The contents of `knee.json`: the results of a search for knees (highest rates within the latency bound).

    The command `knee --json` prints them, too.

    Times are seconds, rates requests per second, and shares fractions.
    """

    schema_version: int = 1
    run: str
    target: str
    load: LoadPoint = Field(description="of the first trial; the others differ in their rate")
    conditions: KneeSearch
    facts: dict[str, str]
    knees: tuple[Knee, ...]
    complete: bool = Field(description="whether every variant's knee was found")


def build_search(conditions: KneeSearch) -> KneeSearchSettings:
    """Return the settings of a search for knees (highest rates within a latency bound) from its recorded conditions."""
    return KneeSearchSettings(conditions.start_rps, conditions.precision, conditions.least_rps)


def list_trials(record: RunRecord, arm: str, samples: Iterable[Sample], histogram_of: HistogramOf) -> list[RateTrial]:
    """Return the trials (measured rates) of one variant in a search for its knee, in the plan's order.

    The knee is the highest rate within the latency bound.

    The list ends before the first trial that was not measured completely.

    Args:
        record: The record of the search.
        arm: The name of the variant in the run.
        samples: All samples of the search.
        histogram_of: The function that reads a sample's histogram of latencies.

    """
    done, trials = {key_of_measurement(sample): sample for sample in samples if is_settled(sample)}, list[RateTrial]()
    for slot in (slot for slot in record.plan().slots if slot.arm.name == arm):
        sample = done.get(key_of_measurement(slot))
        if sample is None:
            break
        passed = any(trial.outcome == "pass" for trial in trials)
        trials.append(classify_trial(slot, sample, histogram_of(sample), record, passed))
    return trials


def choose_rate(record: RunRecord, trials: Sequence[RateTrial]) -> SearchStep | RateTrial:
    """Return the next rate that a search for a variant's knee (highest rate within the latency bound) tries, or how it ends.

    Returns:
        The rate to try next, or the end of the search. If the system was broken in a trial, that trial, which also ends
        the search.

    """
    assert record.knee is not None
    current = trials
    if record.resumed:  # trials that showed nothing before the resumption are tried again
        since = datetime.fromisoformat(record.resumed[-1]["at"])
        current = [
            trial for trial in trials if trial.decided or datetime.fromisoformat(trial.sample.started_at) >= since
        ]
    results = [KneeTrial(trial.rate_rps, trial.outcome) for trial in current if trial.outcome != "broken"]
    broken = next((trial for trial in current if trial.outcome == "broken"), None)
    return broken or choose_step(build_search(record.knee), results)


def build_report(run: RunStore) -> KneeReport:
    """Build the report of a search for knees (highest rates within the latency bound) from the samples of its run.

    Raises:
        UsageError: A file of the run is damaged.

    """
    record = run.record
    assert record.knee is not None, "only of a search"
    samples = run.samples()
    knees = tuple(
        _build_knee(record, arm.variant, list_trials(record, arm.name, samples, run.histogram)) for arm in record.arms
    )
    return KneeReport(
        run=record.id,
        target=record.target,
        load=record.points[0],
        conditions=record.knee,
        facts=record.facts,
        knees=knees,
        complete=all(knee.rate_rps is not None for knee in knees),
    )


def _build_knee(record: RunRecord, variant: str, trials: Sequence[RateTrial]) -> Knee:
    step, by_rate = choose_rate(record, trials), sorted({trial.rate_rps for trial in trials})
    rates = tuple(_build_rate(rate, [trial for trial in trials if trial.rate_rps == rate]) for rate in by_rate)
    if isinstance(step, (KneeFound, KneeNotFound)):
        low, high = step.passes_rps, step.fails_rps
    else:  # the search did not end: the highest rate that passed, and the lowest above it that failed
        low = max((rate.rate_rps for rate in rates if rate.passed and not rate.failed), default=None)
        failing = (rate.rate_rps for rate in rates if rate.failed > rate.passed and rate.rate_rps > (low or 0))
        high = min(failing, default=None)
    failed = [trial for trial in trials if trial.rate_rps == high and trial.outcome == "fail"]
    limiters: list[Limiter] = [trial.limiter for trial in failed if trial.limiter is not None]
    limited = next(iter(multimode(limiters)), None)
    last, ended = trials[-1].sample if trials else None, isinstance(step, KneeFound)
    knee_rate = next((rate for rate in rates if ended and rate.rate_rps == low), None)
    return Knee(
        variant=variant,
        rate_rps=low if ended else None,
        passes_rps=low,
        fails_rps=high,
        at_least=ended and (limited in ("generator", "backend") or high is None),
        limited_by=limited,
        why=next(iter(multimode(trial.why for trial in failed)), "")
        if ended
        else _explain_unfinished(record, step, trials, low, high),
        generator=last.generator if last else None,
        generator_version=last.generator_version if last else None,
        stand_in_for=last.stand_in_for if last else None,
        p99_s=knee_rate.p99_s if knee_rate else None,
        cpu_per_request_s=knee_rate.cpu_per_request_s if knee_rate else None,
        proxy_core=knee_rate.proxy_core if knee_rate else None,
        generator_core=knee_rate.generator_core if knee_rate else None,
        trials=len(trials),
        rates=rates,
    )


def _explain_unfinished(
    record: RunRecord, step: SearchStep | RateTrial, trials: Sequence[RateTrial], low: float | None, high: float | None
) -> str:
    """Return why a search found no knee (highest rate within the latency bound) of a variant.

    Args:
        record: The record of the search.
        step: The last step of the search, or the trial that ended the search because the system was broken.
        trials: The trials of the variant.
        low: The highest rate that passed; None if none did.
        high: The lowest rate that failed; None if none did.

    """
    if isinstance(step, RateTrial):
        return step.why
    if not isinstance(step, KneeNotFound) or not trials:
        return f"not finished: go on with `{rerun.resume(record)}`"
    if step.why == "nothing":
        return f"not even {format_rate(high)} req/s meets the conditions: {trials[-1].why}"
    unclear = [trial.why for trial in trials if trial.outcome == "unclear"]
    reason = (
        next(iter(multimode(unclear[-3:])), None) if step.why == "unclear" else f"{len(trials)} trials {CONTRADICT}"
    )
    return f"{describe_interval(low, high)}: not resolved: {reason}"


def describe_interval(low: float | None, high: float | None) -> str:
    """Describe the interval in which a knee lies: `between 1,600 and 3,200 req/s`.

    Args:
        low: The highest rate that passed, in requests per second; None if none did.
        high: The lowest rate that failed, in requests per second; None if none did.

    """
    if low is not None and high is not None:
        return f"between {format_rate(low)} and {format_rate(high)} req/s"
    if low is None and high is None:
        return "anywhere"
    return f"below {format_rate(high)}" if low is None else f"above {format_rate(low)}"


def _build_rate(rate_rps: int, trials: Sequence[RateTrial]) -> Rate:
    clear = [trial for trial in trials if trial.decided] or trials
    histograms = [trial.histogram for trial in clear if trial.histogram is not None]
    merged = reduce(Histogram.merge, histograms) if histograms else None
    outcomes, samples = Counter(trial.outcome for trial in trials), [trial.sample for trial in clear]
    return Rate(
        rate_rps=rate_rps,
        passed=outcomes["pass"],
        failed=outcomes["fail"],
        unclear=outcomes["unclear"] + outcomes["broken"],
        achieved_rps=_compute_median(sample.goodput_rps for sample in samples),
        p99_s=merged.quantile_s(QUANTILE) if merged else None,
        cpu_per_request_s=_compute_median(sample.cpu_per_request_s for sample in samples),
        proxy_core=_compute_median(sample.proxy_core for sample in samples),
        generator_core=_compute_median(sample.generator_core for sample in samples),
        why=tuple(dict.fromkeys(trial.why for trial in trials if trial.why)),
    )


def _compute_median(values: Iterable[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return median(present) if present else None


def describe_difference(of_knee: LoadPoint, points: Sequence[LoadPoint]) -> str:
    """Describe how the load of a search for the knee (highest rate within a latency bound) differs from loads of a sweep.

    Args:
        of_knee: The load of the search.
        points: The load points of the sweep whose rates are shares of this knee.

    Returns:
        The differences in keys that the knee depends on (SAME), such as the page; empty if there are none.

    """
    differences = [
        f"{name} {getattr(of_knee, name)}, the sweep's {getattr(point, name)}"
        for point in points
        for name in SAME
        if getattr(of_knee, name) != getattr(point, name)
    ]
    return "; ".join(dict.fromkeys(differences))
