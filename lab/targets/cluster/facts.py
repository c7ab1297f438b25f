"""Facts about a cluster, as texts that change only if the cluster changes, and records of the pods that came up.

An example of a fact, its name and its text:

    nodes   1 × 2 CPUs, 23.4 GiB, amd64, Linux 6.18.44, Debian GNU/Linux 12 (bookworm), containerd://2.1.5, v1.34.4

No fact is guessed. The text is `not visible` if the user may not read the fact, and `unknown` if it has no known name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field

from lab.base.quantities import parse_quantity
from lab.model.variants.labels import ROLE_LABEL
from lab.targets.cluster.api import Api, DeniedError
from lab.targets.cluster.images import Images
from lab.targets.cluster.pods import ready

UNKNOWN, NOT_VISIBLE = "unknown", "not visible"
NETWORKS: Mapping[str, str] = {
    "antrea-agent": "Antrea",
    "aws-node": "Amazon VPC CNI",
    "azure-cns": "Azure CNI",
    "calico-node": "Calico",
    "canal": "Canal",
    "cilium": "Cilium",
    "kindnet": "kindnet",
    "kube-flannel": "Flannel",
    "kube-flannel-ds": "Flannel",
    "kube-router": "kube-router",
    "ovnkube-node": "OVN-Kubernetes",
    "sdn": "OpenShift SDN",
    "weave-net": "Weave Net",
}
"""The pod network that a DaemonSet brings to every node, by the DaemonSet's name in the project's manifests."""


def collect_facts(api: Api, images: Images) -> dict[str, str]:
    """Return the facts of a cluster for a run's record, by name, such as `kubernetes` → `v1.34.4`.

    They are its versions, nodes and modes, and the reference of every image that the lab uses.
    """
    nodes = api.list("v1", "Node")
    # `kind://docker/dev/…`, `digitalocean://…`, `aws:///…`.
    providers = {node["spec"].get("providerID", "").partition("://")[0] for node in nodes}
    return {
        "kubernetes": api.version(),
        "provider": ", ".join(sorted(providers - {""})) or UNKNOWN,
        "nodes": describe_nodes(nodes),
        "pinning": "none: proxy, generator and backend use what CPUs their nodes have; on one node they share them",
        "kube_proxy": _read_if_allowed(lambda: _read_kube_proxy_mode(api)),
        "pod_network": _read_if_allowed(lambda: _find_network(api)),
        **{f"image_{short}": images.named(short) for short in sorted(images.pinned)},
    }


def describe_nodes(nodes: Sequence[Mapping[str, Any]]) -> str:
    """Return one text about all nodes of a cluster, such as `2 × 4 CPUs, 15.6 GiB, …`.

    Equal nodes are counted together. Names and ages are left out.
    """
    kinds = Counter(map(_describe_node, nodes))
    return "; ".join(f"{count} × {description}" for description, count in sorted(kinds.items()))


class ImageRecord(BaseModel):
    """The record of a container's image: the requested reference, and the ID of the running image (None: unknown)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    image: str = Field(description="as asked for")
    image_id: str | None


class PodRecord(BaseModel):
    """A pod that came up, as the files in `deployed/` record it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    role: str | None
    name: str
    node: str | None
    ready: bool
    restarts: int = Field(ge=0)
    qos: str | None
    images: dict[str, ImageRecord] = Field(description="by container")


def build_pod_record(pod: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a pod from the form of the API server to a record (`PodRecord`) as a plain dict."""
    metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status", {})
    states = {item["name"]: item for item in status.get("containerStatuses", [])}
    record = PodRecord(
        role=metadata.get("labels", {}).get(ROLE_LABEL),
        name=metadata["name"],
        node=spec.get("nodeName"),
        ready=ready(pod),
        restarts=sum(item.get("restartCount", 0) for item in states.values()),
        qos=status.get("qosClass"),
        images={
            container["name"]: ImageRecord(
                image=container["image"], image_id=states.get(container["name"], {}).get("imageID")
            )
            for container in spec["containers"]
        },
    )
    return record.model_dump()


def _describe_node(node: Mapping[str, Any]) -> str:
    """Return one line about a node: its CPUs, memory, operating system and versions.

    Memory is rounded to a tenth of a GiB, because the kernel keeps a slightly different amount for itself at every
    boot.
    """
    info, capacity = node["status"]["nodeInfo"], node["status"]["capacity"]
    parts = [
        node["metadata"].get("labels", {}).get("node.kubernetes.io/instance-type"),
        "1 CPU" if capacity["cpu"] == "1" else f"{capacity['cpu']} CPUs",
        f"{float(parse_quantity(capacity['memory'])) / 2**30:.1f} GiB",
        info["architecture"],
        f"{info['operatingSystem'].capitalize()} {info['kernelVersion']}",
        info["osImage"],
        info["containerRuntimeVersion"],
        info["kubeletVersion"],
    ]
    return ", ".join(filter(None, parts))


def _read_kube_proxy_mode(api: Api) -> str:
    # kubeadm's and kind's ConfigMap with its key, then EKS's.
    for name, key in (("kube-proxy", "config.conf"), ("kube-proxy-config", "config")):
        settings = api.get("v1", "ConfigMap", name, "kube-system")
        if settings is not None and key in settings.get("data", {}):
            return str(yaml.safe_load(settings["data"][key]).get("mode") or "iptables (by default)")
    return UNKNOWN


def _find_network(api: Api) -> str:
    names = {item["metadata"]["name"] for item in api.list("apps/v1", "DaemonSet")}
    return ", ".join(sorted({NETWORKS[name] for name in names & set(NETWORKS)})) or UNKNOWN


def _read_if_allowed(ask: Callable[[], str]) -> str:
    try:
        return ask()
    except DeniedError:
        return NOT_VISIBLE
