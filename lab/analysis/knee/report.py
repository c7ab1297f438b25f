"""A search's trials → what each shows, each variant's knee, who was the limit there, and every rate that was tried: `knee.json`.

Pure but for reading the run's own files: it is made anew from the samples whenever it is asked for. Where the generator or the
backend was the limit, or the generator did not end well, a knee is "at least" what was found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from statistics import median
from typing import Literal, TypeVar

from pydantic import Field

from lab.analysis import rerun
from lab.analysis.aggregate.cells import HistogramOf, cpus_of
from lab.base.validation import Record
from lab.model.bottleneck import BUSY, FULL
from lab.model.plan import Slot
from lab.model.run import KneeSearch, RunRecord
from lab.model.samples import Reason, Sample, cell, settled
from lab.model.sweeps import Point
from lab.records.store import RunStore
from lab.stats.histogram import Histogram, bucket_of
from lab.stats.knee_search import Found, Search, Step, Stuck, Trial, next_step
from lab.stats.units import format_rate, format_seconds

SWEEP = "knee"
"""What a search is recorded as, where other runs have their sweep's name."""
CONTRADICT = "contradict each other"
"""Of a search that did not end: what it knows stays known, so that resuming it would tell nothing more."""
SAME = ("connections", "page", "keepalive", "tls", "routes", "accept_encoding", "link_mbit")
"""What a knee's load and a point placed at it must have in common: another page has another knee."""
QUANTILE = 0.99
SILENT = {
    Reason.GENERATOR_FAILED,
    Reason.GENERATOR_HUNG,
    Reason.GENERATOR_OUTPUT,
    Reason.GENERATOR_TIME,
    Reason.GENERATOR_COUNT,
}
NEVER = {Reason.BRING_UP_FAILED, Reason.KNOB_NOT_APPLIED, Reason.LIMIT_NOT_APPLIED, Reason.RESUMPTION}
"""Faults that no other rate would mend: they end the search."""
SICK = SILENT | {Reason.WRONG_BACKEND, Reason.WRONG_SIZE, Reason.TOO_SHORT}
"""Faults that may be an overload's doing once a rate has passed; before that they end the search, too."""
Outcome = Literal["pass", "fail", "unclear", "broken"]
Limiter = Literal["proxy", "generator", "backend", "p99", "unknown"]
Word = TypeVar("Word")


@dataclass(frozen=True, slots=True)
class Tried:
    """One trial and what it shows. `why`: empty where it passed; `limiter`: of one that failed."""

    slot: Slot
    sample: Sample
    histogram: Histogram | None
    outcome: Outcome
    why: str = ""
    limiter: Limiter | None = None

    @property
    def told(self) -> bool:
        return self.outcome in ("pass", "fail")

    @property
    def rate_rps(self) -> int:
        return round(self.slot.point.rate_rps or 0)


def tried(slot: Slot, sample: Sample, histogram: Histogram | None, record: RunRecord, passed_before: bool) -> Tried:
    """What a settled sample shows. `passed_before`: some rate of this arm has passed already."""
    assert record.knee is not None
    if sample.reason is not None and sample.reason.environmental:
        return Tried(slot, sample, histogram, "unclear", str(sample.reason))
    if sample.reason in NEVER or (sample.reason in SICK and not passed_before):
        why = sample.detail.splitlines()[0] if sample.detail else str(sample.reason)
        return Tried(slot, sample, histogram, "broken", why)
    late = _late(histogram, record.knee.p99_s) if sample.valid else ""
    if sample.valid and not late:
        return Tried(slot, sample, histogram, "pass")
    own, others = (cpus_of(record, role) for role in ("backend", "generator"))
    limiter = limiter_of(sample, () if own & others else [str(cpu) for cpu in sorted(own)])
    return Tried(slot, sample, histogram, "fail", late or str(sample.reason), limiter)


def limiter_of(sample: Sample, backend_cpus: Collection[str]) -> Limiter:
    """Who was full when this rate failed. `backend_cpus`: those it has for itself.

    The proxy, as at a closed loop (lab/model/bottleneck.py): its CPUs 95 % busy, the generator's less. Else the generator, if its own were
    80 % busy, or it did not end well. Else the backend; else only the p99 was too high, or nobody knows.
    """
    generator, proxy = sample.generator_core, sample.proxy_core
    if sample.reason in SILENT or sample.reason is Reason.GENERATOR_SATURATED:
        return "generator"
    if proxy is not None and proxy >= FULL and (generator is None or generator < FULL):
        return "proxy"
    if generator is not None and generator >= BUSY:
        return "generator"
    busy = [sample.busy[cpu] for cpu in backend_cpus if cpu in sample.busy]
    if busy and min(busy) >= FULL:
        return "backend"
    return "p99" if sample.valid else "unknown"


def _late(histogram: Histogram | None, p99_s: float) -> str:
    """Why its p99 is too high; empty = it is not. Where too few requests lie beyond it to show it, their share decides."""
    if histogram is None:
        return "no latency was recorded"
    found_s = histogram.quantile_s(QUANTILE)
    if found_s is not None:
        return f"p99 {format_seconds(found_s)}, more than {format_seconds(p99_s)}" if found_s > p99_s else ""
    slow = int(histogram.counts[int(bucket_of([p99_s * 1e6])[0]) + 1 :].sum())
    if slow <= (1 - QUANTILE) * histogram.total:
        return ""
    return f"{slow} of {histogram.total} requests took more than {format_seconds(p99_s)}"


class Rate(Record):
    """What became of one rate, over all its trials."""

    rate_rps: float
    passed: int
    failed: int
    unclear: int
    achieved_rps: float | None = Field(description="the trials' median")
    p99_s: float | None = Field(description="of the trials' merged latencies; null = fewer than ten requests beyond it")
    cpu_per_request_s: float | None
    proxy_core: float | None = Field(description="as in sample.json, the trials' median")
    generator_core: float | None = Field(description="as in sample.json, the trials' median")
    why: tuple[str, ...] = Field(description="what failed, or why it could not be told")


class Knee(Record):
    """One variant's. `rate_rps` null: none was found, `why` says why."""

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
    """`knee.json`, and what `knee --json` prints. Seconds, requests per second, fractions."""

    schema_version: int = 1
    run: str
    target: str
    load: Point = Field(description="of the first trial; the others differ in their rate")
    conditions: KneeSearch
    facts: dict[str, str]
    knees: tuple[Knee, ...]
    complete: bool = Field(description="whether every variant's knee was found")


def search_of(conditions: KneeSearch) -> Search:
    return Search(conditions.start_rps, conditions.precision, conditions.least_rps)


def trials_of(record: RunRecord, arm: str, samples: Iterable[Sample], histogram_of: HistogramOf) -> list[Tried]:
    """An arm's trials in the plan's order, up to the first that was not measured to its end."""
    done, found = {cell(sample): sample for sample in samples if settled(sample)}, list[Tried]()
    for slot in (slot for slot in record.plan().slots if slot.arm.name == arm):
        sample = done.get(cell(slot))
        if sample is None:
            break
        passed = any(each.outcome == "pass" for each in found)
        found.append(tried(slot, sample, histogram_of(sample), record, passed))
    return found


def step_of(record: RunRecord, trials: Sequence[Tried]) -> Step | Tried:
    """What the search does after these trials of one arm; a trial: it was broken, and there is nothing more to do."""
    assert record.knee is not None
    kept = trials
    if record.resumed:  # what told nothing before that is tried again: whoever resumes a run wants it
        since = datetime.fromisoformat(record.resumed[-1]["at"])
        kept = [each for each in trials if each.told or datetime.fromisoformat(each.sample.started_at) >= since]
    told = [Trial(each.rate_rps, each.outcome) for each in kept if each.outcome != "broken"]
    broken = next((each for each in kept if each.outcome == "broken"), None)
    return broken or next_step(search_of(record.knee), told)


def report_of(run: RunStore) -> KneeReport:
    """What a search found, from its samples. UsageError for damaged ones."""
    record = run.record
    assert record.knee is not None, "only of a search"
    samples = run.samples()
    knees = tuple(
        _knee(record, arm.variant, trials_of(record, arm.name, samples, run.histogram)) for arm in record.arms
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


def _knee(record: RunRecord, variant: str, trials: Sequence[Tried]) -> Knee:
    step, by_rate = step_of(record, trials), sorted({each.rate_rps for each in trials})
    rates = tuple(_rate(rate, [each for each in trials if each.rate_rps == rate]) for rate in by_rate)
    if isinstance(step, (Found, Stuck)):
        low, high = step.passes_rps, step.fails_rps
    else:  # it did not end: the highest rate that passed, and the lowest above it that failed
        low = max((each.rate_rps for each in rates if each.passed and not each.failed), default=None)
        failing = (each.rate_rps for each in rates if each.failed > each.passed and each.rate_rps > (low or 0))
        high = min(failing, default=None)
    failed = [each for each in trials if each.rate_rps == high and each.outcome == "fail"]
    limiters: list[Limiter] = [each.limiter for each in failed if each.limiter is not None]
    limited = _most(limiters)
    last, found = trials[-1].sample if trials else None, isinstance(step, Found)
    at = next((rate for rate in rates if found and rate.rate_rps == low), None)
    return Knee(
        variant=variant,
        rate_rps=low if found else None,
        passes_rps=low,
        fails_rps=high,
        at_least=found and (limited in ("generator", "backend") or high is None),
        limited_by=limited,
        why=_most([each.why for each in failed]) or "" if found else _why_not(record, step, trials, low, high),
        generator=last.generator if last else None,
        generator_version=last.generator_version if last else None,
        stand_in_for=last.stand_in_for if last else None,
        p99_s=at.p99_s if at else None,
        cpu_per_request_s=at.cpu_per_request_s if at else None,
        proxy_core=at.proxy_core if at else None,
        generator_core=at.generator_core if at else None,
        trials=len(trials),
        rates=rates,
    )


def _why_not(
    record: RunRecord, step: Step | Tried, trials: Sequence[Tried], low: float | None, high: float | None
) -> str:
    if isinstance(step, Tried):
        return step.why
    if not isinstance(step, Stuck) or not trials:
        return f"not finished: go on with `{rerun.resume(record)}`"
    if step.why == "nothing":
        return f"not even {format_rate(high)} req/s meets the conditions: {trials[-1].why}"
    unclear = [each.why for each in trials if each.outcome == "unclear"]
    why = _most(unclear[-3:]) if step.why == "unclear" else f"{len(trials)} trials {CONTRADICT}"
    return f"{between(low, high)}: not resolved: {why}"


def between(low: float | None, high: float | None) -> str:
    if low is not None and high is not None:
        return f"between {format_rate(low)} and {format_rate(high)} req/s"
    if low is None and high is None:
        return "anywhere"
    return f"below {format_rate(high)}" if low is None else f"above {format_rate(low)}"


def _rate(rate_rps: int, trials: Sequence[Tried]) -> Rate:
    told = [each for each in trials if each.told] or trials
    histograms = [each.histogram for each in told if each.histogram is not None]
    merged = reduce(Histogram.merge, histograms) if histograms else None
    outcomes, samples = Counter(each.outcome for each in trials), [each.sample for each in told]
    return Rate(
        rate_rps=rate_rps,
        passed=outcomes["pass"],
        failed=outcomes["fail"],
        unclear=outcomes["unclear"] + outcomes["broken"],
        achieved_rps=_median(sample.goodput_rps for sample in samples),
        p99_s=merged.quantile_s(QUANTILE) if merged else None,
        cpu_per_request_s=_median(sample.cpu_per_request_s for sample in samples),
        proxy_core=_median(sample.proxy_core for sample in samples),
        generator_core=_median(sample.generator_core for sample in samples),
        why=tuple(dict.fromkeys(each.why for each in trials if each.why)),
    )


def _median(values: Iterable[float | None]) -> float | None:
    found = [value for value in values if value is not None]
    return median(found) if found else None


def _most(words: Sequence[Word]) -> Word | None:
    """The commonest, of several the first."""
    return Counter(words).most_common(1)[0][0] if words else None


def differs(of_knee: Point, wanted: Sequence[Point]) -> str:
    """In words, what a search's load has that a point has otherwise; empty = nothing."""
    said = [
        f"{name} {getattr(of_knee, name)}, the sweep's {getattr(point, name)}"
        for point in wanted
        for name in SAME
        if getattr(of_knee, name) != getattr(point, name)
    ]
    return "; ".join(dict.fromkeys(said))
