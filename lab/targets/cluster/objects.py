"""Rendered manifests → what is applied to a cluster. Pure but for certificates, which are made here (each once).

Refuses nothing that the API server judges itself.
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
from lab.base.paths import at
from lab.model.endpoint import Role
from lab.model.pairs import Side
from lab.model.variants import kustomize
from lab.model.variants.labels import ROLE_LABEL
from lab.systems.manifests import certificates
from lab.systems.table import DEFINITIONS_OF, INTERVALS, MADE
from lab.targets.cluster.api import BROUGHT_UP, CLIENT_NAMESPACE, RUN_LABEL, Api, Object
from lab.targets.cluster.images import Images

ON_CLUSTERS = "lab/on-clusters"
"""Annotation of a base's Deployment: the component of manifests/clusters that is laid over the variant on a cluster."""
CLUSTERS = Path(__file__).parents[3] / "manifests" / "clusters"
ORDER = (
    "Namespace", "ServiceAccount", "ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding", "IngressClass",
    "ConfigMap", "Secret", "Service", "Ingress", "Route",
)  # fmt: skip
"""What must be there before what: any other kind comes after these, and WORKLOADS last. Removed in reverse."""
WORKLOADS = ("Deployment", "DaemonSet", "StatefulSet", "ReplicaSet", "Job", "CronJob", "Pod")
ROLES: Sequence[Role] = ("proxy", "backend")
"""Of a variant's pods; away from the generator, where there is a second node."""
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_OTHER = {"proxy": "backend", "backend": "proxy"}
NO_BALANCER = "lab/none"
"""loadBalancerClass of Services of type LoadBalancer: no cloud buys one, and their node ports are there all the same."""
OWN = "ingress-lab"
"""Of the variants' namespace, their IngressClass and its controller: what two systems on one API server must not share."""
DOMAIN = "lab.test"


@dataclass(frozen=True, slots=True)
class Reference:
    """One object on the cluster; `namespace` is empty where the kind has none."""

    api_version: str
    kind: str
    namespace: str
    name: str

    @staticmethod
    def of(obj: Mapping[str, Any]) -> Reference:
        metadata = obj["metadata"]
        return Reference(obj["apiVersion"], obj["kind"], metadata.get("namespace", ""), metadata["name"])

    @property
    def rank(self) -> int:
        """The smaller, the earlier it is applied and the later it is removed."""
        if self.kind in WORKLOADS:
            return len(ORDER) + 1
        return ORDER.index(self.kind) if self.kind in ORDER else len(ORDER)

    def __str__(self) -> str:
        """`Deployment ingress-lab/proxy`."""
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


def on_cluster(manifests: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """As they are there: with what their objects say is to be laid over them. UsageError in kustomize's words."""
    told = {(obj["metadata"].get("annotations") or {}).get(ON_CLUSTERS): obj for obj in flat(manifests)}
    for name, obj in told.items():
        if name is not None:
            place = f"{obj['kind']}/{obj['metadata']['name']}: {ON_CLUSTERS}: {name}"
            try:
                manifests = kustomize.laid_over(manifests, CLUSTERS / name)
            except kustomize.BuildError as error:
                raise UsageError(place, f"kustomize: {error}", "what it patches is what the base has") from None
    return manifests


def on_side(manifests: Iterable[Mapping[str, Any]], side: Side) -> list[Object]:
    """The objects as they are on the left; on the right whatever is called `ingress-lab` is called otherwise."""
    return [dict(obj) if side == "left" else renamed(obj, OWN, f"{OWN}-{side}") for obj in flat(manifests)]


def renamed(value: Any, old: str, new: str) -> Any:
    """With another word in the place of one, wherever an object says it."""
    match value:
        case str():
            return re.sub(rf"\b{re.escape(old)}\b", new, value)
        case list():
            return [renamed(item, old, new) for item in value]
        case dict():
            return {key: renamed(item, old, new) for key, item in value.items()}
        case _:
            return value


def flat(manifests: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The objects, those inside a List too."""
    for obj in manifests:
        if obj["kind"] == "List":
            yield from flat(obj.get("items") or ())
        else:
            yield obj


def prepare(manifests: Iterable[Mapping[str, Any]], images: Images, run: str, stamp: str) -> list[Object]:
    """Copies, in the order in which they are applied.

    RUN_LABEL on every object and pod template, `stamp` on every pod template (another one, other pods), images
    resolved, Secrets filled that ask for a certificate, Services of type LoadBalancer kept from any cloud's balancer,
    proxies and backends away from the generator. UsageError for a certificate that cannot be made.
    """
    prepared = in_order(manifests)
    for obj in prepared:
        _label(obj, run)
        template = pod_template(obj)
        if template is not None:
            if obj["kind"] != "Pod":
                _label(template, run)
            if obj["kind"] not in WORKLOADS:
                _label(at(obj, f"{MADE[obj['kind']]}.patch.value"), run)  # the workload that is made of it
            metadata, spec = template["metadata"], template["spec"]
            metadata["annotations"] = (metadata.get("annotations") or {}) | {BROUGHT_UP: stamp}
            for container in (*(spec.get("initContainers") or ()), *spec["containers"]):
                container["image"] = images.resolve(container["image"])
            if metadata["labels"].get(ROLE_LABEL) in ROLES:
                _place(spec, metadata["labels"][ROLE_LABEL])
        elif obj["kind"] == "Service" and obj["spec"].get("type") == "LoadBalancer":
            obj["spec"].setdefault("loadBalancerClass", NO_BALANCER)
    return prepared


def in_order(manifests: Iterable[Mapping[str, Any]]) -> list[Object]:
    """Copies of all objects, in the order in which they are applied; Secrets filled that ask for a certificate. UsageError for one that cannot be made."""
    found = sorted((copy.deepcopy(dict(obj)) for obj in flat(manifests)), key=lambda obj: Reference.of(obj).rank)
    for obj in found:
        if obj["kind"] == "Secret":
            certify(obj)
    return found


def vet(api: Api, manifests: Iterable[Mapping[str, Any]]) -> None:
    """UsageError for a kind that the cluster does not know."""
    for obj in flat(manifests):
        if api.resource(obj["apiVersion"], obj["kind"]) is None:
            remedy = f"`just up` brings those of {DEFINITIONS_OF}; of others, install the definition"
            raise UsageError(api.place, f"the cluster knows no {obj['kind']} of {obj['apiVersion']}", remedy)


def pod_template(obj: Mapping[str, Any]) -> Object | None:
    """The object that has `metadata` and `spec` of the pods; None for a kind that makes none. Of one that a controller makes a Deployment of, what it lays over that."""
    match obj["kind"]:
        case "Pod":
            return dict(obj)
        case "CronJob":
            return obj["spec"]["jobTemplate"]["spec"]["template"]
        case kind if kind in MADE:
            return at(obj, f"{MADE[kind]}.patch.value.spec.template")
        case kind if kind in WORKLOADS:
            return obj["spec"]["template"]
        case _:
            return None


def made(obj: Mapping[str, Any]) -> Reference | None:
    """The workload that makes an object's pods: itself, or the Deployment that a controller makes of it; None where it makes none."""
    ref = Reference.of(obj)
    name = at(obj, f"{MADE[ref.kind]}.name") if ref.kind in MADE else None
    if name is not None:
        return Reference("apps/v1", "Deployment", ref.namespace, name)
    return ref if ref.kind in WORKLOADS else None


def pod_spec(obj: Mapping[str, Any]) -> Object:
    """Of the pods that an object with a role makes, or is."""
    template = pod_template(obj)
    assert template is not None
    return template["spec"]


def headless(obj: Mapping[str, Any]) -> bool:
    """A Service that has no address of its own: clients are told its pods'."""
    return obj["kind"] == "Service" and obj["spec"].get("clusterIP") == "None"


def role(obj: Mapping[str, Any]) -> str | None:
    """Of the pods that the object makes, or is: the only rule for it. None where they have none."""
    return pod_labels(obj).get(ROLE_LABEL)


def pod_labels(obj: Mapping[str, Any]) -> Mapping[str, str]:
    """Empty for a kind that makes no pods."""
    return (pod_template(obj) or {}).get("metadata", {}).get("labels") or {}


def pending_s(manifests: Iterable[Mapping[str, Any]]) -> float:
    """Seconds from the proxy's readiness until no load is due; 0 where the proxy has no such interval.

    A router that has one loads its first configuration as soon as it has seen every Route, and handles what arrives meanwhile (the
    same Routes again, the backend's endpoints when they are ready) in one more load, a reload interval later. That one
    closes idle keep-alive connections, which a generator counts as errors. Seen with openshift/router release-4.22: with
    5 s, 15 s and 120 s exactly two loads, and a backend that was not ready at the first is not answered for until the second.
    """
    found = [
        seconds
        for obj in manifests
        if role(obj) == "proxy"
        for container in pod_spec(obj)["containers"]
        for item in container.get("env", [])
        if item["name"] in INTERVALS and (seconds := quantities.seconds(str(item.get("value", "")))) is not None
    ]
    return max(found) + 1.0 if found else 0.0  # one second for a load itself


def _label(holder: Object, run: str) -> None:
    metadata = holder.setdefault("metadata", {})
    metadata["labels"] = (metadata.get("labels") or {}) | {RUN_LABEL: run}


def _place(spec: Object, role: str) -> None:
    """Where a node is marked for the role, there; not beside the generator, nor proxy beside backend, if nodes allow."""

    def beside(role: str, **where: Any) -> Object:
        return {"labelSelector": {"matchLabels": {ROLE_LABEL: role}}, "topologyKey": "kubernetes.io/hostname", **where}

    affinity = spec.setdefault("affinity", {})
    marked = {"matchExpressions": [{"key": ROLE_LABEL, "operator": "In", "values": [role]}]}
    affinity.setdefault("nodeAffinity", {}).setdefault(PREFERRED, []).append({"weight": 100, "preference": marked})
    affinity.setdefault("podAntiAffinity", {}).setdefault(PREFERRED, []).extend(
        [
            {"weight": 100, "podAffinityTerm": beside("generator", namespaces=[CLIENT_NAMESPACE])},
            {"weight": 50, "podAffinityTerm": beside(_OTHER[role])},
        ]
    )


def beside(manifests: Iterable[Object], nodes: Mapping[str, Collection[str]]) -> None:
    """Pods of a role go where the other side's are, so that both have the same machine's noise. `nodes`: role → nodes that have some."""
    for obj in manifests:
        if len(where := set(nodes.get(role(obj) or "", ()))) == 1:
            spec = pod_spec(obj)
            spec["nodeSelector"] = (spec.get("nodeSelector") or {}) | {"kubernetes.io/hostname": where.pop()}


def certify(secret: Object) -> None:
    """Fill in the certificate that its annotations ask for, if they do. UsageError for one that cannot be made, and a key that it does not fill."""
    metadata = secret["metadata"]
    place = f"Secret {metadata.get('namespace', '')}/{metadata['name']}"
    request = certificates.requested(place, metadata.get("annotations") or {})
    if request is not None:
        made = {key: base64.b64encode(text.encode()).decode() for key, text in certificates.issue(request).items()}
        for key, value in (secret.get("data") or {}).items():
            if not value:
                refuse_unknown(key, made, f"{place}: data", f"'{key}' is empty, and no part of a certificate")
        secret["data"] = (secret.get("data") or {}) | made
