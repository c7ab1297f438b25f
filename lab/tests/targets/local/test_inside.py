"""Real bring-ups on the local target. These run inside its namespaces: `test_local.py` starts this file there, as root and not."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest

from lab.base.errors import MeasuringError, NotMeasurableError
from lab.model.pages import PAGES
from lab.model.variants.variants import load_overlay, load_variant, variant_names
from lab.systems.manifests import objects
from lab.systems.nginx import system as nginx
from lab.targets.local.kubelet.kubelet import Kubelet
from lab.targets.local.sandbox import cgroups, network
from lab.targets.local.target import LocalTarget
from lab.targets.readback import read_back
from lab.tests.support.factories import make_point
from lab.tests.support.inside import answers, changed, pod_of
from lab.tests.support.waiting import PATIENCE_S, until


# Every other overlay: `bringup.bats`, which takes one bring-up each and not two.
@pytest.mark.parametrize("name", [name for name in variant_names() if load_overlay(name).baseline is None])
def test_every_root_comes_up_and_every_knob_reads_back(target: LocalTarget, name: str) -> None:
    variant = load_variant(name)
    if not cgroups.try_limits()[0] and any(
        each.limits for pod in objects.read_objects(variant.manifests).pods for each in pod.containers
    ):
        with pytest.raises(NotMeasurableError, match="not measurable: limits"):
            target.check_variant(variant, [make_point()])
        return
    if variant.only_on and target.name not in variant.only_on:
        with pytest.raises(NotMeasurableError, match="needs a c|needs target"):
            target.check_variant(variant, [make_point()])
        return
    target.check_variant(variant, [make_point()])
    with target.up(variant) as system:
        unapplied = system.unapplied()
        assert unapplied == [] or not cgroups.try_limits()[0]
        checks = [check for check in variant.readback if check.kind != "quota" or not unapplied]
        assert [str(reading) for reading in read_back(system, checks) if not reading.ok] == []
        assert set(system.restarts().values()) == {0}
        through = system.fetch(system.endpoint(make_point()), "/8kB.txt", 2.0)
        behind = system.fetch(system.backend_endpoint(), "/8kB.txt", 2.0)
        assert through.status == 200 and len(through.body) == PAGES["8kB.txt"] and through.body == behind.body
        for role in ("proxy", "backend"):
            for pid in system.processes(role):
                assert os.sched_getaffinity(pid) <= target.cpus()[role]


def test_a_process_of_nginx_that_ends_by_itself_is_none_that_must_stay(target: LocalTarget) -> None:
    with target.up(load_variant("proxy-cache")) as system:
        pids = [pid for runner in system.kubelet.runners("proxy") for pid in runner.process.processes()]
        loaders = [pid for pid in pids if Path(f"/proc/{pid}/cmdline").read_text().startswith(nginx.LOADER)]
        assert loaders and sorted(system.processes("proxy")) == sorted({*pids}.difference(loaders))


def test_an_unready_pod_comes_back_and_a_failed_liveness_probe_restarts_the_container(target: LocalTarget) -> None:
    probe = {"exec": {"command": ["test", "!", "-e", "/srv/run/sick"]}, "periodSeconds": 1, "failureThreshold": 2}

    def edit(deployment: dict[str, Any]) -> None:
        (container,) = pod_of(deployment)["containers"]
        container["livenessProbe"] = probe
        container["readinessProbe"].update(failureThreshold=1)

    with target.up(changed("direct", edit, of="backend")) as system:
        events = system.log.events
        until(lambda: any(event.kind == "Ready" for event in events))
        (worker,) = psutil.Process(system.processes("backend")[0]).children()
        worker.suspend()
        until(lambda: events[-1].kind == "NotReady")
        worker.resume()
        until(lambda: [event.kind for event in events if "Ready" in event.kind][-2:] == ["NotReady", "Ready"])
        assert any(event.detail == "no answer within 1 s" for event in events)
        assert system.exec("backend", ["touch", "/srv/run/sick"]).returncode == 0
        until(lambda: system.restarts()["backend-0/backend"] == 1)
        killing = [event.detail for event in events if event.kind == "Killing"]
        assert killing[0].startswith("liveness probe failed 2 times: exited 1; grace period 5 s")


def test_logs_can_be_cut_while_they_are_written(target: LocalTarget) -> None:
    with target.up(load_variant("baseline")) as system:
        (runner,) = system.kubelet.runners("proxy")
        assert answers(system) and runner.process.stdout.stat().st_size > 0
        runner.process.truncate(larger_than=0)
        assert answers(system)
        until(lambda: runner.process.stdout.read_text().count("\n") == 1)


def test_an_interrupt_ends_the_wait_for_a_connect_that_hangs(
    target: LocalTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the lab does not wait on for the thread that connects."""
    monkeypatch.setattr(network, "set_namespace", lambda path: None)
    over, main = threading.Event(), threading.main_thread().ident
    threading.Timer(0.3, signal.pthread_kill, [main, signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt):
        network.call_in(network.NetworkPlace("hanging", "192.0.2.1"), over.wait)
    assert all(thread.daemon for thread in threading.enumerate() if thread.name == "in-hanging")
    over.set()


def snippet(text: str) -> Callable[[dict[str, Any]], None]:
    return lambda config: config.setdefault("data", {}).update({"http-snippet": text})


def first_init(command: list[str], **more: Any) -> Callable[[dict[str, Any]], None]:
    container = {"name": "first", "image": "nginx", "command": command, **more}
    return lambda item: pod_of(item).setdefault("initContainers", []).insert(0, container)


def bad_sysctl(deployment: dict[str, Any]) -> None:
    pod_of(deployment)["securityContext"]["sysctls"] = [{"name": "net.core.nonsense", "value": "1"}]


@pytest.mark.parametrize(
    ("kind", "of", "edit", "message"),
    [
        ("ConfigMap", "ingress-nginx-controller", snippet("nonsense on;"), 'unknown directive "nonsense"'),
        ("Deployment", "backend", first_init(["sh", "-c", "echo no luck >&2; exit 3"]), "no luck"),
        ("Deployment", "backend", first_init(["sysctl", "-w", "fs.file-max=4242"], securityContext={"privileged": True, "runAsUser": 0}), "file-max"),
        ("Deployment", "proxy", bad_sysctl, "net.core.nonsense"),
    ],
)  # fmt: skip
def test_what_does_not_come_up_says_why(
    target: LocalTarget, kind: str, of: str, edit: Callable[[dict[str, Any]], None], message: str
) -> None:
    before = Path("/proc/sys/fs/file-max").read_text()
    with pytest.raises(MeasuringError) as raised, target.up(changed("baseline", edit, kind=kind, of=of)):
        pass
    assert message in str(raised.value)
    assert Path("/proc/sys/fs/file-max").read_text() == before


def test_an_interrupted_bring_up_ends_at_once(target: LocalTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while an init container hangs: its interrupt arrives in the main thread, which waits for the pods."""
    start = Kubelet.start

    def interrupted(self: Kubelet, jobs: Any, deadline: float) -> None:
        main = threading.main_thread().ident
        assert main is not None
        threading.Timer(0.5, signal.pthread_kill, [main, signal.SIGINT]).start()  # as the outer process's watcher does
        start(self, jobs, deadline)

    monkeypatch.setattr(Kubelet, "start", interrupted)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt), target.up(changed("direct", first_init(["sleep", "60"]), of="backend")):
        pass
    assert time.monotonic() - began < 30.0


def test_two_systems_are_up_side_by_side(target: LocalTarget) -> None:
    plain, tls = load_variant("baseline"), load_variant("okd-edge")
    with target.up(tls, side="right") as right, target.up(plain) as left:
        for system, variant in ((left, plain), (right, tls)):
            readings = read_back(system, variant.readback)
            assert all(reading.ok for reading in readings), readings
            assert len(system.fetch(system.entry(), "/1kB.bin", 2.0).body) == 1024
        assert not set(left.net.addresses.values()) & set(right.net.addresses.values())
        assert not set(left.processes("proxy")) & set(right.processes("proxy"))
        url = urlsplit(right.entry().base_url)
        assert url.scheme == "https" and url.hostname
        asking = ["getent", "hosts", url.hostname]
        seen = subprocess.run([*right.client, *asking], capture_output=True, text=True, check=True)
        assert seen.stdout.split()[0] == "10.65.0.1", "its Service's"
        assert subprocess.run([*left.client, *asking], check=False, capture_output=True).returncode
    assert list(Path("/run/netns").iterdir()) == []


def test_nothing_of_the_users_environment_reaches_what_is_measured(
    target: LocalTarget, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("http_proxy", "HTTPS_PROXY", "all_proxy", "GOMAXPROCS", "K6_VUS", "LC_NUMERIC", "NGINX"):
        monkeypatch.setenv(name, "127.0.0.1:9")
    with target.up(load_variant("baseline")) as system:
        with (tmp_path / "said").open("w+b") as said:
            assert system.popen(["env"], tmp_path, said, said).wait(PATIENCE_S) == 0
        helper = system.spawn("generator", ["sleep", "5"])
        until(lambda: Path(f"/proc/{helper.pid}/comm").read_text() == "sleep\n")
        pids = [helper.pid, *system.processes("proxy"), *system.processes("backend")]
        seen = [(tmp_path / "said").read_text().splitlines(), system.exec("proxy", ["env"]).stdout.splitlines()]
        seen += [Path(f"/proc/{pid}/environ").read_text().split("\0") for pid in pids]
    assert all(any(line.startswith("PATH=") for line in variables) for variables in seen[:2])
    for variables in seen:
        assert [line for line in variables if line.endswith("=127.0.0.1:9")] == []
