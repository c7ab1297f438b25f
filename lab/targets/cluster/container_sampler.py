"""One container of the lab's, and the snapshots of it that one sample took; the machines under such containers: how full their CPUs were, and
how much of that was the lab's.

Refuses to hide that a container was lost in the middle: `lost` keeps the error; what was seen until then is told. A machine is a kernel:
several nodes of kind see the same CPUs and are one. Roles share CPUs here: on a node that is full a generator has nothing to spare, whoever
filled it, and a proxy is only called full for work that is its own. Nothing is said of a machine whose container was lost before the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any

from lab.base.errors import LabError
from lab.targets.cluster.shell import Shell
from lab.targets.cluster.snapshot import MANY, NETWORK, SENT, Container, Snapshot, When, question, snapshot
from lab.targets.common import cgroup
from lab.targets.common.cgroup import CONTROLLERS
from lab.targets.common.sampler import (
    THREADED,
    CpuTimes,
    ProcessTimes,
    parse_cpus,
    parse_network,
    parse_sent,
    spans,
)

POD_STRIDE = 10_000_000
"""Added to process numbers per further pod of a role: each pod counts from 1, and no kernel beyond 4,194,304."""
FEW_THREADS = 8
"""So many are looked at every second, more only at both ends: each costs a shell 60 µs [measured: dash]."""
CONTROL = "control"
"""Of a controller in a pod of its own: its CPU and memory are told, nothing else of it."""
_TELLING = ("generator", "proxy", "backend", CONTROL)
WORKING = 0.2
"""Share of a CPU from which on a thread counts as one that serves: a controller's own are far below."""
MACHINE_STRIDE = 10_000
"""Added to CPU numbers per further machine; those of the first, which is the proxy's, stay as they are."""


@dataclass(frozen=True, slots=True)
class Place:
    """A container to look into."""

    role: str
    """A `Role`, or CONTROL."""
    namespace: str
    pod: str
    node: str
    shell: Shell
    container_id: str = ""
    """Tells a container that was restarted from the one before."""

    @property
    def key(self) -> tuple[str, str]:
        return self.pod, self.container_id


@dataclass(slots=True)
class ContainerSampler:
    """`offset` is added to its process numbers; `tells_…` is what it is asked for others that see the same, too.

    `since_s`: of a container that came while a sample was made, when it was first looked at; all that it used until
    then is of this sample. None = it was there before.
    """

    place: Place
    offset: int
    container: Container
    tells_cpus: bool
    tells_network: bool
    since_s: float | None = None
    snapshots: list[Snapshot] = field(default_factory=list[Snapshot])
    lost: LabError | None = None
    ended: bool = False
    _seconds: int = 0
    _sure: int = 1
    """So many of the snapshots were of this very container: it was there afterwards."""

    def look(self, when: When) -> None:
        """LabError at the opening only: what is lost later is kept as `lost`, and not asked again.

        Between the ends a container of many processes is looked at every other second, a generator's threads always.
        """
        if when == "meanwhile":
            self._seconds += 1
            if self._seconds % 2 == 0 and len(self.snapshots[-1].processes) > MANY:
                return
        if self.lost is not None or self.ended:
            return
        generator = self.place.role == "generator"
        last = self.snapshots[-1].processes.values() if self.snapshots else ()
        few = sum(times.threads for times in last if times.threads > 1) <= FEW_THREADS
        script = question(
            when,
            self.container,
            threads=generator or when != "meanwhile" or few,
            cpus=self.tells_cpus,
            network=self.tells_network,
            clock=generator,
        )
        try:
            self.snapshots.append(snapshot(self.place.shell, self.container, script))
        except LabError as error:
            if when == "opening":
                raise
            self.lost = error

    def end(self) -> None:
        """Look for the last time: the container may end before the sample does."""
        self.look("closing")
        self.ended = True

    def there(self) -> None:
        """The container was seen by its ID, after the last snapshot: that was one of it."""
        self._sure = len(self.snapshots)

    def restarted(self, error: LabError) -> None:
        """Another container runs in its place: what was seen since it was last sure to be this one may be the other."""
        del self.snapshots[self._sure :]
        self.lost = self.lost or error

    def used_s(self) -> float:
        """CPU seconds of the container between the ends; of one that was lost, of the processes that were seen."""
        late = self.since_s is not None
        if self.lost is None:
            path, version = self.container.usage_file, self.container.groups["cpuacct"].version
            start, end = (cgroup.used_s(version, self.snapshots[index].text(path)) for index in (0, -1))
            return max(0.0, end - (0.0 if late else start))
        began = {} if late else {pid: times.cpu_s for pid, times in self.snapshots[0].processes.items()}
        ended = {pid: times.cpu_s for one in self.snapshots for pid, times in one.processes.items()}
        return sum(max(0.0, cpu_s - began.get(pid, 0.0)) for pid, cpu_s in ended.items())

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Of a usage table, on the machine's own clock: that an answer took its time does not matter."""
        role, offset = self.place.role, self.offset
        for one in self.snapshots:
            at = (self.since_s or 0.0) + one.uptime_s - self.snapshots[0].uptime_s
            sent = {min(one.processes, default=0): parse_sent(one.files.get(SENT, ()))}
            for pid, times in one.processes.items():
                yield at, role, offset + pid, None, *astuple(times), sent.get(pid)
            threads = one.threads.items() if role in THREADED else ()
            yield from ((at, role, offset + pid, offset + tid, *astuple(times), None) for (pid, tid), times in threads)

    def counts(self, at: Snapshot) -> dict[str, int]:
        """`<role>/<count>` so far, of those limits that the container has, and of its network if it tells that."""
        found: dict[str, int] = {}
        for controller in CONTROLLERS:
            group = self.container.groups[controller]
            limit = [at.text(path) for path in self.container.files(controller, cgroup.LIMIT_FILES)]
            if all(limit) and cgroup.limit(controller, " ".join(limit)) is not None:
                found |= cgroup.counted(
                    group.version, controller, lambda name, folder=group.folder: at.text(f"{folder}/{name}")
                )
        if self.tells_network:
            found |= parse_network(*(at.files.get(path, ()) for path in NETWORK))
        return {f"{self.place.role}/{name}": count for name, count in found.items() if name != "oom_kills"}


def sampler(
    place: Place, container: Container, known: Sequence[ContainerSampler], since_s: float | None = None
) -> ContainerSampler:
    """Of a container beside those that are known.

    One container tells the CPUs of each machine, and of proxy and backend one the counters of each network.
    """
    same = [one.container for one in known if one.place.role == place.role]
    shared = container.network and (container.boot_id, container.network) in {
        (one.boot_id, one.network) for one in same
    }
    return ContainerSampler(
        place,
        POD_STRIDE * len(same),
        container,
        tells_cpus=all(one.container.boot_id != container.boot_id for one in known),
        tells_network=place.role not in ("generator", CONTROL) and not shared,
        since_s=since_s,
    )


def samplers(places: Sequence[Place], containers: Sequence[Container]) -> list[ContainerSampler]:
    """Proxies first. Of a machine the generator's tells the CPUs: what is lost with that one ends the sample anyway."""
    found: list[ContainerSampler] = []
    pairs = zip(places, containers, strict=True)
    for place, container in sorted(pairs, key=lambda pair: _TELLING.index(pair[0].role)):
        found.append(sampler(place, container, found))
    return sorted(found, key=lambda one: one.place.role != "proxy")


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
