"""One load made by many generators: k6-operator's TestRun, whose runners share it by execution segments.

k6-operator facts this file respects (source and a trial of 1.6; k6 2.2):

- stages: an initializer (`k6 archive`, `k6 inspect`), then N runner Jobs of one pod each, started `--paused`, then a starter
  that lets all go by one `curl -X PATCH` after the other. Default images come from registries, so all three are given
  ours, which has sh, curl and k6. It looks at the initializer every 5 s: a sample costs some 10 s more.
- it adds `--quiet`, `--address=0.0.0.0:6565`, `--paused` and the segments to the arguments; `--address` must stay its own.
- parts are exact: of 5 users the first of two runners has 3; a rate is divided as a fraction.
- its probes ask k6 over HTTP and restart what is slow to answer under load: a connection must do here, and rarely.
- `separate` wants as many nodes as runners; a spread that is only preferred is asked for instead.
- `cleanup: post` would take the logs with it: the lab reads them, then deletes the TestRun, which owns all it made.
- a pod of its making has no hostAliases: names of routes reach k6 as its own option `hosts`.

Refuses to be told where the operator comes from: whoever wants it installs its bundle (README.md of this folder).
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from lab.base.errors import LabError, MeasuringError, UsageError
from lab.generators.k6 import environment
from lab.model.endpoint import Ran
from lab.model.load import Load
from lab.model.sweeps import Point
from lab.model.variants.labels import ROLE_LABEL
from lab.targets.cluster.api import Api
from lab.targets.cluster.names import CLIENT_NAMESPACE, RUN_LABEL

Object = dict[str, Any]
API_VERSION, KIND = "k6.io/v1alpha1", "TestRun"
FOLDER = "/test"
"""Where the operator mounts the ConfigMap of the script."""
START_S = 180.0
"""From the request to runners that have begun: three rounds of pods, whose image may have to be pulled."""
GRACE_S = 30.0
"""What runners may take beyond the load's time and its last answers' timeout."""
GONE_S = 60.0
POLL_S = 0.5
LINES = 100_000
CONTAINER = "k6"
"""Of every pod that the operator makes; what others inject (a mesh's sidecar) says nothing of the load."""
NOT_STARTED = 127
"""As a shell reports it."""
ALIVE = {"tcpSocket": {"port": 6565}, "periodSeconds": 300, "failureThreshold": 10}
READY = {"tcpSocket": {"port": 6565}, "periodSeconds": 2, "timeoutSeconds": 5, "failureThreshold": 1000}
"""The operator waits for Services with endpoints before it starts: ready soon, and never unready again."""
OWN_NODE = {
    "weight": 100,
    "preference": {"matchExpressions": [{"key": ROLE_LABEL, "operator": "In", "values": ["generator"]}]},
}
REMEDY = (
    "install k6-operator there (lab/targets/cluster/README.md, Many generators), or leave `generators` out of the point"
)


def vet(api: Api, points: Sequence[Point]) -> None:
    """UsageError for a point of many generators where the cluster has no k6-operator."""
    many = [point for point in points if point.generators > 1]
    if many and api.resource(API_VERSION, KIND) is None:
        fault = f"asks for {many[0].generators} generators, and the cluster knows no {KIND} of {API_VERSION}"
        raise UsageError(f"{api.place}: point {many[0].name}", fault, REMEDY)


def objects(
    name: str, run: str, image: str, load: Load, files: Mapping[str, str], hosts: Mapping[str, str]
) -> list[Object]:
    """The ConfigMap with the script and the TestRun that runs it. `hosts`: name → address, for k6 in the place of DNS."""
    labels = {RUN_LABEL: run}
    metadata = {"name": name, "namespace": CLIENT_NAMESPACE, "labels": labels}
    config = json.loads(files["k6.json"]) | {"hosts": dict(hosts)}
    data = {**files, "k6.json": json.dumps(config)}
    pod: Object = {
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "automountServiceAccountToken": "false",
        "metadata": {"labels": labels},
        "tolerations": [{"key": ROLE_LABEL, "operator": "Equal", "value": "generator"}],
        "containerSecurityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    runner = pod | {
        # As the client's own pod is labelled, so that proxies and backends keep away from these, too.
        "metadata": {"labels": labels | {ROLE_LABEL: "generator"}},
        "env": [{"name": name, "value": value} for name, value in environment(load).items()],
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [OWN_NODE]}},
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"k6_cr": name}},
            }
        ],
        "livenessProbe": ALIVE,
        "readinessProbe": READY,
    }
    spec = {
        "parallelism": load.generators,
        "script": {"configMap": {"name": name, "file": "k6.js"}},
        "arguments": f"--no-color --no-usage-report --config {FOLDER}/k6.json",
        "quiet": "true",
        "runner": runner,
        "initializer": pod,
        "starter": pod,
    }
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data},
        {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec},
    ]


def generate(api: Api, image: str, run: str, load: Load, files: Mapping[str, str], hosts: Mapping[str, str]) -> Ran:
    """Make the load and collect what its runners said; nothing of it is left on the cluster.

    One that cannot be started, fails or hangs is a `Ran` like any other. LostError when the API server is gone.
    """
    _remove(api, [item["metadata"]["name"] for item in api.list(API_VERSION, KIND, CLIENT_NAMESPACE, RUN_LABEL)])
    name = f"load-{time.time_ns() // 1_000_000}"
    try:
        for obj in objects(name, run, image, load, files, hosts):
            api.create(obj)
        ran = _watched(api, name, load)
    except BaseException:
        with suppress(LabError):  # the first fault is the one to tell; the next load, or `just down`, removes the rest
            _remove(api, [name])
        raise
    _remove(api, [name])
    return ran


def _watched(api: Api, name: str, load: Load) -> Ran:
    """Waits for the runners: to begin by START_S, to end by the load's time."""
    deadline, begun = time.monotonic() + START_S, False
    while True:
        pods = api.list("v1", "Pod", CLIENT_NAMESPACE, f"k6_cr={name}")
        runners = sorted((pod for pod in pods if pod["metadata"]["labels"].get("runner")), key=_number)
        late = time.monotonic() > deadline
        ended = [pod for pod in runners if _exit_status(pod) is not None]
        if len(ended) == load.generators or (begun and late):
            return _collected(api, runners, hung=len(ended) < load.generators)
        testrun = api.get(API_VERSION, KIND, name, CLIENT_NAMESPACE) or {}
        stage = testrun.get("status", {}).get("stage", "")
        if stage == "error":
            said = " ".join(_log(api, pod) for pod in pods).strip() or "its own log says why"
            return Ran("", f"k6-operator refused the load: {said}", 1, False)
        if stage == "started" and not begun:
            deadline, begun = time.monotonic() + load.duration_s + load.timeout_s + GRACE_S, True
        elif late:
            why = f"not begun after {START_S:.0f} s, stage {stage or 'none (is the operator running?)'}"
            return Ran("", "; ".join([f"{KIND} {name}: {why}", *map(_state, pods)]), NOT_STARTED, False)
        time.sleep(POLL_S)


def _collected(api: Api, runners: Sequence[Object], hung: bool) -> Ran:
    """`hung`: some have not ended, and are failures."""
    said = [
        f"--- runner {number} of {len(runners)}: {pod['metadata']['name']} on {pod['spec'].get('nodeName', 'no node')}\n"
        f"{_log(api, pod).rstrip()}\n"
        for number, pod in enumerate(runners, 1)
    ]
    failed = [pod for pod in runners if _exit_status(pod) != 0]
    exit_status = next(iter(_exit_status(pod) or 1 for pod in failed), 0)
    return Ran("".join(said), "\n".join(map(_state, failed)), exit_status, hung)


def _remove(api: Api, names: Sequence[str]) -> None:
    """TestRuns, and the pods of theirs that still run at once; returns when the pods are gone, or after GONE_S."""
    for name in names:
        api.delete(API_VERSION, KIND, name, CLIENT_NAMESPACE)
        api.delete_all("batch/v1", "Job", CLIENT_NAMESPACE, f"k6_cr={name}")
        api.delete_all("v1", "Pod", CLIENT_NAMESPACE, f"k6_cr={name}", grace_s=1)
        api.delete("v1", "ConfigMap", name, CLIENT_NAMESPACE)
        deadline = time.monotonic() + GONE_S
        while api.list("v1", "Pod", CLIENT_NAMESPACE, f"k6_cr={name}"):
            if time.monotonic() > deadline:
                place, fault = f"{api.place}: {CLIENT_NAMESPACE}", f"pods of {KIND} {name} do not end"
                raise MeasuringError(place, fault, "`kubectl describe` them; then --resume")
            time.sleep(POLL_S)


def _log(api: Api, pod: Object) -> str:
    return api.log(CLIENT_NAMESPACE, pod["metadata"]["name"], CONTAINER, LINES)


def _exit_status(pod: Object) -> int | None:
    """k6's there, though a sidecar may go on; 1 where nothing is known of it (an evicted pod), None while it runs."""
    states = [one["state"] for one in pod["status"].get("containerStatuses", []) if one["name"] == CONTAINER]
    if states and "terminated" in states[0]:
        return states[0]["terminated"]["exitCode"]
    return 1 if pod["status"].get("phase") in ("Succeeded", "Failed") else None


def _number(pod: Object) -> int:
    """`load-…-12-x7f4q` of the Job `load-…-12` → 12."""
    return int(pod["metadata"]["labels"]["job-name"].rpartition("-")[2])


def _state(pod: Object) -> str:
    """`pod load-1-2-x: Pending, ErrImagePull: …` for a fault's text."""
    status = pod["status"]
    states = [state for one in status.get("containerStatuses", []) for state in one.get("state", {}).values()]
    why = [f"{state.get('reason', '')} {state.get('message', '')}".strip() for state in states]
    why += [each["message"] for each in status.get("conditions", []) if each.get("reason") == "Unschedulable"]
    return ", ".join([f"pod {pod['metadata']['name']}: {status.get('phase', '')}", *filter(None, why)])
