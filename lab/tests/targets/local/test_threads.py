"""What the local target's threads do when something goes wrong in them, or the system ends under them; and containers that stay on their role's CPUs. Starts no system."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lab.base.errors import MeasuringError
from lab.model.events import EventLog
from lab.model.variants.variants import load_variant
from lab.systems.haproxy_router.control import RouterControl
from lab.systems.manifests import objects
from lab.systems.manifests.pods import Pod
from lab.systems.nginx.control import NginxControl
from lab.systems.system import Loading
from lab.targets.local.control_plane import routing
from lab.targets.local.control_plane.routing import FileRouting, ProxyFollower
from lab.targets.local.kubelet import bringup, containers
from lab.targets.local.kubelet.containers import LocalContainerProcess
from lab.targets.local.kubelet.runner import ContainerRunner
from lab.tests.support.inside import faulty
from lab.tests.support.waiting import until


class Held:
    """A container's process that runs, as far as anybody asks. `entered`: what `enter` runs instead."""

    def __init__(self, folder: Path, entered: str = "true") -> None:
        self.container = SimpleNamespace(place="here", repository="any", name="proxy")
        self.setting = SimpleNamespace(cpus={0}, place=SimpleNamespace(address=""))
        self.stdout, self.pid, self.started = folder / "stdout", 1, False
        self._folder, self._entered = folder, entered

    def start(self) -> None:
        self.started = True

    def enter(self, argv: object) -> list[str]:
        return ["sh", "-c", self._entered]

    def run_pinned(self, argv: Sequence[str], output: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self.enter(argv), stdin=subprocess.DEVNULL, stdout=output, stderr=output)

    end_entered = LocalContainerProcess.end_entered

    def inside(self, path: str) -> Path:
        return self._folder / path.strip("/").replace("/", "-")

    def processes(self) -> list[int]:
        return []

    def confine(self) -> list[int]:
        return []

    def tail(self, lines: int = 20) -> str:
        return ""


class Broken:
    """A proxy's control with a bug."""

    interval_s, looks_once_more = 0.0, False

    def started(self) -> Loading:
        return Loading(time.time(), 1)

    def serving(self, loading: Loading) -> bool:
        return True

    def load(self, files: Mapping[str, str], over: threading.Event) -> Loading | None:
        raise KeyError("upstream")

    def config_bytes(self) -> int:
        return 0


@pytest.fixture
def proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[FileRouting, Pod, LocalContainerProcess]:
    """A proxy pod, its process and who is to follow it, by a broken control."""
    wanted = objects.read_objects(load_variant("baseline").manifests)
    (pod,) = wanted.role("proxy")
    monkeypatch.setattr(routing, "find", lambda _: SimpleNamespace(control=lambda _: Broken(), renew=None))
    monkeypatch.setattr(bringup, "realise_now", lambda *_: SimpleNamespace(files={}))
    process = cast("Any", Held(tmp_path))
    process.setting.place, process.container = None, pod.containers[0]
    return FileRouting(wanted, {}, {}, EventLog(), changing=True), pod, process


def followed() -> bool:
    return any(thread.name.startswith("reloads-") for thread in threading.enumerate())


def test_the_fault_of_a_proxy_that_is_gone_is_told_still(proxy: tuple[FileRouting, Pod, LocalContainerProcess]) -> None:
    routing, pod, process = proxy
    routing.follow(pod, process)
    try:
        until(lambda: faulty(routing.check))
        routing.leave(pod)
        until(lambda: not followed())
        with pytest.raises(MeasuringError, match=r"its routes: KeyError\('upstream'\)"):
            routing.check()
    finally:
        routing.stop()


def test_a_pod_that_still_starts_when_all_are_stopped_is_not_followed(
    proxy: tuple[FileRouting, Pod, LocalContainerProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    routing, pod, process = proxy
    starting, go_on, start = threading.Event(), threading.Event(), ProxyFollower.start

    def slow(follower: ProxyFollower) -> None:
        starting.set()
        go_on.wait(10)
        start(follower)

    monkeypatch.setattr(ProxyFollower, "start", slow)
    with ThreadPoolExecutor() as threads:
        following = threads.submit(routing.follow, pod, process)
        assert starting.wait(10)
        stopping = threads.submit(routing.stop)
        time.sleep(0.1)
        go_on.set()
        following.result(10)
        stopping.result(10)
        routing.follow(pod, process)
    assert not followed()


@pytest.mark.parametrize("name", ["router", "nginx"])
def test_a_configuration_that_nobody_takes_is_not_waited_for_at_the_end(name: str, tmp_path: Path) -> None:
    held = cast("Any", Held(tmp_path, "sleep 61.3; exit 1"))  # the shell has the child that nsenter has
    path = "/var/lib/haproxy/conf/haproxy.config" if name == "router" else "/etc/nginx.conf"
    control = RouterControl(held, 1.0) if name == "router" else NginxControl(held, path, 1.0)
    held.inside(path).write_text("old")
    over = threading.Event()
    threading.Timer(0.2, over.set).start()
    began = time.monotonic()
    assert control.load({path: "new"}, over) is None
    assert 0.1 < time.monotonic() - began < 30
    if name == "nginx":
        assert held.inside(path).read_text() == "old" and not (tmp_path / "tried.conf").exists()


def test_a_container_that_was_told_to_end_is_not_started(tmp_path: Path) -> None:
    (pod,) = objects.read_objects(load_variant("baseline").manifests).role("proxy")
    process = cast("Any", Held(tmp_path))
    process.release = process.kill = lambda: None
    runner = ContainerRunner(pod, process, EventLog())
    runner.kill()
    runner.start()
    assert not process.started


def test_probes_that_were_just_beginning_end_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (pod,) = objects.read_objects(load_variant("okd-edge").manifests).role("proxy")
    ended, telling, told = threading.Event(), threading.Event(), threading.Event()
    process = cast("Any", Held(tmp_path))
    process.container = pod.containers[0]
    process.release, process.kill, process.linger = lambda: None, ended.set, lambda: None
    process.popen = SimpleNamespace(wait=ended.wait)
    monkeypatch.setattr(ContainerRunner, "attempt", lambda *_: None)

    class Late(EventLog):
        def add(self, source: str, kind: str, *more: Any, **others: Any) -> None:
            if kind == "StartupSucceeded":
                telling.set()
                told.wait(60)

    runner = ContainerRunner(pod, process, Late())
    runner.start()
    assert telling.wait(60) and pod.containers[0].startup is not None
    runner.kill()
    threading.Timer(0.3, told.set).start()  # while it is joined
    runner.join()
    assert not [thread for thread in threading.enumerate() if thread.name == "probe"]


MASTER, ONE, TWO = 10, 20, 30
POOL = 21  # a thread of the process ONE


def confined(monkeypatch: pytest.MonkeyPatch, own: set[int], masks: dict[int, set[int]]) -> dict[int, set[int]]:
    """Thread → its CPUs afterwards. A process's threads are the numbers from its own to the next ten."""
    found = {thread: set(mask) for thread, mask in masks.items()}
    monkeypatch.setattr(containers.os, "sched_getaffinity", found.__getitem__)
    monkeypatch.setattr(containers.os, "sched_setaffinity", found.__setitem__)
    monkeypatch.setattr(containers, "thread_ids", lambda pid: [t for t in found if t // 10 == pid // 10])  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    process: Any = object.__new__(LocalContainerProcess)
    process.setting = SimpleNamespace(cpus=frozenset(own))
    process.processes = lambda: [thread for thread in found if thread % 10 == 0]
    process.confine()
    return found


def test_workers_bound_to_cpus_0_and_1_each_get_one_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for own, one, two in (({2, 3}, {2}, {3}), ({1, 2}, {2}, {1}), ({0, 1}, {0}, {1}), ({5}, {5}, {5})):
        found = confined(monkeypatch, own, {MASTER: own, ONE: {0}, POOL: {0}, TWO: {1}})
        assert found == {MASTER: own, ONE: one, POOL: one, TWO: two}
    found = confined(monkeypatch, {2, 3}, {MASTER: {0, 1, 2, 3}, ONE: {0, 1}, TWO: {1, 3}})
    assert found == {MASTER: {2, 3}, ONE: {2, 3}, TWO: {3}}
