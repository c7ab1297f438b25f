"""Functions that build Kubernetes objects, such as Pods and EndpointSlices, which the lab writes to the API server.

In a cluster, controllers and a kubelet would write these objects. The functions only build the objects and send
nothing. For example, a Deployment's pod template becomes the pod `proxy-0`:

    {"kind": "Pod", "metadata": {"name": "proxy-0", "namespace": …, "labels": …}, "spec": {…, "nodeName": "node"}}
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import yaml

from lab.systems.manifests.objects import SERVICE_LABEL, Endpoint, Service
from lab.targets.cluster.api import Object
from lab.targets.cluster.objects import CLUSTERS
from lab.targets.local.sandbox.network import NODE_ADDRESS

NODE = "node"
"""The name of the only node."""
PROCESSES = frozenset(
    {"Deployment", "PodDisruptionBudget", "Service", "EndpointSlice", "ConfigMap", "Secret", "DaemonSet"}
)
"""The kinds that describe processes and how they are reached: the lab itself reads them."""
MANAGED = {"endpointslice.kubernetes.io/managed-by": "ingress-lab"}
"""The label of an EndpointSlice that the lab writes."""


def read(manifests: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return those manifests that the lab itself needs to start processes, such as Deployments and Services.

    The other manifests, such as Ingresses and Routes, are for the proxy's controller only and are left out.
    """
    return [obj for obj in manifests if obj["kind"] in PROCESSES]


def definitions(manifests: Iterable[Mapping[str, Any]]) -> list[Object]:
    """Return the CustomResourceDefinitions (CRDs) of the API groups that occur in the manifests."""
    groups = {obj["apiVersion"].partition("/")[0] for obj in manifests}
    texts = (file.read_text() for file in sorted(CLUSTERS.glob("*-crd.yaml")))
    return [obj for text in texts for obj in yaml.safe_load_all(text) if obj["spec"]["group"] in groups]


def namespaces(manifests: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the sorted names of all namespaces in which the manifests place objects.

    A namespace is included even if no manifest creates it.
    """
    return sorted({obj["metadata"]["namespace"] for obj in manifests if "namespace" in obj["metadata"]})


def make_pod(manifests: Iterable[Mapping[str, Any]], deployment: str, name: str) -> Object:
    """Return the Pod object for one pod of a Deployment, assigned to the only node.

    Args:
        manifests: The manifests, which contain the Deployment.
        deployment: The name of the Deployment.
        name: The name of the pod.

    """
    owner = next(obj for obj in manifests if obj["kind"] == "Deployment" and obj["metadata"]["name"] == deployment)
    template = owner["spec"]["template"]
    metadata = template.get("metadata") or {}
    inherited = {key: metadata[key] for key in ("labels", "annotations") if key in metadata}
    identity = {"name": name, "namespace": owner["metadata"].get("namespace", "default")}
    spec = {**template["spec"], "nodeName": NODE}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {**inherited, **identity}, "spec": spec}


def status(address: str, ready: bool, containers: Sequence[tuple[str, str, bool, int]]) -> Object:
    """Return an object whose only key is the `status` of a running pod, as a kubelet would write it.

    Args:
        address: The pod's IP address.
        ready: Whether the pod is ready.
        containers: One tuple for each container: its name, a description of the program that runs in place of its
            image, whether it is ready, and how often it was restarted.

    """
    ready_text = "True" if ready else "False"
    return {
        "status": {
            "phase": "Running",
            "podIP": address,
            "podIPs": [{"ip": address}],
            "hostIP": NODE_ADDRESS,
            "conditions": [
                {"type": kind, "status": value}
                for kind, value in (("Initialized", "True"), ("ContainersReady", ready_text), ("Ready", ready_text))
            ],
            "containerStatuses": [
                {
                    "name": name,
                    "image": image,
                    "imageID": image,
                    "ready": container_ready,
                    "started": True,
                    "restartCount": restarts,
                    "state": {"running": {}},
                }
                for name, image, container_ready, restarts in containers
            ],
        }
    }


def slices(service: Service, namespace: str, members: Mapping[int, Sequence[Endpoint]]) -> Iterator[Object]:
    """Yield the one EndpointSlice of a Service; yield nothing if the Service has no selector or no port.

    Args:
        service: The Service.
        namespace: The namespace of the Service.
        members: Port number of the Service → the ready endpoints behind that port, for each of its ports.

    """
    if not service.selector or not members:
        return
    addresses = list(dict.fromkeys(member.address for of_port in members.values() for member in of_port))
    targets = {number: of_port[0].port for number, of_port in members.items() if of_port}
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
