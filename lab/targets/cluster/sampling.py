"""The watch of a cluster during a sample (one measurement): CPU, memory and counters of pods, and how busy their machines were.

A snapshot of each container is taken at the beginning and at the end of the sample, and every second in between. A machine is
one kernel: several nodes of a kind cluster see the same CPUs, so they are one machine.

The CPU seconds of a role (such as `proxy`) come from the cgroups of the role's containers. So they include processes that began
or ended during the sample. `OtherUsageSource` measures the CPU that foreign programs used on the nodes. The rest of the used
CPU time is the counter `cluster/cpu_ms`. It is the work of the cluster itself: its pods, kubelet, container runtime and kernel,
and on kind also the lab. This rest makes no sample invalid.

A generator on a full node has no CPU to spare, no matter which programs fill the node. A proxy counts as full only because of
its own work.

A lost pod is always reported, by the counter `<role>/lost_pods`. A machine is left out if the container in which its CPUs were
read was lost. If the generator's container is lost, or a snapshot failed in an unexpected way, an error is raised when the
watch is left.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass, field
from typing import Any

import polars as pl

from lab.base.errors import LabError, MeasuringError
from lab.model.usage import UNCLAIMED, USAGE_SCHEMA, Observation, Usage
from lab.targets.cluster.others import OtherUsage, OtherUsageSource
from lab.targets.cluster.shell import Shell
from lab.targets.cluster.snapshot import (
    MANY,
    NETWORK,
    SENT,
    ContainerInfo,
    Moment,
    Snapshot,
    build_script,
    read_container_info,
    take_snapshot,
)
from lab.targets.common import cgroup
from lab.targets.common.cgroup import CONTROLLERS
from lab.targets.common.sampler import (
    ROLES_WITH_THREADS,
    CpuTimes,
    ProcessTimes,
    parse_cpus,
    parse_network,
    parse_sent,
    subtract_cpu_times,
)

POD_STRIDE = 10_000_000
"""The number added to process numbers per further pod of a role.

Each pod counts from 1, and no kernel counts beyond 4,194,304.
"""
FEW_THREADS = 8
"""The number of threads up to which they are looked at every second, and more only at both ends.

Each thread costs a shell 60 µs [measured: dash].
"""
CONTROL = "control"
"""The role of a controller in a separate pod: its CPU and memory are reported, and nothing else of it."""
_CPU_READER_ORDER = ("generator", "proxy", "backend", CONTROL)
WORKING = 0.2
"""The share of a CPU from which on a thread counts as one that serves: a controller's own threads are far below."""
MACHINE_STRIDE = 10_000
"""The number added to CPU numbers per further machine; those of the first, the proxy's, stay unchanged."""


@dataclass(frozen=True, slots=True)
class WatchedContainer:
    """A container on the cluster whose CPU, memory and counters are read during a sample.

    Attributes:
        role: The container's `Role`, such as `proxy`; or CONTROL for a controller.
        namespace: The namespace of the container's pod.
        pod: The name of the pod.
        node: The name of the pod's node.
        shell: The shell into the container.
        container_id: The container's ID, by which a restarted container differs from the one before.

    """

    role: str
    namespace: str
    pod: str
    node: str
    shell: Shell
    container_id: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """The tuple (name of the pod, ID of the container), which identifies a watched container."""
        return self.pod, self.container_id


@dataclass(slots=True)
class ContainerSampler:
    """The sampler of one container: during a sample it takes and keeps snapshots of the container's processes and counters.

    Attributes:
        place: The container.
        offset: The number that is added to the container's process numbers. Without it, processes of several pods
            would have equal numbers.
        container: The properties of the container that do not change.
        tells_cpus: Whether this sampler reads the machine's CPUs. It does so for all containers on the machine.
        tells_network: Whether this sampler reads the network's counters. It does so for all containers of the network
            namespace.
        since_s: None for a container that existed when the sample began. Otherwise the time of the first snapshot, in
            seconds since the sample began. Then all that the container had used until that snapshot belongs to the
            sample.
        snapshots: The snapshots so far.
        lost: The error after which no more snapshots are taken; None if there was none.
        ended: Whether `end` was called.

    """

    place: WatchedContainer
    offset: int
    container: ContainerInfo
    tells_cpus: bool
    tells_network: bool
    since_s: float | None = None
    snapshots: list[Snapshot] = field(default_factory=list[Snapshot])
    lost: LabError | None = None
    ended: bool = False
    _looks: int = 0
    _confirmed: int = 1
    """The number of snapshots that are surely of this container, because it still existed afterwards."""

    def look(self, when: Moment) -> None:
        """Take a snapshot of the container; do nothing if the container is lost or `end` was called.

        For a container with many processes, only every second call during the sample takes a snapshot.

        Args:
            when: `opening` at the beginning of the sample, `closing` at its end, `meanwhile` in between.

        Raises:
            LabError: The opening snapshot fails. A later failure is not raised but stored as `lost`, and no more
                snapshots are taken.

        """
        if when == "meanwhile":
            self._looks += 1
            if self._looks % 2 == 0 and len(self.snapshots[-1].processes) > MANY:
                return
        if self.lost is not None or self.ended:
            return
        generator = self.place.role == "generator"
        last = self.snapshots[-1].processes.values() if self.snapshots else ()
        few = sum(times.threads for times in last if times.threads > 1) <= FEW_THREADS
        script = build_script(
            when,
            self.container,
            threads=generator or when != "meanwhile" or few,
            cpus=self.tells_cpus,
            network=self.tells_network,
            clock=generator,
        )
        try:
            self.snapshots.append(take_snapshot(self.place.shell, self.container, script))
        except LabError as error:
            if when == "opening":
                raise
            self.lost = error

    def end(self) -> None:
        """Take the last snapshot of the container now, before the sample's end, because the container may soon end."""
        self.look("closing")
        self.ended = True

    def there(self) -> None:
        """Note that the container still exists with this ID, so all snapshots so far are certainly of this container."""
        self._confirmed = len(self.snapshots)

    def restarted(self, error: LabError) -> None:
        """Note that the container was restarted, and drop those snapshots that may show the new container.

        Args:
            error: The error to store as `lost`, unless an error is stored already.

        """
        del self.snapshots[self._confirmed :]
        self.lost = self.lost or error

    def used_s(self) -> float:
        """Return the CPU seconds that the container used during the sample.

        For a lost container the result may be too low, because only the use that its snapshots show is known.
        """
        late = self.since_s is not None
        if self.lost is None:
            path, version = self.container.usage_file, self.container.groups["cpuacct"].version
            start, end = (cgroup.parse_usage_s(version, self.snapshots[index].text(path)) for index in (0, -1))
            return max(0.0, end - (0.0 if late else start))
        began = {} if late else {pid: times.cpu_s for pid, times in self.snapshots[0].processes.items()}
        ended = {pid: times.cpu_s for snap in self.snapshots for pid, times in snap.processes.items()}
        return sum(max(0.0, cpu_s - began.get(pid, 0.0)) for pid, cpu_s in ended.items())

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Yield the container's rows for the table of resource use (USAGE_SCHEMA).

        There is one row for each process or thread in each snapshot. The times are those of the container's machine,
        so a late answer does not falsify them.
        """
        role, offset = self.place.role, self.offset
        for snap in self.snapshots:
            t_s = (self.since_s or 0.0) + snap.uptime_s - self.snapshots[0].uptime_s
            sent = {min(snap.processes, default=0): parse_sent(snap.files.get(SENT, ()))}
            for pid, times in snap.processes.items():
                yield t_s, role, offset + pid, None, *astuple(times), sent.get(pid)
            threads = snap.threads.items() if role in ROLES_WITH_THREADS else ()
            yield from ((t_s, role, offset + pid, offset + tid, *astuple(times), None) for (pid, tid), times in threads)

    def counts(self, snap: Snapshot) -> dict[str, int]:
        """Return the kernel's counters in a snapshot, by `role/counter` such as `proxy/cpu_throttled_us`.

        They are the counters of the container's CPU and memory limits, if it has such limits. If this sampler reads
        the network (`tells_network`), those of the network are included.
        """
        counts: dict[str, int] = {}
        for controller in CONTROLLERS:
            group = self.container.groups[controller]
            limit = [snap.text(path) for path in self.container.files(controller, cgroup.LIMIT_FILES)]
            if all(limit) and cgroup.parse_actual_limit(controller, " ".join(limit)) is not None:
                counts |= cgroup.read_counts(
                    group.version, controller, lambda name, folder=group.folder: snap.text(f"{folder}/{name}")
                )
        if self.tells_network:
            counts |= parse_network(*(snap.files.get(path, ()) for path in NETWORK))
        return {f"{self.place.role}/{name}": count for name, count in counts.items() if name != "oom_kills"}


def make_sampler(
    place: WatchedContainer,
    container: ContainerInfo,
    existing: Sequence[ContainerSampler],
    since_s: float | None = None,
) -> ContainerSampler:
    """Return the sampler of one more container, and decide what it reads for several containers.

    On each machine, only one sampler reads the CPUs. In each network namespace, only one sampler of the proxy's
    containers, and one of the backend's, reads the network's counters.

    Args:
        place: The container.
        container: The properties of the container that do not change.
        existing: The samplers of the other containers.
        since_s: The seconds since the sample began, if the container came during the sample; None if it existed
            before.

    """
    of_role = [sampler.container for sampler in existing if sampler.place.role == place.role]
    shared = container.network and (container.boot_id, container.network) in {
        (other.boot_id, other.network) for other in of_role
    }
    return ContainerSampler(
        place,
        POD_STRIDE * len(of_role),
        container,
        tells_cpus=all(sampler.container.boot_id != container.boot_id for sampler in existing),
        tells_network=place.role not in ("generator", CONTROL) and not shared,
        since_s=since_s,
    )


def make_samplers(places: Sequence[WatchedContainer], containers: Sequence[ContainerInfo]) -> list[ContainerSampler]:
    """Return a sampler for each container; the samplers of proxies come first.

    The CPUs of the generator's machine are read by the sampler of the generator's container. If that container is
    lost, the sample has failed anyway.

    Args:
        places: The containers.
        containers: The properties of each of these containers, in the same order.

    """
    created: list[ContainerSampler] = []
    pairs = zip(places, containers, strict=True)
    for place, container in sorted(pairs, key=lambda pair: _CPU_READER_ORDER.index(pair[0].role)):
        created.append(make_sampler(place, container, created))
    return sorted(created, key=lambda sampler: sampler.place.role != "proxy")


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine (one kernel, with one or more nodes of the cluster) and the CPU times that it used during a sample.

    Attributes:
        spans: CPU number → the seconds (busy, stolen, total) of this CPU during the sample.
        samplers: The samplers of the lab's containers on the machine.

    """

    spans: Mapping[int, CpuTimes]
    samplers: Sequence[ContainerSampler]

    @property
    def unclaimed_s(self) -> float:
        """The CPU seconds that the machine used during a sample and that no container of the lab used.

        The value can be slightly negative, because the machine's clock ticks may count a little less than the
        containers' cgroups.
        """
        return sum(span.busy_s for span in self.spans.values()) - sum(sampler.used_s() for sampler in self.samplers)

    @property
    def steal(self) -> float:
        """The fraction of the machine's CPU time during a sample that its hypervisor gave to other virtual machines (steal)."""
        total_s = sum(span.total_s for span in self.spans.values())
        return sum(span.steal_s for span in self.spans.values()) / total_s if total_s else 0.0

    def share(self, target: ContainerSampler, elapsed_s: float) -> float:
        """Return how busy the CPUs were that a container may use, as a fraction from 0 to 1.

        The work of every process on these CPUs counts. The result is not lower than what the cgroups of the lab's
        containers on these CPUs report.

        Args:
            target: The sampler of the container.
            elapsed_s: The length of the sample in seconds.

        """
        usable = [span for cpu, span in self.spans.items() if cpu in target.container.cpus] or list(self.spans.values())
        ticked = sum(span.busy_s for span in usable) / (sum(span.total_s for span in usable) or 1.0)
        lab_s = sum(sampler.used_s() for sampler in self.samplers if sampler.container.cpus <= target.container.cpus)
        return min(1.0, max(ticked, lab_s / elapsed_s / len(usable)))


def group_machines(samplers: Sequence[ContainerSampler]) -> list[Machine]:
    """Return the machines on which the containers run, in the order of the samplers.

    A machine whose CPU times were not read at both ends of the sample is left out.
    """
    by_boot: list[Machine] = []
    for boot_id in dict.fromkeys(sampler.container.boot_id for sampler in samplers):
        on_machine = [sampler for sampler in samplers if sampler.container.boot_id == boot_id]
        (reader,) = (sampler for sampler in on_machine if sampler.tells_cpus)
        cpus = (parse_cpus(reader.snapshots[index].files.get("/proc/stat", ())) for index in (0, -1))
        by_boot.append(Machine(subtract_cpu_times(*cpus), on_machine))
    return [machine for machine in by_boot if machine.spans]


def busy(machines: Sequence[Machine]) -> dict[int, float]:
    """Return the busy fraction of each CPU of all machines, by CPU number.

    To make the numbers unique, `MACHINE_STRIDE` is added to those of the second machine, twice as much to those of the
    third, and so on.
    """
    return {
        MACHINE_STRIDE * number + cpu: span.busy_s / span.total_s if span.total_s else 0.0
        for number, machine in enumerate(machines)
        for cpu, span in machine.spans.items()
    }


def cores(machines: Sequence[Machine], elapsed_s: float) -> dict[str, float]:
    """Return which fraction of their CPUs the proxy and the generator kept busy, by role (`proxy` and `generator`).

    - If there are several pods, the result is that of the least busy proxy pod, and of the busiest generator.
    - For a generator, all work on the CPUs that it may use counts.
    - For a proxy pod, too, all work on its CPUs counts, if the pod itself does at least half of it. Otherwise only the
      pod's own work counts.
    - A proxy pod is at least as busy as its least busy worker (a thread with at least `WORKING` of a CPU). A worker
      that fills one CPU is the proxy's limit, even if other CPUs are idle.

    Args:
        machines: The machines.
        elapsed_s: The length of the sample in seconds.

    """
    proxies: list[float] = []
    generators: list[float] = []
    for machine in machines:
        for sampler in machine.samplers:
            share = machine.share(sampler, elapsed_s)
            if sampler.place.role == "generator":
                generators.append(share)
            elif sampler.place.role == "proxy":
                usable = len(machine.spans.keys() & sampler.container.cpus) or len(machine.spans)
                proxy_share = min(1.0, sampler.used_s() / elapsed_s / usable)
                working = [part for part in _compute_thread_shares(sampler) if part >= WORKING]
                proxies.append(max(share if proxy_share >= share / 2 else proxy_share, min(working, default=0.0)))
    by_role = {"proxy": min(proxies, default=None), "generator": max(generators, default=None)}
    return {role: value for role, value in by_role.items() if value is not None}


def busiest_thread(samplers: Sequence[ContainerSampler]) -> float | None:
    """Return the fraction of one CPU that the generator's busiest thread used during the thread's life.

    The result is None if no thread was seen twice. A thread's life is the time between the first and the last snapshot
    that show it.
    """
    generators = (sampler for sampler in samplers if sampler.place.role == "generator")
    return max((share for sampler in generators for share in _compute_thread_shares(sampler)), default=None)


def _compute_thread_shares(sampler: ContainerSampler) -> Iterator[float]:
    """Yield the fraction of one CPU that each thread used, for the threads that at least two snapshots show.

    A process with a single thread counts as a thread.
    """
    by_thread: dict[tuple[int, int], list[tuple[float, ProcessTimes]]] = {}
    for snap in sampler.snapshots:
        single = {(pid, pid): times for pid, times in snap.processes.items() if times.threads == 1}
        for key, times in {**single, **snap.threads}.items():
            by_thread.setdefault(key, []).append((snap.uptime_s, times))
    for (first_s, first), *_, (last_s, last) in (sights for sights in by_thread.values() if len(sights) > 1):
        if last_s > first_s:
            yield min(1.0, (last.cpu_s - first.cpu_s) / (last_s - first_s))


def clock_step_s(samplers: Sequence[ContainerSampler], fallback_s: float) -> float:
    """Return by how many seconds the wall clock of the generator's machine was adjusted during the sample.

    The number is negative if the clock was set back. An adjustment matters because the generator may measure latencies
    by that clock.

    Args:
        samplers: The samplers of all containers.
        fallback_s: The result if the generator's clock cannot be read with fractions of a second: the adjustment of
            this machine's clock.

    """
    for sampler in (sampler for sampler in samplers if sampler.place.role == "generator"):
        ahead_s: list[float] = []
        for snap in (sampler.snapshots[0], sampler.snapshots[-1]):
            with suppress(ValueError):
                uptime, wall = snap.files.get("clock", ())
                ahead_s.append(float(wall) - float(uptime.split()[0]))
        if len(ahead_s) == 2:
            return ahead_s[1] - ahead_s[0]
    return fallback_s


class ClusterWatch:
    """A context manager that watches the CPU, memory and counters of a cluster's containers during a sample.

    It implements the protocol `lab.model.system.Watch`.
    """

    def __init__(
        self,
        places: Sequence[WatchedContainer],
        counters: Callable[[], Mapping[str, int]],
        other_usage: OtherUsageSource,
        interval_s: float = 1.0,
        places_now: Callable[[], Sequence[WatchedContainer]] | None = None,
        spared: Callable[[str], bool] = lambda role: False,
        generator_s: Callable[[], float | None] = lambda: None,
    ) -> None:
        """Prepare the watch; it begins when the context is entered and ends when it is left.

        Args:
            places: The containers to watch.
            counters: A function that returns the counters that the target itself reads. It is called before the watch
                begins and after it ends.
            other_usage: The source of the CPU that other people's programs use on the nodes.
            interval_s: The seconds between two snapshots of a container.
            places_now: A function that returns the containers that exist now, if pods may come and go; it is called
                every second. All CPU seconds of a container that came later count. Those of a container that ended
                count as far as they were seen. None means that the containers do not change.
            spared: A function that returns whether a role's containers are not to be read now. This spares containers
                with little CPU, because a snapshot takes a millisecond of it. At the beginning and the end all
                containers are read.
            generator_s: A function that returns the CPU seconds of this system's load generators; it is called at the
                end. If it returns None, the CPU seconds of the generators' whole container count instead, with any
                generators of another system that run there.

        """
        self._places, self._places_now, self._spared = places, places_now, spared
        self._generator_s = generator_s
        self._generator_used_s: float | None = None
        self._counters, self._other_usage, self._interval_s = counters, other_usage, interval_s
        self._samplers: list[ContainerSampler] = []
        self._pending: dict[tuple[str, str], tuple[WatchedContainer, Future[ContainerInfo]]] = {}
        self._done = threading.Event()
        # At once with those of the beginning, six pods may be looked at; of more, one waits for the other.
        self._pool = ThreadPoolExecutor(1 + len(self._places) + 6, "looks")
        self._look_lock = threading.Lock()
        self._ends_s: list[tuple[float, float]] = []  # wall, monotonic
        self._counted: list[Mapping[str, int]] = []
        self._elsewhere = OtherUsage(None)

    def __enter__(self) -> ClusterWatch:
        try:
            self._begin(self._places)
        except BaseException:
            self._pool.shutdown()
            raise
        self._meanwhile = self._pool.submit(self._look_repeatedly)
        return self

    def _begin(self, places: Sequence[WatchedContainer]) -> None:
        """Begin to watch some containers with a first snapshot of each, and drop everything that was recorded before."""
        containers = list(self._pool.map(lambda place: read_container_info(place.shell), places))
        self._samplers = make_samplers(places, containers)
        self._end_other_usage = self._other_usage(list(dict.fromkeys(place.node for place in places)))
        self._counted = [self._counters()]
        self._look_at_all("opening")
        self._ends_s = [(time.time(), time.monotonic())]

    @contextmanager
    def beginning_anew(self, places: Sequence[WatchedContainer]) -> Iterator[None]:
        """Begin the watch again with further containers, and drop everything that was recorded before.

        The last snapshots of the further containers are taken when the `with` block ends. Afterwards these containers may
        end.

        Args:
            places: The further containers, such as those of load generators that are ready to start.

        """
        with self._look_lock:
            self._begin([*self._places, *places])
        try:
            yield
        finally:
            with self._look_lock:
                ending = [sampler for sampler in self._samplers if sampler.place in places]
                list(self._pool.map(lambda sampler: sampler.end(), ending))

    def __exit__(self, kind: object, *_: object) -> None:
        self._done.set()
        with self._pool:
            if kind is not None:
                return  # the error matters more than what can still be seen
            self._meanwhile.result()
            self._find_new_containers(last=True)
            self._ends_s.append((time.time(), time.monotonic()))
            self._look_at_all("closing")
        for sampler in self._samplers:
            if sampler.lost is not None and sampler.place.role == "generator" and not sampler.ended:
                raise sampler.lost
        self._counted.append(self._counters())
        self._elsewhere = self._end_other_usage()
        self._generator_used_s = self._generator_s()

    def _look_repeatedly(self) -> None:
        """Take snapshots of all containers at a fixed interval until the watch is left; this is the body of a thread.

        An error here is raised later, in the thread that leaves the watch.
        """
        start_s = time.monotonic()
        while not self._done.wait(self._interval_s - (time.monotonic() - start_s) % self._interval_s):
            with self._look_lock:
                self._find_new_containers()
                self._look_at_all("meanwhile")

    def _find_new_containers(self, last: bool = False) -> None:
        """Start to watch containers that have been created since the last call.

        This must be called before the snapshots are taken. After a restart, a shell reaches the new container, so its
        snapshot would be mistaken for one of the old container. A thread connects to each new container, because that
        takes time. If a container cannot be read yet, another attempt is made a second later.

        Args:
            last: Whether to wait now for the new containers to which a thread is still connecting.

        """
        if self._places_now is None:
            return
        by_key = {sampler.place.key: sampler for sampler in self._samplers}
        for place in self._places_now():
            if (sampler := by_key.get(place.key)) is not None:
                sampler.there()
                continue
            for other in self._samplers:
                if (other.place.namespace, other.place.pod) == (place.namespace, place.pod):
                    other.restarted(MeasuringError(place.shell.place, "its container was restarted", "see its events"))
            if place.key not in self._pending and (last or not self._spared(place.role)):
                self._pending[place.key] = place, self._pool.submit(read_container_info, place.shell)
        for key, (place, future) in list(self._pending.items()):
            if not last and not future.done():
                continue
            del self._pending[key]
            with suppress(LabError):
                since_s = time.monotonic() - self._ends_s[0][1]
                late = make_sampler(place, future.result(), self._samplers, since_s)
                late.look("opening")
                self._samplers.append(late)

    def _look_at_all(self, when: Moment) -> None:
        targets = [sampler for sampler in self._samplers if when != "meanwhile" or not self._spared(sampler.place.role)]
        list(self._pool.map(lambda sampler: sampler.look(when), targets))

    def observation(self) -> Observation:
        """Return what was observed from the beginning to the end of the watch; call it after the `with` block."""
        (wall_s, start_s), (end_wall_s, end_s) = self._ends_s
        elapsed_s = end_s - start_s
        rows = sorted((row for sampler in self._samplers for row in sampler.rows()), key=lambda row: row[0])
        frame = pl.DataFrame(rows, schema=USAGE_SCHEMA, orient="row")
        # The peak memory of each process in all snapshots.
        peaks = frame.filter(pl.col("tid").is_null()).group_by("role", "pid").agg(pl.col("rss_bytes").max())
        usage: dict[str, Usage] = {}
        for role in dict.fromkeys(sampler.place.role for sampler in self._samplers):
            role_peaks = peaks.filter(pl.col("role") == role)
            cpu_s = sum(sampler.used_s() for sampler in self._samplers if sampler.place.role == role)
            usage[role] = Usage(cpu_s=cpu_s, rss_bytes=int(role_peaks["rss_bytes"].sum()), processes=role_peaks.height)
        if "generator" in usage and self._generator_used_s is not None:
            usage["generator"] = usage["generator"].model_copy(update={"cpu_s": self._generator_used_s})
        visible = group_machines(self._samplers)
        unclaimed = max(0.0, sum(machine.unclaimed_s for machine in visible) / elapsed_s)
        other_cores = self._elsewhere.cores
        if other_cores is not None and len(visible) == sum(sampler.tells_cpus for sampler in self._samplers):
            other_cores = min(other_cores, unclaimed)  # the reported figure may cover more time than the sample
        return Observation(
            elapsed_s=elapsed_s,
            usage=usage,
            rows=frame,
            busy=busy(visible),
            steal=max((machine.steal for machine in visible), default=0.0),
            others=other_cores,
            counters=self._compute_increase()
            | {UNCLAIMED: round(1000 * max(0.0, unclaimed - (other_cores or 0.0)) * elapsed_s)},
            clock_step_s=clock_step_s(self._samplers, end_wall_s - wall_s - elapsed_s),
            generator_cpu_s=usage["generator"].cpu_s if "generator" in usage else None,
            cores=cores(visible, elapsed_s),
            busiest_thread=busiest_thread(self._samplers),
        )

    def _compute_increase(self) -> dict[str, int]:
        """Return the increase of each counter during the sample.

        The result also has the number of lost containers as `role/lost_pods`, and the counters about foreign programs.
        """
        increase, lost = Counter(_subtract_counts(*self._counted)), Counter[str]()
        for sampler in self._samplers:
            if sampler.lost is None:
                increase.update(
                    _subtract_counts(sampler.counts(sampler.snapshots[0]), sampler.counts(sampler.snapshots[-1]))
                )
            else:
                lost[f"{sampler.place.role}/lost_pods"] += 1
        return {**increase, **lost, **self._elsewhere.counters}


def _subtract_counts(was: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    """Return the increase of each counter that occurs in both mappings; counters in only one of them are left out."""
    return {name: count - was[name] for name, count in now.items() if name in was}
