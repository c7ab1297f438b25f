"""How metrics are read off a sample and its histogram. Pure; None where they cannot tell, and never a guess."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lab.model.metric import OfHistogram, OfSample

if TYPE_CHECKING:
    from lab.model.samples import Sample
    from lab.stats.histogram import Histogram


def quantile(share: float) -> OfHistogram:
    return lambda histogram: histogram.quantile_s(share)


def spread(histogram: Histogram) -> float | None:
    """1 would be a flat line. None where too few requests lie beyond p99."""
    middle, high = (histogram.quantile_s(share) for share in (0.5, 0.99))
    return high / middle if middle and high is not None else None


def memory_bytes(sample: Sample) -> float | None:
    """Of the proxy, or of the backend where there is none."""
    usage = sample.usage.get("proxy") or sample.usage.get("backend")
    return float(usage.rss_bytes) if usage else None


def control_memory_bytes(sample: Sample) -> float | None:
    """Of a controller's own processes, where they are counted apart from the proxy's."""
    usage = sample.usage.get("control")
    return float(usage.rss_bytes) if usage else None


def failed_share(sample: Sample) -> float | None:
    """Of all requests, those not answered as they should; of steady loads by what the generator counted."""
    if sample.outcome:
        return outcome_ratio("failed", "requests")(sample)
    failed, status = sum(sample.errors.values()), sample.errors.get("status", 0)
    total = (sample.requests or 0) + failed - status
    return failed / total if total else None


def outcome_ratio(over: str, under: str) -> OfSample:
    def of(sample: Sample) -> float | None:
        first, second = sample.outcome.get(over), sample.outcome.get(under)
        return first / second if first is not None and second else None

    return of


def refused_share(sample: Sample) -> float | None:
    """Of all large bodies; None where none was tried."""
    tried = [sample.outcome.get(name) for name in ("transfers", "too_large", "transfers_lost")]
    total = sum(count for count in tried if count is not None)
    return (sample.outcome.get("too_large") or 0.0) / total if total else None


def link_share(sample: Sample) -> float | None:
    """How full the shaped link was towards the client, as `lab.model.bottleneck` counts it; None where none was shaped."""
    mbit, duration_s = sample.point.link_mbit, sample.duration_s
    return sample.counters.get("client/rx_bytes", 0) * 8 / (mbit * 1e6 * duration_s) if mbit and duration_s else None


def counted(name: str) -> OfSample:
    """What the kernel counted in the whole sample; None where nobody counted."""
    return lambda sample: float(sample.counters[name]) if name in sample.counters else None


def per_good_request(sample: Sample, amount: float | None) -> float | None:
    good = (sample.requests or 0) - sample.errors.get("status", 0)
    return amount / good if amount is not None and good > 0 else None


def counted_per_request(*names: str) -> OfSample:
    """The sum of these counters for every good answer; None where nobody counted one of them.

    The proxy's are of its connections to both sides; the client's link tells what it carried towards it, headers and all.
    """

    def of(sample: Sample) -> float | None:
        counted = [sample.counters[name] for name in names if name in sample.counters]
        return per_good_request(sample, sum(counted) if len(counted) == len(names) else None)

    return of


def backend_cpu_per_request(sample: Sample) -> float | None:
    used = sample.usage.get("backend")
    return per_good_request(sample, used.cpu_s if used else None)
