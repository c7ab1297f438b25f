"""The machines under the lab's containers: how full their CPUs were during a sample, and how much of that was the lab's.

A machine is a kernel: several nodes of kind see the same CPUs and are one. Roles share CPUs here: on a node that is full
a generator has nothing to spare, whoever filled it, and a proxy is only called full for work that is its own.
Refuses to say anything of a machine whose container was lost before the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lab.targets.cluster.container_sampler import ContainerSampler
from lab.targets.cluster.snapshot import Snapshot
from lab.targets.common.sampler import CpuTimes, ProcessTimes, parse_cpus, spans

WORKING = 0.2
"""Share of a CPU from which on a thread counts as one that serves: a controller's own are far below."""
MACHINE_STRIDE = 10_000
"""Added to CPU numbers per further machine; those of the first, which is the proxy's, stay as they are."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What each of its CPUs did between the ends, by number, and the lab's containers on it."""

    spans: Mapping[int, CpuTimes]
    samplers: Sequence[ContainerSampler]

    @property
    def unclaimed_s(self) -> float:
        """CPU seconds that were none of the lab's containers'. Clock ticks may count a little less than cgroups do."""
        return sum(span.busy_s for span in self.spans.values()) - sum(one.used_s() for one in self.samplers)

    @property
    def steal(self) -> float:
        total_s = sum(span.total_s for span in self.spans.values())
        return sum(span.steal_s for span in self.spans.values()) / total_s if total_s else 0.0

    def share(self, of: ContainerSampler, elapsed_s: float) -> float:
        """How full the CPUs were that a container may use. What cgroups counted for the lab's own is the least."""
        usable = [span for cpu, span in self.spans.items() if cpu in of.container.cpus] or list(self.spans.values())
        ticked = sum(span.busy_s for span in usable) / (sum(span.total_s for span in usable) or 1.0)
        own_s = sum(one.used_s() for one in self.samplers if one.container.cpus <= of.container.cpus)
        return min(1.0, max(ticked, own_s / elapsed_s / len(usable)))


def machines(samplers: Sequence[ContainerSampler]) -> list[Machine]:
    """In the order of their first containers."""
    found: list[Machine] = []
    for boot_id in dict.fromkeys(one.container.boot_id for one in samplers):
        mine = [one for one in samplers if one.container.boot_id == boot_id]
        (told,) = (one for one in mine if one.tells_cpus)
        cpus = (parse_cpus(told.snapshots[index].files.get("/proc/stat", ())) for index in (0, -1))
        found.append(Machine(spans(*cpus), mine))
    return [machine for machine in found if machine.spans]


def busy(of: Sequence[Machine]) -> dict[int, float]:
    """CPU → busy fraction, of all machines, numbered with `MACHINE_STRIDE`."""
    return {
        MACHINE_STRIDE * number + cpu: span.busy_s / span.total_s if span.total_s else 0.0
        for number, machine in enumerate(of)
        for cpu, span in machine.spans.items()
    }


def cores(of: Sequence[Machine], elapsed_s: float) -> dict[str, float]:
    """How full the proxy was (its least full pod), and the fullest node of the generator.

    A proxy is as full as its node, if half of that work is its own, or as its workers (the least busy of the threads that
    work at all), whichever is more: one worker that fills one CPU of many is its limit.
    """
    proxies: list[float] = []
    generators: list[float] = []
    for machine in of:
        for one in machine.samplers:
            share = machine.share(one, elapsed_s)
            if one.place.role == "generator":
                generators.append(share)
            elif one.place.role == "proxy":
                usable = len(machine.spans.keys() & one.container.cpus) or len(machine.spans)
                own = min(1.0, one.used_s() / elapsed_s / usable)
                working = [part for part in _thread_shares([one]) if part >= WORKING]
                proxies.append(max(share if own >= share / 2 else own, min(working, default=0.0)))
    found = {"proxy": min(proxies, default=None), "generator": max(generators, default=None)}
    return {role: value for role, value in found.items() if value is not None}


def busiest_thread(samplers: Sequence[ContainerSampler]) -> float | None:
    """Of the generator's, over the time between its first and its last sight, in which it is known to have run."""
    return max(_thread_shares([one for one in samplers if one.place.role == "generator"]), default=None)


def _thread_shares(samplers: Sequence[ContainerSampler]) -> list[float]:
    """Of one CPU, by every thread that was seen twice."""
    shares: list[float] = []
    for sampler in samplers:
        seen: dict[tuple[int, int], list[tuple[float, ProcessTimes]]] = {}
        for one in sampler.snapshots:
            single = {(pid, pid): times for pid, times in one.processes.items() if times.threads == 1}
            for key, times in {**single, **one.threads}.items():
                seen.setdefault(key, []).append((one.uptime_s, times))
        for (first_s, first), *_, (last_s, last) in (sights for sights in seen.values() if len(sights) > 1):
            if last_s > first_s:
                shares.append(min(1.0, (last.cpu_s - first.cpu_s) / (last_s - first_s)))
    return shares


def clock_step_s(samplers: Sequence[ContainerSampler], here_s: float) -> float:
    """Of the generator's wall clock, which its latencies may come from; `here_s`, this machine's, where that is not told."""
    for sampler in (one for one in samplers if one.place.role == "generator"):
        start, end = (_clock(sampler.snapshots[index]) for index in (0, -1))
        if start is not None and end is not None:
            return end - start
    return here_s


def _clock(one: Snapshot) -> float | None:
    """Seconds between the wall clock and the time since boot; None without a date(1) that tells fractions."""
    try:
        uptime, wall = one.files.get("clock", ())
        return float(wall) - float(uptime.split()[0])
    except ValueError:
        return None
