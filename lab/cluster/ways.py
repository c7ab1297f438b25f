"""Where clients reach a role's pods: the address, the port, and in words what lies in between.

    hostNetwork             the node's address, the container's port: nothing in between
    type LoadBalancer       a node's address, the node port: kube-proxy's NAT there, and no balancer in front of it
    type NodePort           the same
    any other Service       its cluster IP (kube-proxy's NAT on the client's node); a headless one: the pod itself

What the manifests ask for decides, and what the API server shows gives the numbers. Refuses to choose a node without such
a pod: under externalTrafficPolicy Local it would answer nothing, and under Cluster another node would be one hop more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from lab.cluster.names import ROLE_LABEL
from lab.cluster.objects import pod_labels, pod_template
from lab.cluster.objects import role as role_of
from lab.cluster.pods import ready
from lab.errors import MeasuringError, UsageError
from lab.targets.base import Role

Object = Mapping[str, Any]


class Reader(Protocol):
    """What of `lab.cluster.api.Api` is used."""

    def get(self, api_version: str, kind: str, name: str, namespace: str | None = None) -> dict[str, Any] | None: ...
    def list(
        self, api_version: str, kind: str, namespace: str | None = None, labels: str = ""
    ) -> list[dict[str, Any]]: ...


@dataclass(frozen=True, slots=True)
class Way:
    """`words` is never empty: on a cluster something is said of every way."""

    host: str
    port: int
    words: str


def way(api: Reader, objects: Sequence[Object], role: Role, port: str = "http") -> Way:
    """To the Service's port of that name, or its first if it has none so called.

    UsageError when no Service selects the role's pods; MeasuringError when the cluster does not show what it should.
    """
    workload = _workload(objects, role)
    service = _service(objects, workload)
    if service is None:
        fault = f"no Service selects the pods of the role {role}"
        raise UsageError(_place(workload), fault, "add one, as in manifests/base")
    wanted = _port(service, port)
    namespace = workload["metadata"]["namespace"]
    if _pod_spec(workload).get("hostNetwork"):
        node = _pod(api, namespace, role)["status"]["hostIP"]
        return Way(node, _container_port(workload, wanted), f"to node {node}, whose own ports the pod's are")
    live = api.get("v1", "Service", service["metadata"]["name"], namespace)
    if live is None:
        raise MeasuringError(_place(service), "is not there", "somebody removed it; start again")
    kind = live["spec"].get("type", "ClusterIP")
    if kind in ("LoadBalancer", "NodePort"):
        return _through_a_node(api, live, wanted, role)
    address = live["spec"].get("clusterIP")
    if address in (None, "", "None"):
        pod = _pod(api, namespace, role)
        return Way(pod["status"]["podIP"], _container_port(workload, wanted), "to the pod itself (a headless Service)")
    return Way(address, wanted["port"], "through the Service's cluster IP (kube-proxy's NAT on the client's node)")


def _through_a_node(api: Reader, live: Object, wanted: Object, role: Role) -> Way:
    spec = live["spec"]
    numbers = [item.get("nodePort") for item in spec["ports"] if item["port"] == wanted["port"]]
    if not numbers or not numbers[0]:
        remedy = "leave out allocateLoadBalancerNodePorts: false: the node port is the way in"
        raise MeasuringError(_place(live), f"port {wanted['port']} has no node port", remedy)
    node = _pod(api, live["metadata"]["namespace"], role)["status"]["hostIP"]
    kept = spec.get("externalTrafficPolicy") == "Local"
    source = "the client's address kept" if kept else "masquerade"
    balancer = ", no balancer in front" if spec["type"] == "LoadBalancer" else ""
    words = f"through node {node} port {numbers[0]} (NAT of a Service of type {spec['type']}{balancer}, {source})"
    return Way(node, int(numbers[0]), words)


def _workload(objects: Sequence[Object], role: Role) -> Object:
    """The one object whose pods have the role."""
    found = [obj for obj in objects if role_of(obj) == role]
    if not found:
        raise UsageError(f"role {role}", "this variant has no such pod", "name the other role")
    return found[0]


def _service(objects: Sequence[Object], workload: Object) -> Object | None:
    """The Service of these pods: one that clients outside can reach before one that they cannot."""
    labels, namespace = pod_labels(workload), workload["metadata"]["namespace"]
    selecting = [
        obj
        for obj in objects
        if obj["kind"] == "Service"
        and obj["metadata"].get("namespace") == namespace
        and obj["spec"].get("selector")
        and obj["spec"]["selector"].items() <= labels.items()
    ]
    return min(selecting, key=lambda obj: obj["spec"].get("type", "ClusterIP") == "ClusterIP", default=None)


def _port(service: Object, name: str) -> Object:
    ports = service["spec"]["ports"]
    return next((item for item in ports if item.get("name") == name), ports[0])


def _container_port(workload: Object, wanted: Object) -> int:
    """The number behind a Service's targetPort, which may be a name."""
    target = wanted.get("targetPort", wanted["port"])
    for container in _pod_spec(workload)["containers"]:
        for item in container.get("ports", []):
            if target in (item.get("name"), item["containerPort"]):
                return int(item["containerPort"])
    if isinstance(target, int):
        return target
    raise UsageError(_place(workload), f"no container has a port '{target}'", "a Service's targetPort names it")


def _pod(api: Reader, namespace: str, role: Role) -> Object:
    """A running, ready pod of the role: always the same one of several."""
    pods = [pod for pod in api.list("v1", "Pod", namespace, f"{ROLE_LABEL}={role}") if ready(pod)]
    if not pods:
        raise MeasuringError(f"role {role}", f"no pod is ready in {namespace}", "`kubectl describe pod` there says why")
    return min(pods, key=lambda pod: pod["metadata"]["name"])


def _pod_spec(workload: Object) -> Mapping[str, Any]:
    template = pod_template(workload)
    assert template is not None  # it has a role
    return template["spec"]


def _place(obj: Object) -> str:
    return f"{obj['kind']}/{obj['metadata']['name']}"
