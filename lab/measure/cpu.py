"""The accounting of CPU time during a load: which processes used it, and how busy the CPUs of proxy and generator were.

The functions have no side effects.
"""

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
    """Return role ("proxy", "backend", "generator", …) → the CPU seconds that it used; the lab's own process is left out.

    The generator's CPU time comes from the observation or, if that does not have it, from the generator's ended
    process.

    Args:
        observation: What was observed of the system during the load.
        ended: The generator's process, which has ended.

    """
    system_s = {role: usage.cpu_s for role, usage in observation.usage.items() if role != "lab"}
    return system_s | {"generator": ended.cpu_s if observation.generator_cpu_s is None else observation.generator_cpu_s}


def attribute_cpu(
    observation: Observation, ended: GeneratorOutcome, cpus: Cpus, neighbour_s: Mapping[str, float]
) -> tuple[GeneratorOutcome, Observation, dict[int, float]]:
    """Divide the CPU time of a load between the generator, the other processes of the lab, and all other programs.

    The CPU seconds of a role are spread over the CPUs that it is pinned to, in proportion to how busy each CPU was. On
    a cluster, the unexplained CPU time of the nodes includes that of the lab's second system, which is subtracted.

    Args:
        observation: What the lab observed during the load.
        ended: The generator's process, which has ended.
        cpus: role ("proxy", …) → the CPUs that the role is pinned to.
        neighbour_s: role → CPU seconds of a second system of the lab that shares these CPUs; empty = there is none.

    Returns:
        The ended process with the generator's CPU time; the observation with the CPU time of other programs; and CPU
        number → seconds that the lab's own processes used on that CPU.

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
    """Return the observation, with unexplained work on the lab's CPUs added to the work of other programs.

    Work is unexplained if none of the lab's processes did it. It comes from processes that no list shows, such as those
    in other containers. Small amounts are ignored, since clock ticks are not exact (`RESIDUAL_NOISE`). The time of
    interrupts is ignored, too, because they belong to no process.

    Args:
        observation: What the lab observed during the load.
        own_cpu_s: CPU number → seconds that the lab's own processes used on it.

    """
    shares = {cpu: cpu_s / observation.elapsed_s for cpu, cpu_s in own_cpu_s.items() if cpu in observation.busy}
    outside = {cpu: observation.interrupts.get(cpu, 0.0) * max(0.0, 1 - share) for cpu, share in shares.items()}
    residual = [observation.busy[cpu] - share - outside[cpu] for cpu, share in shares.items()]
    unexplained = sum(share for share in residual if share > RESIDUAL_NOISE)
    return replace(observation, others=max(observation.others or 0.0, unexplained)) if unexplained else observation


def compute_unexplained_share(observation: Observation, ours_s: float) -> float | None:
    """Return the fraction of the CPUs' busy time that no observed process used.

    Args:
        observation: What the lab observed during the load.
        ours_s: The CPU seconds of the measured systems and their generators.

    Returns:
        The fraction. It is negative if clock ticks counted less work than the scheduler did. None if the CPUs were not
        busy, and on a cluster, where single processes cannot be observed.

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

    The proxy's value is that of the least busy CPU among those that its workers can fill. The generator's value is that
    of its busiest CPU. Clock ticks miss short bursts of work. So a value is at least what the scheduler counted for the
    lab's own processes. If roles are not pinned to CPUs (on a cluster), a role's CPUs are those of its node.

    Args:
        observation: What the lab observed during the load.
        own_cpu_s: CPU number → seconds that the lab's own processes used on it.
        result: The generator's report; None = it reported nothing.
        cpus: role → the CPUs that the role is pinned to.
        has_proxy: Whether the system has a proxy.
        workers: The number of the proxy's workers; None = one for each of its CPUs.
        alone: False for one side of a pair (two systems at once). Then only the lab's own work on the generator's CPUs
            counts, because work of others slows both sides equally.

    Returns:
        A fraction each for "proxy" and "generator"; None = unknown.

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
