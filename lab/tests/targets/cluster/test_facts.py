"""A cluster's facts and the record of its pods; what the kubelets tell of other people's, and this machine's /proc where it carries the nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lab.base.errors import LostError
from lab.targets.cluster import others
from lab.targets.cluster.api import DeniedError, RefusedError
from lab.targets.cluster.facts import NOT_VISIBLE, build_pod_record, describe_nodes
from lab.targets.cluster.facts import collect_facts as facts_of
from lab.targets.cluster.images import Images
from lab.targets.cluster.others import Kubelets, OtherUsage, PodCpuFigure, parse_figures, sum_sources, watch_host
from lab.targets.common.sampler import TICK_S
from lab.tests.support.cluster_fakes import FakeApi, Object

IMAGES = Images(
    {"nginx": "docker.io/library/nginx:1.28@sha256:00", "loadgen": "lab/loadgen:x"}, {"nginx": "mirror/nginx:1"}
)


def node(name: str, cpus: str = "2", memory: str = "24615604Ki", **more: str) -> dict[str, Any]:
    info = {
        "operatingSystem": "linux",
        "kernelVersion": "6.18.44",
        "architecture": "amd64",
        "osImage": "Debian GNU/Linux 12 (bookworm)",
        "containerRuntimeVersion": "containerd://2.1.5",
        "kubeletVersion": "v1.34.4",
    }
    return {
        "metadata": {"name": name, "labels": more},
        "spec": {"providerID": f"kind://docker/dev/{name}"},
        "status": {"nodeInfo": info, "capacity": {"cpu": cpus, "memory": memory}},
    }


class Shown(FakeApi):
    def __init__(self, settings: dict[str, dict[str, str]] | None = None, daemons: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.put({"kind": "Node", **node("a")})
        for name, data in (settings or {}).items():
            self.put({"kind": "ConfigMap", "metadata": {"name": name, "namespace": "kube-system"}, "data": data})
        for name in daemons:
            self.put({"kind": "DaemonSet", "metadata": {"name": name, "namespace": "kube-system"}})

    def version(self) -> str:
        return "v1.34.4"

    def get(self, api_version: str, kind: str, name: str, namespace: str | None = None) -> Object | None:
        if kind in self.refused:
            raise self.refused[kind]
        return super().get(api_version, kind, name, namespace)


def facts(api: Any) -> dict[str, str]:
    return facts_of(api, IMAGES)


def test_facts_of_a_cluster() -> None:
    found = facts(Shown(daemons=("cilium", "node-exporter")))
    assert found["kubernetes"] == "v1.34.4"
    assert found["provider"] == "kind"
    assert found["pod_network"] == "Cilium"
    assert facts(Shown(daemons=("our-own-netd",)))["pod_network"] == "unknown"
    assert found["pinning"].startswith("none")
    assert found["image_nginx"] == "mirror/nginx:1"
    assert found["image_loadgen"] == "lab/loadgen:x"
    same = [node("a"), node("b", memory="24615504Ki")]
    one = "2 CPUs, 23.5 GiB, amd64, Linux 6.18.44, Debian GNU/Linux 12 (bookworm), containerd://2.1.5, v1.34.4"
    assert describe_nodes(same) == f"2 × {one}"
    cloud = node("c", "1", "2Gi", **{"node.kubernetes.io/instance-type": "s-1vcpu-2gb"})
    assert describe_nodes([cloud, *same]).startswith(f"2 × {one}; 1 × s-1vcpu-2gb, 1 CPU, 2.0 GiB")


def test_the_mode_of_kube_proxy() -> None:
    """From its ConfigMap as kubeadm and EKS write it; where there is none, it may have been replaced. What is hidden is said so."""
    for settings, mode in (
        ({"kube-proxy": {"config.conf": "kind: KubeProxyConfiguration\nmode: nftables\n"}}, "nftables"),
        ({"kube-proxy": {"config.conf": 'mode: ""\n'}}, "iptables (by default)"),
        ({"kube-proxy-config": {"config": "mode: ipvs\n"}}, "ipvs"),
        ({}, "unknown"),
    ):
        api = Shown(settings)
        assert facts(api)["kube_proxy"] == mode
        api.refused = dict.fromkeys(("ConfigMap", "DaemonSet"), DeniedError("context x", "user u cannot"))
        hidden = facts(api)
        assert (hidden["kube_proxy"], hidden["pod_network"]) == (NOT_VISIBLE, NOT_VISIBLE)


def test_the_record_of_a_pod() -> None:
    pod = {
        "metadata": {"name": "proxy-1", "labels": {"lab/role": "proxy"}},
        "spec": {"nodeName": "a", "containers": [{"name": "nginx", "image": "nginx:1"}]},
        "status": {
            "qosClass": "Burstable",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{"name": "nginx", "restartCount": 2, "imageID": "nginx@sha256:aa"}],
        },
    }
    waiting = {"metadata": {"name": "b"}, "spec": {"containers": [{"name": "x", "image": "y"}]}}
    record, other = map(build_pod_record, (pod, waiting))
    assert record == {
        "role": "proxy",
        "name": "proxy-1",
        "node": "a",
        "ready": True,
        "restarts": 2,
        "qos": "Burstable",
        "images": {"nginx": {"image": "nginx:1", "image_id": "nginx@sha256:aa"}},
    }
    assert (other["ready"], other["images"]["x"]["image_id"]) == (False, None)


METRICS = """\
# HELP node_cpu_usage_seconds_total [STABLE] Cumulative cpu time consumed by the node in core-seconds
# TYPE node_cpu_usage_seconds_total counter
node_cpu_usage_seconds_total 165.10610145 1795285869187
# TYPE pod_cpu_usage_seconds_total counter
pod_cpu_usage_seconds_total{namespace="h3-test",pod="backend"} 1.284404679 1795285866013
pod_cpu_usage_seconds_total{namespace="kube-system",pod="etcd-dev-control-plane"} 2.0593826257e+01 1795285860884
resource_scrape_error 0
"""


@dataclass
class Kubelet:
    """`answers`: for every read of a kubelet, pod → (seconds, CPU seconds); an error is raised."""

    answers: Sequence[Mapping[tuple[str, str], tuple[float, float]] | Exception]
    asked: list[str] = field(default_factory=list[str])
    listed: int = 0
    gone: bool = False

    def raw(self, path: str) -> Any:
        if path == "/version":
            if self.gone:
                raise LostError("context x", "the API server does not answer")
            return {"gitVersion": "v1.34.4"}
        answer = self.answers[min(len(self.asked), len(self.answers) - 1)]
        self.asked.append(path)
        if isinstance(answer, Exception):
            raise answer
        return "".join(
            f'pod_cpu_usage_seconds_total{{namespace="{namespace}",pod="{pod}"}} {cpu_s} {round(1000 * at_s)}\n'
            for (namespace, pod), (at_s, cpu_s) in answer.items()
        )

    def list(self, api_version: str, kind: str, namespace: str | None = None, labels: str = "") -> list[dict[str, Any]]:
        assert (kind, labels) == ("Namespace", "lab/run")
        self.listed += 1
        return [{"metadata": {"name": name}} for name in ("ingress-lab", "ingress-lab-client")]


def kubelets(*answers: Mapping[tuple[str, str], tuple[float, float]] | Exception) -> Kubelets:
    api: Any = Kubelet(answers)
    return Kubelets(api)


SHOP = ("shop", "web-0")


def test_a_kubelets_figures() -> None:
    assert parse_figures(METRICS) == {
        ("h3-test", "backend"): PodCpuFigure(1795285866.013, 1.284404679),
        ("kube-system", "etcd-dev-control-plane"): PodCpuFigure(1795285860.884, 20.593826257),
    }
    assert parse_figures("") == {}
    with pytest.raises(ValueError, match="expected a pod's CPU"):
        parse_figures('pod_cpu_usage_seconds_total{namespace="a",pod="b"} 1.5')


def test_other_peoples_pods_count_and_nobody_elses() -> None:
    own = ("kube-system", "etcd"), ("ingress-lab", "proxy")
    api: Any = Kubelet(
        [{SHOP: (100, 5.0)} | dict.fromkeys(own, (100, 1.0)), {SHOP: (112, 8.0)} | dict.fromkeys(own, (112, 9.0))]
    )
    seen = Kubelets(api)(["n1"])()
    assert seen.cores == pytest.approx(0.25)
    assert seen.counters == {"others/pods": 1, "others/stale_pods": 0, "others/window_ms": 12000}
    assert api.asked == ["/api/v1/nodes/n1/proxy/metrics/resource"] * 2
    own = ("kube-system", "local-path-storage", "openshift", "openshift-ingress", "calico-system")
    for namespace in (*own, "shop", "default", "my-kube-things"):
        api: Any = Kubelet([{(namespace, "x"): (100, 0.0)}, {(namespace, "x"): (110, 1.0)}, {("new", "x"): (110, 6.0)}])
        watch = Kubelets(api)
        assert watch(["n1"])().cores == pytest.approx(0.0 if namespace in own else 0.1)
        assert api.listed == 1
        watch(["n1", "n2"])()
        assert api.listed == 2


def test_figures_that_did_not_change_tell_what_was_last_known() -> None:
    watch = kubelets({SHOP: (100, 5.0)}, {SHOP: (110, 6.0)})
    assert watch(["n1"])().counters["others/stale_pods"] == 0
    again = watch(["n1"])()
    assert (again.cores, again.counters["others/stale_pods"]) == (pytest.approx(0.1), 1)
    unknown = kubelets({SHOP: (100, 5.0)})(["n1"])()
    assert (unknown.cores, unknown.counters["others/stale_pods"]) == (0.0, 1)
    new = kubelets({}, {SHOP: (110, 2.0)})(["n1"])()
    assert new.cores == pytest.approx(0.2), "what it has used, it has used since the look before"


def test_a_kubelet_that_may_not_be_asked_is_not_visible() -> None:
    lost = LostError("context x", "the API server does not do it now: status 503")
    denied = DeniedError("context x", "user u cannot get nodes/proxy")
    for error in (denied, RefusedError("context x", "500"), lost, ValueError("of another form")):
        assert kubelets(error)(["n1"])().cores is None
        assert kubelets({}, error)(["n1"])().cores is None
    api: Any = Kubelet([lost], gone=True)
    with pytest.raises(LostError):
        Kubelets(api)(["n1"])


NODE = "5c5abf6f214c"


def process(proc: Path, pid: int, parent: int, title: str, ticks: int, cgroup: str) -> None:
    folder = proc / str(pid)
    folder.mkdir(exist_ok=True)
    (folder / "cgroup").write_text(f"1:cpu:{cgroup}\n")
    fields = f"S {parent} 1 1 0 -1 0 0 0 0 0 {ticks} 0 1 0 20 0 1 0 {pid} 1 1 1"
    (folder / "stat").write_text(f"{pid} ({title}) {fields}")


def test_whose_a_process_of_this_machine_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = 500
    monkeypatch.setattr(others, "find_host_proc", lambda: (str(tmp_path), own))
    monkeypatch.setattr(others.time, "monotonic", iter([100.0, 102.0, 104.0, 106.0]).__next__)

    def work(ticks: int) -> None:
        process(tmp_path, 1, 0, "systemd", 0, "/init.scope")
        process(tmp_path, 2, 0, "kthreadd", ticks, "/")
        process(tmp_path, 3, 2, "ksoftirqd/0", ticks, "/")
        process(tmp_path, own, 1, "python", ticks, "/user.slice")
        process(tmp_path, 501, own, "kubectl", ticks, "/user.slice")
        process(tmp_path, 600, 1, "containerd-shim", ticks, "/system.slice/docker.service")
        process(tmp_path, 601, 600, "systemd", ticks, f"/docker/{NODE}/init.scope")
        process(tmp_path, 602, 601, "nginx", ticks, f"/docker/{NODE}/kubelet.slice/pod1")
        process(tmp_path, 700, 1, "firefox", ticks, "/user.slice")

    work(0)
    watch = watch_host([NODE])
    end = watch(["kind-control-plane"])
    work(50)
    assert end().cores == pytest.approx(50 * TICK_S / 2)
    assert watch_host(["another"])(["n"])().cores is None, "an engine whose processes are elsewhere"
    monkeypatch.undo()
    assert watch_host([""])(["n"])().cores is not None, "the real /proc, where every process counts as a node's"


def test_what_several_see_is_added() -> None:
    def sees(cores: float | None, **counters: int) -> others.OtherUsageSource:
        return lambda nodes: lambda: OtherUsage(cores, counters)

    seen = sum_sources(sees(0.1, a=1), sees(0.2, b=2))(["n"])()
    assert (seen.cores, seen.counters) == (pytest.approx(0.3), {"a": 1, "b": 2})
    assert sum_sources(sees(0.3), sees(None))(["n"])().cores == pytest.approx(0.3)
    assert sum_sources(sees(0.01), sees(None))(["n"])().cores is None
    assert sum_sources(sees(None))(["n"])().cores is None
