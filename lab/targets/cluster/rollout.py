"""Is what was applied ready, and if not, why: pods, their containers' states, their events and last words.

Refuses to wait for what will not come right by itself (an image that is not there); gives what may (no room on the
nodes yet, a Route not admitted yet) PATIENCE_S.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lab.base.errors import ImageError, MeasuringError, NodeRefusesError, StartError
from lab.targets.cluster.api import RUN_LABEL, Api, Object
from lab.targets.cluster.objects import Reference, made
from lab.targets.cluster.pods import LOG, conditions, exited, lines, ready, reasoned

POLL_S = 0.2
ROUTES_POLL_S = 0.5
PATIENCE_S = 10.0
MAKING_S = 20.0
"""For a controller that is up to make a workload: 1 to 3 s are usual."""
CRASHES = 3
NODE_REFUSES = "refused by the node"
"""What manifests/clusters/node-tuning/tune.sh says at last of a setting that the node does not take."""
IMAGES = "`just up kind` brings the pinned images to kind; elsewhere the nodes must be able to pull them, or LAB_IMAGES=<file> names others"
RETRIED = {"CrashLoopBackOff", "RunContainerError"}
"""The kubelet tries again: it may only have been faster than what it needs, or the container runtime too busy to start it."""
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
"""Reason of a waiting container, or of a failed pod → remedy."""
GONE = ("is gone", "who removed it?")


@dataclass(frozen=True, slots=True)
class Fault:
    """Why something is not ready. `final`: waiting longer does not help, once it has been so for `patience_s`."""

    place: str
    words: str
    remedy: str = ""
    final: bool = False
    patience_s: float = 0.0
    refused: bool = False
    """A program does not take what it is told: it ends whenever it is started, or does not make what it is to make."""
    about: Mapping[str, Any] | None = None
    """The object as it was found; None where there is none."""
    image: str = ""
    """Of the container."""


def wait(api: Api, objects: Iterable[Mapping[str, Any]], deadline: float) -> None:
    """Until every Deployment, DaemonSet, StatefulSet and Pod is ready, those that a controller makes of an object, too, and every Route
    admitted; `deadline` of time.monotonic().

    MeasuringError that names the object, its condition and the container's state; its remedy has events and log.
    """
    wanted = list(objects)
    refs = [Reference.of(obj) for obj in wanted]
    to_come = {ref for obj in wanted if (ref := made(obj)) is not None} - set(refs)
    _wait(api, deadline, POLL_S, lambda: _workload_faults(api, [*refs, *to_come], to_come))
    _wait(api, deadline, ROUTES_POLL_S, lambda: _route_faults(api, refs))


def _wait(api: Api, deadline: float, poll_s: float, look: Callable[[], list[Fault]]) -> None:
    since: dict[tuple[str, str], float] = {}
    while faults := look():
        now = time.monotonic()
        since = {(fault.place, fault.words): since.get((fault.place, fault.words), now) for fault in faults}
        for fault in faults:
            if fault.final and now - since[fault.place, fault.words] >= fault.patience_s:
                raise _error(api, fault, "")
        if now > deadline:
            # A pod says more than the Deployment that waits for it.
            faults.sort(key=lambda fault: (not fault.final, fault.about is None or fault.about["kind"] != "Pod"))
            raise _error(api, faults[0], "not in time: ")
        time.sleep(max(0.0, min(poll_s, deadline - now)))


def _error(api: Api, fault: Fault, prefix: str) -> MeasuringError:
    """ImageError for an image that cannot be had, StartError for a program that does not take what it is told, NodeRefusesError where
    that is the node itself.
    """
    said = lines(api, fault.about) if fault.about else []
    log = [line for line in said if line.startswith(LOG)]
    place, words = f"{api.place}: {fault.place}", prefix + fault.words
    remedy = "\n  ".join(filter(None, (fault.remedy, *said))) or "nothing else is known of it"
    if fault.remedy == IMAGES:
        return ImageError(fault.image, place, words, remedy)
    if not fault.refused:
        return MeasuringError(place, words, remedy)
    if any(line.endswith(NODE_REFUSES) for line in log):
        return NodeRefusesError(place, "; ".join(line.removeprefix(LOG) for line in log), remedy)
    return StartError(place, "; ".join([words, *log[-1:]]), remedy)


def _workload_faults(api: Api, refs: Sequence[Reference], to_come: Collection[Reference]) -> list[Fault]:
    """Of the workloads, then of the pods of those that are not ready. `to_come`: those that a controller is to make."""
    workloads = [ref for ref in refs if ref.kind in ("Deployment", "DaemonSet", "StatefulSet", "Pod")]
    found = {ref: api.get(ref.api_version, ref.kind, ref.name, ref.namespace) for ref in workloads}
    unmade = [ref for ref in to_come if found[ref] is None]
    faults = {
        ref: fault for ref, obj in found.items() if ref not in unmade and (fault := _unready(ref, obj)) is not None
    }
    faults |= {ref: _unmade(api, ref, up=not faults) for ref in unmade}
    places = sorted({ref.namespace for ref in faults})
    pods = [pod for namespace in places for pod in api.list("v1", "Pod", namespace, RUN_LABEL)]
    return [*faults.values(), *filter(None, map(pod_fault, pods))]


def _place(ref: Reference) -> str:
    return f"{ref.kind.lower()} {ref.namespace}/{ref.name}"


def _unmade(api: Api, ref: Reference, up: bool) -> Fault:
    """In the words in which its Gateway's conditions, if any, tell why. `up`: its controller, and all else; then it refuses what it is told."""
    gateways = api.list("gateway.networking.k8s.io/v1", "Gateway", ref.namespace)
    failing = [one for gateway in gateways for one in conditions(gateway).values() if one.get("status") == "False"]
    said = "".join(f"; {reasoned(one.get('reason'), one.get('message'))}" for one in failing)
    remedy = "its controller's log says why (`kubectl logs` of the Deployment labelled lab/scope=controller)"
    words = f"its controller {'has not made it' if up else 'is not up'}{said}"  # other words: its patience begins then
    return Fault(_place(ref), words, remedy, final=up, patience_s=MAKING_S, refused=True)


def _route_faults(api: Api, refs: Sequence[Reference]) -> list[Fault]:
    """The first, and how many there are."""
    routes = [ref for ref in refs if ref.kind == "Route"]
    places = sorted({(ref.api_version, ref.namespace) for ref in routes})
    listed = [obj for version, namespace in places for obj in api.list(version, "Route", namespace, RUN_LABEL)]
    found = {Reference.of(obj): obj for obj in listed}
    faults: list[Fault] = []
    for ref in routes:
        place, ingresses = _place(ref), found.get(ref, {}).get("status", {}).get("ingress") or ()
        conditions = (one for ingress in ingresses for one in ingress.get("conditions") or ())
        said = [one for one in conditions if one.get("type") == "Admitted"]
        if ref not in found:
            faults.append(Fault(place, *GONE, final=True))
        elif not said:
            words = "not admitted yet: no router has said anything"
            faults.append(Fault(place, words, "the router's log says what it does"))
        elif not any(one["status"] == "True" for one in said):
            words = f"not admitted: {reasoned(said[0].get('reason'), said[0].get('message'))}"
            faults.append(Fault(place, words, "correct what it names", final=True, patience_s=PATIENCE_S))
    if len(faults) > 1 and not faults[0].final:
        words = f"{faults[0].words} ({len(faults)} of {len(routes)} Routes are not)"
        return [replace(faults[0], words=words)]
    return faults[:1]


def _unready(ref: Reference, found: Object | None) -> Fault | None:
    if found is None:
        return Fault(_place(ref), *GONE, final=True)
    if ref.kind == "Pod":
        return pod_fault(found)
    known = Fault(_place(ref), "", about=found)
    status, failure = found.get("status", {}), conditions(found).get("ReplicaFailure", {})
    if failure.get("status") == "True":
        words = f"{failure.get('reason', 'ReplicaFailure')}: {failure.get('message', '')}"
        return replace(known, words=words, remedy="correct what it names", final=True, patience_s=PATIENCE_S)
    if status.get("observedGeneration", 0) < found["metadata"].get("generation", 0):
        words = "its controller has not looked at it yet"
        return replace(known, words=words, remedy="is the controller manager up?")
    if found["kind"] == "DaemonSet":
        wanted = status.get("desiredNumberScheduled", 0)
        keys = {"made": "updatedNumberScheduled", "ready": "numberReady"}
        if wanted == 0:
            return replace(known, words="no node is its", remedy="see its nodeSelector and the nodes' labels")
    else:
        wanted = found["spec"].get("replicas", 1)
        keys = {"made": "updatedReplicas", "ready": "readyReplicas", "there": "replicas"}
    counts = {name: status.get(key, 0) for name, key in keys.items()}
    if all(count == wanted for count in counts.values()):
        return None
    return replace(known, words=f"{wanted} wanted, " + ", ".join(f"{count} {name}" for name, count in counts.items()))


def pod_fault(pod: Object) -> Fault | None:
    """None for a pod that is ready, is being deleted, or has done what it was to do."""
    metadata, status = pod["metadata"], pod.get("status", {})
    if "deletionTimestamp" in metadata or ready(pod) or status.get("phase") == "Succeeded":
        return None
    known = Fault(f"pod {metadata['namespace']}/{metadata['name']}", "", about=pod)
    if status.get("phase") == "Failed":
        reason = status.get("reason") or "Failed"
        remedy = FATAL.get(reason, "see its events")
        return replace(known, words=reasoned(reason, status.get("message")), remedy=remedy, final=True)
    scheduled = conditions(pod).get("PodScheduled", {})
    if scheduled.get("status") == "False":
        words = f"not scheduled: {reasoned(scheduled.get('reason', ''), scheduled.get('message'))}"
        remedy = "a node with room, or smaller requests"
        return replace(known, words=words, remedy=remedy, final=True, patience_s=PATIENCE_S)
    faults = [
        fault
        for key, noun in (("initContainerStatuses", "init container"), ("containerStatuses", "container"))
        for container in status.get(key) or ()
        if (fault := _container_fault(known, noun, container)) is not None
    ]
    # The first that is final; else the first: an init container holds up all after it.
    return min(faults, key=lambda fault: not fault.final, default=replace(known, words="not started"))


def _container_fault(known: Fault, noun: str, container: Mapping[str, Any]) -> Fault | None:
    state, last = container.get("state") or {}, container.get("lastState") or {}
    waiting, ended, before = state.get("waiting"), state.get("terminated"), ""
    if container.get("ready") or (noun == "init container" and ended is not None and ended.get("exitCode") == 0):
        return None
    if last.get("terminated"):
        before = f" (before: {exited(last['terminated'] | {'message': ''})})"
    remedy, final, crashed = "", False, False
    if waiting is not None:
        reason = waiting.get("reason", "waiting")
        often = container.get("restartCount", 0) + 1 >= CRASHES
        crashed = often and reason == "CrashLoopBackOff"
        words = f"{reasoned(reason, waiting.get('message'))}{before}"
        final = often if reason in RETRIED else reason in FATAL
        remedy = FATAL.get(reason, "its log says why" if crashed else "")
    elif ended is not None:
        words = exited(ended)
    elif noun == "init container":
        words = f"running{before}"
    else:
        words, remedy = f"running, not ready{before}", "its readiness or startup probe does not succeed"
    told = f"not ready: {noun} {container['name']}: {words}"
    return replace(known, words=told, remedy=remedy, final=final, refused=crashed, image=container.get("image", ""))
