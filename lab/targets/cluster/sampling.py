"""CPU, memory and counters of pods while a sample is measured: snapshots of each container at both ends and every second; and how full the
machines under them were, and by how much of that was the lab's. A machine is a kernel: several nodes of kind see the same CPUs and are one.

A role's CPU seconds are its containers' own cgroups', read first and last, so processes that come and go are all in them. Who else used the nodes is
asked of `Others`. What the CPUs did and nobody claims is the cluster's own (its pods, kubelet, runtime, kernel; on kind the lab itself, too):
`cluster/cpu_ms` among the counters, not held against a sample. On a node that is full a generator has nothing to spare, whoever filled it, and a
proxy is only called full for work that is its own. Refuses to hide a pod that it lost: `<role>/lost_pods`; nothing is said of a machine whose
container was lost before the end. When the generator's is lost, or looking itself failed, leaving the watch raises why.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass, field
from types import TracebackType
from typing import Any

import polars as pl

from lab.base.errors import LabError, MeasuringError
from lab.model.usage import UNCLAIMED, USAGE_SCHEMA, Observation, Usage
from lab.targets.cluster.others import Elsewhere, Others
from lab.targets.cluster.shell import Shell
from lab.targets.cluster.snapshot import MANY, NETWORK, SENT, Container, Snapshot, When, about, question, snapshot
from lab.targets.common import cgroup
from lab.targets.common.cgroup import CONTROLLERS
from lab.targets.common.sampler import THREADED, CpuTimes, ProcessTimes, parse_cpus, parse_network, parse_sent, spans

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


def beside(
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
        found.append(beside(place, container, found))
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
    """Of the generator's wall clock, which its latencies may come from; `here_s`, this machine's, where a date(1) tells no fractions."""
    for sampler in (one for one in samplers if one.place.role == "generator"):
        ahead_s: list[float] = []
        for one in (sampler.snapshots[0], sampler.snapshots[-1]):
            with suppress(ValueError):
                uptime, wall = one.files.get("clock", ())
                ahead_s.append(float(wall) - float(uptime.split()[0]))
        if len(ahead_s) == 2:
            return ahead_s[1] - ahead_s[0]
    return here_s


class ClusterWatch:
    """See `lab.targets.base.Watch`. `counters` are the target's own; they and `others` are asked outside of the ends.

    `places_now`: where pods may come and go, who is there, asked every second; None = who is there stays. The CPU
    seconds of those that came count from their beginning, of those that went as far as they were seen. `spared`: whose
    containers are not looked into between the ends now, since they have little CPU and a look takes a millisecond of it.
    `generator_s`: what the system's own generators used meanwhile, asked at the end: another system's may run in the same container.
    None: its container tells.
    """

    def __init__(
        self,
        places: Sequence[Place],
        counters: Callable[[], Mapping[str, int]],
        others: Others,
        interval_s: float = 1.0,
        places_now: Callable[[], Sequence[Place]] | None = None,
        spared: Callable[[str], bool] = lambda role: False,
        generator_s: Callable[[], float | None] = lambda: None,
    ) -> None:
        self._places, self._places_now, self._spared = places, places_now, spared
        self._generator_s = generator_s
        self._used_s: float | None = None
        self._counters, self._others, self._interval_s = counters, others, interval_s
        self._samplers: list[ContainerSampler] = []
        self._coming: dict[tuple[str, str], tuple[Place, Future[Container]]] = {}
        self._done = threading.Event()
        # Six pods may be looked at beside those of the beginning, at once; of more, one waits for the other.
        self._pool = ThreadPoolExecutor(1 + len(self._places) + 6, "looks")
        self._looking = threading.Lock()
        self._ends_s: list[tuple[float, float]] = []  # wall, monotonic
        self._counted: list[Mapping[str, int]] = []
        self._elsewhere = Elsewhere(None)

    def __enter__(self) -> ClusterWatch:
        try:
            self._open(self._places)
        except BaseException:
            self._pool.shutdown()
            raise
        self._meanwhile = self._pool.submit(self._run)
        return self

    def _open(self, places: Sequence[Place]) -> None:
        containers = list(self._pool.map(lambda place: about(place.shell), places))
        self._samplers = samplers(places, containers)
        self._ask_others = self._others(list(dict.fromkeys(place.node for place in places)))
        self._counted = [self._counters()]
        self._look("opening")
        self._ends_s = [(time.time(), time.monotonic())]

    @contextmanager
    def beginning_anew(self, places: Sequence[Place]) -> Iterator[None]:
        """Only what is seen from now on counts, and these are looked at, too, until they may end: with this."""
        with self._looking:
            self._open([*self._places, *places])
        try:
            yield
        finally:
            with self._looking:
                ending = [one for one in self._samplers if one.place in places]
                list(self._pool.map(lambda one: one.end(), ending))

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._done.set()
        with self._pool:
            if kind is not None:
                return  # what happened says more than what can still be seen
            self._meanwhile.result()
            self._look_for_others(last=True)
            self._ends_s.append((time.time(), time.monotonic()))
            self._look("closing")
        for sampler in self._samplers:
            if sampler.lost is not None and sampler.place.role == "generator" and not sampler.ended:
                raise sampler.lost
        self._counted.append(self._counters())
        self._elsewhere = self._ask_others()
        self._used_s = self._generator_s()

    def _run(self) -> None:
        """What fails here is raised where the watch is left."""
        began = time.monotonic()
        while not self._done.wait(self._interval_s - (time.monotonic() - began) % self._interval_s):
            with self._looking:
                self._look_for_others()
                self._look("meanwhile")

    def _look_for_others(self, last: bool = False) -> None:
        """Containers that have come, before any is looked into: a shell finds its way into a restarted one by itself.

        The first question to one waits for a connection, so it is asked beside the looks; what cannot be looked into yet
        is asked again a second later. `last`: those that are still waited for are waited for now.
        """
        if self._places_now is None:
            return
        known = {one.place.key: one for one in self._samplers}
        for place in self._places_now():
            if (sampler := known.get(place.key)) is not None:
                sampler.there()
                continue
            for one in self._samplers:
                if (one.place.namespace, one.place.pod) == (place.namespace, place.pod):
                    one.restarted(MeasuringError(place.shell.place, "its container was restarted", "see its events"))
            if place.key not in self._coming and (last or not self._spared(place.role)):
                self._coming[place.key] = place, self._pool.submit(about, place.shell)
        for key, (place, asked) in list(self._coming.items()):
            if not last and not asked.done():
                continue
            del self._coming[key]
            with suppress(LabError):
                since_s = time.monotonic() - self._ends_s[0][1]
                late = beside(place, asked.result(), self._samplers, since_s)
                late.look("opening")
                self._samplers.append(late)

    def _look(self, when: When) -> None:
        asked = [one for one in self._samplers if when != "meanwhile" or not self._spared(one.place.role)]
        list(self._pool.map(lambda one: one.look(when), asked))

    def observation(self) -> Observation:
        (wall_s, start_s), (end_wall_s, end_s) = self._ends_s
        elapsed_s = end_s - start_s
        rows = sorted((row for one in self._samplers for row in one.rows()), key=lambda row: row[0])
        frame = pl.DataFrame(rows, schema=USAGE_SCHEMA, orient="row")
        # Of each process the most memory that it was seen with.
        peaks = frame.filter(pl.col("tid").is_null()).group_by("role", "pid").agg(pl.col("rss_bytes").max())
        used: dict[str, Usage] = {}
        for role in dict.fromkeys(one.place.role for one in self._samplers):
            mine = peaks.filter(pl.col("role") == role)
            cpu_s = sum(one.used_s() for one in self._samplers if one.place.role == role)
            used[role] = Usage(cpu_s=cpu_s, rss_bytes=int(mine["rss_bytes"].sum()), processes=mine.height)
        if "generator" in used and self._used_s is not None:
            used["generator"] = used["generator"].model_copy(update={"cpu_s": self._used_s})
        seen = machines(self._samplers)
        unclaimed = max(0.0, sum(machine.unclaimed_s for machine in seen) / elapsed_s)
        others = self._elsewhere.cores
        if others is not None and len(seen) == sum(one.tells_cpus for one in self._samplers):
            others = min(others, unclaimed)  # what it is told of may cover more than the sample
        return Observation(
            elapsed_s=elapsed_s,
            usage=used,
            rows=frame,
            busy=busy(seen),
            steal=max((machine.steal for machine in seen), default=0.0),
            others=others,
            counters=self._increase() | {UNCLAIMED: round(1000 * max(0.0, unclaimed - (others or 0.0)) * elapsed_s)},
            clock_step_s=clock_step_s(self._samplers, end_wall_s - wall_s - elapsed_s),
            generator_cpu_s=used["generator"].cpu_s if "generator" in used else None,
            cores=cores(seen, elapsed_s),
            busiest_thread=busiest_thread(self._samplers),
        )

    def _increase(self) -> dict[str, int]:
        found, lost = Counter(_grown(*self._counted)), Counter[str]()
        for one in self._samplers:
            if one.lost is None:
                found.update(_grown(one.counts(one.snapshots[0]), one.counts(one.snapshots[-1])))
            else:
                lost[f"{one.place.role}/lost_pods"] += 1
        return {**found, **lost, **self._elsewhere.counters}


def _grown(was: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    """What was not there at the opening has no increase: nobody knows since when it counts."""
    return {name: count - was[name] for name, count in now.items() if name in was}
