"""Where clients reach a role's pods: the address, the port, and in words what lies in between.

    hostNetwork             the node's address, the container's port: nothing in between
    type LoadBalancer       a node's address, the node port: kube-proxy's NAT there, and no balancer in front of it
    type NodePort           the same
    any other Service       its cluster IP (kube-proxy's NAT on the client's node); a headless one: the pod itself
    where pods may change   the cluster IP, whatever the Service's type or the pods' host ports: a node's address ends with
                            its pod

What the manifests ask for decides, and what the API server shows gives the numbers. Refuses to choose a node without such
a pod: under externalTrafficPolicy Local it would answer nothing, and under Cluster another node would be one hop more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lab.base.errors import MeasuringError, UsageError
from lab.model.endpoint import Role
from lab.model.variants.labels import ROLE_LABEL
from lab.targets.cluster.api import Api
from lab.targets.cluster.objects import pod_labels, pod_spec
from lab.targets.cluster.objects import role as role_of
from lab.targets.cluster.pods import ready

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Entrypoint:
    """`words` is never empty: on a cluster something is said of every way in."""

    host: str
    port: int
    words: str


def entrypoint(
    api: Api, objects: Sequence[Object], role: Role, port: str = "http", lasting: bool = False, by: str | None = None
) -> Entrypoint:
    """The Service's port of that name, or its first if it has none so called. `lasting`: by an address that no pod's end changes.
    `by`: the Deployment that is meant, where the role has several.

    UsageError when no Service selects the role's pods; MeasuringError when the cluster does not show what it should.
    """
    workload, service, wanted = _served(objects, role, port, by)
    spec = pod_spec(workload)
    if spec.get("hostNetwork") and not lasting:
        node = _first(api, workload, role, by)["status"]["hostIP"]
        return Entrypoint(node, _container_port(workload, wanted), f"to node {node}, whose own ports the pod's are")
    live = api.get("v1", "Service", service["metadata"]["name"], workload["metadata"]["namespace"])
    if live is None:
        raise MeasuringError(_place(service), "is not there", "somebody removed it; start again")
    if live["spec"].get("type") in ("LoadBalancer", "NodePort") and not lasting:
        node = _first(api, workload, role, by)["status"]["hostIP"]
        number = next((item.get("nodePort") for item in live["spec"]["ports"] if item["port"] == wanted["port"]), None)
        if not number:
            remedy = "leave out allocateLoadBalancerNodePorts: false: the node port is the way in"
            raise MeasuringError(_place(service), f"port {wanted['port']} has no node port", remedy)
        source = "the client's address kept" if live["spec"].get("externalTrafficPolicy") == "Local" else "masquerade"
        balancer = ", no balancer in front" if live["spec"]["type"] == "LoadBalancer" else ""
        words = (
            f"through node {node} port {number} (NAT of a Service of type {live['spec']['type']}{balancer}, {source})"
        )
        return Entrypoint(node, int(number), words)
    address = live["spec"].get("clusterIP")
    if address in (None, "", "None"):
        if lasting:
            fault = "is headless: it has no address that stays when its pods change"
            raise UsageError(_place(service), fault, "a Service with a cluster IP")
        pod_ip = _first(api, workload, role, by)["status"]["podIP"]
        return Entrypoint(pod_ip, _container_port(workload, wanted), "to the pod itself (a headless Service)")
    words = "through the Service's cluster IP (kube-proxy's NAT on the client's node)"
    if lasting and (spec.get("hostNetwork") or any(item.get("hostPort") for item in _ports(spec))):
        words += ", not by the host port that its pods have"
    return Entrypoint(address, wanted["port"], words)


def each_pod(
    api: Api, objects: Sequence[Object], role: Role, port: str = "http", by: str | None = None
) -> list[tuple[str, int]]:
    """(address, port) of every ready pod that `entrypoint` may lead to, for a client that passes by the Service. UsageError as there."""
    workload, _, wanted = _served(objects, role, port, by)
    number = _container_port(workload, wanted)
    return [(pod["status"]["podIP"], number) for pod in _ready(api, workload, role, by)]


def _served(objects: Sequence[Object], role: Role, port: str, by: str | None) -> tuple[Object, Object, Object]:
    """The one object whose pods have the role (of several that of the name `by`), their Service, one that clients outside can reach before
    one that they cannot, and its port of that name or its first.
    """
    found = [obj for obj in objects if role_of(obj) == role and by in (None, obj["metadata"]["name"])]
    if not found:
        raise UsageError(f"role {role}", "this variant has no such pod", "name the other role")
    labels, namespace = pod_labels(found[0]), found[0]["metadata"]["namespace"]
    selecting = [
        obj
        for obj in objects
        if obj["kind"] == "Service"
        and obj["metadata"].get("namespace") == namespace
        and obj["spec"].get("selector")
        and obj["spec"]["selector"].items() <= labels.items()
    ]
    if not selecting:
        fault = f"no Service selects the pods of the role {role}"
        raise UsageError(_place(found[0]), fault, "add one, as in manifests/base")
    service = min(selecting, key=lambda obj: obj["spec"].get("type", "ClusterIP") == "ClusterIP")
    ports = service["spec"]["ports"]
    return found[0], service, next((item for item in ports if item.get("name") == port), ports[0])


def _ports(spec: Object) -> list[Object]:
    return [port for container in spec["containers"] for port in container.get("ports") or ()]


def _container_port(workload: Object, wanted: Object) -> int:
    """The number behind a Service's targetPort, which may be a name."""
    target = wanted.get("targetPort", wanted["port"])
    named = {item.get("name"): item["containerPort"] for item in reversed(_ports(pod_spec(workload)))}
    number = named.get(target, target)
    if not isinstance(number, int):
        raise UsageError(_place(workload), f"no container has a port '{target}'", "a Service's targetPort names it")
    return number


def _ready(api: Api, workload: Object, role: Role, by: str | None) -> list[Object]:
    """The ready pods that stand for a workload: those of the role, or, where it is one of several, of its own labels."""
    labels = {ROLE_LABEL: role} | dict(pod_labels(workload) if by is not None else {})
    selector = ",".join(f"{name}={value}" for name, value in labels.items())
    return [pod for pod in api.list("v1", "Pod", workload["metadata"]["namespace"], selector) if ready(pod)]


def _first(api: Api, workload: Object, role: Role, by: str | None) -> Object:
    """Always the same one of several. MeasuringError without any."""
    pods = _ready(api, workload, role, by)
    if not pods:
        fault = f"no pod is ready in {workload['metadata']['namespace']}"
        raise MeasuringError(f"role {role}", fault, "`kubectl describe pod` there says why")
    return min(pods, key=lambda pod: pod["metadata"]["name"])


def _place(obj: Object) -> str:
    return f"{obj['kind']}/{obj['metadata']['name']}"
