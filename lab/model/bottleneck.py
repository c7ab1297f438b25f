"""The decision what limited the rate of a closed loop (a load that sends as fast as answers come), as one word.

`Sample.limited_by` records the word:

limit       a container was throttled by its CPU limit in a tenth of the periods or more
link        the shaped link was full: 90 % of its rate or more, in either direction. The interfaces' counters count big sends
            with the headers of one frame, at most 5 % less than passes the wire
errors      errors are the load's subject, and a hundredth of the requests or more failed
proxy       as many of its CPUs as it has workers were full (95 %) and the generator's were not: a saturation throughput of the proxy
waiting     the CPUs of neither side were full: the generator's stayed below the 80 % that it may use at an offered rate.
            Both sides waited for something else: a disk, a full queue, a retransmission, more connections
generator   any other case: the generator's CPU time is part of every result

Where roles are not pinned to CPUs (a cluster), a role's CPUs are those of its node, for any process. Proxy and generator on one node are
then equally full: a full node shows no saturation of the proxy, because the generator had nothing to spare.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from lab.model.load import GeneratorResult
from lab.model.sweeps import LoadPoint

FULL = 0.95
"""The busy fraction from which a CPU counts as full."""
BUSY = 0.80
"""The busy fraction from which a generator's CPU affects the result; at an offered rate the sample is invalid."""
THROTTLED_PERIODS = 0.10
"""The share of throttled CPU periods from which a container's CPU limit is the bottleneck."""
LINK_FULL = 0.90
"""The share of its rate from which the shaped link counts as full."""
FAILED = 0.01
"""The share of failed requests from which errors are the bottleneck of a load whose subject they are."""
MAX_OTHERS_CORES = 0.05
"""The cores that processes other than the lab's may use during a sample."""

Limit = Literal["proxy", "generator", "link", "limit", "errors", "waiting"]


def limited_by(
    point: LoadPoint,
    result: GeneratorResult,
    counters: Mapping[str, int],
    proxy_core: float | None,
    generator_core: float | None,
) -> Limit | None:
    """Return what limited the throughput of a closed loop (a load that sends as fast as answers come).

    Args:
        point: The load.
        result: The generator's report.
        counters: The increase of each kernel counter during the load, by `role/name` (`proxy/cpu_periods`).
        proxy_core: The busy fraction (0 to 1) of the proxy's CPUs, as `compute_fullness` returns it; None without a
            proxy.
        generator_core: The busy fraction of the generator's busiest CPU. None = unknown: the generator may have been
            the limit, so the result is never "proxy".

    Returns:
        "limit" (a container's CPU limit throttled it), "link" (the link of limited bandwidth was full), "errors"
        (failed requests, where they are what the load examines), "proxy", "generator", or "waiting" (neither the
        proxy's nor the generator's CPUs were full). None for a load at an offered rate, and for a load without a proxy
        that nothing else limited.

    """
    if point.rate_rps is not None:
        return None
    periods = {
        name.removesuffix("cpu_periods"): count for name, count in counters.items() if name.endswith("/cpu_periods")
    }
    throttled = (counters.get(f"{role}cpu_throttled_periods", 0) / count for role, count in periods.items() if count)
    if any(share >= THROTTLED_PERIODS for share in throttled):
        return "limit"
    if point.link_mbit is not None and compute_link_share(point, result, counters) >= LINK_FULL:
        return "link"
    failed = sum(result.errors.values())
    if "errors" in point.subject and failed >= FAILED * (result.requests + count_unanswered(result)):
        return "errors"
    if proxy_core is None:
        return None
    if generator_core is None:
        return "generator"
    if proxy_core >= FULL:
        return "proxy" if generator_core < FULL else "generator"
    return "waiting" if generator_core < BUSY else "generator"


def compute_fullness(shares: Sequence[float], workers: int | None, used: float) -> float | None:
    """Return how full the proxy's CPUs were: the busy fraction of the least busy CPU among those that its workers can fill.

    With n workers, only the n busiest CPUs are considered. Workers that are not bound to CPUs spread their work over
    more than n CPUs, so that no CPU looks full. Therefore the result is at least the CPU time per worker.

    Args:
        shares: The busy fraction of each of the proxy's CPUs.
        workers: The number of workers; None = all CPUs are considered.
        used: The CPU time that the proxy used, in CPUs (2.0 = two CPUs all the time).

    Returns:
        A fraction of one CPU, from 0 to 1; None if `shares` is empty.

    """
    if not shares:
        return None
    count = min(workers or len(shares), len(shares))
    per_worker = used / count if count < len(shares) else 0.0
    return min(1.0, max(sorted(shares, reverse=True)[count - 1], per_worker))


def compute_link_share(point: LoadPoint, result: GeneratorResult, counters: Mapping[str, int]) -> float:
    """Return how full the link of limited bandwidth was during a load, as a fraction of its rate (0.9 = 90 %).

    The link is the one between client and proxy. Of its two directions, the one with more bytes is used. The result is
    0 for a load without such a limit.
    """
    if point.link_mbit is None or result.duration_s <= 0:
        return 0.0
    busier_bytes = max(counters.get("client/rx_bytes", 0), counters.get("client/tx_bytes", 0))
    return 8 * busier_bytes / result.duration_s / (point.link_mbit * 1e6)


def count_unanswered(result: GeneratorResult) -> int:
    """Return the number of requests that got no answer: all failures except answers with a wrong status."""
    return sum(count for kind, count in result.errors.items() if kind != "status")
