"""Deletion of things on a cluster: asked for, then waited for with a deadline.

A controller that waits for a class of its own to be let go (HELD) was the lab's, and has ended before: its finalizer is taken off for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from lab.base.errors import MeasuringError
from lab.model.variants.labels import ROLE_LABEL
from lab.targets.cluster.api import BROUGHT_UP, RUN_LABEL, Api, ConflictError, RefusedError
from lab.targets.cluster.objects import Reference

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


def end_workloads(api: Api, workloads: Collection[Reference]) -> list[str]:
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
        reverting = list(filter(_reverts, pods))
        limit_s = REVERTING_S if reverting else PODS_S
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
