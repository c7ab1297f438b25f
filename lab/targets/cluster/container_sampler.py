"""One container of the lab's, and the snapshots of it that one sample took.

Refuses to hide that a container was lost in the middle: `lost` keeps the error; what was seen until then is told.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any

from lab.base.errors import LabError
from lab.targets.cluster.shell import Shell
from lab.targets.cluster.snapshot import MANY, NETWORK, SENT, Container, Snapshot, When, question, snapshot
from lab.targets.common import cgroup
from lab.targets.common.cgroup import CONTROLLERS
from lab.targets.common.sampler import THREADED, parse_network, parse_sent

POD_STRIDE = 10_000_000
"""Added to process numbers per further pod of a role: each pod counts from 1, and no kernel beyond 4,194,304."""
FEW_THREADS = 8
"""So many are looked at every second, more only at both ends: each costs a shell 60 µs [measured: dash]."""
CONTROL = "control"
"""Of a controller in a pod of its own: its CPU and memory are told, nothing else of it."""
_TELLING = ("generator", "proxy", "backend", CONTROL)


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
