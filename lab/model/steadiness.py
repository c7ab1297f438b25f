"""The record of a sample's steadiness: a lasting change of its rate or its CPU time per request, and the cause."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from lab.base.validation import Record
from lab.model.leftovers import DEFAULT_PORTS, OPENED, Leftovers

Source = Literal["sent-bytes", "backend-cpu"]
"""The measure that stands for the requests of a second.

It is the bytes that the backend (or the proxy) sent, or the CPU time of the backend where no bytes were counted: all runs before the counts
were recorded.
"""
Cause = Literal["ports", "queue", "memory", "cpu-limit", "restart"]

CAUSES: Mapping[Cause, str] = {
    "ports": "local ports run out",
    "queue": "a full accept queue drops connections",
    "memory": "the memory limit is reached",
    "cpu-limit": "the CPU limit throttles it",
    "restart": "its liveness probe fails, or it ended by itself",
}
"""The causes in words. A restart during a load of minutes is recorded first, then the first cause that the counters show."""
PORTS_SHARE = 0.35
"""The share of the local ports above which they are the cause.

From half of them on the kernel has to search for a free one, and those of the warm-up are not counted.
"""
DEARER = 1.5
"""The factor by which CPU time per request must rise together with a change of the rate."""
CHURN = 0.05
"""The upstream connections per request from which ports explain a fall with more expensive requests.

The warm-up may have used most of the ports.
"""
THROTTLED_SHARE = 0.05
"""The share of the sample's time that throttling must take: less does not halve a rate."""


class Change(Record):
    """A lasting change within one sample, of the rate or of the CPU time per request: when it happened and by how much."""

    at_s: float = Field(description="how long the first part lasted, in seconds since the load began")
    rate_before_rps: float
    rate_after_rps: float
    cpu_before_s: float | None = Field(
        default=None, description="CPU seconds per request of the proxy; null = no proxy"
    )
    cpu_after_s: float | None = None
    rate: bool = Field(description="whether the rate changed by enough to count")
    cpu: bool = Field(description="whether the CPU time per request changed by enough to count")
    cause: Cause | None = Field(default=None, description="by counters; null = they show none")

    @property
    def dearer(self) -> bool:
        """True if a request after this change needed more than 1.5 times (`DEARER`) the CPU time of a request before it.

        The kernel's search for a free local port has this effect. The result is False if one of the CPU times is
        unknown.
        """
        before, after = self.cpu_before_s, self.cpu_after_s
        return before is not None and after is not None and after > DEARER * before


class Steadiness(Record):
    """The judgement whether the rate and the CPU time per request stayed the way they were during one sample.

    `change` is null if no lasting change was found in the values of the single seconds.
    """

    source: Source | None = Field(
        description="what stood for the requests of each second; null = nothing was seen of them"
    )
    seconds: int = Field(description="full seconds that were looked at; fewer than two show no change")
    change: Change | None = None


def find_cause(
    counters: Mapping[str, int], leftovers: Leftovers | None, requests: int, duration_s: float, dearer: bool
) -> Cause | None:
    """Return the cause of a lasting change of rate or CPU time within a sample, as far as counters show it.

    Args:
        counters: The increase of each counter during the sample, by `role/name` (`proxy/ListenOverflows`).
        leftovers: The state of the system when the load ended (sockets in TIME_WAIT); None if it was not recorded.
        requests: The number of requests of the sample.
        duration_s: The length of the load in seconds.
        dearer: Whether requests needed more CPU time after the change (`Change.dearer`).

    Returns:
        "ports" (local ports ran out), "queue" (a full accept queue), "memory" (the memory limit was reached),
        "cpu-limit" (throttled by the CPU limit), or None if no counter shows a cause.

    """
    opens = counters.get(OPENED, 0)
    if leftovers is not None and leftovers.port_range:
        used = [
            max(waiting.values(), default=0) / ports
            for place, waiting in leftovers.time_wait.items()
            if (ports := leftovers.port_range.get(place))
        ]
        ran_out = max(used, default=0.0) >= PORTS_SHARE
    else:
        ran_out = dearer and (opens >= PORTS_SHARE * DEFAULT_PORTS or opens >= CHURN * max(1, requests))
    largest = {
        name: max((count for full, count in counters.items() if full.endswith(f"/{name}")), default=0)
        for name in ("ListenOverflows", "memory_limit_hits", "cpu_throttled_us")
    }
    causes: Mapping[Cause, bool] = {
        "ports": ran_out,
        "queue": largest["ListenOverflows"] > 0,
        "memory": largest["memory_limit_hits"] > 0,
        "cpu-limit": largest["cpu_throttled_us"] * 1e-6 >= THROTTLED_SHARE * duration_s,
    }
    return next((cause for cause, holds in causes.items() if holds), None)
