"""The wait until Kubernetes objects that were applied are ready, and the explanation of why an object is not ready.

The explanation comes from the pods, the states of their containers, their events and the last lines of their logs. A fault that
waiting cannot correct (such as an image that does not exist) ends the wait at once. A fault that may pass (such as no room on
the nodes, or a Route that a router refuses) ends the wait after PATIENCE_S seconds. An object without such a fault is waited
for until the deadline.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lab.base.errors import ImageError, MeasuringError, NodeRefusesError, StartError
from lab.targets.cluster.api import RUN_LABEL, Api, Object
from lab.targets.cluster.objects import Reference, find_workload
from lab.targets.cluster.pods import LOG, conditions, describe_exit, explain, join_reason, ready

POLL_S = 0.2
ROUTES_POLL_S = 0.5
PATIENCE_S = 10.0
MAKING_S = 20.0
"""The seconds in which a controller that is up must make a workload: 1 to 3 s are usual."""
CRASHES = 3
NODE_REFUSES = "refused by the node"
"""The last words of manifests/clusters/node-tuning/tune.sh about a setting that the node does not take."""
IMAGES = "`just up kind` brings the pinned images to kind; elsewhere the nodes must be able to pull them, or LAB_IMAGES=<file> names others"
RETRIED = {"CrashLoopBackOff", "RunContainerError"}
"""The reasons after which the kubelet starts a container again.

The container may only have started before a service that it needs, or the container runtime was too busy to start it.
"""
FATAL: Mapping[str, str] = {
    "ErrImagePull": IMAGES,
    "ImagePullBackOff": IMAGES,
    "InvalidImageName": IMAGES,
    "ErrImageNeverPull": IMAGES,
    "ImageInspectError": IMAGES,
    "SysctlForbidden": "the kubelet must allow it: allowedUnsafeSysctls (lab/targets/provision/kind.yaml has it)",
    "CreateContainerConfigError": "correct what it names in the manifests",
    "CreateContainerError": "correct what it names in the manifests",
    "RunContainerError": "correct what it names in the manifests; has the image that program?",
}
"""The remedy for each reason of a waiting container, or of a failed pod."""
GONE = ("is gone", "who removed it?")


@dataclass(frozen=True, slots=True)
class Fault:
    """The reason why an object on a cluster, such as a pod or Deployment, is not ready.

    Attributes:
        place: The name of the object.
        words: What is wrong, in words.
        remedy: How to correct it; may be empty.
        final: Whether it is useless to wait longer, once the fault has lasted for `patience_s` seconds.
        patience_s: The seconds for which a final fault must have lasted.
        refused: Whether the fault is that a program refuses its configuration: it ends at every start, or it does not
            make the objects that it is configured to make.
        about: The object in its last state; None if it does not exist, and for a Route.
        image: The image of the container that has the fault; empty if the fault is not a container's.

    """

    place: str
    words: str
    remedy: str = ""
    final: bool = False
    patience_s: float = 0.0
    refused: bool = False
    about: Mapping[str, Any] | None = None
    image: str = ""


def wait_until_ready(api: Api, objects: Iterable[Mapping[str, Any]], deadline: float) -> None:
    """Wait until every Deployment, DaemonSet, StatefulSet and Pod is ready, and every Route is admitted by a router.

    Workloads (such as Deployments) that a controller makes from one of the objects are waited for, too.

    Args:
        api: The cluster.
        objects: The objects that were applied.
        deadline: The last moment, by time.monotonic().

    Raises:
        MeasuringError: An object is not ready in time, or will never be. The message describes its state; the remedy
            contains its events and log.

    """
    applied = list(objects)
    refs = [Reference.of(obj) for obj in applied]
    expected = {ref for obj in applied if (ref := find_workload(obj)) is not None} - set(refs)
    _wait_without_faults(api, deadline, POLL_S, lambda: _find_workload_faults(api, [*refs, *expected], expected))
    _wait_without_faults(api, deadline, ROUTES_POLL_S, lambda: _find_route_faults(api, refs))


def _wait_without_faults(api: Api, deadline: float, poll_s: float, look: Callable[[], list[Fault]]) -> None:
    """Call a function every `poll_s` seconds until it returns an empty list of faults.

    Args:
        api: The cluster.
        deadline: The last moment, by time.monotonic().
        poll_s: The seconds between two calls.
        look: The function that returns the present faults.

    Raises:
        MeasuringError: Waiting does not help against a fault (it is final), or the deadline has passed.

    """
    since: dict[tuple[str, str], float] = {}
    while faults := look():
        now = time.monotonic()
        since = {(fault.place, fault.words): since.get((fault.place, fault.words), now) for fault in faults}
        for fault in faults:
            if fault.final and now - since[fault.place, fault.words] >= fault.patience_s:
                raise _build_error(api, fault, "")
        if now > deadline:
            # A pod explains more than the Deployment that waits for it.
            faults.sort(key=lambda fault: (not fault.final, fault.about is None or fault.about["kind"] != "Pod"))
            raise _build_error(api, faults[0], "not in time: ")
        time.sleep(max(0.0, min(poll_s, deadline - now)))


def _build_error(api: Api, fault: Fault, prefix: str) -> MeasuringError:
    """Return the error to raise for a fault, with the events and the log of the faulty object.

    Args:
        api: The cluster.
        fault: The fault.
        prefix: The beginning of the error's message.

    Returns:
        An ImageError if an image cannot be pulled. A StartError if a program refuses its configuration. A
        NodeRefusesError if the node refuses a setting. Otherwise a MeasuringError.

    """
    explanation = explain(api, fault.about) if fault.about else []
    log = [line for line in explanation if line.startswith(LOG)]
    place, message = f"{api.place}: {fault.place}", prefix + fault.words
    remedy = "\n  ".join(filter(None, (fault.remedy, *explanation))) or "nothing else is known of it"
    if fault.remedy == IMAGES:
        return ImageError(fault.image, place, message, remedy)
    if not fault.refused:
        return MeasuringError(place, message, remedy)
    if any(line.endswith(NODE_REFUSES) for line in log):
        return NodeRefusesError(place, "; ".join(line.removeprefix(LOG) for line in log), remedy)
    return StartError(place, "; ".join([message, *log[-1:]]), remedy)


def _find_workload_faults(api: Api, refs: Sequence[Reference], expected: Collection[Reference]) -> list[Fault]:
    """Return the faults of workloads (such as Deployments) that are not ready, and of pods in the same namespaces.

    The pods are all pods of the lab in these namespaces, because a pod's fault often explains that of its workload.

    Args:
        api: The cluster.
        refs: The references to all objects, including the expected workloads.
        expected: The references to the workloads that a controller is expected to make.

    """
    workloads = [ref for ref in refs if ref.kind in ("Deployment", "DaemonSet", "StatefulSet", "Pod")]
    objs = {ref: api.get(ref.api_version, ref.kind, ref.name, ref.namespace) for ref in workloads}
    unmade = [ref for ref in expected if objs[ref] is None]
    faults = {
        ref: fault for ref, obj in objs.items() if ref not in unmade and (fault := _find_fault(ref, obj)) is not None
    }
    faults |= {ref: _explain_unmade(api, ref, up=not faults) for ref in unmade}
    namespaces = sorted({ref.namespace for ref in faults})
    pods = [pod for namespace in namespaces for pod in api.list("v1", "Pod", namespace, RUN_LABEL)]
    return [*faults.values(), *filter(None, map(find_pod_fault, pods))]


def _format_place(ref: Reference) -> str:
    return f"{ref.kind.lower()} {ref.namespace}/{ref.name}"


def _explain_unmade(api: Api, ref: Reference, up: bool) -> Fault:
    """Return the fault of a workload (such as a Deployment) that a controller should have made and has not.

    The fault's text contains the failing conditions of the Gateways in the workload's namespace.

    Args:
        api: The cluster.
        ref: The workload.
        up: Whether everything else, including the controller, is ready. Then the fault is that the controller refuses
            its configuration; otherwise the controller may just not be up yet.

    """
    gateways = api.list("gateway.networking.k8s.io/v1", "Gateway", ref.namespace)
    failing = [
        condition
        for gateway in gateways
        for condition in conditions(gateway).values()
        if condition.get("status") == "False"
    ]
    reasons = "".join(f"; {join_reason(condition.get('reason'), condition.get('message'))}" for condition in failing)
    remedy = "its controller's log says why (`kubectl logs` of the Deployment labelled lab/scope=controller)"
    message = f"its controller {'has not made it' if up else 'is not up'}{reasons}"  # a new text restarts the patience
    return Fault(_format_place(ref), message, remedy, final=up, patience_s=MAKING_S, refused=True)


def _find_route_faults(api: Api, refs: Sequence[Reference]) -> list[Fault]:
    """Return the fault of the first Route that no router has admitted, as a list; empty if all Routes are admitted.

    If the fault may still pass, its text also contains the number of Routes that are not admitted.
    """
    routes = [ref for ref in refs if ref.kind == "Route"]
    sources = sorted({(ref.api_version, ref.namespace) for ref in routes})
    listed = [obj for version, namespace in sources for obj in api.list(version, "Route", namespace, RUN_LABEL)]
    by_ref = {Reference.of(obj): obj for obj in listed}
    faults: list[Fault] = []
    for ref in routes:
        place, ingresses = _format_place(ref), by_ref.get(ref, {}).get("status", {}).get("ingress") or ()
        conditions = (condition for ingress in ingresses for condition in ingress.get("conditions") or ())
        admitted = [condition for condition in conditions if condition.get("type") == "Admitted"]
        if ref not in by_ref:
            faults.append(Fault(place, *GONE, final=True))
        elif not admitted:
            message = "not admitted yet: no router has said anything"
            faults.append(Fault(place, message, "the router's log says what it does"))
        elif not any(condition["status"] == "True" for condition in admitted):
            message = f"not admitted: {join_reason(admitted[0].get('reason'), admitted[0].get('message'))}"
            faults.append(Fault(place, message, "correct what it names", final=True, patience_s=PATIENCE_S))
    if len(faults) > 1 and not faults[0].final:
        message = f"{faults[0].words} ({len(faults)} of {len(routes)} Routes are not)"
        return [replace(faults[0], words=message)]
    return faults[:1]


def _find_fault(ref: Reference, obj: Object | None) -> Fault | None:
    """Return the fault of a workload (such as a Deployment) that is not ready; None if it is ready.

    Args:
        ref: The identity of the workload.
        obj: The workload in its present state; None if it does not exist.

    """
    if obj is None:
        return Fault(_format_place(ref), *GONE, final=True)
    if ref.kind == "Pod":
        return find_pod_fault(obj)
    blank = Fault(_format_place(ref), "", about=obj)
    status, failure = obj.get("status", {}), conditions(obj).get("ReplicaFailure", {})
    if failure.get("status") == "True":
        message = f"{failure.get('reason', 'ReplicaFailure')}: {failure.get('message', '')}"
        return replace(blank, words=message, remedy="correct what it names", final=True, patience_s=PATIENCE_S)
    if status.get("observedGeneration", 0) < obj["metadata"].get("generation", 0):
        message = "its controller has not looked at it yet"
        return replace(blank, words=message, remedy="is the controller manager up?")
    if obj["kind"] == "DaemonSet":
        replicas = status.get("desiredNumberScheduled", 0)
        keys = {"made": "updatedNumberScheduled", "ready": "numberReady"}
        if replicas == 0:
            return replace(blank, words="no node is its", remedy="see its nodeSelector and the nodes' labels")
    else:
        replicas = obj["spec"].get("replicas", 1)
        keys = {"made": "updatedReplicas", "ready": "readyReplicas", "there": "replicas"}
    counts = {name: status.get(key, 0) for name, key in keys.items()}
    if all(count == replicas for count in counts.values()):
        return None
    return replace(blank, words=f"{replicas} wanted, " + ", ".join(f"{count} {name}" for name, count in counts.items()))


def find_pod_fault(pod: Object) -> Fault | None:
    """Return the fault of a pod that is not ready.

    The result is None if the pod is ready, is being deleted, or has ended successfully.
    """
    metadata, status = pod["metadata"], pod.get("status", {})
    if "deletionTimestamp" in metadata or ready(pod) or status.get("phase") == "Succeeded":
        return None
    blank = Fault(f"pod {metadata['namespace']}/{metadata['name']}", "", about=pod)
    if status.get("phase") == "Failed":
        reason = status.get("reason") or "Failed"
        remedy = FATAL.get(reason, "see its events")
        return replace(blank, words=join_reason(reason, status.get("message")), remedy=remedy, final=True)
    scheduled = conditions(pod).get("PodScheduled", {})
    if scheduled.get("status") == "False":
        message = f"not scheduled: {join_reason(scheduled.get('reason', ''), scheduled.get('message'))}"
        remedy = "a node with room, or smaller requests"
        return replace(blank, words=message, remedy=remedy, final=True, patience_s=PATIENCE_S)
    faults = [
        fault
        for key, noun in (("initContainerStatuses", "init container"), ("containerStatuses", "container"))
        for container in status.get(key) or ()
        if (fault := _find_container_fault(blank, noun, container)) is not None
    ]
    # The first that is final; else the first: an init container holds up all after it.
    return min(faults, key=lambda fault: not fault.final, default=replace(blank, words="not started"))


def _find_container_fault(blank: Fault, noun: str, container: Mapping[str, Any]) -> Fault | None:
    """Return the fault of a container that is not ready.

    The result is None if the container is ready, or is an init container that has ended successfully.

    Args:
        blank: A fault of the container's pod without a text; the result is a copy with the text filled in.
        noun: `container` or `init container`.
        container: The status of the container, as the API server reports it.

    """
    state, last = container.get("state") or {}, container.get("lastState") or {}
    waiting, ended, before = state.get("waiting"), state.get("terminated"), ""
    if container.get("ready") or (noun == "init container" and ended is not None and ended.get("exitCode") == 0):
        return None
    if last.get("terminated"):
        before = f" (before: {describe_exit(last['terminated'] | {'message': ''})})"
    remedy, final, crashed = "", False, False
    if waiting is not None:
        reason = waiting.get("reason", "waiting")
        often = container.get("restartCount", 0) + 1 >= CRASHES
        crashed = often and reason == "CrashLoopBackOff"
        message = f"{join_reason(reason, waiting.get('message'))}{before}"
        final = often if reason in RETRIED else reason in FATAL
        remedy = FATAL.get(reason, "its log says why" if crashed else "")
    elif ended is not None:
        message = describe_exit(ended)
    elif noun == "init container":
        message = f"running{before}"
    else:
        message, remedy = f"running, not ready{before}", "its readiness or startup probe does not succeed"
    text = f"not ready: {noun} {container['name']}: {message}"
    return replace(blank, words=text, remedy=remedy, final=final, refused=crashed, image=container.get("image", ""))
