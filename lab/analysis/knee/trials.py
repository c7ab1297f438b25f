"""One trial of a search for the knee: what its sample shows (passed, failed, not to be told), and who was the limit where it failed.

Pure. Refuses to call a rate the proxy's limit where the generator was the full one, or did not end well.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from lab.model.bottleneck import BUSY, FULL
from lab.model.plan import Slot
from lab.model.run import RunRecord
from lab.model.samples import Reason, Sample
from lab.stats.histogram import Histogram, bucket_of
from lab.stats.units import format_seconds

QUANTILE = 0.99
SILENT = frozenset(
    {
        Reason.GENERATOR_FAILED,
        Reason.GENERATOR_HUNG,
        Reason.GENERATOR_OUTPUT,
        Reason.GENERATOR_TIME,
        Reason.GENERATOR_COUNT,
    }
)
NEVER = frozenset({Reason.BRING_UP_FAILED, Reason.KNOB_NOT_APPLIED, Reason.LIMIT_NOT_APPLIED, Reason.RESUMPTION})
"""Faults that no other rate would mend: they end the search."""
SICK = SILENT | {Reason.WRONG_BACKEND, Reason.WRONG_SIZE, Reason.TOO_SHORT}
"""Faults that may be an overload's doing once a rate has passed; before that they end the search, too."""


Outcome = Literal["pass", "fail", "unclear", "broken"]
Limiter = Literal["proxy", "generator", "backend", "p99", "unknown"]


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
    own, others = (_numbers(record.facts.get(f"cpus_{name}", "")) for name in ("backend", "generator"))
    limiter = limiter_of(sample, [] if own & others else map(str, sorted(own)))
    return Tried(slot, sample, histogram, "fail", late or str(sample.reason), limiter)


def limiter_of(sample: Sample, backend_cpus: Iterable[str]) -> Limiter:
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


def _numbers(cpus: str) -> set[int]:
    """`0-2,5` → {0, 1, 2, 5}."""
    ends = [part.partition("-") for part in cpus.split(",") if part]
    return {number for low, _, high in ends for number in range(int(low), int(high or low) + 1)}
