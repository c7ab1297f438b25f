"""Programs that a pod's own image lacks (ss, lsattr, sockperf): an ephemeral container of the generators' image in that pod.

It has the pod's network, the process namespace of the container it is made for, that container's volumes at the same
places, and its securityContext: it may look at what the container's own processes may look at, and nothing more. Links
in /proc/PID (root, fd) need the same group as well: where a manifest names a runAsUser and no runAsGroup, they are closed.
Until it is first asked for there is none, and a pod that was given one keeps it, asleep, as long as it lives.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from lab.base.errors import LostError, MeasuringError
from lab.targets.cluster import rollout
from lab.targets.cluster.api import Api
from lab.targets.cluster.images import Images
from lab.targets.cluster.pods import reasoned
from lab.targets.cluster.shell import Shell

PREFIX = "lab-tools-"
DEADLINE_S = 60.0
POLL_S = 0.05


def tools(api: Api, images: Images, pod: Mapping[str, Any], container: str) -> Shell:
    """A shell in the pod's tools for this container, which are started if they are not there.

    LostError when the pod is gone, MeasuringError when they do not start, DeniedError without the right to add them
    (patch on pods/ephemeralcontainers).
    """
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    deadline = time.monotonic() + DEADLINE_S

    def shown() -> dict[str, Any]:
        found = api.get("v1", "Pod", name, namespace)
        if found is None:
            raise LostError(f"pod {namespace}/{name}", "is gone", "`--resume` goes on when the cluster is well again")
        return found

    found = shown()
    known = {item["name"] for item in found["spec"].get("ephemeralContainers") or ()}
    tool = f"{PREFIX}{container}"[:60]
    if tool not in known:
        target = next(item for item in found["spec"]["containers"] if item["name"] == container)
        added = {"spec": {"ephemeralContainers": [described(tool, images.named("loadgen"), target)]}}
        api.change("v1", "Pod", name, namespace, added, "ephemeralcontainers")
    while "running" not in (state := _state(shown(), tool)):
        late = time.monotonic() > deadline
        why = state.get("waiting") or state.get("terminated") or {}
        if late or why.get("reason") in rollout.FATAL or "terminated" in state:
            said = reasoned(why.get("reason"), why.get("message")) or "no state yet"
            raise MeasuringError(
                f"pod {namespace}/{name}",
                f"its tools ({tool}) do not start" + (f" in {DEADLINE_S:.0f} s" if late else "") + f": {said}",
                "`just up` brings the image loadgen to kind; elsewhere LAB_IMAGES names one that the nodes can pull",
            )
        time.sleep(POLL_S)
    return Shell(api, namespace, name, tool)


def described(name: str, image: str, target: Mapping[str, Any]) -> dict[str, Any]:
    """The ephemeral container for one container of the pod."""
    # A mount of a subPath is refused there.
    mounts = [
        mount for mount in target.get("volumeMounts") or () if "subPath" not in mount and "subPathExpr" not in mount
    ]
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sleep", "infinity"],
        "targetContainerName": target["name"],
        "securityContext": dict(target.get("securityContext") or {}),
        "volumeMounts": mounts,
    }


def _state(pod: Mapping[str, Any], name: str) -> dict[str, Any]:
    """`{"running": …}`, `{"waiting": …}`, `{"terminated": …}`, or empty where the kubelet has not said yet."""
    statuses = pod.get("status", {}).get("ephemeralContainerStatuses") or ()
    return next((item.get("state") or {} for item in statuses if item["name"] == name), {})
