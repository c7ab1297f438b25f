"""What disturbances do to a variant on a cluster, each by the API server's own means.

    end_pod     DELETE; the eviction subresource (429 with the cause DisruptionBudget = refused); SIGKILL from the node
    scale       spec.replicas of the role's Deployment
    roll        kubectl.kubernetes.io/restartedAt on its pod template, as `kubectl rollout restart`
    squeeze     the pods' resize subresource: in place, the containers run on (Kubernetes 1.33 and later)
    apply       server-side apply; what is new is in the inventory first, so that it goes with everything else

Refuses what does not take: a resize is waited for until the kubelet reports it. Its undoing is not refused: whoever was
starved may not be able to tell that it took, and that is what is measured.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from lab.base.errors import LabError, LostError, MeasuringError, UsageError
from lab.base.quantities import quantity
from lab.model.endpoint import HowToEnd, Role
from lab.model.variants.labels import ROLE_LABEL
from lab.targets.cluster.api import RUN_LABEL, Api, DeniedError, Object, right, until
from lab.targets.cluster.images import Images
from lab.targets.cluster.inventory import GRACE_S, Inventory, by_rank
from lab.targets.cluster.objects import ROLES, Reference, made, pod_spec, role
from lab.targets.cluster.pods import conditions, container_id, container_status, ready, reasoned, running
from lab.targets.cluster.recorder import ClusterRecorder

RESIZED_S = 10.0
KILLED_S = 1.0
"""For a container to end once its processes were killed."""
CRASHED_S = 30.0
POLL_S = 0.05
RESTARTED = "kubectl.kubernetes.io/restartedAt"
CRASHER = "lab-crash"
CONTAINER_ID = re.compile("[0-9a-f]{64}")
"""What is looked for in the node's cgroups: anything shorter would be found in those of others."""
_KILL = """\
for one in /proc/[0-9]*; do
  grep -qs "$1" "$one/cgroup" && grep -qs '^NSpid:.*[[:space:]]1$' "$one/status" && exec kill -KILL "${one#/proc/}"
done
echo "no process of container $1 is its first"
exit 1
"""


class Changes:
    """Of one variant that is up; its `ClusterSystem` is one. Every method raises MeasuringError in the server's words when it is refused."""

    def __init__(
        self,
        api: Api,
        images: Images,
        inventory: Inventory | None,
        manifests: Sequence[Mapping[str, Any]],
        namespace: str,
        run: str,
    ) -> None:
        """`inventory`: where pods and routes may change, and what is applied meanwhile is listed."""
        self._api, self._images, self._inventory = api, images, inventory
        self._manifests, self._namespace, self._run = manifests, namespace, run
        self._changing = inventory is not None
        self._listed: set[Reference] = set()
        self._squeezed: set[Role] = set()
        self._recorder: ClusterRecorder | None = None

    def first(self, role: Role) -> Object:
        """The role's first pod: the oldest that is ready; where none is, the oldest that is not ending."""
        there = [pod for pod in self._all(role) if "deletionTimestamp" not in pod["metadata"]]
        if not there:
            fault = f"no pod is there in {self._namespace} that is not ending already"
            raise MeasuringError(f"role {role}", fault, "`kubectl get pods` there shows what its Deployment does")
        by_age = sorted(there, key=lambda pod: (pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]))
        return next(filter(ready, by_age), by_age[0])

    @right()
    def end_pod(self, role: Role, how: HowToEnd) -> bool:
        pod = self.first(role)
        name = pod["metadata"]["name"]
        match how:
            case "delete":
                self._api.delete("v1", "Pod", name, self._namespace)
            case "evict":
                if (refused := self._api.evict(self._namespace, name)) is not None:
                    if self._recorder is not None:  # no watch would tell
                        self._recorder.say("EvictionRefused", name, refused)
                    return False
            case "crash":
                crash(self._api, self._images.named("loadgen"), pod, self._run)
        return True

    @right()
    def scale(self, role: Role, replicas: int) -> None:
        self._change(role, {"replicas": replicas})

    @right()
    def roll(self, role: Role) -> None:
        """The time to a microsecond: two within a second are two."""
        self._change(role, {"template": {"metadata": {"annotations": {RESTARTED: datetime.now(UTC).isoformat()}}}})

    @right()
    def squeeze(self, role: Role, cpu: str | None) -> None:
        """Of every pod that is not ending, ready or not: a starved one is not for long. A watch spares it meanwhile.

        A limit that was set can be changed and not taken away: as much as its node has is none [tried, 1.34]. Its undoing raises LostError only.
        """
        self._squeezed.add(role)
        found, ref = self._deployment(role)
        if ref != Reference.of(found):  # with what its controller adds
            found = self._api.get(ref.api_version, ref.kind, ref.name, ref.namespace) or found
        asked = pod_spec(found)["containers"][0].get("resources") or {}
        limit, request = (asked.get(key, {}).get("cpu") for key in ("limits", "requests"))
        pods = [pod for pod in self._all(role) if "deletionTimestamp" not in pod["metadata"]]
        if not pods and cpu is not None:
            raise MeasuringError(f"role {role}", "no pod is there to be squeezed", "squeeze it while it serves")
        asked_of: list[tuple[str, str]] = []
        for pod in pods:
            name, container = pod["metadata"]["name"], pod["spec"]["containers"][0]["name"]
            with _unfailing(undoing=cpu is None):
                wanted = cpu or limit or self._capacity(pod)
                requested = min((value for value in (request, wanted) if value), key=quantity)
                resources = {"limits": {"cpu": wanted}, "requests": {"cpu": requested}}
                body = {"spec": {"containers": [{"name": container, "resources": resources}]}}
                self._api.change("v1", "Pod", name, self._namespace, body, "resize")
                asked_of.append((name, wanted))
        for name, wanted in asked_of:
            with _unfailing(undoing=cpu is None):
                self._await_resize(name, wanted)
        if cpu is None:
            self._squeezed.discard(role)

    @right()
    def apply(self, objects: Sequence[Mapping[str, Any]]) -> None:
        """With the variant's namespace, the run's label, and the labels that all objects of the variant share."""
        assert self._inventory is not None, "up(changing=True) comes first"
        labels = [set((one["metadata"].get("labels") or {}).items()) for one in self._manifests]
        shared = {**dict(set[tuple[str, str]].intersection(*labels)), RUN_LABEL: self._run}
        wanted: dict[Reference, Object] = {}
        for obj in objects:
            own = obj["metadata"].get("labels") or {}
            metadata = {"namespace": self._namespace, **obj["metadata"], "labels": {**shared, **own}}
            wanted[Reference.of({**obj, "metadata": metadata})] = {**obj, "metadata": metadata}
        if new := wanted.keys() - self._listed:
            self._inventory.add(new)
            self._listed |= new
        by_rank(wanted, lambda ref: self._api.apply(wanted[ref]))

    def settle(self, kill: Callable[[Object], object]) -> None:
        """End at once what is still ending: nobody looks any more, and a router's grace is an hour.

        `kill` a container's processes from inside, LabError when that cannot be done; one that does not end by it is
        killed from its node. LostError comes out, nothing else: whoever waits for an end says so.
        """
        for pod in (pod for which in ROLES for pod in self._all(which)):
            if pod["metadata"].get("deletionGracePeriodSeconds", 0) <= GRACE_S:
                continue
            with _unfailing():
                kill(pod)
            with _unfailing():
                if not until(lambda pod=pod: not self._runs_on(pod), KILLED_S, POLL_S):
                    crash(self._api, self._images.named("loadgen"), pod, self._run)

    def _all(self, role: Role) -> list[Object]:
        return self._api.list("v1", "Pod", self._namespace, f"{ROLE_LABEL}={role}")

    def _runs_on(self, pod: Mapping[str, Any]) -> bool:
        """The very container that is told of runs now."""
        now = self._api.get("v1", "Pod", pod["metadata"]["name"], self._namespace)
        return now is not None and running(now) and container_id(now) == container_id(pod)

    def _deployment(self, wanted: Role) -> tuple[Mapping[str, Any], Reference]:
        """(the object that makes its pods, the Deployment that does): one and the same, or what a controller makes the Deployment of."""
        found = next((obj for obj in self._manifests if role(obj) == wanted), None)
        ref = None if found is None else made(found)
        if found is None or ref is None or ref.kind != "Deployment":
            kind = "nothing" if found is None else found["kind"]
            raise UsageError(f"role {wanted}", f"{kind} makes its pods, no Deployment", "name another role")
        return found, ref

    def _change(self, wanted: Role, spec: Object) -> None:
        _, ref = self._deployment(wanted)
        self._api.change(ref.api_version, ref.kind, ref.name, ref.namespace, {"spec": spec})

    def _capacity(self, pod: Mapping[str, Any]) -> str:
        node = self._api.get("v1", "Node", pod["spec"]["nodeName"])
        if node is None:
            raise MeasuringError(f"node {pod['spec']['nodeName']}", "is gone", "see `kubectl get nodes`")
        return str(node["status"]["capacity"]["cpu"])

    def _await_resize(self, name: str, cpu: str) -> None:
        deadline = time.monotonic() + RESIZED_S
        while True:
            pod = self._api.get("v1", "Pod", name, self._namespace)
            if pod is None or "deletionTimestamp" in pod["metadata"] or not running(pod):
                return  # its replacement has what the manifests say, the next container starts with it
            limit = ((container_status(pod).get("resources") or {}).get("limits") or {}).get("cpu")
            if limit is not None and quantity(limit) == quantity(cpu):
                return
            waits = [conditions(pod).get(kind, {}) for kind in ("PodResizePending", "PodResizeInProgress")]
            if time.monotonic() > deadline or any(one.get("reason") == "Infeasible" for one in waits):
                words = [reasoned(one.get("reason"), one.get("message")) for one in waits]
                raise MeasuringError(
                    f"pod {self._namespace}/{name}",
                    f"its CPU limit is not {cpu}: {'; '.join(filter(None, words)) or 'its kubelet says nothing'}",
                    "in-place resizes need Kubernetes 1.33 or later on its node, and a container that may be resized",
                )
            time.sleep(POLL_S)


@contextmanager
def _unfailing(undoing: bool = True) -> Iterator[None]:
    """What fails in undoing something is passed over, unless the cluster or a right is gone."""
    try:
        yield
    except (LostError, DeniedError):
        raise
    except LabError:
        if not undoing:
            raise


def crash(api: Api, image: str, pod: Mapping[str, Any], run: str) -> None:
    """SIGKILL to the first process of the pod's first container, from its node: nothing inside a container can do that to its own PID 1.

    A pod that sees its node's processes (hostPID, so its namespace must allow privileged pods) finds the one that is number 1
    in the container, kills it, and is gone again: half a second to two after it was asked for, on a node that has its image.
    MeasuringError in whose words that failed.
    """
    namespace, container = pod["metadata"]["namespace"], pod["spec"]["containers"][0]["name"]
    place, known = f"pod {namespace}/{pod['metadata']['name']}", container_id(pod)
    number = known.rpartition("/")[2]
    if not CONTAINER_ID.fullmatch(number):
        fault = f"container {container} cannot be killed: {f'its ID is {known}' if known else 'none runs'}"
        raise MeasuringError(place, fault, "crash it while it runs; `kubectl describe` tells its state")
    crasher = {
        "name": CRASHER,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", _KILL, "sh", number],
        "securityContext": {"runAsUser": 0},
    }
    spec = {
        "nodeName": pod["spec"]["nodeName"],
        "hostPID": True,
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0,
        "containers": [crasher],
    }
    metadata = {"name": CRASHER, "namespace": namespace, "labels": {RUN_LABEL: run}}
    api.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    try:
        deadline = time.monotonic() + CRASHED_S
        while True:
            found = api.get("v1", "Pod", CRASHER, namespace) or {}
            phase = found.get("status", {}).get("phase", "gone")
            if phase == "Succeeded":
                return
            if phase == "Failed" or time.monotonic() > deadline:
                said = api.log(namespace, CRASHER, CRASHER, 3).strip()
                fault = f"its container was not killed: {said or f'pod {CRASHER} is {phase}'}"
                raise MeasuringError(place, fault, "the namespace must allow pods with hostPID on that node")
            time.sleep(POLL_S)
    finally:
        api.delete("v1", "Pod", CRASHER, namespace, 0)
