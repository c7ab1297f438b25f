"""A load of many generators as k6-operator has it: the TestRun, and the runners that the operator makes of one. Pure.

    TestRun load-7, parallelism 2   →   pod load-7-1: k6 run … --execution-segment=0:1/2 --execution-segment-sequence=0,1/2,1 …
                                        pod load-7-2: k6 run … --execution-segment=1/2:1 --execution-segment-sequence=0,1/2,1 …

k6-operator facts this file respects (source of 1.6.0, which the tests hold it against; a trial of 1.6 with k6 2.2):

- stages: an initializer (`k6 archive`, `k6 inspect`), then N runner Jobs of one pod each, started `--paused`, then a starter
  that lets all go by one `curl -X PATCH` after the other. Default images come from registries, so all three are given
  ours, which has sh, curl and k6. It looks at the initializer every 5 s: a sample costs some 10 s more.
- it adds `--quiet`, `--address=0.0.0.0:6565`, `--paused` and the segments to the arguments; `--address` must stay its own.
- parts are exact: of 5 users the first of two runners has 3; a rate is divided as a fraction.
- its probes ask k6 over HTTP and restart what is slow to answer under load: a connection must do here, and rarely.
- `separate` wants as many nodes as runners; a spread that is only preferred is asked for instead.
- `cleanup: post` would take the logs with it: the lab reads them, then deletes the TestRun, which owns all it made.
- a pod of its making has no hostAliases: names of routes reach k6 as its own option `hosts`.
- a runner `--linger`s when its part is done, until SIGTERM: what it used can still be read. Only then it prints its summary.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from lab.generators.k6 import environment
from lab.model.load import Load
from lab.model.variants.labels import ROLE_LABEL
from lab.targets.cluster.api import CLIENT_NAMESPACE, RUN_LABEL

Object = dict[str, Any]
API_VERSION, KIND = "k6.io/v1alpha1", "TestRun"
CONTAINER = "k6"
"""Of every pod that the operator makes; what others inject (a mesh's sidecar) says nothing of the load."""
MEMBER = "k6_cr"
"""Label of everything that belongs to a TestRun: its name."""
PORT = 6565
"""Of k6's own API."""
_FOLDER, _VOLUME = "/test", "k6-test-volume"
"""Where the operator mounts the ConfigMap of the script, and as what."""
_ALIVE = {"tcpSocket": {"port": PORT}, "periodSeconds": 300, "failureThreshold": 10}
_READY = {"tcpSocket": {"port": PORT}, "periodSeconds": 2, "timeoutSeconds": 5, "failureThreshold": 1000}
"""The operator waits for Services with endpoints before it starts: ready soon, and never unready again."""
_NODE = "kubernetes.io/hostname"
_PLACE = {
    "podAntiAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {
                "weight": 100,
                "podAffinityTerm": {
                    "labelSelector": {
                        "matchExpressions": [{"key": ROLE_LABEL, "operator": "In", "values": ["proxy", "backend"]}]
                    },
                    "namespaceSelector": {},
                    "topologyKey": _NODE,
                },
            }
        ]
    },
}
"""Never rather beside what is measured than two on one."""


def objects(
    name: str,
    run: str,
    image: str,
    load: Load,
    files: Mapping[str, str],
    hosts: Mapping[str, str],
    marked: bool,
) -> tuple[Object, Object]:
    """The ConfigMap with the script, and the TestRun that runs it. `hosts`: name → address, for k6 in the place of DNS.

    `marked`: nodes are marked for generators, and no other has one, whatever a scheduler weighs: in the arm without a proxy
    the proxy's node is as free as theirs, and the same load would come from elsewhere.
    """
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
        "nodeSelector": {ROLE_LABEL: "generator"} if marked else {},
        "affinity": _PLACE,
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": _NODE,
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {MEMBER: name}},
            }
        ],
        "livenessProbe": _ALIVE,
        "readinessProbe": _READY,
    }
    spec = {
        "parallelism": load.generators,
        "script": {"configMap": {"name": name, "file": "k6.js"}},
        "arguments": f"--no-color --no-usage-report --linger --config {_FOLDER}/k6.json",
        "quiet": "true",
        "runner": runner,
        "initializer": pod,
        "starter": pod,
    }
    listed = metadata | {"labels": labels | {MEMBER: name}}
    return (
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": listed, "data": data},
        {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec},
    )


def segments(number: int, of: int) -> list[str]:
    """k6's arguments for the part of one of so many (1, 2, …), as the operator spells them: together they are the whole."""
    bounds = ["0", *(f"{bound}/{of}" for bound in range(1, of)), "1"]
    part = ":".join(bounds[number - 1 : number + 1])
    return [f"--execution-segment={part}", f"--execution-segment-sequence={','.join(bounds)}"]


def runner(testrun: Object, number: int) -> Object:
    """The pod of one of its runners (1, 2, …), as the operator makes it: by a Job, which there is none of here.

    Its host name tells its number, too, where the operator has made it.
    """
    metadata, spec, wanted = testrun["metadata"], testrun["spec"], testrun["spec"]["runner"]
    name, script = f"{metadata['name']}-{number}", spec["script"]["configMap"]
    labels = {**wanted["metadata"]["labels"], "app": "k6", MEMBER: metadata["name"], "runner": "true"}
    tags = [f"instance_id={number}", f"testrun_name={metadata['name']}"]
    command = [
        *("k6", "run", "--quiet", *segments(number, spec["parallelism"]), *spec["arguments"].split()),
        *(f"{_FOLDER}/{script['file']}", f"--address=0.0.0.0:{PORT}", "--paused"),
        *(part for tag in tags for part in ("--tag", tag)),
    ]
    container = {
        "name": CONTAINER,
        "command": command,
        "ports": [{"containerPort": PORT}],
        "securityContext": wanted["containerSecurityContext"],
        "volumeMounts": [{"name": _VOLUME, "mountPath": _FOLDER, "readOnly": True}],
        **{key: wanted[key] for key in ("image", "imagePullPolicy", "env", "livenessProbe", "readinessProbe")},
    }
    pod = {
        "automountServiceAccountToken": wanted["automountServiceAccountToken"] == "true",
        "hostname": name,
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": [{"name": _VOLUME, "configMap": {"name": script["name"]}}],
        **{key: wanted[key] for key in ("nodeSelector", "affinity", "tolerations", "topologySpreadConstraints")},
    }
    place = {"name": name, "namespace": metadata["namespace"], "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": place, "spec": pod}
