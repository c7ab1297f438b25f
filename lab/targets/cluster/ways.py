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
from typing import Any, Protocol

from lab.base.errors import MeasuringError, UsageError
from lab.model.endpoint import Role
from lab.model.variants.labels import ROLE_LABEL
from lab.targets.cluster.objects import pod_labels, pod_template
from lab.targets.cluster.objects import role as role_of
from lab.targets.cluster.pods import ready

Object = Mapping[str, Any]


class Reader(Protocol):
    """What of `lab.targets.cluster.api.Api` is used."""

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


def way(
    api: Reader, objects: Sequence[Object], role: Role, port: str = "http", lasting: bool = False, by: str | None = None
) -> Way:
    """To the Service's port of that name, or its first if it has none so called. `lasting`: by an address that no pod's end changes.
    `by`: the Deployment that is meant, where the role has several.

    UsageError when no Service selects the role's pods; MeasuringError when the cluster does not show what it should.
    """
    workload = _workload(objects, role, by)
    labels = pod_labels(workload) if by is not None else {ROLE_LABEL: role}
    service = _service(objects, workload)
    if service is None:
        fault = f"no Service selects the pods of the role {role}"
        raise UsageError(_place(workload), fault, "add one, as in manifests/base")
    wanted = _port(service, port)
    namespace = workload["metadata"]["namespace"]
    if _pod_spec(workload).get("hostNetwork") and not lasting:
        node = _pod(api, namespace, role, labels)["status"]["hostIP"]
        return Way(node, _container_port(workload, wanted), f"to node {node}, whose own ports the pod's are")
    live = api.get("v1", "Service", service["metadata"]["name"], namespace)
    if live is None:
        raise MeasuringError(_place(service), "is not there", "somebody removed it; start again")
    kind = live["spec"].get("type", "ClusterIP")
    if kind in ("LoadBalancer", "NodePort") and not lasting:
        return _through_a_node(api, live, wanted, role, labels)
    address = live["spec"].get("clusterIP")
    if address in (None, "", "None"):
        if lasting:
            fault = "is headless: it has no address that stays when its pods change"
            raise UsageError(_place(service), fault, "a Service with a cluster IP")
        pod = _pod(api, namespace, role, labels)
        return Way(pod["status"]["podIP"], _container_port(workload, wanted), "to the pod itself (a headless Service)")
    words = "through the Service's cluster IP (kube-proxy's NAT on the client's node)"
    spec = _pod_spec(workload)
    if lasting and _has_host_port(spec):
        words += ", not by the host port that its pods have"
        if (nodes := sum(_may_run(node, spec) for node in api.list("v1", "Node"))) > 1:
            words += f": a replacement may start at once on another of the {nodes} nodes that can take one"
    return Way(address, wanted["port"], words)


def _has_host_port(spec: Mapping[str, Any]) -> bool:
    ports = (port for container in spec["containers"] for port in container.get("ports") or ())
    return bool(spec.get("hostNetwork")) or any(port.get("hostPort") for port in ports)


def _may_run(node: Object, spec: Mapping[str, Any]) -> bool:
    """By its labels and taints, as the scheduler sees them; how full it is, nobody knows beforehand."""
    labels = node["metadata"].get("labels") or {}
    keeping_off = [one for one in node["spec"].get("taints") or () if one["effect"] != "PreferNoSchedule"]
    return (
        not node["spec"].get("unschedulable")
        and (spec.get("nodeSelector") or {}).items() <= labels.items()
        and all(any(_tolerates(one, taint) for one in spec.get("tolerations") or ()) for taint in keeping_off)
    )


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    """As core/v1 has it: no key is every key, no effect every effect."""
    same = toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", "")
    return (
        same and toleration.get("key") in (None, taint["key"]) and toleration.get("effect") in (None, taint["effect"])
    )


def _through_a_node(api: Reader, live: Object, wanted: Object, role: Role, labels: Mapping[str, str]) -> Way:
    spec = live["spec"]
    numbers = [item.get("nodePort") for item in spec["ports"] if item["port"] == wanted["port"]]
    if not numbers or not numbers[0]:
        remedy = "leave out allocateLoadBalancerNodePorts: false: the node port is the way in"
        raise MeasuringError(_place(live), f"port {wanted['port']} has no node port", remedy)
    node = _pod(api, live["metadata"]["namespace"], role, labels)["status"]["hostIP"]
    kept = spec.get("externalTrafficPolicy") == "Local"
    source = "the client's address kept" if kept else "masquerade"
    balancer = ", no balancer in front" if spec["type"] == "LoadBalancer" else ""
    words = f"through node {node} port {numbers[0]} (NAT of a Service of type {spec['type']}{balancer}, {source})"
    return Way(node, int(numbers[0]), words)


def _workload(objects: Sequence[Object], role: Role, by: str | None) -> Object:
    """The one object whose pods have the role; the one of that name, where there are several."""
    found = [obj for obj in objects if role_of(obj) == role and by in (None, obj["metadata"]["name"])]
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


def _pod(api: Reader, namespace: str, role: Role, labels: Mapping[str, str]) -> Object:
    """A running, ready pod of the role with these labels: always the same one of several."""
    chosen = ",".join(f"{name}={value}" for name, value in ({ROLE_LABEL: role} | dict(labels)).items())
    pods = [pod for pod in api.list("v1", "Pod", namespace, chosen) if ready(pod)]
    if not pods:
        raise MeasuringError(f"role {role}", f"no pod is ready in {namespace}", "`kubectl describe pod` there says why")
    return min(pods, key=lambda pod: pod["metadata"]["name"])


def _pod_spec(workload: Object) -> Mapping[str, Any]:
    template = pod_template(workload)
    assert template is not None  # it has a role
    return template["spec"]


def _place(obj: Object) -> str:
    return f"{obj['kind']}/{obj['metadata']['name']}"
