"""Does a sample count? Pure: what was planned, reported and seen → the reasons why not (design.md §6).

Steady loads only: in a disturbance errors are the outcome, and other rules hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from lab.generators import Result
from lab.sampler import Observation
from lab.samples import Reason
from lab.sweeps import PAGES, Point

MIN_ACHIEVED = 0.99
MAX_GENERATOR_CORE = 0.80
MAX_STEAL = 0.01
MAX_OTHERS_CORES = 0.05
MAX_CLOCK_STEP_S = 0.1
CEILING_BUSY = 0.95
HEADER_BYTES = 2048  # more than any of our responses' headers

Fault = tuple[Reason, str]


def faults(
    point: Point,
    result: Result,
    seen: Observation,
    generator_core: float,
    calibration_s: float,
    overflow_is_subject: bool = False,
) -> list[Fault]:
    """Every reason against a steady sample, most telling first. `overflow_is_subject`: the run is about accept queues."""
    found: list[Fault] = []
    if point.requests is None and point.duration_s <= calibration_s:
        found.append(
            (
                Reason.TOO_SHORT,
                f"{point.duration_s:g} s, of which {calibration_s:g} s are calibration",
            )
        )
    if result.uncalibrated:
        found.append((Reason.TOO_SHORT, "the generator did not finish its calibration: start-up is in the latencies"))
    if result.requests == 0 or result.latency.total == 0:
        found.append(
            (
                Reason.TOO_SHORT,
                f"{result.requests} requests answered, {result.latency.total} latencies recorded",
            )
        )
    refused = {kind: count for kind, count in result.errors.items() if count}
    if status := refused.pop("status", 0):
        found.append((Reason.NON_2XX, f"{status} of {result.requests} responses"))
    if refused:
        found.append(
            (
                Reason.ERRORS,
                ", ".join(f"{count} {kind}" for kind, count in refused.items()),
            )
        )
    if result.dropped:
        found.append((Reason.DROPPED, f"{result.dropped} requests were due and never sent"))
    if result.size_bytes is not None and result.requests:
        page, mean = PAGES[point.page], result.size_bytes / result.requests
        slack = HEADER_BYTES if result.size_includes_headers else 0
        # a run that is cut off reads part of its last responses: one per connection
        part = page * point.connections / result.requests
        if not page - part - 1 <= mean <= page + slack + part + 1:
            found.append(
                (
                    Reason.WRONG_SIZE,
                    f"{mean:.0f} bytes per response, the page has {page}",
                )
            )
    if point.rate_rps is not None:
        if result.achieved_rps < MIN_ACHIEVED * point.rate_rps:
            share = result.achieved_rps / point.rate_rps
            found.append(
                (
                    Reason.RATE_NOT_ACHIEVED,
                    f"{result.achieved_rps:.1f} of {point.rate_rps:g} req/s ({share:.1%})",
                )
            )
        if generator_core >= MAX_GENERATOR_CORE:
            found.append((Reason.GENERATOR_SATURATED, f"its CPU was {generator_core:.0%} busy"))
    if not overflow_is_subject and (overflows := _sum(seen.counters, "/ListenOverflows")):
        found.append(
            (
                Reason.LISTEN_OVERFLOW,
                f"{overflows} connections dropped at a full accept queue",
            )
        )
    if drops := _sum(seen.counters, "/conntrack_drop"):
        found.append(
            (
                Reason.CONNTRACK_OVERFLOW,
                f"{drops} packets dropped by connection tracking",
            )
        )
    if abs(seen.clock_step_s) > MAX_CLOCK_STEP_S:
        found.append(
            (
                Reason.CLOCK_STEP,
                f"the wall clock moved by {seen.clock_step_s:+.2f} s against the monotonic one",
            )
        )
    if seen.steal >= MAX_STEAL:
        found.append((Reason.STEAL, f"the hypervisor took {seen.steal:.1%} of the CPU time"))
    if seen.others is not None and seen.others >= MAX_OTHERS_CORES:
        found.append(
            (
                Reason.OTHER_PROCESSES,
                f"what is not the lab's used {seen.others:.1%} of a core",
            )
        )
    return found


def limited_by(point: Point, proxy_core: float | None, generator_core: float) -> Literal["proxy", "generator"] | None:
    """Closed loop: a ceiling is the proxy's only if its CPUs were full and the generator's were not."""
    if point.rate_rps is not None or proxy_core is None:
        return None
    return "proxy" if proxy_core >= CEILING_BUSY and generator_core < CEILING_BUSY else "generator"


def _sum(counters: Mapping[str, int], suffix: str) -> int:
    return sum(value for name, value in counters.items() if name.endswith(suffix))
