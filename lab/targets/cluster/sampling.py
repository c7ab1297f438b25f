"""CPU, memory and counters of pods while a sample is measured: snapshots of each container at both ends and every second.

A role's CPU seconds are its containers' own cgroups', read first and last, so processes that come and go are all in
them. Who else used the nodes is asked of `Others`. What the CPUs did and nobody claims is the cluster's own (its pods,
kubelet, runtime, kernel; on kind the lab itself, too): `cluster/cpu_ms` among the counters, not held against a sample.
Refuses to hide a pod that it lost: `<role>/lost_pods`. When the generator's is lost, or looking itself failed, leaving
the watch raises why; of a load of many generators, that ends before the watch does, its own exit status says it.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from types import TracebackType

import polars as pl

from lab.base.errors import LabError, MeasuringError
from lab.model.usage import UNCLAIMED, USAGE_SCHEMA, Observation, Usage
from lab.targets.cluster import container_sampler
from lab.targets.cluster.container_sampler import ContainerSampler, Place, samplers
from lab.targets.cluster.others import Elsewhere, Others
from lab.targets.cluster.snapshot import Container, When, about


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
                late = container_sampler.sampler(place, asked.result(), self._samplers, since_s)
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
        seen = container_sampler.machines(self._samplers)
        unclaimed = max(0.0, sum(machine.unclaimed_s for machine in seen) / elapsed_s)
        others = self._elsewhere.cores
        if others is not None and len(seen) == sum(one.tells_cpus for one in self._samplers):
            others = min(others, unclaimed)  # what it is told of may cover more than the sample
        return Observation(
            elapsed_s=elapsed_s,
            usage=used,
            rows=frame,
            busy=container_sampler.busy(seen),
            steal=max((machine.steal for machine in seen), default=0.0),
            others=others,
            counters=self._increase() | {UNCLAIMED: round(1000 * max(0.0, unclaimed - (others or 0.0)) * elapsed_s)},
            clock_step_s=container_sampler.clock_step_s(self._samplers, end_wall_s - wall_s - elapsed_s),
            generator_cpu_s=used["generator"].cpu_s if "generator" in used else None,
            cores=container_sampler.cores(seen, elapsed_s),
            busiest_thread=container_sampler.busiest_thread(self._samplers),
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
