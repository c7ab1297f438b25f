"""The accounting of CPU time during a load: which processes used it, and how busy proxy and generator were. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lab.model.bottleneck import compute_fullness
from lab.model.endpoint import Role
from lab.model.load import GeneratorResult
from lab.model.usage import UNCLAIMED, Observation
from lab.targets.common.process import GeneratorOutcome
from lab.targets.common.sampler import RESIDUAL_NOISE

CONTROL_ROLE = "control"
"""The role of a controller's processes, which run on the CPUs of their proxy."""
Cpus = Mapping[Role, frozenset[int]]
"""The CPUs that each role is pinned to; empty where roles are not pinned."""


def sum_cpu_s(observation: Observation, ended: GeneratorOutcome) -> dict[str, float]:
    """Return role → CPU seconds of one system and its generator, without the lab's own.

    The generator's CPU time comes from the observation where the lab's sampler saw it there, else from the ended process.
    """
    system_s = {role: usage.cpu_s for role, usage in observation.usage.items() if role != "lab"}
    return system_s | {"generator": ended.cpu_s if observation.generator_cpu_s is None else observation.generator_cpu_s}


def attribute_cpu(
    observation: Observation, ended: GeneratorOutcome, cpus: Cpus, neighbour_s: Mapping[str, float]
) -> tuple[GeneratorOutcome, Observation, dict[int, float]]:
    """Divide the CPU time of a load between the generator, the other processes of the lab, and all other programs.

    The CPU seconds of a role that is pinned to several CPUs are spread over these CPUs in proportion to how busy each CPU was. (A single
    worker, for example, keeps only one of them busy.) On a cluster, the CPU time of the nodes that belongs to no watched process
    includes the pods of the lab's second system (`neighbour_s`). Their time is subtracted there.

    Args:
        observation: What the lab observed during the load.
        ended: The generator's process, which has ended.
        cpus: Role → the CPUs that the role is pinned to.
        neighbour_s: Role → CPU seconds of a second system of the lab that runs on the same CPUs; empty: there is none.

    Returns:
        (the ended process with the generator's CPU time, the observation with the work of programs that are not the lab's on these
        CPUs, CPU → seconds that the lab's own processes used on that CPU).

    """
    role_s = sum_cpu_s(observation, ended)
    ended = replace(ended, cpu_s=role_s["generator"])
    lab = {"lab": observation.usage["lab"].cpu_s} if "lab" in observation.usage else {}
    total_s = {
        role: (role_s | lab).get(role, 0.0) + neighbour_s.get(role, 0.0) for role in (*role_s, *lab, *neighbour_s)
    }
    total_s["proxy"] = total_s.get("proxy", 0.0) + total_s.get(CONTROL_ROLE, 0.0)
    own_cpu_s: dict[int, float] = {}
    for role, pinned in cpus.items():
        busy = sum(observation.busy.get(cpu, 0.0) for cpu in pinned)
        for cpu in pinned:
            part = observation.busy.get(cpu, 0.0) / busy if busy else 1 / len(pinned)
            own_cpu_s[cpu] = own_cpu_s.get(cpu, 0.0) + total_s.get(role, 0.0) * part
    if UNCLAIMED in observation.counters and neighbour_s:
        neighbour_ms = round(1000 * sum(cpu_s for role, cpu_s in neighbour_s.items() if role != "generator"))
        unclaimed = max(0, observation.counters[UNCLAIMED] - neighbour_ms)
        observation = replace(observation, counters={**observation.counters, UNCLAIMED: unclaimed})
    return ended, add_unexplained(observation, own_cpu_s), own_cpu_s


def add_unexplained(observation: Observation, own_cpu_s: Mapping[int, float]) -> Observation:
    """Return the observation with work on our CPUs that none of our processes did counted as other people's.

    Work counts only beyond what clock ticks get wrong (`RESIDUAL_NOISE`). It catches what no process list shows: processes in other
    containers, or ones that were never waited for. Interrupts belong to no process: those that come while a process runs are in its time,
    and the rest fall into the CPU's idle share (for example a disk's, for a log that confirms every line).

    Args:
        observation: What the lab observed during the load.
        own_cpu_s: CPU → seconds that our own processes used on it.

    """
    shares = {cpu: cpu_s / observation.elapsed_s for cpu, cpu_s in own_cpu_s.items() if cpu in observation.busy}
    outside = {cpu: observation.interrupts.get(cpu, 0.0) * max(0.0, 1 - share) for cpu, share in shares.items()}
    residual = [observation.busy[cpu] - share - outside[cpu] for cpu, share in shares.items()]
    unexplained = sum(share for share in residual if share > RESIDUAL_NOISE)
    return replace(observation, others=max(observation.others or 0.0, unexplained)) if unexplained else observation


def compute_unexplained_share(observation: Observation, ours_s: float) -> float | None:
    """Return the share of the CPUs' busy time that no observed process used.

    Args:
        observation: What the lab observed during the load.
        ours_s: CPU seconds of our processes, without the lab's own.

    Returns:
        The share, below 0 where clock ticks saw less work than the scheduler did. None where the CPUs were not busy, and on a cluster,
        whose own processes (`UNCLAIMED`) are not seen one by one.

    """
    if UNCLAIMED in observation.counters:
        return None
    busy_s = sum(observation.busy.values()) * observation.elapsed_s
    lab = observation.usage.get("lab")
    explained_s = ours_s + (lab.cpu_s if lab else 0.0) + (observation.others or 0.0) * observation.elapsed_s
    return (busy_s - explained_s) / busy_s if busy_s else None


def compute_core_use(
    observation: Observation,
    own_cpu_s: Mapping[int, float],
    result: GeneratorResult | None,
    cpus: Cpus,
    has_proxy: bool,
    workers: int | None,
    alone: bool = True,
) -> dict[str, float | None]:
    """Return how busy the proxy's and the generator's CPUs were while the generator ran, as fractions of one CPU.

    The proxy's value is that of its least busy CPU among those that its workers can fill, the generator's that of its busiest one. Clock
    ticks miss short bursts of work, so the scheduler's count of our own processes is the lower bound. Where roles are not pinned, a role's
    CPUs are its node's, and a generator is at least as busy as its busiest thread.

    Args:
        observation: What the lab observed during the load.
        own_cpu_s: CPU → seconds that our own processes used on it.
        result: What the generator reported; None: it reported nothing.
        cpus: The CPUs that each role is pinned to.
        has_proxy: Whether the system has a proxy.
        workers: The number of the proxy's workers; None: one for each of its CPUs.
        alone: False for one side of a pair. Other work on the generator's CPUs then took from both sides alike, so only our own counts.

    Returns:
        A fraction for `proxy` and one for `generator`; None: not seen.

    """
    span_s = min(observation.elapsed_s, result.duration_s) if result and result.duration_s else observation.elapsed_s
    if observation.cores is not None:
        shares = {role: min(1.0, share * observation.elapsed_s / span_s) for role, share in observation.cores.items()}
        least = [share for share in (shares.get("generator"), observation.busiest_thread) if share is not None]
        return {"proxy": shares.get("proxy"), "generator": max(least, default=None)}
    busy = {
        cpu: min(1.0, max(share * observation.elapsed_s, own_cpu_s.get(cpu, 0.0)) / span_s)
        for cpu, share in observation.busy.items()
    }
    proxy = [busy[cpu] for cpu in cpus.get("proxy", ()) if cpu in busy and has_proxy]
    ours = busy if alone else {cpu: min(1.0, cpu_s / span_s) for cpu, cpu_s in own_cpu_s.items()}
    generator = [ours[cpu] for cpu in cpus.get("generator", ()) if cpu in ours]
    used = observation.usage["proxy"].cpu_s / span_s if "proxy" in observation.usage else 0.0
    return {"proxy": compute_fullness(proxy, workers, used), "generator": max(generator, default=None)}
