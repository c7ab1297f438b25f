"""The inventory: the list of the objects that the lab has created on a cluster, and the removal of these objects.

By the list, the objects of a variant can be removed even after a crash. A removal requests the deletions, and then waits for
the end of the objects with a time limit.

The list is a ConfigMap in the namespace CLIENT_NAMESPACE. Each line is one object: apiVersion, kind, namespace (`-` for none)
and name:

    apps/v1 Deployment ingress-lab proxy
    rbac.authorization.k8s.io/v1 ClusterRole - ingress-lab-proxy

An object is added to the list before it is applied, and is removed from the list after it is gone. Two actions are refused:

- To change or delete an object without a namespace, or anything in a namespace, if the label RUN_LABEL is missing there. The
  label shows that the lab has made the object or the namespace.
- To use a list that another run has written. Only `take_over` may do this.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import groupby
from typing import Any

from lab.base.errors import LostError, MeasuringError, UsageError, refuse_if
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
from lab.targets.cluster.objects import CLUSTERS, WORKLOADS, Object, Reference, flatten, is_headless

POLL_S = 0.1
THREADS = 8
GRACE_S = 1
"""The grace period of proxies and backends: nobody is served any more (the published router has 3600 s)."""
PODS_S, REVERTING_S = 30.0, 60.0
"""The seconds to wait until pods are gone.

The second value applies if node-tuning pods are among them, because their preStop hook restores the node's settings.
"""
GONE_S = 120.0
ORPHANING = ("Deployment", "DaemonSet", "StatefulSet", "ReplicaSet")
FINALIZED_KINDS = ("GatewayClass",)
NODE_SCOPE = ("lab/scope", "node")
CONTROLLER_SCOPE = ("lab/scope", "controller")
"""The label of a Deployment and its pods that make other workloads."""
TERMINATING_S = 90.0
"""The seconds to wait for a namespace of the lab's that is still being deleted; 6 to 12 s are usual."""
KINDS = tuple(CLUSTERS / name for name in DEFINITIONS)
"""The files with the kinds that variants on a cluster need and Kubernetes does not have."""
INVENTORY = "ingress-lab-inventory"
CLUSTER_KINDS = (
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
    ("gateway.networking.k8s.io/v1", "GatewayClass"),
    ("networking.k8s.io/v1", "IngressClass"),
    ("rbac.authorization.k8s.io/v1", "ClusterRole"),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
    ("v1", "Namespace"),
)
"""The kinds without a namespace that the lab may make, and therefore looks for when everything is removed."""
WORKLOAD_GROUPS = {"Pod": "v1", "Job": "batch/v1", "CronJob": "batch/v1"}


def end_workloads(api: Api, workloads: Collection[Reference]) -> list[str]:
    """Delete workloads (such as Deployments) and their pods, without waiting for the end of most pods.

    A workload is deleted first without its pods, and then each pod with a grace period of 1 s. If the garbage collector
    deleted the pods, their own grace period would apply. A kubelet that has begun to wait for 300 s does not react to a
    second deletion with 1 s (tried with Kubernetes 1.34).

    Two kinds of pods are waited for. Node-tuning pods restore a node's settings at their end, which must not collide
    with the settings of the next ones. Controllers that make workloads end first of all, because they would make the
    workloads again.

    Args:
        api: The cluster.
        workloads: The workloads.

    Returns:
        The namespaces of the workloads, in which `await_pods` can wait for the end of the pods.

    Raises:
        MeasuringError: Something that is waited for does not end in time.

    """
    namespaces = sorted({ref.namespace for ref in workloads})
    controller_labels = f"{RUN_LABEL},{'='.join(CONTROLLER_SCOPE)}"
    controllers = {
        Reference.of(obj)
        for namespace in namespaces
        for obj in api.list("apps/v1", "Deployment", namespace, controller_labels)
    }
    if makers := controllers & set(workloads):
        _delete_workloads(api, makers, namespaces, controller_labels)
        await_pods(api, namespaces, labels=controller_labels)
    _delete_workloads(api, set(workloads) - makers, namespaces, RUN_LABEL)
    if any(map(_reverts_node, _end_pods(api, namespaces))):
        await_pods(api, namespaces)
    for ref in workloads:
        _await_end(api, ref)
    return namespaces


def _delete_workloads(api: Api, workloads: Collection[Reference], namespaces: Collection[str], labels: str) -> None:
    """Delete workloads but not their pods, and delete the ReplicaSets and ControllerRevisions of the workloads.

    Args:
        api: The cluster.
        workloads: The workloads to delete. A workload that is itself a Pod is deleted, too.
        namespaces: The namespaces in which ReplicaSets and ControllerRevisions are deleted.
        labels: The label selector of these ReplicaSets and ControllerRevisions.

    """
    for ref in sorted(workloads, key=str):
        grace_s = GRACE_S if ref.kind == "Pod" else None
        api.delete(ref.api_version, ref.kind, ref.name, ref.namespace, grace_s, orphan=ref.kind in ORPHANING)
    for namespace in namespaces:
        api.delete_all("apps/v1", "ReplicaSet", namespace, labels, orphan=True)
        api.delete_all("apps/v1", "ControllerRevision", namespace, labels)


def await_pods(api: Api, namespaces: Collection[str], spared_stamp: str = "", labels: str = RUN_LABEL) -> None:
    """Delete the lab's pods in some namespaces, except the generator's pod, and wait until they are gone.

    Args:
        api: The cluster.
        namespaces: The namespaces to look in.
        spared_stamp: Pods whose annotation `lab/brought-up` has this value stay: they belong to a new start of a
            system. Empty means that no pods stay.
        labels: The label selector of the pods.

    Raises:
        MeasuringError: Pods are still there after PODS_S seconds, or REVERTING_S if node-tuning pods are among them.

    """
    start_s = time.monotonic()
    while pods := _end_pods(api, namespaces, spared_stamp, labels):
        limit_s = REVERTING_S if any(map(_reverts_node, pods)) else PODS_S
        if time.monotonic() - start_s > limit_s:
            left = ", ".join(f"{pod['namespace']}/{pod['name']}" for pod in pods[:5])
            fault = f"still there after {limit_s:.0f} s: {left}"
            raise MeasuringError(f"{api.place}: pods", fault, "`kubectl describe pod` says why; is its node up?")
        time.sleep(POLL_S)


def _end_pods(
    api: Api, namespaces: Collection[str], spared_stamp: str = "", labels: str = RUN_LABEL
) -> list[Mapping[str, Any]]:
    """Request the deletion of pods without waiting, and return the `metadata` of those that still exist.

    The arguments are those of `await_pods`.
    """
    selector = f"{labels},{ROLE_LABEL}!=generator"
    listed = [pod["metadata"] for namespace in namespaces for pod in api.list("v1", "Pod", namespace, selector)]
    pods = [pod for pod in listed if not spared_stamp or (pod.get("annotations") or {}).get(BROUGHT_UP) != spared_stamp]
    for pod in pods:
        if "deletionTimestamp" not in pod:
            api.delete("v1", "Pod", pod["name"], pod["namespace"], None if _reverts_node(pod) else GRACE_S)
    return pods


def _reverts_node(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod is a node-tuning pod, which restores its node's settings when it ends."""
    return pod["labels"].get(NODE_SCOPE[0]) == NODE_SCOPE[1]


def act_by_rank(refs: Iterable[Reference], act: Callable[[Reference], object], last_first: bool = False) -> None:
    """Call a function for every reference, in the order in which objects of these kinds are applied to a cluster.

    All references of one rank (such as all Namespaces) are handled before the next rank begins. Those of the same rank
    are handled at the same time by several threads.

    Args:
        refs: The references to the objects.
        act: The function.
        last_first: Whether to go through the ranks in reverse order, as for a removal.

    """
    ordered = sorted(refs, key=lambda ref: ref.rank, reverse=last_first)
    with ThreadPoolExecutor(THREADS) as pool:
        for _, of_one_rank in groupby(ordered, lambda ref: ref.rank):
            list(pool.map(act, of_one_rank))


def delete_objects(api: Api, refs: Iterable[Reference]) -> None:
    """Delete objects and wait until they are gone, in the reverse of the order in which they are applied.

    Raises:
        MeasuringError: An object is still there after GONE_S seconds.

    """

    def end(ref: Reference) -> None:
        identity = ref.api_version, ref.kind, ref.name, ref.namespace or None
        if api.delete(*identity):
            return
        if (
            ref.kind in FINALIZED_KINDS
            and (obj := api.get(*identity)) is not None
            and obj["metadata"].pop("finalizers", None)
        ):
            # Another client has changed the object, or it is gone already: the wait below shows which.
            with suppress(ConflictError, RefusedError):
                api.replace(obj)
        _await_end(api, ref)

    act_by_rank(refs, end, last_first=True)


def _await_end(api: Api, ref: Reference) -> None:
    deadline = time.monotonic() + GONE_S
    while (obj := api.get(ref.api_version, ref.kind, ref.name, ref.namespace or None)) is not None:
        if time.monotonic() > deadline:
            finalizers = ", ".join(obj["metadata"].get("finalizers") or ["none"])
            reason = (
                f"does not end in {GONE_S:.0f} s; finalizers: {finalizers}",
                "whoever set the finalizer must act on it",
            )
            raise MeasuringError(
                f"{api.place}: {ref}", *(describe_stuck_namespace(obj) if ref.kind == "Namespace" else reason)
            )
        time.sleep(POLL_S)


def describe_stuck_namespace(namespace: Mapping[str, Any]) -> tuple[str, str]:
    """Return the texts (fault, remedy) of an error about a namespace that is being deleted and does not end.

    The fault contains the reasons in the namespace's status; the remedy names a command that shows more.
    """
    conditions = namespace.get("status", {}).get("conditions") or ()
    reasons = [item["message"] for item in conditions if item.get("status") == "True" and item.get("message")]
    fault = "is being deleted and does not end" + (f": {'; '.join(reasons)}" if reasons else "")
    return fault, f"`kubectl describe namespace {namespace['metadata']['name']}` says more"


class Inventory:
    """The list of the objects that one run has created on a cluster, stored in a ConfigMap of the cluster.

    With the list, the next run can remove what a crashed run has left. Each side of a pair (two variants that are up at
    once) has a separate list, so that starting one side removes nothing of the other.

    The caller must hold the cluster's lease, which keeps other processes of the lab away. If such a process has begun a
    run nevertheless, the list belongs to that run. Then all methods that read the list, except `take_over`, raise
    LostError.
    """

    def __init__(self, api: Api, run: str, side: Side = "left") -> None:
        self._api, self._run = api, run
        self._name = INVENTORY if side == "left" else f"{INVENTORY}-{side}"
        self._ending: list[str] = []
        """The namespaces with pods whose end has been requested."""

    def apply(self, objs: Iterable[Object]) -> None:
        """Replace the listed objects on the cluster by the given ones.

        Listed objects that are not among the given ones are deleted, and all listed workloads (such as Deployments) in
        any case. The deletion comes first, so that no new pod sees the old objects. Then the given objects are
        applied. The old workloads' pods may still be ending: `await_pods` waits for their end.

        Raises:
            UsageError: A namespace, or an object without a namespace, is not the lab's. Then nothing is changed.
            RefusedError: The server refuses one of the objects.

        """
        new = {Reference.of(obj): obj for obj in objs}
        rendered = {ref.name: obj for ref, obj in new.items() if ref.kind == "Namespace"}
        names = {ref.namespace for ref in new if ref.namespace} | set(rendered)
        namespaces = {_namespace_ref(name) for name in names}
        for ref in (*new, *namespaces):
            if ref.namespace:
                continue
            refuse_if(
                (ref.api_version, ref.kind) not in CLUSTER_KINDS,
                f"{self._api.place}: {ref}",
                "has no namespace, and is no kind that the lab would find again to remove it",
                "write its metadata.namespace, or leave it out",
            )
            if (existing := self._api.get(ref.api_version, ref.kind, ref.name)) is not None:
                refuse_foreign(self._api, existing)
        claim_namespace(self._api, CLIENT_NAMESPACE, self._run)
        self.end_workloads()
        listed = self._read()
        workload = {workload for obj in new.values() if (workload := objects.find_workload(obj)) is not None}
        planned = set(new) | workload | namespaces - {_namespace_ref(CLIENT_NAMESPACE)}
        self._write(listed | planned)
        for name in sorted(names):
            claim_namespace(self._api, name, self._run, rendered.get(name))
        self._delete(listed - planned)
        act_by_rank(new, lambda ref: self._apply(ref, new[ref], again=ref in listed))
        self._write(planned)

    def add(self, refs: Collection[Reference]) -> None:
        """Add objects to the list; call it before the objects themselves are applied to the cluster.

        Args:
            refs: The references (kind, namespace and name) of the objects.

        Raises:
            UsageError: An object has no namespace, or one that is not a namespace of the measured variant.

        """
        listed = self._read()
        for ref in refs:
            refuse_if(
                _namespace_ref(ref.namespace) not in listed,
                f"{self._api.place}: {ref}",
                "is in no namespace that the variant has" if ref.namespace else "has no namespace",
                "leave its metadata.namespace out",
            )
        self._write(listed | set(refs))

    def end_workloads(self) -> None:
        """Delete the listed workloads (such as Deployments) and their pods, without waiting for the end of all pods.

        Pods need seconds to end. In this time the next variant can come up; later `await_pods` waits for their end.
        """
        listed = self._read()
        if workloads := {ref for ref in listed if ref.kind in WORKLOADS}:
            if ours := self._select_ours(workloads):
                self._ending = end_workloads(self._api, ours)
            self._write(listed - workloads)

    def await_pods(self, spared_stamp: str = "") -> None:
        """Delete the lab's remaining pods in the namespaces where `end_workloads` deleted workloads, and wait for their end.

        Pods that have come up since then are deleted, too, except those with the given stamp. If no workload was deleted,
        nothing is done.

        Args:
            spared_stamp: Pods whose annotation `lab/brought-up` has this value stay: they belong to a new start of a
                system. Empty means that no pods stay.

        Raises:
            MeasuringError: The pods do not end.

        """
        if self._ending:
            await_pods(self._api, self._ending, spared_stamp)
            self._ending = []

    def remove(self) -> None:
        """Delete all listed objects (namespaces last), wait for their end, and delete the list itself.

        Raises:
            MeasuringError: An object or a pod does not end.

        """
        self.end_workloads()
        self.await_pods()
        if self._api.get("v1", "ConfigMap", self._name, CLIENT_NAMESPACE) is not None:
            self._delete(self._read())
            self._api.delete("v1", "ConfigMap", self._name, CLIENT_NAMESPACE)

    def take_over(self) -> None:
        """Remove everything that an interrupted run has left, as its list shows; do nothing if there is no list.

        Call this only right after the lease was acquired, which shows that no other process of the lab uses the
        cluster.
        """
        if self._api.get("v1", "ConfigMap", self._name, CLIENT_NAMESPACE) is not None:
            self._write(self._read(any_run=True))
            self.remove()

    def _apply(self, ref: Reference, obj: Object, again: bool) -> None:
        """Apply one object; if the server cannot change the existing object into it, delete the existing object first.

        This also concerns a headless Service: the API server would silently keep it headless, although the new object
        has a cluster IP (k8s.io/kubernetes, pkg/registry/core/service: patchAllocatedValues).

        Args:
            ref: The object's reference.
            obj: The object.
            again: Whether the previous variant may have left an object of this name, with fields that cannot be
                changed.

        """
        try:
            as_requested = is_headless(self._api.apply(obj)) == is_headless(obj)
        except RefusedError as error:
            if not (again and any(text in error.fault for text in ("immutable", "cannot change", "may not change"))):
                raise
            as_requested = False
        if not as_requested:
            delete_objects(self._api, [ref])
            self._api.apply(obj)

    def _select_ours(self, refs: Iterable[Reference]) -> set[Reference]:
        """Return those of the references whose objects belong to the lab.

        An object in a namespace belongs to the lab if the namespace has the lab's label; an object without a
        namespace, if it has the label itself. This matters because somebody else may have created an object of a
        listed name in the meantime.
        """
        holders = {ref: _namespace_ref(ref.namespace) if ref.namespace else ref for ref in refs}
        ours = {
            holder
            for holder in set(holders.values())
            if is_labs(self._api.get(holder.api_version, holder.kind, holder.name))
        }
        return {ref for ref, holder in holders.items() if holder in ours}

    def _delete(self, refs: Iterable[Reference]) -> None:
        """Delete those of the objects that belong to the lab, and wait until they are gone.

        Objects in a namespace that is deleted are not deleted one by one, because the cluster deletes them.
        """
        ours = self._select_ours(refs)
        doomed = {ref.name for ref in ours if ref.kind == "Namespace"}
        delete_objects(self._api, [ref for ref in ours if ref.namespace not in doomed])

    def _read(self, any_run: bool = False) -> set[Reference]:
        data = (self._api.get("v1", "ConfigMap", self._name, CLIENT_NAMESPACE) or {}).get("data") or {}
        if data and data.get("run") != self._run and not any_run:
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
    """Remove everything on the cluster that has the lab's label (RUN_LABEL), of any run, and wait until it is gone.

    Some objects stay. A CustomResourceDefinition stays if other people's objects would be deleted with it. Then all
    other definitions of its API group stay, too. Objects without a namespace stay if the user may not list them. Nodes
    and volumes are never touched.

    Returns:
        A line for each removed object, then remarks about what stays.

    Raises:
        MeasuringError: Something does not end.

    """
    remarks: list[str] = []

    def list_labelled(api_version: str, kind: str, namespace: str | None = None) -> list[Object]:
        try:
            return api.list(api_version, kind, namespace, RUN_LABEL)
        except DeniedError as error:
            location = f" in namespace {namespace}" if namespace else ""
            remarks.append(f"not looked for: {kind}{location}: {error.fault}")
            return []

    namespaces = sorted(item["metadata"]["name"] for item in api.list("v1", "Namespace", labels=RUN_LABEL))
    # What may not be listed there goes with its namespace.
    workloads = [
        Reference.of(obj)
        for namespace in namespaces
        for kind in WORKLOADS
        for obj in list_labelled(WORKLOAD_GROUPS.get(kind, "apps/v1"), kind, namespace)
    ]
    if workloads:
        await_pods(api, end_workloads(api, workloads))
    labelled = [obj for api_version, kind in CLUSTER_KINDS for obj in list_labelled(api_version, kind)]
    reasons = {
        Reference.of(obj): _find_foreign_use(api, obj["spec"], namespaces)
        for obj in labelled
        if obj["kind"] == "CustomResourceDefinition"
    }
    # A program that uses one kind of a group also watches the group's other kinds.
    groups = {ref: ref.name.partition(".")[2] for ref in reasons}
    used = {groups[ref] for ref in reasons if reasons[ref]}
    spared = [ref for ref in reasons if groups[ref] in used]
    remarks += [f"kept: {ref}: {reasons[ref] or 'others use kinds of its group'}" for ref in spared]
    removed = [ref for ref in map(Reference.of, labelled) if ref not in spared]
    delete_objects(api, removed)
    return [str(ref) for ref in sorted(removed, key=lambda ref: -ref.rank)] + remarks


def _find_foreign_use(api: Api, spec: Mapping[str, Any], namespaces: Sequence[str]) -> str:
    """Return the reason why a kind that the lab has added must stay; empty if it may be removed.

    It must stay if other people have objects of this kind, or if that cannot be seen.

    Args:
        api: The cluster.
        spec: The spec of the kind's CustomResourceDefinition.
        namespaces: The lab's namespaces; objects in them are not other people's.

    """
    version = next(version["name"] for version in spec["versions"] if version["storage"])
    try:
        listed = api.list(f"{spec['group']}/{version}", spec["names"]["kind"])
    except DeniedError:
        return "whether objects of others would go with it cannot be seen"
    count = sum(not is_labs(obj) and obj["metadata"].get("namespace") not in namespaces for obj in listed)
    return f"{count} objects of others would go with it" if count else ""


def _namespace_ref(name: str) -> Reference:
    return Reference("v1", "Namespace", "", name)


def is_labs(obj: Mapping[str, Any] | None) -> bool:
    """Return whether an object was made by the lab, as its label shows; False for None (no such object)."""
    return obj is not None and RUN_LABEL in (obj["metadata"].get("labels") or {})


def claim_namespace(api: Api, name: str, run: str, rendered: Object | None = None) -> None:
    """Make sure that a namespace exists and belongs to the lab, that is, has the lab's label (RUN_LABEL).

    A namespace that has the label stays unchanged. If it is just being deleted, its end is waited for, and it is
    created again.

    Args:
        api: The cluster.
        name: The name of the namespace.
        run: The name of the run, for the label of a new namespace.
        rendered: The Namespace object to create; None means one with nothing but the label.

    Raises:
        UsageError: The namespace exists and is not the lab's.
        MeasuringError: The lab's namespace is being deleted and does not end.

    """
    deadline = time.monotonic() + TERMINATING_S
    plain: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {RUN_LABEL: run}}}
    while True:
        namespace = api.get("v1", "Namespace", name)
        if namespace is None:
            try:
                api.create(rendered or plain)
            except ConflictError:
                continue  # another lab was faster: look again
            return
        refuse_foreign(api, namespace)
        if "deletionTimestamp" not in namespace["metadata"]:
            return
        if time.monotonic() > deadline:
            raise MeasuringError(f"{api.place}: Namespace {name}", *describe_stuck_namespace(namespace))
        time.sleep(0.2)


def refuse_foreign(api: Api, obj: Object) -> None:
    """Raise UsageError if an object lacks the lab's label; the message names the program that probably made the object."""
    if is_labs(obj):
        return
    metadata = obj["metadata"]
    managers = [field.get("manager", "") for field in metadata.get("managedFields") or ()]
    maker = f", made by {managers[0]}" if managers else ""
    since = metadata.get("creationTimestamp", "an unknown time")
    fault = f"is not the lab's: there since {since}{maker}, without the label {RUN_LABEL}"
    remedy = "use another cluster, or remove it if it is nobody's; the lab writes only to what it made"
    raise UsageError(f"{api.place}: {obj['kind']} {metadata['name']}", fault, remedy)


def ensure_kinds(api: Api, run: str) -> list[str]:
    """Add the kinds (such as Route) that some variants need and the cluster lacks, and return the names of the added kinds.

    A kind that somebody else has added stays unchanged. A kind that an earlier run of the lab has added is updated,
    because an older definition may lack a field.

    Args:
        api: The cluster.
        run: The name of the run, for the label of the new definitions.

    """
    added: list[str] = []
    for definition in flatten(read_yaml(file, str(file)) for file in KINDS):
        labelled: Object = {**definition, "metadata": {**definition["metadata"], "labels": {RUN_LABEL: run}}}
        existing = api.get(labelled["apiVersion"], labelled["kind"], labelled["metadata"]["name"])
        if existing is None:
            with suppress(ConflictError):  # somebody added it just now
                api.create(labelled)
                added.append(labelled["spec"]["names"]["kind"])
        elif is_labs(existing):
            labelled["metadata"]["labels"] = {RUN_LABEL: existing["metadata"]["labels"][RUN_LABEL]}
            api.apply(labelled)
    return added
