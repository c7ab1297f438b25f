"""Whose a name is that a whole cluster shares (made by the lab, or refused), and what the lab has applied on a cluster: a list kept there, so
that what a variant leaves is pruned, even after a crash. What goes is asked to end, then waited for with a deadline.

A ConfigMap in CLIENT_NAMESPACE, one object a line:

    apps/v1 Deployment ingress-lab proxy
    rbac.authorization.k8s.io/v1 ClusterRole - ingress-lab-proxy

An object is listed before it is applied, and struck off after it is gone. Refuses to write into a namespace, or over a cluster-scoped object,
that does not carry RUN_LABEL, and to delete there; and to act on a list that another run has written, but when it takes the place over
(`take_over`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from lab.base.errors import LostError, MeasuringError, UsageError
from lab.model.pairs import Side
from lab.model.variants.kustomize import read_yaml
from lab.model.variants.labels import ROLE_LABEL
from lab.systems.table import DEFINITIONS
from lab.targets.cluster import objects
from lab.targets.cluster.api import (
    BROUGHT_UP,
    CLIENT_NAMESPACE,
    RUN_LABEL,
    Api,
    ConflictError,
    DeniedError,
    RefusedError,
)
from lab.targets.cluster.objects import CLUSTERS, WORKLOADS, Object, Reference, flat, headless

POLL_S = 0.1
THREADS = 8
GRACE_S = 1
"""Of proxies and backends: nobody is served any more (the published router has 3600 s)."""
PODS_S, REVERTING_S = 30.0, 60.0
"""Until pods are gone; where node-tuning pods are among them, whose preStop puts the node's settings back."""
GONE_S = 120.0
ORPHANING = ("Deployment", "DaemonSet", "StatefulSet", "ReplicaSet")
HELD = ("GatewayClass",)
NODE_SCOPE = ("lab/scope", "node")
CONTROLLER_SCOPE = ("lab/scope", "controller")
"""Of a Deployment and its pods which make other workloads."""
TERMINATING_S = 90.0
"""For a namespace of the lab's that is still being deleted; 6 to 12 s are usual."""
KINDS = tuple(CLUSTERS / name for name in DEFINITIONS)
"""What variants on a cluster need that Kubernetes does not have."""
INVENTORY = "ingress-lab-inventory"
CLUSTER_KINDS = (
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
    ("gateway.networking.k8s.io/v1", "GatewayClass"),
    ("networking.k8s.io/v1", "IngressClass"),
    ("rbac.authorization.k8s.io/v1", "ClusterRole"),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
    ("v1", "Namespace"),
)
"""The kinds without a namespace that the lab may make, and so looks for when everything is removed."""
WORKLOAD_GROUPS = {"Pod": "v1", "Job": "batch/v1", "CronJob": "batch/v1"}


def end_all(api: Api, workloads: Collection[Reference]) -> list[str]:
    """Delete them, and ask what they started to end: in which namespaces to `await_pods`. MeasuringError at the deadline.

    Pods are orphaned first: the garbage collector would grant each its own grace, and a kubelet that has begun to wait
    for 300 s is not hurried by a second delete with 1 s [tried, 1.34]. Node-tuning pods are waited for: what they put
    back must not meet what the next ones set. Controllers that make workloads go before all others, and are waited for: they would
    make them again.
    """
    places = sorted({ref.namespace for ref in workloads})
    making = f"{RUN_LABEL},{'='.join(CONTROLLER_SCOPE)}"
    found = {Reference.of(obj) for place in places for obj in api.list("apps/v1", "Deployment", place, making)}
    if makers := found & set(workloads):
        _end(api, makers, places, making)
        await_pods(api, places, only=making)
    _end(api, set(workloads) - makers, places, RUN_LABEL)
    if any(map(_reverts, _end_pods(api, places))):
        await_pods(api, places)
    for ref in workloads:
        _await_end(api, ref)
    return places


def _end(api: Api, workloads: Collection[Reference], places: Collection[str], labels: str) -> None:
    """Delete them; what they have made, of these labels, is orphaned."""
    for ref in sorted(workloads, key=str):
        grace_s = GRACE_S if ref.kind == "Pod" else None
        api.delete(ref.api_version, ref.kind, ref.name, ref.namespace, grace_s, orphan=ref.kind in ORPHANING)
    for place in places:
        api.delete_all("apps/v1", "ReplicaSet", place, labels, orphan=True)
        api.delete_all("apps/v1", "ControllerRevision", place, labels)


def await_pods(api: Api, places: Collection[str], but: str = "", only: str = RUN_LABEL) -> None:
    """Until the lab's pods there are gone, those with the labels `only`, the generator's excepted and those stamped `but`.
    MeasuringError at the deadline.
    """
    started = time.monotonic()
    while pods := _end_pods(api, places, but, only):
        limit_s = REVERTING_S if any(map(_reverts, pods)) else PODS_S
        if time.monotonic() - started > limit_s:
            left = ", ".join(f"{pod['namespace']}/{pod['name']}" for pod in pods[:5])
            fault = f"still there after {limit_s:.0f} s: {left}"
            raise MeasuringError(f"{api.place}: pods", fault, "`kubectl describe pod` says why; is its node up?")
        time.sleep(POLL_S)


def _end_pods(api: Api, places: Collection[str], but: str = "", only: str = RUN_LABEL) -> list[Mapping[str, Any]]:
    """The metadata of the pods that are still there; each has been asked to end."""
    ours = f"{only},{ROLE_LABEL}!=generator"
    found = [pod["metadata"] for place in places for pod in api.list("v1", "Pod", place, ours)]
    pods = [pod for pod in found if not but or (pod.get("annotations") or {}).get(BROUGHT_UP) != but]
    for pod in pods:
        if "deletionTimestamp" not in pod:
            api.delete("v1", "Pod", pod["name"], pod["namespace"], None if _reverts(pod) else GRACE_S)
    return pods


def _reverts(pod: Mapping[str, Any]) -> bool:
    return pod["labels"].get(NODE_SCOPE[0]) == NODE_SCOPE[1]


def by_rank(refs: Iterable[Reference], act: Callable[[Reference], object], last_first: bool = False) -> None:
    """`act` of them by several threads, those that others need before those others; or the other way round."""
    ranks: dict[int, list[Reference]] = {}
    for ref in refs:
        ranks.setdefault(ref.rank, []).append(ref)
    with ThreadPoolExecutor(THREADS) as pool:
        for rank in sorted(ranks, reverse=last_first):
            list(pool.map(act, ranks[rank]))


def delete(api: Api, refs: Iterable[Reference]) -> None:
    """Delete and wait until they are gone: the last kinds in `objects.ORDER` first. MeasuringError at the deadline."""

    def end(ref: Reference) -> None:
        place = ref.api_version, ref.kind, ref.name, ref.namespace or None
        if api.delete(*place):
            return
        if ref.kind in HELD and (found := api.get(*place)) is not None and found["metadata"].pop("finalizers", None):
            # Somebody else writes to it, or it has just gone: the wait for its end tells.
            with suppress(ConflictError, RefusedError):
                api.replace(found)
        _await_end(api, ref)

    by_rank(refs, end, last_first=True)


def _await_end(api: Api, ref: Reference) -> None:
    deadline = time.monotonic() + GONE_S
    while (found := api.get(ref.api_version, ref.kind, ref.name, ref.namespace or None)) is not None:
        if time.monotonic() > deadline:
            finalizers = ", ".join(found["metadata"].get("finalizers") or ["none"])
            why = (
                f"does not end in {GONE_S:.0f} s; finalizers: {finalizers}",
                "whoever set the finalizer must act on it",
            )
            raise MeasuringError(f"{api.place}: {ref}", *(stuck(found) if ref.kind == "Namespace" else why))
        time.sleep(POLL_S)


def stuck(namespace: Mapping[str, Any]) -> tuple[str, str]:
    """(fault, remedy) of a namespace that is being deleted and does not end."""
    conditions = namespace.get("status", {}).get("conditions") or ()
    why = [item["message"] for item in conditions if item.get("status") == "True" and item.get("message")]
    fault = "is being deleted and does not end" + (f": {'; '.join(why)}" if why else "")
    return fault, f"`kubectl describe namespace {namespace['metadata']['name']}` says more"


class Inventory:
    """Whoever calls holds the lease. LostError where the list is another run's: another lab has begun there.

    Each side of a pair has a list of its own, so that what one brings up prunes nothing of the other's.
    """

    def __init__(self, api: Api, run: str, side: Side = "left") -> None:
        self._api, self._run = api, run
        self._name = INVENTORY if side == "left" else f"{INVENTORY}-{side}"
        self._ending: list[str] = []
        """Namespaces with pods that were asked to end."""

    def apply(self, asked: Iterable[Object]) -> None:
        """These and nothing else: what is listed and not among them goes, workloads of before in any case
        (`await_pods` says when their pods are gone).

        The old ones go first, so that no new pod sees them. UsageError before anything is written when a namespace or a
        cluster-scoped object is somebody else's; RefusedError with the server's words when it will not have one.
        """
        wanted = {Reference.of(obj): obj for obj in asked}
        rendered = {ref.name: obj for ref, obj in wanted.items() if ref.kind == "Namespace"}
        places = {ref.namespace for ref in wanted if ref.namespace} | set(rendered)
        namespaces = {_namespace(place) for place in places}
        for ref in (*wanted, *namespaces):
            if ref.namespace:
                continue
            if (ref.api_version, ref.kind) not in CLUSTER_KINDS:
                fault = "has no namespace, and is no kind that the lab would find again to remove it"
                raise UsageError(f"{self._api.place}: {ref}", fault, "write its metadata.namespace, or leave it out")
            if (found := self._api.get(ref.api_version, ref.kind, ref.name)) is not None:
                refuse_foreign(self._api, found)
        claim_namespace(self._api, CLIENT_NAMESPACE, self._run)
        self.end_workloads()
        listed = self._read()
        made = {made for obj in wanted.values() if (made := objects.made(obj)) is not None}
        planned = set(wanted) | made | namespaces - {_namespace(CLIENT_NAMESPACE)}
        self._write(listed | planned)
        for place in sorted(places):
            claim_namespace(self._api, place, self._run, rendered.get(place))
        self._delete(listed - planned)
        by_rank(wanted, lambda ref: self._apply(ref, wanted[ref], again=ref in listed))
        self._write(planned)

    def add(self, refs: Collection[Reference]) -> None:
        """List what is about to be applied beside the rest. UsageError for a kind without a namespace, or another's namespace."""
        listed = self._read()
        for ref in refs:
            if _namespace(ref.namespace) not in listed:
                fault = "is in no namespace that the variant has" if ref.namespace else "has no namespace"
                raise UsageError(f"{self._api.place}: {ref}", fault, "leave its metadata.namespace out")
        self._write(listed | set(refs))

    def end_workloads(self) -> None:
        """Deployments, DaemonSets and so on: their pods take seconds to end, in which what comes next can come up (`await_pods`)."""
        listed = self._read()
        if workloads := {ref for ref in listed if ref.kind in WORKLOADS}:
            if ours := self._ours(workloads):
                self._ending = end_all(self._api, ours)
            self._write(listed - workloads)

    def await_pods(self, but: str = "") -> None:
        """Until those are gone that were asked to end, not those that carry the stamp `but`. MeasuringError when they do not go."""
        if self._ending:
            await_pods(self._api, self._ending, but)
            self._ending = []

    def remove(self) -> None:
        """Everything that is listed, namespaces last; then the list. MeasuringError when something does not end."""
        self.end_workloads()
        self.await_pods()
        if self._api.get("v1", "ConfigMap", self._name, CLIENT_NAMESPACE) is not None:
            self._delete(self._read())
            self._api.delete("v1", "ConfigMap", self._name, CLIENT_NAMESPACE)

    def take_over(self) -> None:
        """`remove` what a run has left that ended in the middle. Only right after the lease was acquired."""
        if self._api.get("v1", "ConfigMap", self._name, CLIENT_NAMESPACE) is not None:
            self._write(self._read(anybodys=True))
            self.remove()

    def _apply(self, ref: Reference, obj: Object, again: bool) -> None:
        """`again`: it may be there from the last variant, with fields that cannot be changed. A headless Service stays so without a word
        where nobody asks for it any more: the API server fills in what was there (k8s.io/kubernetes, pkg/registry/core/service:
        patchAllocatedValues).
        """
        try:
            as_asked = headless(self._api.apply(obj)) == headless(obj)
        except RefusedError as error:
            if not (again and any(word in error.fault for word in ("immutable", "cannot change", "may not change"))):
                raise
            as_asked = False
        if not as_asked:
            delete(self._api, [ref])
            self._api.apply(obj)

    def _ours(self, refs: Iterable[Reference]) -> set[Reference]:
        """Less those that somebody else has made in the lab's absence: they, or their namespaces, lack the label."""
        holders = {ref: _namespace(ref.namespace) if ref.namespace else ref for ref in refs}
        ours = {
            holder
            for holder in set(holders.values())
            if is_ours(self._api.get(holder.api_version, holder.kind, holder.name))
        }
        return {ref for ref, holder in holders.items() if holder in ours}

    def _delete(self, refs: Iterable[Reference]) -> None:
        """What is in a namespace that goes, goes with it."""
        ours = self._ours(refs)
        doomed = {ref.name for ref in ours if ref.kind == "Namespace"}
        delete(self._api, [ref for ref in ours if ref.namespace not in doomed])

    def _read(self, anybodys: bool = False) -> set[Reference]:
        data = (self._api.get("v1", "ConfigMap", self._name, CLIENT_NAMESPACE) or {}).get("data") or {}
        if data and data.get("run") != self._run and not anybodys:
            raise LostError(
                f"{self._api.place}: ConfigMap {self._name}",
                f"is of the run {data.get('run', '(unknown)')}: another lab has begun there",
                "see that no other lab uses this cluster, then --resume",
            )
        lines = (line.split() for line in data.get("objects", "").splitlines())
        return {Reference(version, kind, namespace.strip("-"), name) for version, kind, namespace, name in lines}

    def _write(self, refs: Iterable[Reference]) -> None:
        metadata = {"name": self._name, "namespace": CLIENT_NAMESPACE, "labels": {RUN_LABEL: self._run}}
        lines = sorted(f"{ref.api_version} {ref.kind} {ref.namespace or '-'} {ref.name}\n" for ref in refs)
        data = {"run": self._run, "objects": "".join(lines)}
        self._api.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})


def remove_all(api: Api) -> list[str]:
    """Everything on the cluster that carries RUN_LABEL, whichever run it is from; what was removed, in words.

    Waits until it is gone: MeasuringError when it does not go. Nodes and volumes are never touched.
    """
    said: list[str] = []

    def labelled(api_version: str, kind: str, namespace: str | None = None) -> list[Reference]:
        try:
            return [Reference.of(obj) for obj in api.list(api_version, kind, namespace, RUN_LABEL)]
        except DeniedError as error:
            where = f" in namespace {namespace}" if namespace else ""
            said.append(f"not looked for: {kind}{where}: {error.fault}")
            return []

    places = sorted(item["metadata"]["name"] for item in api.list("v1", "Namespace", labels=RUN_LABEL))
    # What may not be listed there goes with its namespace.
    workloads = [
        ref
        for place in places
        for kind in WORKLOADS
        for ref in labelled(WORKLOAD_GROUPS.get(kind, "apps/v1"), kind, place)
    ]
    if workloads:
        await_pods(api, end_all(api, workloads))
    found = [ref for api_version, kind in CLUSTER_KINDS for ref in labelled(api_version, kind)]
    why = {ref: _of_others(api, ref, places) for ref in found if ref.kind == "CustomResourceDefinition"}
    # Who uses one kind of a group watches the others, too.
    groups = {ref: ref.name.partition(".")[2] for ref in why}
    used = {groups[ref] for ref in why if why[ref]}
    kept = [ref for ref in why if groups[ref] in used]
    said += [f"kept: {ref}: {why[ref] or 'others use kinds of its group'}" for ref in kept]
    found = [ref for ref in found if ref not in kept]
    delete(api, found)
    return [str(ref) for ref in sorted(found, key=lambda ref: -ref.rank)] + said


def _of_others(api: Api, definition: Reference, places: Sequence[str]) -> str:
    """Why a kind that the lab added must stay for its objects' sake; empty if it need not."""
    spec = (api.get(definition.api_version, definition.kind, definition.name) or {}).get("spec")
    if spec is None:
        return ""
    version = next(each["name"] for each in spec["versions"] if each["storage"])
    try:
        listed = api.list(f"{spec['group']}/{version}", spec["names"]["kind"])
    except DeniedError:
        return "whether objects of others would go with it cannot be seen"
    count = sum(not is_ours(obj) and obj["metadata"].get("namespace") not in places for obj in listed)
    return f"{count} objects of others would go with it" if count else ""


def _namespace(name: str) -> Reference:
    return Reference("v1", "Namespace", "", name)


def is_ours(found: Mapping[str, Any] | None) -> bool:
    """There, and with the lab's label."""
    return found is not None and RUN_LABEL in (found["metadata"].get("labels") or {})


def claim_namespace(api: Api, name: str, run: str, rendered: Object | None = None) -> None:
    """Make it the lab's: created with RUN_LABEL if it is not there.

    UsageError when somebody else's is there; MeasuringError when one of ours does not end. A namespace that is already
    ours is left as it is.
    """
    deadline = time.monotonic() + TERMINATING_S
    made: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {RUN_LABEL: run}}}
    while True:
        found = api.get("v1", "Namespace", name)
        if found is None:
            try:
                api.create(rendered or made)
            except ConflictError:
                continue  # another lab was faster: look again
            return
        refuse_foreign(api, found)
        if "deletionTimestamp" not in found["metadata"]:
            return
        if time.monotonic() > deadline:
            raise MeasuringError(f"{api.place}: Namespace {name}", *stuck(found))
        time.sleep(0.2)


def refuse_foreign(api: Api, found: Object) -> None:
    """UsageError unless the object carries the lab's label: says whose it seems to be."""
    if is_ours(found):
        return
    metadata = found["metadata"]
    managers = [field.get("manager", "") for field in metadata.get("managedFields") or ()]
    whose = f", made by {managers[0]}" if managers else ""
    since = metadata.get("creationTimestamp", "an unknown time")
    fault = f"is not the lab's: there since {since}{whose}, without the label {RUN_LABEL}"
    remedy = "use another cluster, or remove it if it is nobody's; the lab writes only to what it made"
    raise UsageError(f"{api.place}: {found['kind']} {metadata['name']}", fault, remedy)


def ensure_kinds(api: Api, run: str) -> list[str]:
    """What variants need that Kubernetes does not have: added to a cluster that lacks them, left alone on one that has them.

    Which had to be added; then they carry its label. What the lab added before is brought up to date: an older one may not know a field that a
    disturbance sets.
    """
    added: list[str] = []
    for each in flat(read_yaml(file, str(file)) for file in KINDS):
        wanted: Object = {**each, "metadata": {**each["metadata"], "labels": {RUN_LABEL: run}}}
        found = api.get(wanted["apiVersion"], wanted["kind"], wanted["metadata"]["name"])
        if found is None:
            with suppress(ConflictError):  # somebody added it just now
                api.create(wanted)
                added.append(wanted["spec"]["names"]["kind"])
        elif is_ours(found):
            wanted["metadata"]["labels"] = {RUN_LABEL: found["metadata"]["labels"][RUN_LABEL]}
            api.apply(wanted)
    return added
