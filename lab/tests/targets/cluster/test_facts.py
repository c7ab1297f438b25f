"""A cluster's facts and the record of its pods."""

from __future__ import annotations

from typing import Any

import pytest

from lab.targets.cluster.api import DeniedError
from lab.targets.cluster.facts import NOT_VISIBLE, nodes_in_words, pods_record
from lab.targets.cluster.facts import facts as facts_of
from lab.targets.cluster.images import Images
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


def test_nodes_of_one_kind_are_told_together() -> None:
    """What they are, and neither names nor ages; a little less memory after a boot is no other fact."""
    same = [node("a"), node("b", memory="24615504Ki")]
    one = "2 CPUs, 23.5 GiB, amd64, Linux 6.18.44, Debian GNU/Linux 12 (bookworm), containerd://2.1.5, v1.34.4"
    assert nodes_in_words(same) == f"2 × {one}"
    cloud = node("c", "1", "2Gi", **{"node.kubernetes.io/instance-type": "s-1vcpu-2gb"})
    assert nodes_in_words([cloud, *same]).startswith(f"2 × {one}; 1 × s-1vcpu-2gb, 1 CPU, 2.0 GiB")


def test_facts_of_a_cluster() -> None:
    """Provider, network, the images that are really used, and that nobody is pinned."""
    found = facts(Shown(daemons=("cilium", "node-exporter")))
    assert found["kubernetes"] == "v1.34.4"
    assert found["provider"] == "kind"
    assert found["pod_network"] == "Cilium"
    assert facts(Shown(daemons=("our-own-netd",)))["pod_network"] == "unknown"
    assert found["pinning"].startswith("none")
    assert found["image_nginx"] == "mirror/nginx:1"
    assert found["image_loadgen"] == "lab/loadgen:x"


@pytest.mark.parametrize(
    ("settings", "mode"),
    [
        ({"kube-proxy": {"config.conf": "kind: KubeProxyConfiguration\nmode: nftables\n"}}, "nftables"),
        ({"kube-proxy": {"config.conf": 'mode: ""\n'}}, "iptables (by default)"),
        ({"kube-proxy-config": {"config": "mode: ipvs\n"}}, "ipvs"),
        ({}, "unknown"),
    ],
)
def test_the_mode_of_kube_proxy(settings: dict[str, dict[str, str]], mode: str) -> None:
    """From its ConfigMap as kubeadm and EKS write it; where there is none, it may have been replaced. What is hidden is said so."""
    api = Shown(settings)
    assert facts(api)["kube_proxy"] == mode
    api.refused = dict.fromkeys(("ConfigMap", "DaemonSet"), DeniedError("context x", "user u cannot"))
    hidden = facts(api)
    assert (hidden["kube_proxy"], hidden["pod_network"]) == (NOT_VISIBLE, NOT_VISIBLE)


def test_the_record_of_a_pod() -> None:
    """Where it ran, how well, and the digest of what it ran; one that has not started has no digest."""
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
    record, other = pods_record([pod, waiting])
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
