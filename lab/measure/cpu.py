"""Whose work it was that kept CPUs busy while a generator ran, and how busy the proxy's and the generator's were. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lab.model.bottleneck import fullness
from lab.model.endpoint import Role
from lab.model.load import Result
from lab.model.usage import UNCLAIMED, Observation
from lab.targets.common.process import Ended
from lab.targets.common.sampler import RESIDUAL_NOISE

CONTROL = "control"
"""The role of a controller's own processes: they run where their proxy does."""
Cpus = Mapping[Role, frozenset[int]]
"""The CPUs that each role is pinned to; empty where roles are not pinned."""


def used_s(seen: Observation, ended: Ended) -> dict[str, float]:
    """Role → CPU seconds of one system's, and of its generator by whoever saw it."""
    own = {role: usage.cpu_s for role, usage in seen.usage.items() if role != "lab"}
    return own | {"generator": ended.cpu_s if seen.generator_cpu_s is None else seen.generator_cpu_s}


def accounted(
    seen: Observation, ended: Ended, cpus: Cpus, beside_s: Mapping[str, float]
) -> tuple[Ended, Observation, dict[int, float]]:
    """With the generator's CPU from whoever saw it, other people's work on our CPUs, and CPU → seconds of ours on it.

    A role on several CPUs is spread over them as they were busy: one worker fills one of many.
    `beside_s`: role → CPU seconds of another system of ours on the same CPUs. What a cluster's nodes did and nobody claims is less by
    what its pods did: those are ours.
    """
    used = used_s(seen, ended)
    ended = replace(ended, cpu_s=used["generator"])
    lab = {"lab": seen.usage["lab"].cpu_s} if "lab" in seen.usage else {}
    both = {role: (used | lab).get(role, 0.0) + beside_s.get(role, 0.0) for role in (*used, *lab, *beside_s)}
    both["proxy"] = both.get("proxy", 0.0) + both.get(CONTROL, 0.0)
    own: dict[int, float] = {}
    for role, pinned in cpus.items():
        busy = sum(seen.busy.get(cpu, 0.0) for cpu in pinned)
        for cpu in pinned:
            part = seen.busy.get(cpu, 0.0) / busy if busy else 1 / len(pinned)
            own[cpu] = own.get(cpu, 0.0) + both.get(role, 0.0) * part
    if UNCLAIMED in seen.counters and beside_s:
        beside_ms = round(1000 * sum(used for role, used in beside_s.items() if role != "generator"))
        unclaimed = max(0, seen.counters[UNCLAIMED] - beside_ms)
        seen = replace(seen, counters={**seen.counters, UNCLAIMED: unclaimed})
    return ended, with_unexplained(seen, own), own


def with_unexplained(seen: Observation, own_cpu_s: Mapping[int, float]) -> Observation:
    """Work on our CPUs that none of our processes did, beyond what clock ticks get wrong, is somebody else's.

    It catches what no process list shows: processes in other containers, or ones that nobody waited for. Interrupts are nobody's: those
    that come in a process are in its time, and the rest (a disk's, of a log whose every line it confirms) in the CPU's idle share.
    """
    own = {cpu: own_s / seen.elapsed_s for cpu, own_s in own_cpu_s.items() if cpu in seen.busy}
    outside = {cpu: seen.interrupts.get(cpu, 0.0) * max(0.0, 1 - share) for cpu, share in own.items()}
    residual = [seen.busy[cpu] - share - outside[cpu] for cpu, share in own.items()]
    unexplained = sum(share for share in residual if share > RESIDUAL_NOISE)
    return replace(seen, others=max(seen.others or 0.0, unexplained)) if unexplained else seen


def unexplained(seen: Observation, ours_s: float) -> float | None:
    """Of the time for which CPUs were busy, the share that neither our processes (`ours_s`, beside the lab's own) nor others' were seen
    to use; None where they were not, and on a cluster, whose own (UNCLAIMED) are not seen one by one. Below 0: clock ticks saw less of it
    than the scheduler.
    """
    if UNCLAIMED in seen.counters:
        return None
    busy_s = sum(seen.busy.values()) * seen.elapsed_s
    lab = seen.usage.get("lab")
    known_s = ours_s + (lab.cpu_s if lab else 0.0) + (seen.others or 0.0) * seen.elapsed_s
    return (busy_s - known_s) / busy_s if busy_s else None


def cores(
    seen: Observation,
    own_cpu_s: Mapping[int, float],
    result: Result | None,
    cpus: Cpus,
    has_proxy: bool,
    workers: int | None,
    alone: bool = True,
) -> dict[str, float | None]:
    """How busy a role's CPUs were while the generator ran: the proxy's least busy one (of those that its workers can fill), the
    generator's busiest (None: not seen). `workers`: the proxy's; None: one for each of its CPUs.

    Clock ticks miss short bursts of work, so what the scheduler counted for our own processes is the least.
    Where roles are not pinned, a role's CPUs are its node's, and a generator is no less busy than its busiest thread. One of two sides is
    not `alone`: what else ran on the generator's CPUs took from both alike, and only what is ours there is counted.
    """
    span_s = min(seen.elapsed_s, result.duration_s) if result and result.duration_s else seen.elapsed_s
    if seen.cores is not None:
        shares = {role: min(1.0, share * seen.elapsed_s / span_s) for role, share in seen.cores.items()}
        least = [share for share in (shares.get("generator"), seen.busiest_thread) if share is not None]
        return {"proxy": shares.get("proxy"), "generator": max(least, default=None)}
    busy = {
        cpu: min(1.0, max(share * seen.elapsed_s, own_cpu_s.get(cpu, 0.0)) / span_s) for cpu, share in seen.busy.items()
    }
    proxy = [busy[cpu] for cpu in cpus.get("proxy", ()) if cpu in busy and has_proxy]
    ours = busy if alone else {cpu: min(1.0, own_s / span_s) for cpu, own_s in own_cpu_s.items()}
    generator = [ours[cpu] for cpu in cpus.get("generator", ()) if cpu in ours]
    used = seen.usage["proxy"].cpu_s / span_s if "proxy" in seen.usage else 0.0
    return {"proxy": fullness(proxy, workers, used), "generator": max(generator, default=None)}
