"""Who was the limit of a closed loop? Pure: what was asked, reported and seen → one word, as in `Sample.limited_by`.

limit       a container was throttled by its CPU limit in a tenth of the periods or more
link        the shaped link was full: 90 % of its rate or more, either way. The interfaces' counters see big sends
            with one frame's headers, at most 5 % less than goes over the wire
errors      errors are the load's subject, and a hundredth of the requests or more failed
proxy       as many of its CPUs as it has workers were full (95 %) and the generator's were not: a ceiling of the proxy
waiting     neither's were: the generator's below the 80 % that it may use at a given rate, the proxy's not full. What
            they waited for was: a disk, a full queue, a retransmission, more connections
generator   else: its own CPU time is part of every result

Where roles are not pinned to CPUs (a cluster), a role's CPUs are its node's, whoever fills them. So of a node that proxy
and generator share both are equally full: a full one is no ceiling of the proxy's, because the generator had nothing to spare.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from lab.model.load import Result
from lab.model.sweeps import Point

FULL = 0.95
BUSY = 0.80
"""A generator's CPU from here on is part of what it measures; at a given rate it makes the sample invalid."""
THROTTLED_PERIODS = 0.10
LINK_FULL = 0.90
FAILED = 0.01
MAX_OTHERS_CORES = 0.05

Limit = Literal["proxy", "generator", "link", "limit", "errors", "waiting"]


def limited_by(
    point: Point, result: Result, counters: Mapping[str, int], proxy_core: float | None, generator_core: float | None
) -> Limit | None:
    """None at a given rate, and where there is no proxy and nothing else was the limit.

    A generator that was not seen (None) may have been the limit, so nothing is called the proxy's.
    """
    if point.rate_rps is not None:
        return None
    periods = {
        name.removesuffix("cpu_periods"): count for name, count in counters.items() if name.endswith("/cpu_periods")
    }
    throttled = (counters.get(f"{role}cpu_throttled_periods", 0) / count for role, count in periods.items() if count)
    if any(share >= THROTTLED_PERIODS for share in throttled):
        return "limit"
    if point.link_mbit is not None and link_share(point, result, counters) >= LINK_FULL:
        return "link"
    if "errors" in point.subject and failed(result) >= FAILED * (result.requests + unanswered(result)):
        return "errors"
    if proxy_core is None:
        return None
    if generator_core is None:
        return "generator"
    if proxy_core >= FULL:
        return "proxy" if generator_core < FULL else "generator"
    return "waiting" if generator_core < BUSY else "generator"


def fullness(shares: Sequence[float], workers: int | None, used: float) -> float | None:
    """How full as many of the proxy's CPUs are as its workers can fill (None: all of them); None without CPUs. Fractions of one CPU.

    The fullest ones are the workers', if they are bound. Where they are not, no CPU is one's alone: then by what they `used`.
    """
    if not shares:
        return None
    count = min(workers or len(shares), len(shares))
    own = used / count if count < len(shares) else 0.0
    return min(1.0, max(sorted(shares, reverse=True)[count - 1], own))


def link_share(point: Point, result: Result, counters: Mapping[str, int]) -> float:
    """How full the shaped link was in its busier direction, as a fraction of its rate, over the generator's run."""
    if point.link_mbit is None or result.duration_s <= 0:
        return 0.0
    most_bytes = max(counters.get("client/rx_bytes", 0), counters.get("client/tx_bytes", 0))
    return 8 * most_bytes / result.duration_s / (point.link_mbit * 1e6)


def unanswered(result: Result) -> int:
    """Requests that failed without an answer in time."""
    return sum(count for kind, count in result.errors.items() if kind != "status")


def failed(result: Result) -> int:
    """Requests that were not answered as they should."""
    return sum(result.errors.values())
