"""What is seen of pods meanwhile: from what their shells say, on cgroups of version 1 (as kind nests them) and 2."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import polars as pl
import pytest

from lab.base.errors import LostError, MeasuringError
from lab.model.samples import Reason, Sample
from lab.model.system import Watch
from lab.model.usage import USAGE_SCHEMA, Observation
from lab.targets.cluster.api import DeniedError
from lab.targets.cluster.others import OtherUsage, OtherUsageSource
from lab.targets.cluster.sampling import (
    CONTROL,
    MACHINE_STRIDE,
    POD_STRIDE,
    ClusterWatch,
    ContainerSampler,
    WatchedContainer,
    busiest_thread,
    make_samplers,
)
from lab.targets.cluster.shell import Shell
from lab.targets.cluster.snapshot import Moment, build_script, read_container_info, take_snapshot
from lab.targets.common.sampler import cpu_list
from lab.tests.support.fakes import FakeSystem, FakeTarget, bench, point
from lab.tests.support.pods_here import ApiHere
from lab.tests.support.waiting import until

SCOPE = "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-poda4a7545b.slice/cri-containerd-115c6.scope"
V1 = {
    "/proc/self/cgroup": f"4:memory:{SCOPE}\n2:cpuacct:{SCOPE}\n1:cpu:{SCOPE}\n0::{SCOPE}",
    "/proc/self/mountinfo": "\n".join(
        f"16{n} 1683 0:{n} {SCOPE} /sys/fs/cgroup/{name} ro,nosuid - cgroup cgroup rw,{name}"
        for n, name in enumerate(("cpu", "cpuacct", "memory"), 29)
    ),
}
V2 = {
    "/proc/self/cgroup": "0::/",
    "/proc/self/mountinfo": "1021 1015 0:27 / /sys/fs/cgroup ro,nosuid,nodev - cgroup2 cgroup rw,nsdelegate",
}


def stat(pid: int, title: str = "nginx", parent: int = 0, ticks: int = 0, threads: int = 1, pages: int = 100) -> str:
    return (
        f"{pid} ({title}) S {parent} 1 1 0 -1 4194560 15 0 2 0 {ticks} 0 0 0 20 0 {threads} 0 24526 14987264 {pages} 18"
    )


def cpus(*busy_and_idle: tuple[int, int]) -> str:
    lines = [f"cpu{n} {busy} 0 0 {idle} 0 0 0 0 0 0" for n, (busy, idle) in enumerate(busy_and_idle)]
    return "\n".join(["cpu  1 0 0 1 0 0 0 0 0 0", *lines])


def v1(usage_ns: int, throttled: int = 0, quota: int = -1) -> dict[str, str]:
    return {
        "/sys/fs/cgroup/cpuacct/cpuacct.usage": str(usage_ns),
        "/sys/fs/cgroup/cpu/cpu.stat": f"nr_periods 50\nnr_throttled {throttled}\nthrottled_time {throttled * 1000000}",
        "/sys/fs/cgroup/cpu/cpu.cfs_quota_us": str(quota),
        "/sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
    }


def v2(usage_us: int, throttled: int = 0, hits: int = 0) -> dict[str, str]:
    return {
        "/sys/fs/cgroup/cpu.stat": f"usage_usec {usage_us}\nuser_usec 1\nsystem_usec 1\nnr_periods {10 * throttled}\n"
        f"nr_throttled {throttled}\nthrottled_usec {throttled * 1000}\nnr_bursts 0\nburst_usec 0",
        "/sys/fs/cgroup/cpu.max": "20000 100000",
        "/sys/fs/cgroup/memory.max": "268435456",
        "/sys/fs/cgroup/memory.events": f"low 0\nhigh 0\nmax {hits}\noom 0\noom_kill 0\noom_group_kill 0",
    }


def network(overflows: int) -> dict[str, str]:
    return {"/proc/net/netstat": f"TcpExt: SyncookiesSent ListenOverflows\nTcpExt: 0 {overflows}"}


@dataclass
class Said:
    """What a shell says at one look."""

    files: Mapping[str, str]
    processes: Sequence[str] = (stat(1),)
    threads: Mapping[int, Sequence[str]] = field(default_factory=dict[int, Sequence[str]])
    cpus: str = cpus((100, 100))
    clock: str = ""


@dataclass
class FakeShell:
    """Says one after the other; the last again and again. `lost_from`: the look from which on the pod is gone."""

    said: Sequence[Said]
    container: Mapping[str, str] = field(default_factory=lambda: V1)
    boot_id: str = "machine-a"
    network: str = "net:[1]"
    allowed: str = "0-3"
    lost_from: int = 1000
    loss: Exception = field(default_factory=lambda: LostError("pod x", "is gone", ""))
    refused: int = 0
    place: str = "pod ns/pod"
    pid: int = 90
    looks: int = 0
    scripts: list[str] = field(default_factory=list[str])

    def script(self, text: str, timeout_s: float = 30.0) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([text], 0, self._about() if "smaps" in text else self._look(text), "")

    def _about(self) -> str:
        files = {"/proc/sys/kernel/random/boot_id": self.boot_id, **self.container, "cpus": self.allowed, "page": "4"}
        return "".join(f"@{name}\n{text}\n" for name, text in {**files, "network": self.network}.items())

    def _look(self, script: str) -> str:
        if self.looks >= self.lost_from:
            self.refused += 1
            raise self.loss
        now = self.said[min(self.looks, len(self.said) - 1)]
        self.looks += 1
        self.scripts.append(script)
        sections = {"/proc/uptime": f"{100 + self.looks}.00 1.0", "processes": "\n".join(now.processes)}
        for path in re.findall(r"_file (/(?:sys|proc/net)\S+)", script):
            sections |= {path: now.files[path]} if path in now.files else {path: ""}
        if "@threads" in script:
            sections |= {f"threads {pid}": "\n".join(lines) for pid, lines in now.threads.items()}
        sections |= {"/proc/stat": now.cpus} if "@/proc/stat" in script else {}
        sections |= {"clock": now.clock} if now.clock and "@clock" in script else {}
        return "".join(f"@{name}\n{text}\n" for name, text in sections.items())


def nobody(nodes: Sequence[str]) -> Callable[[], OtherUsage]:
    return lambda: OtherUsage(0.0)


def others(cores: float | None, **counters: int) -> OtherUsageSource:
    return lambda nodes: lambda: OtherUsage(cores, counters)


def places(asked: Sequence[tuple[str, FakeShell]]) -> list[WatchedContainer]:
    return [place(role, shell, n) for n, (role, shell) in enumerate(asked)]


def place(role: str, shell: Any, number: int = 0) -> WatchedContainer:
    return WatchedContainer(role, "ns", f"pod{number}", f"node{number}", shell)


def used(*usage_ns: int, **more: Any) -> FakeShell:
    """Of a container that had used so much at each look."""
    return FakeShell([Said(v1(each)) for each in usage_ns], **more)


def watched(*asked: tuple[str, FakeShell], others: OtherUsageSource = nobody, **more: Any) -> Observation:
    """What a watch sees of these at both ends."""
    with ClusterWatch(places(asked), more.pop("counters", dict[str, int]), others, interval_s=60.0, **more) as watch:
        pass
    return watch.observation()


def looked(*asked: tuple[str, FakeShell], meanwhile: int) -> list[ContainerSampler]:
    """What is seen at both ends and at so many seconds between."""
    there = places(asked)
    found = make_samplers(there, [read_container_info(place.shell) for place in there])
    moments: list[Moment] = ["opening", *["meanwhile" for _ in range(meanwhile)], "closing"]
    for when in moments:
        for sampler in found:
            sampler.look(when)
    return found


def test_cpu_seconds_are_the_containers_own() -> None:
    """Nanoseconds in version 1, microseconds in version 2; only a container with a limit has something to count."""
    limited = FakeShell([Said(v1(10**9, 3, 100000)), Said(v1(25 * 10**8, 9, 100000))])
    free = FakeShell([Said(v1(0, 1)), Said(v1(5 * 10**8, 9))])
    seen = watched(("proxy", limited), ("backend", free))
    assert {role: used.cpu_s for role, used in seen.usage.items()} == pytest.approx({"proxy": 1.5, "backend": 0.5})
    counted = {"cpu_throttled_periods": 6, "cpu_throttled_us": 6000, "cpu_periods": 0}
    assert {f"proxy/{name}": count for name, count in counted.items()}.items() <= seen.counters.items()
    assert not [name for name in seen.counters if name.startswith("backend/cpu")]
    seen = watched(("proxy", FakeShell([Said(v2(1_000_000, 1, 2)), Said(v2(1_250_000, 3, 7))], V2)))
    assert seen.usage["proxy"].cpu_s == pytest.approx(0.25)
    counted = {"cpu_throttled_periods": 2, "cpu_throttled_us": 2000, "cpu_periods": 20, "memory_limit_hits": 5}
    assert {f"proxy/{name}": count for name, count in counted.items()}.items() <= seen.counters.items()
    assert "proxy/oom_kills" not in seen.counters


def test_replicas_are_added_up_and_told_apart() -> None:
    first, same, other = (
        FakeShell([Said({**v1(0), **network(was)}), Said({**v1(10**9), **network(now)})], network=name)
        for was, now, name in ((1, 4, "net:[7]"), (1, 4, "net:[7]"), (0, 5, "net:[8]"))
    )
    seen = watched(("proxy", first), ("proxy", same), ("proxy", other))
    assert seen.usage["proxy"].cpu_s == pytest.approx(3.0)
    assert seen.usage["proxy"].processes == 3
    assert seen.usage["proxy"].rss_bytes == 3 * 100 * 4096
    assert seen.counters["proxy/ListenOverflows"] == 8
    assert sorted(seen.rows["pid"].unique()) == [1, POD_STRIDE + 1, 2 * POD_STRIDE + 1]
    controller = FakeShell([Said({**v1(0), **network(0)}), Said({**v1(10**8), **network(9)})], network="net:[8]")
    seen = watched(("proxy", used(0, 10**9)), (CONTROL, controller))
    assert {role: usage.cpu_s for role, usage in seen.usage.items()} == {"proxy": 1.0, CONTROL: pytest.approx(0.1)}
    assert not [name for name in seen.counters if name.startswith(CONTROL)]


def test_rows_are_those_of_the_local_target() -> None:
    """The shell that looks is not seen, nor what it starts; a process of the same name elsewhere is."""
    looking = [stat(90, "sh"), stat(95, "sh", parent=90), stat(96, "cat", parent=95), stat(12, "sh", parent=1)]
    processes, threads = [stat(1, threads=2, ticks=7), *looking], {1: [stat(1, ticks=4), stat(8, "pool", ticks=3)]}
    (sampler,) = looked(("proxy", FakeShell([Said(v1(0), processes, threads)])), meanwhile=2)
    rows = pl.DataFrame(sampler.rows(), schema=USAGE_SCHEMA, orient="row")
    assert sorted(rows["pid"].unique()) == [1, 12]
    whole = rows.filter(pl.col("tid").is_null(), pl.col("pid") == 1)
    assert whole["t_s"].to_list() == [0.0, 1.0, 2.0, 3.0]
    assert whole["user_s"].to_list() == [0.07] * 4
    assert rows.filter(pl.col("tid") == 8)["title"].to_list() == ["pool"] * 4


def test_cpus_of_several_machines_do_not_collide() -> None:
    stolen = "cpu0 0 0 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0", "cpu0 50 0 0 48 0 0 0 2\ncpu1 0 0 0 100 0 0 0 0"
    proxy = FakeShell([Said(v1(0), cpus=cpus((0, 0), (0, 0))), Said(v1(10**12), cpus=cpus((100, 0), (90, 10)))])
    backend = FakeShell([Said(v1(0), cpus=cpus((0, 0))), Said(v1(0), cpus=cpus((1, 1)))])
    generator = FakeShell([Said(v1(0), cpus=text) for text in stolen], boot_id="machine-b")
    seen = watched(("backend", backend), ("generator", generator), ("proxy", proxy))
    assert seen.busy == {0: 1.0, 1: 0.9, MACHINE_STRIDE: 0.5, MACHINE_STRIDE + 1: 0.0}
    assert seen.steal == pytest.approx(0.01)
    assert seen.cores == {"proxy": 1.0, "generator": pytest.approx(0.25)}
    assert not any("/proc/stat" in script for script in backend.scripts), "one container tells of a machine"
    begin, end = cpus(*[(0, 0)] * 4), cpus((99, 1), (99, 1), (0, 100), (0, 100))
    for allowed, share in (("0-1", 0.99), ("2,3", 0.0), ("0-3", 0.495)):
        shell = FakeShell([Said(v1(0), cpus=begin), Said(v1(0), cpus=end)], allowed=allowed)
        assert watched(("generator", shell)).cores == {"generator": pytest.approx(share)}
    ends = [cpus((0, 0), (0, 0)), cpus((100, 0), (100, 0))]
    idle = FakeShell([Said(v1(0), cpus=text) for text in ends])
    assert watched(("proxy", idle)).cores == {"proxy": pytest.approx(0.0)}, "a backend beside it took it all"
    begin, end = stat(1, "controller"), [stat(1, "controller", ticks=2), stat(7, ticks=98)]
    ends = [
        Said(v1(0), [begin, stat(7)], cpus=cpus(*[(0, 0)] * 8)),
        Said(v1(0), end, cpus=cpus((100, 0), *[(0, 100)] * 7)),
    ]
    assert watched(("proxy", FakeShell(ends))).cores == {"proxy": pytest.approx(0.98)}, (
        "one worker of many CPUs is full when its own is"
    )
    assert cpu_list("0-2,5") == [0, 1, 2, 5]


def test_the_generators_busiest_thread_is_seen_while_it_runs() -> None:
    running = [
        Said(v1(0), [stat(1, "sleep")]),
        Said(v1(0), [stat(1, "sleep"), stat(40, "wrk", ticks=20, threads=2)], {40: [stat(40), stat(41, ticks=20)]}),
        Said(v1(0), [stat(1, "sleep"), stat(40, "wrk", ticks=110, threads=2)], {40: [stat(40), stat(41, ticks=110)]}),
        Said(v1(3 * 10**9), [stat(1, "sleep")]),
    ]
    (sampler,) = looked(("generator", FakeShell(running)), meanwhile=2)
    assert busiest_thread([sampler]) == pytest.approx(0.9)
    assert sampler.used_s() == pytest.approx(3.0)
    assert {row[3] for row in sampler.rows()} == {None}


def test_the_clock_that_counts_is_the_generators() -> None:
    step = [Said(v1(0), clock="100.00 1.0\n5000.000000001"), Said(v1(0), clock="102.00 1.0\n5002.5")]
    assert watched(("generator", FakeShell(step))).clock_step_s == pytest.approx(0.5)
    mute = [Said(v1(0), clock="100.00 1.0\n5000.%N")]
    assert abs(watched(("generator", FakeShell(mute))).clock_step_s) < 0.1


def test_what_others_used_is_no_more_than_was_used() -> None:
    ends = [Said(v1(0), cpus=cpus((0, 0))), Said(v1(10**7), cpus=cpus((2, 98)))]
    seen = watched(("proxy", FakeShell(ends)), others=others(1e6, stale=1))
    assert seen.others == pytest.approx(0.01 / seen.elapsed_s)
    assert seen.counters["cluster/cpu_ms"] == 0
    assert seen.counters["stale"] == 1
    seen = watched(("proxy", FakeShell(ends)), others=others(None))
    assert seen.others is None
    assert seen.counters["cluster/cpu_ms"] == 10, "nobody else's: the cluster's own"


def test_what_the_system_counts_itself_is_its_increase() -> None:
    """A pod that came later would else bring all that it ever counted."""
    for own_s, told_s in ((0.8, 0.8), (None, 3.0)):
        counted: Iterator[Mapping[str, int]] = iter([{"proxy/tls_resumed": 5}, {"proxy/tls_resumed": 7, "late": 1000}])
        told: dict[str, Any] = {"counters": counted.__next__, "generator_s": lambda own_s=own_s: own_s}
        seen = watched(("generator", used(0, 3 * 10**9)), **told)
        assert seen.counters["proxy/tls_resumed"] == 2 and "late" not in seen.counters
        assert (seen.generator_cpu_s, seen.usage["generator"].cpu_s) == (told_s, told_s)


@pytest.mark.parametrize("error", [DeniedError("pod x", "a token that has expired"), ValueError("not understood")])
def test_what_fails_meanwhile_is_told_at_the_end(error: Exception, capfd: pytest.CaptureFixture[str]) -> None:
    failing = used(0, lost_from=1, loss=error)
    watch = ClusterWatch(places([("proxy", failing)]), dict[str, int], nobody, interval_s=0.01)
    with pytest.raises(ValueError, match="not understood") if isinstance(error, ValueError) else nullcontext(), watch:
        until(lambda: failing.refused > 0)
    if isinstance(error, DeniedError):
        assert watch.observation().counters["proxy/lost_pods"] == 1
    assert capfd.readouterr().err == ""


def test_a_lost_pod_is_said_and_the_rest_is_kept() -> None:
    """Its processes count as they were last seen, never below nothing where a number was given again."""
    later = [stat(1, ticks=25), stat(9, ticks=3)]
    dying = [Said(v1(0), [stat(1, ticks=5)]), Said(v1(10**9), later)]
    (sampler,) = looked(("proxy", FakeShell(dying, lost_from=2)), meanwhile=3)
    assert sampler.used_s() == pytest.approx(0.23)
    again = [Said(v1(0), [stat(1, ticks=500), stat(7, ticks=100)]), Said(v1(0), [stat(1, ticks=510), stat(7)])]
    (sampler,) = looked(("proxy", FakeShell(again, lost_from=2)), meanwhile=1)
    assert sampler.used_s() == pytest.approx(0.1)
    well = used(0, 10**9)
    seen = watched(("proxy", FakeShell(dying, lost_from=1)), ("backend", well))
    assert seen.counters["proxy/lost_pods"] == 1
    assert (seen.usage["proxy"].cpu_s, seen.usage["backend"].cpu_s) == (0.0, pytest.approx(1.0))
    with pytest.raises(LostError, match="is gone"):
        watched(("proxy", well), ("generator", used(0, lost_from=1)))
    with pytest.raises(MeasuringError, match="does not show what it uses"):
        watched(("proxy", FakeShell([Said({})], {"/proc/self/cgroup": "0::/", "/proc/self/mountinfo": ""})))
    asked = places([("proxy", used(0, lost_from=1))])
    with pytest.raises(ZeroDivisionError), ClusterWatch(asked, dict[str, int], nobody):
        raise ZeroDivisionError  # it is not covered up by what can no longer be seen


@dataclass(frozen=True)
class Seen:
    """A watch that saw what it was told."""

    observed: Observation

    def __enter__(self) -> Seen:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    def observation(self) -> Observation:
        return self.observed


class Cluster(FakeSystem):
    """Nobody is pinned: nodes and the generator's busiest thread are as full as told."""

    def __init__(self, proxy: float, generator: float, thread: float) -> None:
        super().__init__()
        self.cores, self.thread = {"proxy": proxy, "generator": generator}, thread

    def watch(self) -> Watch:  # type: ignore[override]
        rows, busy = pl.DataFrame(schema=USAGE_SCHEMA), dict[int, float]()
        told: dict[str, Any] = {"cores": self.cores, "busiest_thread": self.thread, "generator_cpu_s": 0.5}
        return Seen(Observation(1.0, {}, rows, busy, 0.0, 0.0, {}, clock_step_s=0.0, **told))


def verdict(tmp_path: Path, system: FakeSystem, rate_rps: float | None = None) -> Sample:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAB_RUNS", str(tmp_path / f"runs-{len(list(tmp_path.iterdir()))}"))
        loop = bench(1, [point(rate_rps=rate_rps)], target=FakeTarget(system=system))
        loop.measure()
        return loop.store.samples()[0]


def test_a_full_node_that_both_share_is_no_ceiling_of_the_proxys(tmp_path: Path) -> None:
    for proxy, generator, thread, limit in (
        (0.99, 0.99, 0.3, "generator"),
        (0.99, 0.40, 0.3, "proxy"),
        (0.99, 0.40, 0.97, "generator"),
        (0.60, 0.60, 0.3, "waiting"),
    ):
        assert verdict(tmp_path, Cluster(proxy, generator, thread)).limited_by == limit
    assert verdict(tmp_path, Cluster(0.7, 0.7, 0.79), 1000.0).valid
    for full in (Cluster(0.8, 0.8, 0.1), Cluster(0.3, 0.3, 0.8)):
        sample = verdict(tmp_path, full, 1000.0)
        assert sample.reason is Reason.GENERATOR_SATURATED
        assert "its node's CPUs or its busiest thread were 80% busy" in sample.detail


@pytest.mark.parametrize("program", ["dash", "bash", "busybox sh"])
def test_real_shells_understand_what_they_are_asked(program: str) -> None:
    if shutil.which(program.split()[0]) is None:
        pytest.skip(f"no {program} on this machine")
    api: Any = ApiHere(program)
    shell = Shell(api, "ns", "generator", "c")
    try:
        container = read_container_info(shell)
    except MeasuringError as error:
        pytest.skip(f"this machine's own cgroups are not mounted: {error.fault}")
    assert container.page_bytes in (4096, 16384, 65536)
    assert container.network.startswith("net:[")
    for when in ("opening", "meanwhile", "closing"):
        script = build_script(when, container, threads=True, cpus=True, network=True, clock=True)
        seen = take_snapshot(shell, container, script)
        assert 1 in seen.processes and shell.pid not in seen.processes, when
        assert seen.uptime_s > 0
        if when != "meanwhile":
            assert seen.text(container.usage_file)
            assert seen.text("/proc/stat").startswith("cpu") and "TcpExt:" in seen.text("/proc/net/netstat")
    shell.close()


@pytest.mark.parametrize("at_the_very_end", [False, True])
def test_pods_come_and_go_while_a_sample_is_made(at_the_very_end: bool) -> None:
    """One that was restarted is another; one of the last second, which no look in between has noticed, is seen, too."""
    first, second = used(10**9), used(4 * 10**8, 5 * 10**8)
    (before,) = places([("proxy", first)])
    before = replace(before, container_id="a")
    now, every_s = [before], 60.0 if at_the_very_end else 0.02
    with ClusterWatch([before], dict[str, int], nobody, every_s, lambda: list(now)) as watch:
        now[:] = [replace(before, container_id="b", shell=second)]
        until(lambda: at_the_very_end or second.looks >= 3)
    seen = watch.observation()
    assert (seen.usage["proxy"].cpu_s, seen.usage["proxy"].processes) == (pytest.approx(0.5), 2)
    assert seen.counters["proxy/lost_pods"] == 1


def test_a_look_into_the_container_after_a_restart_is_no_look_at_the_one_before() -> None:
    """A shell finds its way into it by itself: what was seen since the old one was last sure to run is not its own."""
    old, new = [stat(1, ticks=500), stat(7, ticks=100)], [stat(1, ticks=2), stat(7, ticks=900)]
    shell = FakeShell(
        [Said(v1(10**9), old), Said(v1(2 * 10**9), [stat(1, ticks=540), stat(7, ticks=110)]), Said(v1(0), new)]
    )
    (sampler,) = make_samplers(places([("proxy", shell)]), [read_container_info(shell)])  # pyright: ignore[reportArgumentType]
    for when, sure in (("opening", True), ("meanwhile", True), ("meanwhile", False)):
        sampler.look(when)  # pyright: ignore[reportArgumentType]
        if sure:
            sampler.there()
    sampler.restarted(MeasuringError("pod x", "its container was restarted", ""))
    sampler.look("closing")
    assert len(sampler.snapshots) == 2
    assert sampler.used_s() == pytest.approx(0.5)


def test_who_has_little_cpu_is_not_looked_into_meanwhile() -> None:
    squeezed, other = used(0, 10**9), used(0)
    asked = places([("proxy", squeezed), ("backend", other)])
    with ClusterWatch(asked, dict[str, int], nobody, interval_s=0.01, spared=lambda role: role == "proxy") as watch:
        until(lambda: other.looks >= 5)
    assert squeezed.looks == 2
    assert watch.observation().usage["proxy"].cpu_s == pytest.approx(1.0)


def test_a_load_of_many_generators_counts_from_when_they_begin_until_they_end() -> None:
    proxy, client = used(10**9, 3 * 10**9, 4 * 10**9), used(0)
    first = FakeShell([Said(v2(2_000_000)), Said(v2(2_700_000))], V2, lost_from=2)
    second = used(5 * 10**9, 6 * 10**9, lost_from=2)
    requests = iter([{"proxy/requests": 7}, {"proxy/requests": 100}, {"proxy/requests": 1104}])
    there = places([("generator", client), ("proxy", proxy)])
    runners = [place("generator", first, 5), place("generator", second, 6)]
    with ClusterWatch(there, lambda: next(requests), nobody, interval_s=60.0) as watch, watch.beginning_anew(runners):
        pass
    seen = watch.observation()
    assert seen.usage["generator"].cpu_s == seen.generator_cpu_s == pytest.approx(1.7)
    assert seen.usage["proxy"].cpu_s == pytest.approx(1.0)
    assert seen.counters["proxy/requests"] == 1004
    assert "generator/lost_pods" not in seen.counters and first.refused == second.refused == 0
    dying = [place("generator", used(0, lost_from=1), 5)]
    with (
        ClusterWatch(places([("generator", used(0))]), dict[str, int], nobody, 60.0) as watch,
        watch.beginning_anew(dying),
    ):
        pass
    assert watch.observation().counters["generator/lost_pods"] == 1, "its exit status is the load's"
