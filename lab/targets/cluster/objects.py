"""The objects that are applied to a cluster, made from rendered manifests.

The functions are pure, except that certificates are issued here (each once). Nothing is refused that the API server
judges itself.
"""

from __future__ import annotations

import base64
import copy
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.base import quantities
from lab.base.errors import UsageError, refuse_unknown
from lab.base.paths import get_path
from lab.model.endpoint import Role
from lab.model.pairs import Side
from lab.model.variants import kustomize
from lab.model.variants.labels import ROLE_LABEL
from lab.systems.manifests import certificates
from lab.systems.table import DEFINITIONS_OF, INTERVALS, WORKLOAD_PATHS
from lab.targets.cluster.api import BROUGHT_UP, CLIENT_NAMESPACE, RUN_LABEL, Api, Object
from lab.targets.cluster.images import Images

ON_CLUSTERS = "lab/on-clusters"
"""The annotation of a base's Deployment that names the component of manifests/clusters to lay over the variant."""
CLUSTERS = Path(__file__).parents[3] / "manifests" / "clusters"
ORDER = (
    "Namespace", "ServiceAccount", "ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding", "IngressClass",
    "ConfigMap", "Secret", "Service", "Ingress", "Route",
)  # fmt: skip
"""The order in which kinds are applied: other kinds come after these, WORKLOADS last. Removal reverses the order."""
WORKLOADS = ("Deployment", "DaemonSet", "StatefulSet", "ReplicaSet", "Job", "CronJob", "Pod")
ROLES: Sequence[Role] = ("proxy", "backend")
"""The roles of a variant's pods; they keep away from the generator where there is a second node."""
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_OTHER = {"proxy": "backend", "backend": "proxy"}
NO_BALANCER = "lab/none"
"""The loadBalancerClass of Services of type LoadBalancer: no cloud buys a balancer, and node ports exist anyway."""
OWN_NAME = "ingress-lab"
"""The name of the variants' namespace, their IngressClass and its controller.

Two systems on one API server must not share it.
"""
DOMAIN = "lab.test"


@dataclass(frozen=True, slots=True)
class Reference:
    """The identity of one Kubernetes object on the cluster: apiVersion, kind, namespace and name.

    Attributes:
        namespace: The namespace; empty for kinds without namespaces.

    """

    api_version: str
    kind: str
    namespace: str
    name: str

    @staticmethod
    def of(obj: Mapping[str, Any]) -> Reference:
        """Return the identity (a `Reference`) of a Kubernetes object that is given as a dict."""
        metadata = obj["metadata"]
        return Reference(obj["apiVersion"], obj["kind"], metadata.get("namespace", ""), metadata["name"])

    @property
    def rank(self) -> int:
        """The rank of the object's kind: objects of a smaller rank are applied earlier and removed later."""
        if self.kind in WORKLOADS:
            return len(ORDER) + 1
        return ORDER.index(self.kind) if self.kind in ORDER else len(ORDER)

    def __str__(self) -> str:
        """Return the name for messages, such as `Deployment ingress-lab/proxy`."""
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


def lay_over_for_cluster(manifests: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Return the manifests for a cluster: changed by the kustomize components that their annotations name.

    The annotation is `lab/on-clusters`, and the components are in manifests/clusters.

    Raises:
        UsageError: A component does not fit; the error has kustomize's message.

    """
    annotated = {(obj["metadata"].get("annotations") or {}).get(ON_CLUSTERS): obj for obj in flatten(manifests)}
    for name, obj in annotated.items():
        if name is not None:
            place = f"{obj['kind']}/{obj['metadata']['name']}: {ON_CLUSTERS}: {name}"
            try:
                manifests = kustomize.apply_component(manifests, CLUSTERS / name)
            except kustomize.BuildError as error:
                raise UsageError(place, f"kustomize: {error}", "what it patches is what the base has") from None
    return manifests


def rename_for_side(manifests: Iterable[Mapping[str, Any]], side: Side) -> list[Object]:
    """Return the objects of one side of a pair: unchanged on the left, with `ingress-lab` renamed on the right."""
    return [
        dict(obj) if side == "left" else rename_word(obj, OWN_NAME, f"{OWN_NAME}-{side}") for obj in flatten(manifests)
    ]


def rename_word(value: Any, old: str, new: str) -> Any:
    """Return a copy of an object in which one word is replaced by another in every string value, but in no key."""
    match value:
        case str():
            return re.sub(rf"\b{re.escape(old)}\b", new, value)
        case list():
            return [rename_word(item, old, new) for item in value]
        case dict():
            return {key: rename_word(item, old, new) for key, item in value.items()}
        case _:
            return value


def flatten(manifests: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield all objects of the manifests; an object of the kind List is replaced by the objects inside it."""
    for obj in manifests:
        if obj["kind"] == "List":
            yield from flatten(obj.get("items") or ())
        else:
            yield obj


def prepare(manifests: Iterable[Mapping[str, Any]], images: Images, run: str, stamp: str) -> list[Object]:
    """Return copies of the objects, completed for the cluster and in the order in which they are applied.

    - Every object and pod template gets RUN_LABEL with the run's name.
    - Every pod template gets the stamp: another stamp makes other pods.
    - Images are resolved.
    - Secrets that request a certificate are filled.
    - Services of type LoadBalancer get a class that no cloud knows, so that no cloud makes a balancer for them.
    - Proxies and backends prefer nodes without the load generator.

    Args:
        manifests: The rendered manifests.
        images: The images to use.
        run: The name of the run.
        stamp: A text that identifies this bring-up.

    Raises:
        UsageError: A certificate cannot be made.

    """
    prepared = sort_for_apply(manifests)
    for obj in prepared:
        _label(obj, run)
        template = pod_template(obj)
        if template is not None:
            if obj["kind"] != "Pod":
                _label(template, run)
            if obj["kind"] not in WORKLOADS:
                _label(
                    get_path(obj, f"{WORKLOAD_PATHS[obj['kind']]}.patch.value"), run
                )  # the workload that is made of it
            metadata, spec = template["metadata"], template["spec"]
            metadata["annotations"] = (metadata.get("annotations") or {}) | {BROUGHT_UP: stamp}
            for container in (*(spec.get("initContainers") or ()), *spec["containers"]):
                container["image"] = images.resolve(container["image"])
            if metadata["labels"].get(ROLE_LABEL) in ROLES:
                _set_affinity(spec, metadata["labels"][ROLE_LABEL])
        elif obj["kind"] == "Service" and obj["spec"].get("type") == "LoadBalancer":
            obj["spec"].setdefault("loadBalancerClass", NO_BALANCER)
    return prepared


def sort_for_apply(manifests: Iterable[Mapping[str, Any]]) -> list[Object]:
    """Return copies of all objects in the order in which they are applied, with requested certificates filled in.

    Raises:
        UsageError: A certificate cannot be made.

    """
    objects = sorted((copy.deepcopy(dict(obj)) for obj in flatten(manifests)), key=lambda obj: Reference.of(obj).rank)
    for obj in objects:
        if obj["kind"] == "Secret":
            fill_certificate(obj)
    return objects


def vet(api: Api, manifests: Iterable[Mapping[str, Any]]) -> None:
    """Raise UsageError if the cluster does not know the kind of one of the objects."""
    for obj in flatten(manifests):
        if api.resource(obj["apiVersion"], obj["kind"]) is None:
            remedy = f"`just up` brings those of {DEFINITIONS_OF}; of others, install the definition"
            raise UsageError(api.place, f"the cluster knows no {obj['kind']} of {obj['apiVersion']}", remedy)


def pod_template(obj: Mapping[str, Any]) -> Object | None:
    """Return the part of an object that has the pods' `metadata` and `spec`; None for a kind that makes no pods.

    For an object from which a controller makes a Deployment, the part is the patch of that Deployment's pod template.
    """
    match obj["kind"]:
        case "Pod":
            return dict(obj)
        case "CronJob":
            return obj["spec"]["jobTemplate"]["spec"]["template"]
        case kind if kind in WORKLOAD_PATHS:
            return get_path(obj, f"{WORKLOAD_PATHS[kind]}.patch.value.spec.template")
        case kind if kind in WORKLOADS:
            return obj["spec"]["template"]
        case _:
            return None


def find_workload(obj: Mapping[str, Any]) -> Reference | None:
    """Return the identity of the workload (such as a Deployment) that makes an object's pods; None without pods.

    The workload is the object itself, or the Deployment that a controller makes from the object.
    """
    ref = Reference.of(obj)
    name = get_path(obj, f"{WORKLOAD_PATHS[ref.kind]}.name") if ref.kind in WORKLOAD_PATHS else None
    if name is not None:
        return Reference("apps/v1", "Deployment", ref.namespace, name)
    return ref if ref.kind in WORKLOADS else None


def pod_spec(obj: Mapping[str, Any]) -> Object:
    """Return the `spec` of the pods that an object makes, or of the object itself if it is a pod."""
    template = pod_template(obj)
    assert template is not None
    return template["spec"]


def is_headless(obj: Mapping[str, Any]) -> bool:
    """Return whether an object is a headless Service, which has no address: clients get its pods' addresses."""
    return obj["kind"] == "Service" and obj["spec"].get("clusterIP") == "None"


def find_role(obj: Mapping[str, Any]) -> str | None:
    """Return the role (such as `proxy`) of an object's pods, from their role label; None where they have no role.

    No other rule decides about roles on a cluster.
    """
    return pod_labels(obj).get(ROLE_LABEL)


def pod_labels(obj: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the labels of an object's pods; empty for a kind that makes no pods."""
    return (pod_template(obj) or {}).get("metadata", {}).get("labels") or {}


def compute_pending_s(manifests: Iterable[Mapping[str, Any]]) -> float:
    """Return the seconds from the proxy's readiness until it has finished its second load of the configuration.

    The result is 0 where the proxy has no reload interval. A router that has one loads its first configuration as soon
    as it has seen every Route. What arrives meanwhile (the same Routes again, the backend's endpoints when they are
    ready) it handles in one more load, a reload interval later. That load closes idle keep-alive connections, which a
    generator counts as errors.

    Seen with openshift/router release-4.22: with 5 s, 15 s and 120 s there were exactly two loads. Requests to a backend
    that was not ready at the first load fail until the second.
    """
    intervals_s = [
        seconds
        for obj in manifests
        if find_role(obj) == "proxy"
        for container in pod_spec(obj)["containers"]
        for item in container.get("env", [])
        if item["name"] in INTERVALS
        and (seconds := quantities.parse_duration_s(str(item.get("value", "")))) is not None
    ]
    return max(intervals_s) + 1.0 if intervals_s else 0.0  # one second for a load itself


def _label(holder: Object, run: str) -> None:
    metadata = holder.setdefault("metadata", {})
    metadata["labels"] = (metadata.get("labels") or {}) | {RUN_LABEL: run}


def _set_affinity(spec: Object, role: str) -> None:
    """Make a pod's spec prefer nodes marked for its role, without the generator and without the other role's pods."""

    def near(role: str, **options: Any) -> Object:
        return {
            "labelSelector": {"matchLabels": {ROLE_LABEL: role}},
            "topologyKey": "kubernetes.io/hostname",
            **options,
        }

    affinity = spec.setdefault("affinity", {})
    marked = {"matchExpressions": [{"key": ROLE_LABEL, "operator": "In", "values": [role]}]}
    affinity.setdefault("nodeAffinity", {}).setdefault(PREFERRED, []).append({"weight": 100, "preference": marked})
    affinity.setdefault("podAntiAffinity", {}).setdefault(PREFERRED, []).extend(
        [
            {"weight": 100, "podAffinityTerm": near("generator", namespaces=[CLIENT_NAMESPACE])},
            {"weight": 50, "podAffinityTerm": near(_OTHER[role])},
        ]
    )


def bind_to_nodes(manifests: Iterable[Object], nodes: Mapping[str, Collection[str]]) -> None:
    """Bind the pods of each role to the node of the other side's pods, so that both have the same machine's noise.

    A role whose pods on the other side are spread over several nodes is not bound.

    Args:
        manifests: The objects; they are changed.
        nodes: The nodes where the other side has pods, by role.

    """
    for obj in manifests:
        if len(role_nodes := set(nodes.get(find_role(obj) or "", ()))) == 1:
            spec = pod_spec(obj)
            spec["nodeSelector"] = (spec.get("nodeSelector") or {}) | {"kubernetes.io/hostname": role_nodes.pop()}


def fill_certificate(secret: Object) -> None:
    """Fill the certificate into a Secret whose annotations request one.

    Raises:
        UsageError: The certificate cannot be made, or the Secret has an empty key that is no part of a certificate.

    """
    metadata = secret["metadata"]
    place = f"Secret {metadata.get('namespace', '')}/{metadata['name']}"
    request = certificates.read_request(place, metadata.get("annotations") or {})
    if request is not None:
        parts = {key: base64.b64encode(text.encode()).decode() for key, text in certificates.issue(request).items()}
        for key, value in (secret.get("data") or {}).items():
            if not value:
                refuse_unknown(key, parts, f"{place}: data", f"'{key}' is empty, and no part of a certificate")
        secret["data"] = (secret.get("data") or {}) | parts
