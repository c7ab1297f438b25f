"""Is what was applied ready, and if not, why: pods, their containers' states, their events and last words.

Refuses to wait for what will not come right by itself (an image that is not there); gives what may (no room on the
nodes yet, a Route not admitted yet) PATIENCE_S.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lab.base.errors import LostError, MeasuringError
from lab.targets.cluster import last_words
from lab.targets.cluster.api import Api
from lab.targets.cluster.names import RUN_LABEL
from lab.targets.cluster.objects import Reference

POLL_S = 0.2
ROUTES_POLL_S = 0.5
PATIENCE_S = 10.0
CRASHES = 3
IMAGES = "`just up kind` brings the pinned images to kind; elsewhere the nodes must be able to pull them, or LAB_IMAGES=<file> names others"
SYSCTLS = "the kubelet must allow it: allowedUnsafeSysctls (lab/targets/provision/kind.yaml has it)"
FATAL: Mapping[str, str] = {
    "ErrImagePull": IMAGES,
    "ImagePullBackOff": IMAGES,
    "InvalidImageName": IMAGES,
    "ErrImageNeverPull": IMAGES,
    "ImageInspectError": IMAGES,
    "SysctlForbidden": SYSCTLS,
    "CreateContainerConfigError": "correct what it names in the manifests",
    "CreateContainerError": "correct what it names in the manifests",
    "RunContainerError": "correct what it names in the manifests; has the image that program?",
}
"""Reason of a waiting container, or of a failed pod → remedy."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Why something is not ready. `final`: waiting longer does not help, once it has been so for `patience_s`."""

    place: str
    words: str
    remedy: str = ""
    final: bool = False
    patience_s: float = 0.0
    about: Mapping[str, Any] | None = None
    """The object as it was found; None where there is none."""


def wait(api: Api, objects: Iterable[Mapping[str, Any]], deadline: float) -> None:
    """Until every Deployment, DaemonSet, StatefulSet and Pod is ready and every Route admitted; `deadline` of time.monotonic().

    MeasuringError that names the object, its condition and the container's state; its remedy has events and log.
    """
    refs = [Reference.of(obj) for obj in objects]
    _wait(api, deadline, POLL_S, lambda: _workload_faults(api, refs))
    if any(ref.kind == "Route" for ref in refs):
        _wait(api, deadline, ROUTES_POLL_S, lambda: _route_faults(api, refs))


def _wait(api: Api, deadline: float, poll_s: float, look: Any) -> None:
    since: dict[tuple[str, str], float] = {}
    while True:
        faults: list[Fault] = look()
        if not faults:
            return
        now = time.monotonic()
        since = {(fault.place, fault.words): since.get((fault.place, fault.words), now) for fault in faults}
        for fault in faults:
            if fault.final and now - since[fault.place, fault.words] >= fault.patience_s:
                raise _error(api, fault, "")
        if now > deadline:
            # A pod says more than the Deployment that waits for it.
            fault = min(
                faults, key=lambda fault: (not fault.final, fault.about is None or fault.about["kind"] != "Pod")
            )
            raise _error(api, fault, "not in time: ")
        time.sleep(max(0.0, min(poll_s, deadline - now)))


def _error(api: Api, fault: Fault, prefix: str) -> MeasuringError:
    """LostError for an image that cannot be had: that says nothing about a variant, and the next one lacks it, too."""
    said = last_words.of(api, fault.about) if fault.about else []
    remedy = "\n  ".join(filter(None, (fault.remedy, *said)))
    kind = LostError if fault.remedy == IMAGES else MeasuringError
    return kind(f"{api.place}: {fault.place}", prefix + fault.words, remedy or "nothing else is known of it")


def _workload_faults(api: Api, refs: Sequence[Reference]) -> list[Fault]:
    workloads = [ref for ref in refs if ref.kind in ("Deployment", "DaemonSet", "StatefulSet", "Pod")]
    faults: list[Fault] = []
    waiting: set[str] = set()
    for ref in workloads:
        found = api.get(ref.api_version, ref.kind, ref.name, ref.namespace)
        fault = Fault(_place(ref), "is gone", "who removed it?", final=True) if found is None else _unready(ref, found)
        if fault is not None:
            faults.append(fault)
            waiting.add(ref.namespace)
    pods = [pod for namespace in sorted(waiting) for pod in api.list("v1", "Pod", namespace, RUN_LABEL)]
    return faults + [fault for pod in pods if (fault := pod_fault(pod)) is not None]


def _place(ref: Reference) -> str:
    return f"{ref.kind.lower()} {ref.namespace}/{ref.name}"


def _unready(ref: Reference, found: Mapping[str, Any]) -> Fault | None:
    status, known = found.get("status", {}), Fault(_place(ref), "", about=found)
    if ref.kind == "Pod":
        return pod_fault(found)
    for item in status.get("conditions") or ():
        if item["type"] == "ReplicaFailure" and item["status"] == "True":
            words = f"{item.get('reason', 'ReplicaFailure')}: {item.get('message', '')}"
            return replace(known, words=words, remedy="correct what it names", final=True, patience_s=PATIENCE_S)
    if status.get("observedGeneration", 0) < found["metadata"].get("generation", 0):
        words = "its controller has not looked at it yet"
        return replace(known, words=words, remedy="is the controller manager up?")
    if ref.kind == "DaemonSet":
        wanted = status.get("desiredNumberScheduled", 0)
        counts = {"made": status.get("updatedNumberScheduled", 0), "ready": status.get("numberReady", 0)}
        if wanted == 0:
            return replace(known, words="no node is its", remedy="see its nodeSelector and the nodes' labels")
    else:
        wanted = found["spec"].get("replicas", 1)
        counts = {name: status.get(key, 0) for name, key in (("made", "updatedReplicas"), ("ready", "readyReplicas"))}
        counts["there"] = status.get("replicas", 0)
    if all(count == wanted for count in counts.values()):
        return None
    return replace(known, words=f"{wanted} wanted, " + ", ".join(f"{count} {name}" for name, count in counts.items()))


def pod_fault(pod: Mapping[str, Any]) -> Fault | None:
    """None for a pod that is ready, or is being deleted."""
    metadata, status = pod["metadata"], pod.get("status", {})
    conditions = {item["type"]: item for item in status.get("conditions") or ()}
    if "deletionTimestamp" in metadata or conditions.get("Ready", {}).get("status") == "True":
        return None
    known = Fault(f"pod {metadata['namespace']}/{metadata['name']}", "", about=pod)
    if status.get("phase") == "Failed":
        reason = status.get("reason") or "Failed"
        remedy = FATAL.get(reason, "see its events")
        return replace(known, words=_told(reason, status.get("message")), remedy=remedy, final=True)
    scheduled = conditions.get("PodScheduled", {})
    if scheduled.get("status") == "False":
        words = f"not scheduled: {_told(scheduled.get('reason', ''), scheduled.get('message'))}"
        remedy = "a node with room, or smaller requests"
        return replace(known, words=words, remedy=remedy, final=True, patience_s=PATIENCE_S)
    faults = [
        fault
        for key, noun in (("initContainerStatuses", "init container"), ("containerStatuses", "container"))
        for container in status.get(key) or ()
        if (fault := _container_fault(known, noun, container)) is not None
    ]
    # The first that is final; else the first: an init container holds up all after it.
    return next(
        (fault for fault in faults if fault.final), faults[0] if faults else replace(known, words="not started")
    )


def _container_fault(known: Fault, noun: str, container: Mapping[str, Any]) -> Fault | None:
    state = container.get("state") or {}
    waiting, ended = state.get("waiting"), state.get("terminated")
    last = (container.get("lastState") or {}).get("terminated")
    name, restarts = f"{noun} {container['name']}", container.get("restartCount", 0)
    before = f" (before: {last_words.exited(last | {'message': ''})})" if last else ""
    if waiting is not None:
        reason = waiting.get("reason", "waiting")
        words = f"not ready: {name}: {_told(reason, waiting.get('message'))}{before}"
        crashed = reason == "CrashLoopBackOff" and restarts + 1 >= CRASHES
        remedy = FATAL.get(reason, "its log says why" if crashed else "")
        return replace(known, words=words, remedy=remedy, final=reason in FATAL or crashed)
    if ended is not None:
        if noun == "init container" and ended.get("exitCode") == 0:
            return None
        return replace(known, words=f"not ready: {name}: {last_words.exited(ended)}")
    if container.get("ready"):
        return None
    doing = "running" if noun == "init container" else "running, not ready"
    remedy = "" if noun == "init container" else "its readiness or startup probe does not succeed"
    return replace(known, words=f"not ready: {name}: {doing}{before}", remedy=remedy)


def _told(reason: str, message: str | None) -> str:
    """`reason: message`, on one line."""
    return f"{reason}: {' '.join(message.split())}" if message else reason


def _route_faults(api: Api, refs: Sequence[Reference]) -> list[Fault]:
    wanted = {(ref.namespace, ref.name): ref for ref in refs if ref.kind == "Route"}
    api_version = next(iter(wanted.values())).api_version
    faults: list[Fault] = []
    for namespace in sorted({namespace for namespace, _ in wanted}):
        found = {item["metadata"]["name"]: item for item in api.list(api_version, "Route", namespace, RUN_LABEL)}
        for (place, name), ref in wanted.items():
            if place == namespace and (fault := _unadmitted(_place(ref), found.get(name))) is not None:
                faults.append(fault)
    if len(faults) > 1:
        count = f" ({len(faults)} of {len(wanted)} Routes are not)"
        faults = [replace(fault, words=fault.words + count) if not fault.final else fault for fault in faults[:1]]
    return faults


def _unadmitted(place: str, route: Mapping[str, Any] | None) -> Fault | None:
    if route is None:
        return Fault(place, "is gone", "who removed it?", final=True)
    said = [
        item for ingress in route.get("status", {}).get("ingress") or () for item in ingress.get("conditions") or ()
    ]
    said = [item for item in said if item.get("type") == "Admitted"]
    if any(item["status"] == "True" for item in said):
        return None
    if not said:
        return Fault(place, "not admitted yet: no router has said anything", "the router's log says what it does")
    words = f"not admitted: {_told(said[0].get('reason', ''), said[0].get('message'))}"
    return Fault(place, words, "correct what it names", final=True, patience_s=PATIENCE_S)
