"""The changes by which disruptions disturb a variant that is up on a cluster, such as the end of a pod; all use the API server.

    end_pod     deletes a pod, evicts it (status 429 with cause DisruptionBudget = refused), or kills it by SIGKILL from its node
    scale       sets spec.replicas of the role's Deployment
    roll        sets kubectl.kubernetes.io/restartedAt in its pod template, as `kubectl rollout restart` does
    squeeze     uses the pods' resize subresource: in place, the containers run on (Kubernetes 1.33 and later)
    apply       is a server-side apply; new objects are first added to the inventory, so that they are removed with all others

A change that does not take effect is an error: a resize is waited for until the kubelet reports it. Only the undoing of a
`squeeze` never fails for that reason. A kubelet or container without enough CPU may be unable to report, and this is the very
effect that is measured.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from lab.base.errors import LabError, LostError, MeasuringError, UsageError
from lab.base.quantities import parse_quantity
from lab.model.endpoint import HowToEnd, Role
from lab.model.variants.labels import ROLE_LABEL
from lab.targets.cluster.api import RUN_LABEL, Api, DeniedError, Object, lost_without_right, poll_until
from lab.targets.cluster.images import Images
from lab.targets.cluster.inventory import GRACE_S, Inventory, act_by_rank
from lab.targets.cluster.objects import ROLES, Reference, find_role, find_workload, pod_spec
from lab.targets.cluster.pods import conditions, container_id, container_status, join_reason, ready, running
from lab.targets.cluster.recorder import ClusterRecorder

RESIZED_S = 10.0
KILLED_S = 1.0
"""The seconds that a container may take to end once its processes were killed."""
CRASHED_S = 30.0
POLL_S = 0.05
RESTARTED = "kubectl.kubernetes.io/restartedAt"
CRASHER = "lab-crash"
CONTAINER_ID = re.compile("[0-9a-f]{64}")
"""The form of the ID that is looked for in the node's cgroups: a shorter one would also match other containers."""
_KILL = """\
for one in /proc/[0-9]*; do
  grep -qs "$1" "$one/cgroup" && grep -qs '^NSpid:.*[[:space:]]1$' "$one/status" && exec kill -KILL "${one#/proc/}"
done
echo "no process of container $1 is its first"
exit 1
"""


class Changes:
    """The methods with which disruptions change a variant that is up on a cluster, such as ending a pod.

    `ClusterSystem` is a subclass. If the API server refuses a change, the method raises MeasuringError with the
    server's message.
    """

    def __init__(
        self,
        api: Api,
        images: Images,
        inventory: Inventory | None,
        manifests: Sequence[Mapping[str, Any]],
        namespace: str,
        run: str,
    ) -> None:
        """Store what the methods need; nothing is changed yet.

        Args:
            api: The cluster.
            images: The images to use.
            inventory: The list of the lab's objects on the cluster, to which `apply` adds new ones. None if pods and
                routes may not change while the variant is up.
            manifests: The variant's objects.
            namespace: The namespace of the variant's pods.
            run: The name of the run, for labels.

        """
        self._api, self._images, self._inventory = api, images, inventory
        self._manifests, self._namespace, self._run = manifests, namespace, run
        self._changing = inventory is not None
        self._listed: set[Reference] = set()
        self._squeezed: set[Role] = set()
        self._recorder: ClusterRecorder | None = None

    def first(self, role: Role) -> Object:
        """Return the oldest ready pod of a role; if no pod is ready, the oldest pod that is not being deleted.

        Raises:
            MeasuringError: The role has no pod, or all its pods are being deleted.

        """
        pods = [pod for pod in self._list_pods(role) if "deletionTimestamp" not in pod["metadata"]]
        if not pods:
            fault = f"no pod is there in {self._namespace} that is not ending already"
            raise MeasuringError(f"role {role}", fault, "`kubectl get pods` there shows what its Deployment does")
        by_age = sorted(pods, key=lambda pod: (pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]))
        return next(filter(ready, by_age), by_age[0])

    @lost_without_right()
    def end_pod(self, role: Role, how: HowToEnd) -> bool:
        """End the oldest ready pod of a role in one of three ways, without waiting for its end.

        Args:
            role: The role, such as `proxy`.
            how: `delete` deletes the pod, `evict` requests its eviction (as a drain does), and `crash` sends SIGKILL
                to the first process of the pod's first container.

        Returns:
            False if a PodDisruptionBudget forbids the eviction, else True.

        """
        pod = self.first(role)
        name = pod["metadata"]["name"]
        match how:
            case "delete":
                self._api.delete("v1", "Pod", name, self._namespace)
            case "evict":
                if (refusal := self._api.evict(self._namespace, name)) is not None:
                    if self._recorder is not None:  # no watch would report it
                        self._recorder.say("EvictionRefused", name, refusal)
                    return False
            case "crash":
                crash_container(self._api, self._images.named("loadgen"), pod, self._run)
        return True

    @lost_without_right()
    def scale(self, role: Role, replicas: int) -> None:
        """Set the number of replicas of the Deployment that makes a role's pods.

        Args:
            role: The role, such as `proxy`.
            replicas: The number.

        """
        self._patch_deployment(role, {"replicas": replicas})

    @lost_without_right()
    def roll(self, role: Role) -> None:
        """Start a rolling update of a role's Deployment: new pods of an unchanged configuration replace the old ones.

        The update is caused by an annotation of the pods with the present time. The time is exact to a microsecond, so
        two calls within a second cause two updates.

        Args:
            role: The role, such as `proxy`.

        """
        self._patch_deployment(
            role, {"template": {"metadata": {"annotations": {RESTARTED: datetime.now(UTC).isoformat()}}}}
        )

    @lost_without_right()
    def squeeze(self, role: Role, cpu: str | None) -> None:
        """Change the CPU limit of a role's running pods, or restore the limit that the manifests set.

        All pods that are not being deleted are changed, even unready ones, because a pod without enough CPU soon
        becomes unready. Until the limit is restored, the `watch` of a sample (a single measurement) reads these pods
        only at its beginning and its end.

        Kubernetes can change a limit but not remove it (tried with version 1.34). If the manifests set no limit, it is
        restored to the number of CPUs of the pod's node. If a pod's limit cannot be restored, no error is raised,
        unless the cluster or a right is gone.

        Args:
            role: The role of the pods, such as `proxy`.
            cpu: The limit in Kubernetes' form, such as `20m`; None restores the limit.

        """
        self._squeezed.add(role)
        workload, ref = self._find_deployment(role)
        if ref != Reference.of(workload):  # with what its controller adds
            workload = self._api.get(ref.api_version, ref.kind, ref.name, ref.namespace) or workload
        configured = pod_spec(workload)["containers"][0].get("resources") or {}
        limit, request = (configured.get(key, {}).get("cpu") for key in ("limits", "requests"))
        pods = [pod for pod in self._list_pods(role) if "deletionTimestamp" not in pod["metadata"]]
        if not pods and cpu is not None:
            raise MeasuringError(f"role {role}", "no pod is there to be squeezed", "squeeze it while it serves")
        resized: list[tuple[str, str]] = []
        for pod in pods:
            name, container = pod["metadata"]["name"], pod["spec"]["containers"][0]["name"]
            with _tolerate_failure(undoing=cpu is None):
                new_limit = cpu or limit or self._read_capacity(pod)
                new_request = min((value for value in (request, new_limit) if value), key=parse_quantity)
                resources = {"limits": {"cpu": new_limit}, "requests": {"cpu": new_request}}
                body = {"spec": {"containers": [{"name": container, "resources": resources}]}}
                self._api.change("v1", "Pod", name, self._namespace, body, "resize")
                resized.append((name, new_limit))
        for name, new_limit in resized:
            with _tolerate_failure(undoing=cpu is None):
                self._await_resize(name, new_limit)
        if cpu is None:
            self._squeezed.discard(role)

    @lost_without_right()
    def apply(self, objects: Sequence[Mapping[str, Any]]) -> None:
        """Create or change objects, such as Routes, in the variant's namespace while the variant is up.

        The objects get the run's label, and the labels that all objects of the variant have in common. New objects are
        first added to the inventory (the list of the lab's objects), so that they are removed with the others.

        Args:
            objects: The objects.

        """
        assert self._inventory is not None, "up(changing=True) comes first"
        labels = [set((obj["metadata"].get("labels") or {}).items()) for obj in self._manifests]
        shared = {**dict(set[tuple[str, str]].intersection(*labels)), RUN_LABEL: self._run}
        completed: dict[Reference, Object] = {}
        for obj in objects:
            own_labels = obj["metadata"].get("labels") or {}
            metadata = {"namespace": self._namespace, **obj["metadata"], "labels": {**shared, **own_labels}}
            completed[Reference.of({**obj, "metadata": metadata})] = {**obj, "metadata": metadata}
        if new := completed.keys() - self._listed:
            self._inventory.add(new)
            self._listed |= new
        act_by_rank(completed, lambda ref: self._api.apply(completed[ref]))

    def settle(self, kill: Callable[[Object], object]) -> None:
        """Kill the pods that are being deleted with a long grace period, so that the end of the measurement need not wait.

        The grace period of an OpenShift router, for example, is an hour. A container that is not ended by `kill` is
        killed from its node. A pod that cannot be killed raises no error here: the later wait for the end of all pods
        reports it.

        Args:
            kill: The function that kills the processes of a pod's container from inside. It raises LabError if that
                fails.

        Raises:
            LostError: The cluster is gone.
            DeniedError: The user lacks a right.

        """
        for pod in (pod for pod_role in ROLES for pod in self._list_pods(pod_role)):
            if pod["metadata"].get("deletionGracePeriodSeconds", 0) <= GRACE_S:
                continue
            with _tolerate_failure():
                kill(pod)
            with _tolerate_failure():
                if not poll_until(lambda pod=pod: not self._is_running(pod), KILLED_S, POLL_S):
                    crash_container(self._api, self._images.named("loadgen"), pod, self._run)

    def _list_pods(self, role: Role) -> list[Object]:
        return self._api.list("v1", "Pod", self._namespace, f"{ROLE_LABEL}={role}")

    def _is_running(self, pod: Mapping[str, Any]) -> bool:
        """Return whether the first container of a pod still runs and was not restarted.

        Args:
            pod: The pod as the API server described it earlier; the container's ID in it is compared with the present
                one.

        """
        current = self._api.get("v1", "Pod", pod["metadata"]["name"], self._namespace)
        return current is not None and running(current) and container_id(current) == container_id(pod)

    def _find_deployment(self, wanted_role: Role) -> tuple[Mapping[str, Any], Reference]:
        """Find the Deployment that makes a role's pods, and the object in the manifests that results in this Deployment.

        Returns:
            The object in the manifests, and the identity of the Deployment. The object is the Deployment itself, or
            one from which a controller makes the Deployment.

        Raises:
            UsageError: No Deployment makes the role's pods.

        """
        workload = next((obj for obj in self._manifests if find_role(obj) == wanted_role), None)
        ref = None if workload is None else find_workload(workload)
        if workload is None or ref is None or ref.kind != "Deployment":
            kind = "nothing" if workload is None else workload["kind"]
            raise UsageError(f"role {wanted_role}", f"{kind} makes its pods, no Deployment", "name another role")
        return workload, ref

    def _patch_deployment(self, role: Role, spec: Object) -> None:
        _, ref = self._find_deployment(role)
        self._api.change(ref.api_version, ref.kind, ref.name, ref.namespace, {"spec": spec})

    def _read_capacity(self, pod: Mapping[str, Any]) -> str:
        """Return the number of CPUs of the node on which a pod runs, as Kubernetes writes it."""
        node = self._api.get("v1", "Node", pod["spec"]["nodeName"])
        if node is None:
            raise MeasuringError(f"node {pod['spec']['nodeName']}", "is gone", "see `kubectl get nodes`")
        return str(node["status"]["capacity"]["cpu"])

    def _await_resize(self, name: str, cpu: str) -> None:
        """Wait until the kubelet reports a pod's new CPU limit; return early if the pod's container ends.

        Raises:
            MeasuringError: The kubelet refuses the limit, or has not set it after RESIZED_S seconds.

        """
        deadline = time.monotonic() + RESIZED_S
        while True:
            pod = self._api.get("v1", "Pod", name, self._namespace)
            if pod is None or "deletionTimestamp" in pod["metadata"] or not running(pod):
                return  # its replacement has what the manifests say, the next container starts with it
            limit = ((container_status(pod).get("resources") or {}).get("limits") or {}).get("cpu")
            if limit is not None and parse_quantity(limit) == parse_quantity(cpu):
                return
            waits = [conditions(pod).get(kind, {}) for kind in ("PodResizePending", "PodResizeInProgress")]
            if time.monotonic() > deadline or any(wait.get("reason") == "Infeasible" for wait in waits):
                messages = [join_reason(wait.get("reason"), wait.get("message")) for wait in waits]
                raise MeasuringError(
                    f"pod {self._namespace}/{name}",
                    f"its CPU limit is not {cpu}: {'; '.join(filter(None, messages)) or 'its kubelet says nothing'}",
                    "in-place resizes need Kubernetes 1.33 or later on its node, and a container that may be resized",
                )
            time.sleep(POLL_S)


@contextmanager
def _tolerate_failure(undoing: bool = True) -> Iterator[None]:
    """Suppress an error raised in the `with` block if the block undoes a change: a failure to undo must not end the run.

    LostError and DeniedError are never suppressed, because they mean that the cluster or a right is gone.

    Args:
        undoing: Whether the block undoes a change. If not, every error is raised.

    """
    try:
        yield
    except (LostError, DeniedError):
        raise
    except LabError:
        if not undoing:
            raise


def crash_container(api: Api, image: str, pod: Mapping[str, Any], run: str) -> None:
    """Kill a pod's first container by sending SIGKILL to its first process (PID 1).

    No process inside a container can kill the container's PID 1. So a second pod is started on the same node with
    hostPID, by which it sees all processes of the node. It finds the process in question, kills it, and is removed
    again. This takes 0.5 to 2 s on a node that has the image. The namespace must allow privileged pods.

    Args:
        api: The cluster.
        image: The image of the second pod.
        pod: The pod whose container is killed.
        run: The name of the run, for labels.

    Raises:
        MeasuringError: The container was not killed.

    """
    namespace, container = pod["metadata"]["namespace"], pod["spec"]["containers"][0]["name"]
    place, current_id = f"pod {namespace}/{pod['metadata']['name']}", container_id(pod)
    number = current_id.rpartition("/")[2]
    if not CONTAINER_ID.fullmatch(number):
        fault = f"container {container} cannot be killed: {f'its ID is {current_id}' if current_id else 'none runs'}"
        raise MeasuringError(place, fault, "crash it while it runs; `kubectl describe` shows its state")
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

    def read_phase() -> str:
        return (api.get("v1", "Pod", CRASHER, namespace) or {}).get("status", {}).get("phase", "gone")

    api.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    try:
        poll_until(lambda: read_phase() in ("Succeeded", "Failed"), CRASHED_S, POLL_S)
        if (phase := read_phase()) != "Succeeded":
            message = api.log(namespace, CRASHER, CRASHER, 3).strip()
            fault = f"its container was not killed: {message or f'pod {CRASHER} is {phase}'}"
            raise MeasuringError(place, fault, "the namespace must allow pods with hostPID on that node")
    finally:
        api.delete("v1", "Pod", CRASHER, namespace, 0)
