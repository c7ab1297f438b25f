"""A load of many generators: a pod of k6 for each, made, looked at, let go together, heard and removed.

    wanted   → pods that wait, every connection ready   → a sample begins anew, with them in it   → all go
    all done → a last look at each                      → SIGTERM: they print their summaries     → Ran

    of two, load-7-1: k6 run … --execution-segment=0:1/2 --execution-segment-sequence=0,1/2,1 … --linger … --paused
            load-7-2: k6 run … --execution-segment=1/2:1 --execution-segment-sequence=0,1/2,1 … --linger … --paused

Parts are exact: of 5 users the first of two runners has 3; a rate is divided as a fraction. A runner lingers when its part is done, until
SIGTERM: what it used can still be read. Only then it prints its summary. Refuses to raise for what a generator did: one that cannot be
started, fails or hangs is a `Ran` like any other. LostError when the API server is gone.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

from lab.base.errors import LabError, MeasuringError
from lab.generators.k6 import environment
from lab.model.endpoint import Ran
from lab.model.load import Load
from lab.model.variants.labels import ROLE_LABEL
from lab.targets.cluster.api import CLIENT_NAMESPACE, RUN_LABEL, Api, Object
from lab.targets.cluster.container_sampler import Place
from lab.targets.cluster.pods import container_id
from lab.targets.cluster.sampling import ClusterWatch
from lab.targets.cluster.shell import Shell

CONTAINER = "k6"
"""Of every runner; what others inject (a mesh's sidecar) says nothing of the load."""
MEMBER = "lab/load"
"""Label of everything that belongs to a load: its name."""
PORT = 6565
"""Of k6's own API."""
START_S = 180.0
"""From the request to runners that can begin: their image may have to be pulled."""
GRACE_S = 30.0
"""What runners may take beyond the load's time and its last answers' timeout; and to print, once they are told to end."""
GONE_S = 60.0
POLL_S = 0.5
LINES = 100_000
NOT_STARTED = 127
"""As a shell reports it."""
PAUSED, ENDED = 4, 9
"""Of k6's ExecutionStatus (its lib/execution.go): all is made and it waits to be let go; nothing more is to come."""
_FOLDER = "/test"
_GO = json.dumps({"data": {"attributes": {"paused": False}, "id": "default", "type": "status"}})
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


def config(name: str, run: str, files: Mapping[str, str], hosts: Mapping[str, str]) -> Object:
    """The ConfigMap with the script. `hosts`: name → address, for k6 in the place of DNS."""
    settings = json.loads(files["k6.json"]) | {"hosts": dict(hosts)}
    metadata = {"name": name, "namespace": CLIENT_NAMESPACE, "labels": {RUN_LABEL: run, MEMBER: name}}
    data = {**files, "k6.json": json.dumps(settings)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def segments(number: int, of: int) -> list[str]:
    """k6's arguments for the part of one of so many (1, 2, …): together they are the whole."""
    bounds = ["0", *(f"{bound}/{of}" for bound in range(1, of)), "1"]
    part = ":".join(bounds[number - 1 : number + 1])
    return [f"--execution-segment={part}", f"--execution-segment-sequence={','.join(bounds)}"]


def runner(name: str, run: str, image: str, load: Load, number: int, marked: bool) -> Object:
    """The pod of one generator (1, 2, …).

    `marked`: nodes are marked for generators, and no other has one, whatever a scheduler weighs: in the arm without a proxy
    the proxy's node is as free as theirs, and the same load would come from elsewhere.
    """
    command = [
        *("k6", "run", "--quiet", *segments(number, load.generators), "--no-color", "--no-usage-report", "--linger"),
        *("--config", f"{_FOLDER}/k6.json", f"{_FOLDER}/k6.js", f"--address=0.0.0.0:{PORT}", "--paused"),
    ]
    container = {
        "name": CONTAINER,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": command,
        "env": [{"name": key, "value": value} for key, value in environment(load).items()],
        "ports": [{"containerPort": PORT}],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": [{"name": "script", "mountPath": _FOLDER, "readOnly": True}],
    }
    spread = {
        "maxSkew": 1,
        "topologyKey": _NODE,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {MEMBER: name}},
    }
    spec = {
        "automountServiceAccountToken": False,
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": [{"name": "script", "configMap": {"name": name}}],
        "nodeSelector": {ROLE_LABEL: "generator"} if marked else {},
        "affinity": _PLACE,
        "tolerations": [{"key": ROLE_LABEL, "operator": "Equal", "value": "generator"}],
        "topologySpreadConstraints": [spread],
    }
    # Labelled as the client's own pod is, so that proxies and backends keep away from these, too.
    labels = {RUN_LABEL: run, ROLE_LABEL: "generator", MEMBER: name}
    metadata = {"name": f"{name}-{number}", "namespace": CLIENT_NAMESPACE, "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


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
        try:
            self.api.create(config(name, run, files, hosts))
            for number in range(1, load.generators + 1):
                self.api.create(runner(name, run, image, load, number, marked))
            ran = self._made(name, load, watch)
        except BaseException:
            with suppress(LabError):  # the first fault is the one to tell; the next load removes the rest
                self._remove([name])
            raise
        self._remove([name])
        return ran

    def _made(self, name: str, load: Load, watch: ClusterWatch) -> Ran:
        waiting = self._waiting(name, load)
        if isinstance(waiting, Ran):
            return waiting
        with self._looked_into(waiting) as places:
            with watch.beginning_anew(places):
                if deaf := self._let_go(waiting):
                    return Ran("", f"cannot be let go: {', '.join(deaf)}", NOT_STARTED, False)
                done = self._done(name, load)
            for place in places:
                with suppress(LabError):  # it has ended by itself, and its exit status says how
                    place.shell.script("kill -TERM 1")
            deadline = time.monotonic() + GRACE_S
            while None in map(_exit_status, runners := self._runners(name)) and time.monotonic() < deadline:
                time.sleep(POLL_S)
        return self._collected(runners, hung=not done or None in map(_exit_status, runners))

    def _waiting(self, name: str, load: Load) -> list[Object] | Ran:
        """The runners once all of them can begin; what became of them where one has ended, or START_S passed."""
        deadline = time.monotonic() + START_S
        while True:
            runners = self._runners(name)
            if any(_exit_status(pod) is not None for pod in runners):
                return self._collected(runners, hung=False)
            if len(runners) == load.generators and all(at >= PAUSED for at in self._statuses(runners)):
                return runners
            if time.monotonic() > deadline:
                why = f"load {name}: not ready after {START_S:.0f} s"
                return Ran("", "; ".join([why, *map(_state, runners)]), NOT_STARTED, False)
            time.sleep(POLL_S)

    @contextmanager
    def _looked_into(self, runners: Sequence[Object]) -> Iterator[list[Place]]:
        with ExitStack() as lasting:
            places: list[Place] = []
            for pod in runners:
                name = pod["metadata"]["name"]
                shell = self.shell(self.api, CLIENT_NAMESPACE, name, CONTAINER)
                lasting.callback(shell.close)
                node = pod["spec"].get("nodeName", "")
                places.append(Place("generator", CLIENT_NAMESPACE, name, node, shell, container_id(pod)))
            yield places

    def _let_go(self, runners: Sequence[Object]) -> list[str]:
        """All at once; the addresses of those that did not take it."""
        asked = f"-X PATCH -H 'Content-Type: application/json' -d {shlex.quote(_GO)} -o /dev/null"
        lines = [f"{{ curl -sf -m 10 {asked} {url} || echo {url}; }} &" for url in map(_url, runners)]
        return self.client.script("\n".join([*lines, "wait"])).stdout.split()

    def _done(self, name: str, load: Load) -> bool:
        """Waits for the runners' end, from when they began; False for one that goes on beyond its time.

        Before their time is over nobody is asked: every question is work beside what is measured.
        """
        late = time.monotonic() + load.duration_s + load.timeout_s + GRACE_S
        time.sleep(load.duration_s)
        while time.monotonic() < late:
            on = [pod for pod in self._runners(name) if _exit_status(pod) is None]
            if all(at >= ENDED for at in self._statuses(on)):
                return True
            time.sleep(POLL_S)
        return False

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
        said: list[str] = []
        for number, pod in enumerate(runners, 1):
            name, node = pod["metadata"]["name"], pod["spec"].get("nodeName", "no node")
            log = self.api.log(CLIENT_NAMESPACE, name, CONTAINER, LINES).rstrip()
            said.append(f"--- runner {number} of {len(runners)}: {name} on {node}\n{log}\n")
        failed = [pod for pod in runners if _exit_status(pod) != 0]
        worst = max((_exit_status(pod) or 1 for pod in failed), default=0)
        return Ran("".join(said), "\n".join(map(_state, failed)), worst, hung)

    def _remove(self, names: Sequence[str]) -> None:
        """Loads, and the pods of theirs that still run at once; returns when the pods are gone. MeasuringError after GONE_S."""
        for name in names:
            self.api.delete_all("v1", "Pod", CLIENT_NAMESPACE, f"{MEMBER}={name}", grace_s=1)
            deadline = time.monotonic() + GONE_S
            while self._runners(name):
                if time.monotonic() > deadline:
                    place, fault = f"{self.api.place}: {CLIENT_NAMESPACE}", f"pods of load {name} do not end"
                    raise MeasuringError(place, fault, "`kubectl describe` them; then --resume")
                time.sleep(POLL_S)
            # Last: it is what tells that there is something to remove.
            self.api.delete("v1", "ConfigMap", name, CLIENT_NAMESPACE)

    def _runners(self, name: str) -> list[Object]:
        """By their numbers: `load-…-12` → 12."""
        found = self.api.list("v1", "Pod", CLIENT_NAMESPACE, f"{MEMBER}={name}")
        return sorted(found, key=lambda pod: int(pod["metadata"]["name"].rpartition("-")[2]))


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
    """`pod load-1-2: Pending, ErrImagePull: …` for a fault's text."""
    status = pod["status"]
    states = [state for one in status.get("containerStatuses", []) for state in one.get("state", {}).values()]
    why = [f"{state.get('reason', '')} {state.get('message', '')}".strip() for state in states]
    why += [each["message"] for each in status.get("conditions", []) if each.get("reason") == "Unschedulable"]
    return ", ".join([f"pod {pod['metadata']['name']}: {status.get('phase', '')}", *filter(None, why)])
