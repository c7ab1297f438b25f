"""A load of many generators as k6-operator has it: the TestRun, the runners that the operator makes of one, and their life: made, looked at, let
go together, heard and removed.

    TestRun load-7, parallelism 2   →   pod load-7-1: k6 run … --execution-segment=0:1/2 --execution-segment-sequence=0,1/2,1 …
    wanted   → pods that wait, every connection ready   → a sample begins anew, with them in it   → all go
    all done → a last look at each                      → SIGTERM: they print their summaries     → Ran

Where the cluster knows TestRuns its k6-operator makes the runners and lets them go; elsewhere the lab does, by the same manifest, ten seconds
faster. Refuses to raise for what a generator did: one that cannot be started, fails or hangs is a `Ran` like any other. LostError when the API
server is gone. Facts of k6-operator (source of 1.6.0; a trial of 1.6 with k6 2.2) that this file respects:

- stages: an initializer, then N runner Jobs of one pod each, started `--paused`, then a starter that lets all go by one `curl -X PATCH` after the
  other. Default images come from registries, so all three are given ours. It looks at the initializer every 5 s: a sample costs some 10 s more.
- it adds `--quiet`, `--address=0.0.0.0:6565`, `--paused` and the segments to the arguments; `--address` must stay its own.
- its probes ask k6 over HTTP and restart what is slow to answer under load: a connection must do here, and rarely.
- `separate` wants as many nodes as runners; a spread that is only preferred is asked for instead.
- `cleanup: post` would take the logs with it: the lab reads them, then deletes the TestRun, which owns all it made.
- a pod of its making has no hostAliases: names of routes reach k6 as its own option `hosts`.
- a runner `--linger`s when its part is done, until SIGTERM: what it used can still be read. Only then it prints its summary.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

from lab.base.errors import LabError, MeasuringError
from lab.generators.k6 import environment
from lab.model.endpoint import Ran
from lab.model.load import Load
from lab.model.variants.labels import ROLE_LABEL
from lab.targets.cluster.api import CLIENT_NAMESPACE, RUN_LABEL, Api, until
from lab.targets.cluster.pods import container_id
from lab.targets.cluster.sampling import ClusterWatch, Place
from lab.targets.cluster.shell import Shell

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
    }
}
"""Never rather beside what is measured than two on one."""
START_S = 180.0
"""From the request to runners that can begin: with the operator three rounds of pods, whose image may have to be pulled."""
GRACE_S = 30.0
"""What runners may take beyond the load's time and its last answers' timeout; and to print, once they are told to end."""
GONE_S = 60.0
POLL_S = 0.5
NOT_STARTED = 127
"""As a shell reports it."""
PAUSED, ENDED = 4, 9
"""Of k6's ExecutionStatus (its lib/execution.go): all is made and it waits to be let go; nothing more is to come."""
_GO = json.dumps({"data": {"attributes": {"paused": False}, "id": "default", "type": "status"}})


def shared(
    name: str, run: str, image: str, load: Load, files: Mapping[str, str], hosts: Mapping[str, str], marked: bool
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


@dataclass(frozen=True, slots=True)
class Runners:
    """What such a load takes. `client`: the generator's pod, which asks k6's own API; `shell`: into a container of a pod there."""

    api: Api
    client: Shell
    shell: Callable[[Api, str, str, str], Shell] = Shell

    def generate(
        self, image: str, run: str, load: Load, files: Mapping[str, str], hosts: Mapping[str, str], watch: ClusterWatch
    ) -> Ran:
        """Make the load and collect what its runners said; nothing of it is left on the cluster.

        `watch` is the one around it, which begins anew when they can begin. `hosts`: name → address, for k6 in the place of DNS.
        """
        self._remove([one["metadata"]["name"] for one in self.api.list("v1", "ConfigMap", CLIENT_NAMESPACE, MEMBER)])
        name = f"load-{time.time_ns() // 1_000_000}"
        marked = bool(self.api.list("v1", "Node", labels=f"{ROLE_LABEL}=generator"))
        config, wanted = shared(name, run, image, load, files, hosts, marked)
        try:
            self.api.create(config)
            ran = self._made(wanted, load, watch)
        except BaseException:
            with suppress(LabError):  # the first fault is the one to tell; the next load removes the rest
                self._remove([name])
            raise
        self._remove([name])
        return ran

    def _made(self, wanted: Object, load: Load, watch: ClusterWatch) -> Ran:
        name, operated = wanted["metadata"]["name"], self._operated
        for obj in [wanted] if operated else [runner(wanted, 1 + n) for n in range(load.generators)]:
            self.api.create(obj)
        waiting = self._waiting(name, load)
        if isinstance(waiting, Ran):
            return waiting
        with ExitStack() as lasting:
            places: list[Place] = []
            for pod in waiting:
                where = CLIENT_NAMESPACE, pod["metadata"]["name"]
                shell = self.shell(self.api, *where, CONTAINER)
                lasting.callback(shell.close)
                places.append(Place("generator", *where, pod["spec"].get("nodeName", ""), shell, container_id(pod)))
            with watch.beginning_anew(places):
                if not operated and (deaf := self._let_go(waiting)):
                    return Ran("", f"cannot be let go: {', '.join(deaf)}", NOT_STARTED, False)
                done = self._done(name, load, operated)
            for place in places:
                with suppress(LabError):  # it has ended by itself, and its exit status says how
                    place.shell.script("kill -TERM 1")
            until(lambda: None not in map(_exit_status, self._runners(name)), GRACE_S, POLL_S)
            runners = self._runners(name)
        return self._collected(runners, hung=not done or None in map(_exit_status, runners))

    @property
    def _operated(self) -> bool:
        return self.api.resource(API_VERSION, KIND) is not None

    def _waiting(self, name: str, load: Load) -> list[Object] | Ran:
        """The runners once all of them can begin; what became of them where one has ended, or START_S passed."""
        deadline = time.monotonic() + START_S
        while True:
            runners = self._runners(name)
            if any(_exit_status(pod) is not None for pod in runners):
                return self._collected(runners, hung=False)
            if len(runners) == load.generators and all(at >= PAUSED for at in self._statuses(runners)):
                return runners
            stage = ((self.api.get(API_VERSION, KIND, name, CLIENT_NAMESPACE) or {}).get("status") or {}).get("stage")
            if stage == "error":
                said = " ".join(self._log(pod) for pod in self._pods(name)).strip() or "its own log says why"
                return Ran("", f"k6-operator refused the load: {said}", 1, False)
            if time.monotonic() > deadline:
                made = f", stage {stage or 'none (is the operator running?)'}" if self._operated else ""
                why = f"{KIND} {name}: not ready after {START_S:.0f} s{made}"
                return Ran("", "; ".join([why, *map(_state, self._pods(name))]), NOT_STARTED, False)
            time.sleep(POLL_S)

    def _let_go(self, runners: Sequence[Object]) -> list[str]:
        """All at once; the addresses of those that did not take it."""
        asked = f"-X PATCH -H 'Content-Type: application/json' -d {shlex.quote(_GO)} -o /dev/null"
        lines = [f"{{ curl -sf -m 10 {asked} {url} || echo {url}; }} &" for url in map(_url, runners)]
        return self.client.script("\n".join([*lines, "wait"])).stdout.split()

    def _done(self, name: str, load: Load, operated: bool) -> bool:
        """Waits for the runners' end, from when they began; False for one that goes on beyond its time.

        Before their time is over nobody is asked: every question is work beside what is measured.
        """
        time.sleep(load.duration_s)

        def ended() -> bool:
            on = [pod for pod in self._runners(name) if _exit_status(pod) is None]
            return all(at >= ENDED for at in self._statuses(on))

        return until(ended, (START_S if operated else 0.0) + load.timeout_s + GRACE_S, POLL_S)

    def _statuses(self, runners: Sequence[Object]) -> list[int]:
        """How far each is, by k6's own word; -1 where it says nothing."""
        lines = [f"curl -s -m 5 {_url(pod)}; echo" if pod["status"].get("podIP") else "echo" for pod in runners]
        said = self.client.script("\n".join(lines) or "true").stdout.splitlines()
        found: list[int] = []
        for line in said[: len(runners)]:
            try:
                found.append(int(json.loads(line)["data"]["attributes"]["status"]))
            except (ValueError, KeyError, TypeError):
                found.append(-1)
        return found + [-1] * (len(runners) - len(found))

    def _collected(self, runners: Sequence[Object], hung: bool) -> Ran:
        """`hung`: some had not done their part in time; whoever has not ended is a failure."""
        said = [
            f"--- runner {number} of {len(runners)}: {pod['metadata']['name']} on {pod['spec'].get('nodeName', 'no node')}\n"
            f"{self._log(pod).rstrip()}\n"
            for number, pod in enumerate(runners, 1)
        ]
        failed = [pod for pod in runners if _exit_status(pod) != 0]
        worst = max((_exit_status(pod) or 1 for pod in failed), default=0)
        return Ran("".join(said), "\n".join(map(_state, failed)), worst, hung)

    def _remove(self, names: Sequence[str]) -> None:
        """TestRuns, and the pods of theirs that still run at once; returns when the pods are gone, or after GONE_S."""
        for name in names:
            if self._operated:
                self.api.delete(API_VERSION, KIND, name, CLIENT_NAMESPACE)
                self.api.delete_all("batch/v1", "Job", CLIENT_NAMESPACE, f"{MEMBER}={name}")
            self.api.delete_all("v1", "Pod", CLIENT_NAMESPACE, f"{MEMBER}={name}", grace_s=1)
            if not until(lambda name=name: not self._pods(name), GONE_S, POLL_S):
                place, fault = f"{self.api.place}: {CLIENT_NAMESPACE}", f"pods of {KIND} {name} do not end"
                raise MeasuringError(place, fault, "`kubectl describe` them; then --resume")
            # Last: it is what tells that there is something to remove.
            self.api.delete("v1", "ConfigMap", name, CLIENT_NAMESPACE)

    def _pods(self, name: str) -> list[Object]:
        return self.api.list("v1", "Pod", CLIENT_NAMESPACE, f"{MEMBER}={name}")

    def _runners(self, name: str) -> list[Object]:
        """By their numbers."""
        runners = [pod for pod in self._pods(name) if pod["metadata"]["labels"].get("runner")]
        # The one with the host name `load-…-12` is the twelfth.
        return sorted(runners, key=lambda pod: int(pod["spec"]["hostname"].rpartition("-")[2]))

    def _log(self, pod: Object) -> str:
        return self.api.log(CLIENT_NAMESPACE, pod["metadata"]["name"], CONTAINER, lines=100_000)


def _url(pod: Object) -> str:
    address = pod["status"]["podIP"]
    return f"http://{f'[{address}]' if ':' in address else address}:{PORT}/v1/status"


def _exit_status(pod: Object) -> int | None:
    """k6's there, though a sidecar may go on; 1 where nothing is known of it (an evicted pod), None while it runs."""
    states = [one["state"] for one in pod["status"].get("containerStatuses", []) if one["name"] == CONTAINER]
    if states and "terminated" in states[0]:
        return states[0]["terminated"]["exitCode"]
    return 1 if pod["status"].get("phase") in ("Succeeded", "Failed") else None


def _state(pod: Object) -> str:
    """`pod load-1-2-x: Pending, ErrImagePull: …` for a fault's text."""
    status = pod["status"]
    states = [state for one in status.get("containerStatuses", []) for state in one.get("state", {}).values()]
    why = [f"{state.get('reason', '')} {state.get('message', '')}".strip() for state in states]
    why += [each["message"] for each in status.get("conditions", []) if each.get("reason") == "Unschedulable"]
    return ", ".join([f"pod {pod['metadata']['name']}: {status.get('phase', '')}", *filter(None, why)])
