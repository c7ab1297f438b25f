"""The Kubernetes objects that the lab applies to a cluster, made from the rendered manifests of a variant.

The functions have no side effects, except that they issue certificates (each once). They do not look for faults that the API
server itself finds.
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
from lab.base.errors import UsageError, refuse_if, refuse_unknown
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
        api_version: The API group and version, such as `apps/v1`.
        kind: The kind, such as `Deployment`.
        namespace: The namespace; empty for kinds without namespaces.
        name: The name of the object.

    """

    api_version: str
    kind: str
    namespace: str
    name: str

    @staticmethod
    def of(obj: Mapping[str, Any]) -> Reference:
        """Return the identity (`Reference`) of a Kubernetes object that is given as a dict."""
        metadata = obj["metadata"]
        return Reference(obj["apiVersion"], obj["kind"], metadata.get("namespace", ""), metadata["name"])

    @property
    def rank(self) -> int:
        """The position of the object's kind in the order of applying: objects of a smaller rank are applied earlier.

        Removal goes in the reverse order.
        """
        if self.kind in WORKLOADS:
            return len(ORDER) + 1
        return ORDER.index(self.kind) if self.kind in ORDER else len(ORDER)

    def __str__(self) -> str:
        """Return the object's name for messages, such as `Deployment ingress-lab/proxy`."""
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


def lay_over_for_cluster(manifests: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Return the manifests with the changes that are needed on a cluster only.

    An annotation `lab/on-clusters` of an object names a kustomize component in manifests/clusters, which is applied to
    the manifests.

    Raises:
        UsageError: A component cannot be applied; the error contains kustomize's message.

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
    """Return all objects with names for one side of a pair (two variants that are up at once on one cluster).

    On the left side nothing is changed. On the right side the word `ingress-lab` is replaced everywhere by
    `ingress-lab-right`.
    """
    return [
        dict(obj) if side == "left" else rename_word(obj, OWN_NAME, f"{OWN_NAME}-{side}") for obj in flatten(manifests)
    ]


def rename_word(value: Any, old: str, new: str) -> Any:
    """Return a copy of a nested value in which a word is replaced by another in all texts, except in the keys of mappings.

    Args:
        value: A Kubernetes object, or a part of one.
        old: The word to replace.
        new: The word that replaces it.

    """
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
    """Return copies of the objects, completed for the cluster and in the order in which they must be applied.

    - Every object and pod template gets the label RUN_LABEL with the run's name.
    - Every pod template gets the stamp as an annotation, so that new pods are made for every stamp.
    - Image references are replaced by those that the user has chosen.
    - Secrets whose annotations request a certificate are filled.
    - Services of type LoadBalancer get a class that no cloud knows, so that no cloud makes a balancer for them.
    - Proxies and backends prefer nodes without the load generator.

    Args:
        manifests: The rendered manifests.
        images: The images to use.
        run: The name of the run.
        stamp: A text that identifies this bring-up (this start of the system).

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
    """Return copies of all objects in the order in which they must be applied.

    Secrets whose annotations request a certificate are filled.

    Raises:
        UsageError: A certificate cannot be made.

    """
    objects = sorted((copy.deepcopy(dict(obj)) for obj in flatten(manifests)), key=lambda obj: Reference.of(obj).rank)
    for obj in objects:
        if obj["kind"] == "Secret":
            fill_certificate(obj)
    return objects


def vet(api: Api, manifests: Iterable[Mapping[str, Any]]) -> None:
    """Raise UsageError if the cluster does not know the kind of one of the objects, such as Route."""
    for obj in flatten(manifests):
        refuse_if(
            api.resource(obj["apiVersion"], obj["kind"]) is None,
            api.place,
            f"the cluster knows no {obj['kind']} of {obj['apiVersion']}",
            f"`just up` brings those of {DEFINITIONS_OF}; of others, install the definition",
        )


def pod_template(obj: Mapping[str, Any]) -> Object | None:
    """Return the part of an object that describes its pods (`metadata` and `spec`); None for a kind that makes no pods.

    From objects of some kinds, a controller makes a Deployment. Then the result is the part of the object that patches
    the pod template of this Deployment.
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
    """Return the identity of the workload (such as a Deployment) that makes an object's pods; None if there are no pods.

    The workload is the object itself, or a Deployment that a controller makes from the object.
    """
    ref = Reference.of(obj)
    name = get_path(obj, f"{WORKLOAD_PATHS[ref.kind]}.name") if ref.kind in WORKLOAD_PATHS else None
    if name is not None:
        return Reference("apps/v1", "Deployment", ref.namespace, name)
    return ref if ref.kind in WORKLOADS else None


def pod_spec(obj: Mapping[str, Any]) -> Object:
    """Return the `spec` of the pods that an object makes; if the object is a pod, its own `spec`."""
    template = pod_template(obj)
    assert template is not None
    return template["spec"]


def is_headless(obj: Mapping[str, Any]) -> bool:
    """Return whether an object is a headless Service: clients get the addresses of its pods, because it has none itself."""
    return obj["kind"] == "Service" and obj["spec"].get("clusterIP") == "None"


def find_role(obj: Mapping[str, Any]) -> str | None:
    """Return the role (such as `proxy`) of an object's pods, as their label ROLE_LABEL shows; None if they have no role."""
    return pod_labels(obj).get(ROLE_LABEL)


def pod_labels(obj: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the labels of an object's pods; empty for a kind that makes no pods."""
    return (pod_template(obj) or {}).get("metadata", {}).get("labels") or {}


def compute_pending_s(manifests: Iterable[Mapping[str, Any]]) -> float:
    """Return for how many seconds after its readiness the proxy may still load its configuration once more.

    The result is 0 if the manifests set no reload interval. A router with such an interval loads its first
    configuration as soon as it has seen every Route. Changes that arrive meanwhile, such as the backend's endpoints,
    are loaded together one interval later. That second load closes idle keep-alive connections, which a generator
    would count as errors.

    With openshift/router release-4.22 and intervals of 5 s, 15 s and 120 s there were exactly two loads when this was
    tried. Requests to a backend that was not ready at the first load fail until the second.
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
    """Make a pod prefer certain nodes, by changing its spec.

    It prefers nodes that are marked for its role, without the load generator, and without pods of the other role
    (proxy or backend).
    """

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
    """Bind the pods of each role to the node where the other variant of a pair (two variants at once) has its pods.

    So both variants are exposed to the noise of the same machine. If the other variant's pods of a role are spread over
    several nodes, the role is not bound.

    Args:
        manifests: The objects of this variant, which are changed.
        nodes: Role → the names of the nodes where the other variant has pods.

    """
    for obj in manifests:
        if len(role_nodes := set(nodes.get(find_role(obj) or "", ()))) == 1:
            spec = pod_spec(obj)
            spec["nodeSelector"] = (spec.get("nodeSelector") or {}) | {"kubernetes.io/hostname": role_nodes.pop()}


def fill_certificate(secret: Object) -> None:
    """Issue a certificate and write it into a Secret, if the Secret's annotations request one.

    Raises:
        UsageError: The certificate cannot be made. Or the Secret has an empty key that is no part of a certificate.

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
