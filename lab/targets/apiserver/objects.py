"""A variant's manifests → what the API server is given, and what a cluster's own controllers would write there. Pure.

A Deployment's pod template, as the pod `proxy-0`:

    {"kind": "Pod", "metadata": {"name": "proxy-0", "namespace": …, "labels": …}, "spec": {…, "nodeName": "node"}}
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from lab.systems.manifests.objects import SERVICE_LABEL, Member, Service
from lab.targets.cluster.api import Object
from lab.targets.cluster.objects import pod_template
from lab.targets.local.sandbox.network import NODE_ADDRESS

DEFINITIONS = Path(__file__).parents[3] / "manifests" / "clusters"
NODE = "node"
PROCESSES = frozenset(
    {"Deployment", "PodDisruptionBudget", "Service", "EndpointSlice", "ConfigMap", "Secret", "DaemonSet"}
)
"""Kinds that say what processes there are and how they are reached: the lab reads these itself."""
MANAGED = {"endpointslice.kubernetes.io/managed-by": "ingress-lab"}


def read(manifests: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Those that the lab reads for its processes; everything else is the controller's to judge."""
    return [obj for obj in manifests if obj["kind"] in PROCESSES]


def definitions(manifests: Iterable[Mapping[str, Any]]) -> list[Object]:
    """Of the groups of kinds that no API server knows by itself, those that objects are of."""
    groups = {obj["apiVersion"].partition("/")[0] for obj in manifests}
    texts = (file.read_text() for file in sorted(DEFINITIONS.glob("*-crd.yaml")))
    return [obj for text in texts for obj in yaml.safe_load_all(text) if obj["spec"]["group"] in groups]


def namespaces(manifests: Iterable[Mapping[str, Any]]) -> list[str]:
    """All that objects are in, whether the manifests make them or not."""
    return sorted({obj["metadata"]["namespace"] for obj in manifests if "namespace" in obj["metadata"]})


def pod(manifests: Iterable[Mapping[str, Any]], deployment: str, name: str) -> Object:
    """A Deployment's pod, on the node."""
    made_by = next(obj for obj in manifests if obj["kind"] == "Deployment" and obj["metadata"]["name"] == deployment)
    template = pod_template(made_by)
    assert template is not None
    metadata = template.get("metadata") or {}
    kept = {key: metadata[key] for key in ("labels", "annotations") if key in metadata}
    here = {"name": name, "namespace": made_by["metadata"].get("namespace", "default")}
    spec = {**template["spec"], "nodeName": NODE}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {**kept, **here}, "spec": spec}


def status(address: str, ready: bool, containers: Sequence[tuple[str, str, bool, int]]) -> Object:
    """A pod's. `containers`: (name, what its image is here, ready, restarts)."""
    said = "True" if ready else "False"
    return {
        "status": {
            "phase": "Running",
            "podIP": address,
            "podIPs": [{"ip": address}],
            "hostIP": NODE_ADDRESS,
            "conditions": [
                {"type": kind, "status": value}
                for kind, value in (("Initialized", "True"), ("ContainersReady", said), ("Ready", said))
            ],
            "containerStatuses": [
                {
                    "name": name,
                    "image": image,
                    "imageID": image,
                    "ready": here,
                    "started": True,
                    "restartCount": restarts,
                    "state": {"running": {}},
                }
                for name, image, here, restarts in containers
            ],
        }
    }


def slices(service: Service, namespace: str, members: Mapping[int, Sequence[Member]]) -> Iterator[Object]:
    """The EndpointSlice of a Service that selects pods. `members`: of each of its ports by number, those that are ready."""
    ports = [number for number in service.ports if isinstance(number, int)]
    if not service.selector or not ports:
        return
    addresses = list(dict.fromkeys(member.address for number in ports for member in members[number]))
    targets = {number: members[number][0].port for number in ports if members[number]}
    yield {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": f"{service.name}-lab",
            "namespace": namespace,
            "labels": {SERVICE_LABEL: service.name, **MANAGED},
        },
        "addressType": "IPv4",
        "ports": [
            {"name": service.names.get(number, ""), "protocol": "TCP", "port": target}
            for number, target in targets.items()
        ],
        "endpoints": [
            {
                "addresses": [address],
                "nodeName": NODE,
                "conditions": {"ready": True, "serving": True, "terminating": False},
            }
            for address in addresses
        ],
    }
