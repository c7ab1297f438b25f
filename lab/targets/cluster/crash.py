"""SIGKILL to a container's first process, from its node: nothing inside a container can do that to its own PID 1.

A pod that sees its node's processes (hostPID, so its namespace must allow privileged pods) finds the one that is number 1
in the container, kills it, and is gone again: half a second to two after it was asked for, on a node that has its image.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any

from lab.base.errors import MeasuringError
from lab.targets.cluster import pods
from lab.targets.cluster.api import Api

DEADLINE_S = 30.0
POLL_S = 0.05
NAME = "lab-crash"
CONTAINER_ID = re.compile("[0-9a-f]{64}")
"""What is looked for in the node's cgroups: anything shorter would be found in those of others."""
_KILL = """\
for one in /proc/[0-9]*; do
  grep -qs "$1" "$one/cgroup" && grep -qs '^NSpid:.*[[:space:]]1$' "$one/status" && exec kill -KILL "${one#/proc/}"
done
echo "no process of container $1 is its first"
exit 1
"""


def crash(api: Api, image: str, pod: Mapping[str, Any], run: str) -> None:
    """Of the pod's first container; returns when it was killed. MeasuringError in whose words that failed."""
    namespace, container = pod["metadata"]["namespace"], pod["spec"]["containers"][0]["name"]
    place = f"pod {namespace}/{pod['metadata']['name']}"
    container_id = pods.container_id(pod)
    number = container_id.rpartition("/")[2]
    if not CONTAINER_ID.fullmatch(number):
        why = f"its ID is {container_id}" if container_id else "none runs"
        fault = f"container {container} cannot be killed: {why}"
        raise MeasuringError(place, fault, "crash it while it runs; `kubectl describe` tells its state")
    api.create(_described(namespace, image, pod["spec"]["nodeName"], number, run))
    try:
        deadline = time.monotonic() + DEADLINE_S
        while (phase := _phase(api, namespace)) != "Succeeded":
            if phase == "Failed" or time.monotonic() > deadline:
                said = api.log(namespace, NAME, NAME, 3).strip()
                fault = f"its container was not killed: {said or f'pod {NAME} is {phase}'}"
                raise MeasuringError(place, fault, "the namespace must allow pods with hostPID on that node")
            time.sleep(POLL_S)
    finally:
        api.delete("v1", "Pod", NAME, namespace, 0)


def _phase(api: Api, namespace: str) -> str:
    found = api.get("v1", "Pod", NAME, namespace)
    return str((found or {}).get("status", {}).get("phase", "gone"))


def _described(namespace: str, image: str, node: str, container_id: str, run: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": NAME, "namespace": namespace, "labels": {RUN_LABEL: run}},
        "spec": {
            "nodeName": node,
            "hostPID": True,
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "name": NAME,
                    "image": image,
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["sh", "-c", _KILL, "sh", container_id],
                    "securityContext": {"runAsUser": 0},
                }
            ],
        },
    }
