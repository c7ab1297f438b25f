"""A load that several k6 processes make together on a cluster, each in a separate pod (a runner).

The load is described by a TestRun, the kind of object that k6-operator defines. An example, and the life of its runners:

    TestRun load-7, parallelism 2   →   pod load-7-1: k6 run … --execution-segment=0:1/2 --execution-segment-sequence=0,1/2,1 …
    created  → pods that wait, every connection ready   → the sample begins anew, with these pods   → all start
    all done → a last snapshot of each                  → SIGTERM: they print their summaries       → GeneratorsOutput

If the cluster has the kind TestRun, its k6-operator makes and starts the runners. Otherwise the lab does both, from the same
manifest and ten seconds faster. A generator that cannot be started, fails or hangs raises no error: its load has a
`GeneratorsOutput` like any other. LostError is raised if the API server does not answer.

Facts about k6-operator on which this file relies (source of 1.6.0; tried with 1.6 and k6 2.2):

- It starts an initializer, then N runner Jobs of one pod each with `--paused`, and then a starter, which starts all runners one
  after the other by `curl -X PATCH`. The default images come from registries, so all three get the lab's image. The operator
  looks at the initializer every 5 s, so a sample takes some 10 s more.
- It adds `--quiet`, `--address=0.0.0.0:6565`, `--paused` and the segments to the arguments; `--address` must stay unchanged.
- Its probes query k6 over HTTP, and a runner that answers slowly under load is restarted. The lab's probes only connect, and
  rarely.
- `separate` requires as many nodes as runners. The lab requests that runners are spread over nodes if possible.
- `cleanup: post` would remove the logs. So the lab reads them first, and then deletes the TestRun, to which everything else
  belongs.
- The pods that it makes have no hostAliases. So k6 gets the names of the routes' hosts by its own option `hosts`.
- With `--linger`, a runner that has made its part of the load waits for SIGTERM, so that its resource use can still be read.
  Only then it prints its summary.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from lab.base.errors import LabError, MeasuringError
from lab.generators.k6 import make_environment
from lab.model.endpoint import GeneratorsOutput
from lab.model.load import GeneratorLoad
from lab.model.variants.labels import ROLE_LABEL
from lab.targets.cluster.api import CLIENT_NAMESPACE, RUN_LABEL, Api, Object, poll_until
from lab.targets.cluster.pods import container_id
from lab.targets.cluster.sampling import ClusterWatch, WatchedContainer
from lab.targets.cluster.shell import Shell

API_VERSION, KIND = "k6.io/v1alpha1", "TestRun"
CONTAINER = "k6"
"""The container of every pod that the operator makes; injected ones (a mesh's sidecar) say nothing about the load."""
MEMBER = "k6_cr"
"""The label of everything that belongs to a TestRun; its value is the TestRun's name."""
PORT = 6565
"""The port of k6's own API."""
_FOLDER, _VOLUME = "/test", "k6-test-volume"
"""The folder where the operator mounts the script's ConfigMap, and the volume's name."""
_ALIVE = {"tcpSocket": {"port": PORT}, "periodSeconds": 300, "failureThreshold": 10}
_READY = {"tcpSocket": {"port": PORT}, "periodSeconds": 2, "timeoutSeconds": 5, "failureThreshold": 1000}
"""The readiness probe: the operator waits for Services with endpoints before it starts.

A runner is ready soon, and never unready again.
"""
_NODE = "kubernetes.io/hostname"
_AFFINITY = {
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
"""The affinity of runners: two runners on one node are better than a runner on the node of a proxy or backend."""
START_S = 180.0
"""The seconds that runners may need until they are ready to start.

With k6-operator, three groups of pods start one after the other, and their image may have to be pulled.
"""
GRACE_S = 30.0
"""The seconds that runners may take beyond the load's time and its last timeout, and to print their summaries."""
GONE_S = 60.0
POLL_S = 0.5
NOT_STARTED = 127
"""The exit status of a generator that was not started, as a shell reports it."""
PAUSED, ENDED = 4, 9
"""The values of k6's ExecutionStatus (its lib/execution.go) for a runner that waits to start, and one that is done.

At PAUSED everything is set up; at ENDED the load is over.
"""
_GO = json.dumps({"data": {"attributes": {"paused": False}, "id": "default", "type": "status"}})


def build_testrun(
    name: str,
    run: str,
    image: str,
    load: GeneratorLoad,
    files: Mapping[str, str],
    hosts: Mapping[str, str],
    marked: bool,
) -> tuple[Object, Object]:
    """Return the two objects for a load of several generators: a ConfigMap with k6's script, and a TestRun of k6-operator.

    Args:
        name: The name of both objects.
        run: The name of the run, for labels.
        image: The generators' image.
        load: The load to make.
        files: Name → text of the script's files.
        hosts: Host name → IP address, which k6 uses instead of DNS.
        marked: Whether the cluster has nodes that are marked for generators. Then the runners (the pods with k6) may
            run on such nodes only. Without this rule, a scheduler could put runners on the proxy's node in measurements
            without a proxy, when that node is free.

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
        # The label of the client's own pod, so that proxies and backends keep away from these, too.
        "metadata": {"labels": labels | {ROLE_LABEL: "generator"}},
        "env": [{"name": name, "value": value} for name, value in make_environment(load).items()],
        "nodeSelector": {ROLE_LABEL: "generator"} if marked else {},
        "affinity": _AFFINITY,
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
    config_metadata = metadata | {"labels": labels | {MEMBER: name}}
    return (
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": config_metadata, "data": data},
        {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec},
    )


def build_segments(number: int, total: int) -> list[str]:
    """Return the arguments with which k6 makes one part of a load that is divided into `total` equal parts.

    They are the arguments that k6-operator uses.

    Args:
        number: The number of the part: 1, 2, …
        total: The number of parts.

    """
    bounds = ["0", *(f"{bound}/{total}" for bound in range(1, total)), "1"]
    part = ":".join(bounds[number - 1 : number + 1])
    return [f"--execution-segment={part}", f"--execution-segment-sequence={','.join(bounds)}"]


def build_runner(testrun: Object, number: int) -> Object:
    """Return the Pod for one runner (one k6 process) of a TestRun, for a cluster without k6-operator.

    The pod is like the one that k6-operator would make, but belongs to no Job. Its host name ends with the runner's
    number, as with k6-operator.

    Args:
        testrun: The TestRun.
        number: The number of the runner: 1, 2, …

    """
    metadata, spec, template = testrun["metadata"], testrun["spec"], testrun["spec"]["runner"]
    name, script = f"{metadata['name']}-{number}", spec["script"]["configMap"]
    labels = {**template["metadata"]["labels"], "app": "k6", MEMBER: metadata["name"], "runner": "true"}
    tags = [f"instance_id={number}", f"testrun_name={metadata['name']}"]
    command = [
        *("k6", "run", "--quiet", *build_segments(number, spec["parallelism"]), *spec["arguments"].split()),
        *(f"{_FOLDER}/{script['file']}", f"--address=0.0.0.0:{PORT}", "--paused"),
        *(part for tag in tags for part in ("--tag", tag)),
    ]
    container = {
        "name": CONTAINER,
        "command": command,
        "ports": [{"containerPort": PORT}],
        "securityContext": template["containerSecurityContext"],
        "volumeMounts": [{"name": _VOLUME, "mountPath": _FOLDER, "readOnly": True}],
        **{key: template[key] for key in ("image", "imagePullPolicy", "env", "livenessProbe", "readinessProbe")},
    }
    pod = {
        "automountServiceAccountToken": template["automountServiceAccountToken"] == "true",
        "hostname": name,
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": [{"name": _VOLUME, "configMap": {"name": script["name"]}}],
        **{key: template[key] for key in ("nodeSelector", "affinity", "tolerations", "topologySpreadConstraints")},
    }
    pod_metadata = {"name": name, "namespace": metadata["namespace"], "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": pod_metadata, "spec": pod}


@dataclass(frozen=True, slots=True)
class RunnerLoad:
    """The component that runs a load of several k6 generators on a cluster, each in a separate pod (a runner).

    Attributes:
        api: The cluster.
        client: The shell into the generator's pod, from which the HTTP API of each k6 is queried.
        shell: The function that returns a shell into a container; its arguments are the cluster, and the names of
            namespace, pod and container.

    """

    api: Api
    client: Shell
    shell: Callable[[Api, str, str, str], Shell] = Shell

    def generate(
        self,
        image: str,
        run: str,
        load: GeneratorLoad,
        files: Mapping[str, str],
        hosts: Mapping[str, str],
        watch: ClusterWatch,
    ) -> GeneratorsOutput:
        """Run a load and return the output of its runners; afterwards everything for it is removed from the cluster.

        Args:
            image: The generators' image.
            run: The name of the run, for labels.
            load: The load to make.
            files: Name → text of the script's files.
            hosts: Host name → IP address, which k6 uses instead of DNS.
            watch: The open watch of the sample. It is begun again when all runners are ready to start.

        """
        self._remove(
            [config["metadata"]["name"] for config in self.api.list("v1", "ConfigMap", CLIENT_NAMESPACE, MEMBER)]
        )
        name = f"load-{time.time_ns() // 1_000_000}"
        marked = bool(self.api.list("v1", "Node", labels=f"{ROLE_LABEL}=generator"))
        config, testrun = build_testrun(name, run, image, load, files, hosts, marked)
        try:
            self.api.create(config)
            ran = self._run_load(testrun, load, watch)
        except BaseException:
            with suppress(LabError):  # the first fault is the one to report; the next load removes what is left
                self._remove([name])
            raise
        self._remove([name])
        return ran

    def _run_load(self, testrun: Object, load: GeneratorLoad, watch: ClusterWatch) -> GeneratorsOutput:
        name, operated = testrun["metadata"]["name"], self._has_operator
        for obj in [testrun] if operated else [build_runner(testrun, 1 + number) for number in range(load.generators)]:
            self.api.create(obj)
        waiting = self._await_runners(name, load)
        if isinstance(waiting, GeneratorsOutput):
            return waiting
        with ExitStack() as lasting:
            places: list[WatchedContainer] = []
            for pod in waiting:
                location = CLIENT_NAMESPACE, pod["metadata"]["name"]
                shell = self.shell(self.api, *location, CONTAINER)
                lasting.callback(shell.close)
                places.append(
                    WatchedContainer("generator", *location, pod["spec"].get("nodeName", ""), shell, container_id(pod))
                )
            with watch.beginning_anew(places):
                if not operated and (deaf := self._let_go(waiting)):
                    return GeneratorsOutput("", f"cannot be let go: {', '.join(deaf)}", NOT_STARTED, False)
                done = self._await_end(name, load, operated)
            for place in places:
                with suppress(LabError):  # it has ended already, and its exit status explains how
                    place.shell.script("kill -TERM 1")
            poll_until(lambda: None not in map(_find_exit_status, self._list_runners(name)), GRACE_S, POLL_S)
            runners = self._list_runners(name)
        return self._collect(runners, hung=not done or None in map(_find_exit_status, runners))

    @property
    def _has_operator(self) -> bool:
        return self.api.resource(API_VERSION, KIND) is not None

    def _await_runners(self, name: str, load: GeneratorLoad) -> list[Object] | GeneratorsOutput:
        """Wait until all runners of a TestRun are ready to start, and return their pods.

        Args:
            name: The name of the TestRun.
            load: The load.

        Returns:
            The pods; or an output that describes the failed load, in one of three cases: a runner has ended,
            k6-operator refuses the load, or START_S seconds have passed.

        """
        deadline = time.monotonic() + START_S
        while True:
            runners = self._list_runners(name)
            if any(_find_exit_status(pod) is not None for pod in runners):
                return self._collect(runners, hung=False)
            if len(runners) == load.generators and all(status >= PAUSED for status in self._read_statuses(runners)):
                return runners
            stage = ((self.api.get(API_VERSION, KIND, name, CLIENT_NAMESPACE) or {}).get("status") or {}).get("stage")
            if stage == "error":
                message = (
                    " ".join(self._read_log(pod) for pod in self._list_pods(name)).strip() or "its own log says why"
                )
                return GeneratorsOutput("", f"k6-operator refused the load: {message}", 1, False)
            if time.monotonic() > deadline:
                progress = f", stage {stage or 'none (is the operator running?)'}" if self._has_operator else ""
                reason = f"{KIND} {name}: not ready after {START_S:.0f} s{progress}"
                return GeneratorsOutput(
                    "", "; ".join([reason, *map(_describe_state, self._list_pods(name))]), NOT_STARTED, False
                )
            time.sleep(POLL_S)

    def _let_go(self, runners: Sequence[Object]) -> list[str]:
        """Start all paused runners at once, and return the URLs of those runners that did not accept the request."""
        options = f"-X PATCH -H 'Content-Type: application/json' -d {shlex.quote(_GO)} -o /dev/null"
        lines = [f"{{ curl -sf -m 10 {options} {url} || echo {url}; }} &" for url in map(_build_url, runners)]
        return self.client.script("\n".join([*lines, "wait"])).stdout.split()

    def _await_end(self, name: str, load: GeneratorLoad, operated: bool) -> bool:
        """Wait until all runners have made their load, and return whether they ended in time.

        During the planned time of the load, no runner is queried, because every query would add work to what is
        measured.

        Args:
            name: The name of the TestRun.
            load: The load.
            operated: Whether k6-operator starts the runners; then their start takes longer.

        """
        time.sleep(load.duration_s)

        def ended() -> bool:
            active = [pod for pod in self._list_runners(name) if _find_exit_status(pod) is None]
            return all(status >= ENDED for status in self._read_statuses(active))

        return poll_until(ended, (START_S if operated else 0.0) + load.timeout_s + GRACE_S, POLL_S)

    def _read_statuses(self, runners: Sequence[Object]) -> list[int]:
        """Return the state of each runner as a number of k6's ExecutionStatus (such as PAUSED); -1 if k6 reports none."""
        lines = [f"curl -s -m 5 {_build_url(pod)}; echo" if pod["status"].get("podIP") else "echo" for pod in runners]
        answers = self.client.script("\n".join(lines) or "true").stdout.splitlines()
        statuses: list[int] = []
        for line in answers[: len(runners)]:
            try:
                statuses.append(int(json.loads(line)["data"]["attributes"]["status"]))
            except (ValueError, KeyError, TypeError):
                statuses.append(-1)
        return statuses + [-1] * (len(runners) - len(statuses))

    def _collect(self, runners: Sequence[Object], hung: bool) -> GeneratorsOutput:
        """Return the joined output of all runners, with the highest of their exit statuses.

        Args:
            runners: The runners' pods. One that has not ended counts as failed with status 1.
            hung: Whether a runner has not made its part of the load in time.

        """
        outputs = [
            f"--- runner {number} of {len(runners)}: {pod['metadata']['name']} on {pod['spec'].get('nodeName', 'no node')}\n"
            f"{self._read_log(pod).rstrip()}\n"
            for number, pod in enumerate(runners, 1)
        ]
        failed = [pod for pod in runners if _find_exit_status(pod) != 0]
        worst = max((_find_exit_status(pod) or 1 for pod in failed), default=0)
        return GeneratorsOutput("".join(outputs), "\n".join(map(_describe_state, failed)), worst, hung)

    def _remove(self, names: Sequence[str]) -> None:
        """Remove TestRuns and their ConfigMaps, delete their pods, and wait until the pods are gone.

        Args:
            names: The names of the TestRuns.

        Raises:
            MeasuringError: Pods are still there after GONE_S seconds.

        """
        for name in names:
            if self._has_operator:
                self.api.delete(API_VERSION, KIND, name, CLIENT_NAMESPACE)
                self.api.delete_all("batch/v1", "Job", CLIENT_NAMESPACE, f"{MEMBER}={name}")
            self.api.delete_all("v1", "Pod", CLIENT_NAMESPACE, f"{MEMBER}={name}", grace_s=1)
            if not poll_until(lambda name=name: not self._list_pods(name), GONE_S, POLL_S):
                place, fault = f"{self.api.place}: {CLIENT_NAMESPACE}", f"pods of {KIND} {name} do not end"
                raise MeasuringError(place, fault, "`kubectl describe` them; then --resume")
            # Last, because it shows the next load that there is something to remove.
            self.api.delete("v1", "ConfigMap", name, CLIENT_NAMESPACE)

    def _list_pods(self, name: str) -> list[Object]:
        return self.api.list("v1", "Pod", CLIENT_NAMESPACE, f"{MEMBER}={name}")

    def _list_runners(self, name: str) -> list[Object]:
        """Return the pods of a TestRun's runners, ordered by the runners' numbers."""
        runners = [pod for pod in self._list_pods(name) if pod["metadata"]["labels"].get("runner")]
        # The pod with the host name `load-…-12` is the twelfth.
        return sorted(runners, key=lambda pod: int(pod["spec"]["hostname"].rpartition("-")[2]))

    def _read_log(self, pod: Object) -> str:
        return self.api.log(CLIENT_NAMESPACE, pod["metadata"]["name"], CONTAINER, lines=100_000)


def _build_url(pod: Object) -> str:
    address = pod["status"]["podIP"]
    return f"http://{f'[{address}]' if ':' in address else address}:{PORT}/v1/status"


def _find_exit_status(pod: Object) -> int | None:
    """Return the exit status of the k6 process in a pod, even if a sidecar still runs; None while k6 runs.

    If the pod has ended and k6's status is unknown (such as after an eviction), the result is 1.
    """
    states = [status["state"] for status in pod["status"].get("containerStatuses", []) if status["name"] == CONTAINER]
    if states and "terminated" in states[0]:
        return states[0]["terminated"]["exitCode"]
    return 1 if pod["status"].get("phase") in ("Succeeded", "Failed") else None


def _describe_state(pod: Object) -> str:
    """Return a text about a pod's state for an error, such as `pod load-1-2-x: Pending, ErrImagePull: …`."""
    status = pod["status"]
    states = [
        state for container in status.get("containerStatuses", []) for state in container.get("state", {}).values()
    ]
    reasons = [f"{state.get('reason', '')} {state.get('message', '')}".strip() for state in states]
    reasons += [
        condition["message"] for condition in status.get("conditions", []) if condition.get("reason") == "Unschedulable"
    ]
    return ", ".join([f"pod {pod['metadata']['name']}: {status.get('phase', '')}", *filter(None, reasons)])
