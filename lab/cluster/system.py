"""One variant, up and answering on a cluster: where load goes, who runs, and a way in."""

from __future__ import annotations

import os
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from lab import fetching, haproxy, hosts
from lab.cluster import sampling, testrun, tunnel, ways
from lab.cluster.api import Api
from lab.cluster.client import ClientPod
from lab.cluster.facts import pods_record
from lab.cluster.images import Images
from lab.cluster.names import CLIENT_NAMESPACE, CLIENT_POD, ROLE_LABEL
from lab.cluster.pods import ready
from lab.cluster.sampling import Others, Place
from lab.cluster.shell import Shell
from lab.cluster.tools import tools
from lab.errors import LabError, LostError, MeasuringError, UsageError
from lab.generators import Load
from lab.sweeps import PAGES, Point, Tls
from lab.targets.base import Endpoint, Ran, Response, Role, Watch

PROBED_PAGE = "1kB.bin"
NETWORK_TOOLS = frozenset({"ss", "sockperf"})
"""Programs that look at a pod's network only: where its image has none, another container of the pod can run them."""
NOT_FOUND = 127
SETTLED_S = 0.5
"""No process of the proxy has come or gone for so long: the workers of its first configuration have ended."""
NODE_SCOPE = "lab/scope=node"
LOG_LINES = 20
_PIDS = r"""
for p in /proc/[0-9]*; do
  IFS= read -r line <$p/stat || continue
  rest=${line##*) }
  parent=${rest#* }
  [ "${p#/proc/}" = "$SHELL_PID" ] || [ "${parent%% *}" = "$SHELL_PID" ] || echo "${p#/proc/}"
done 2>/dev/null
"""


class ClusterSystem:
    """See `lab.targets.base.System`. `namespace` is the one that the variant's pods are in.

    `check` raises LostError when the lab may no longer measure there: asked before load is made and at both ends of a
    sample, so that none is kept that another lab may have disturbed.
    """

    def __init__(
        self,
        api: Api,
        images: Images,
        client: ClientPod,
        manifests: Sequence[Mapping[str, Any]],
        namespace: str,
        run: str,
        others: Others,
        check: Callable[[], None],
    ) -> None:
        self._api, self._images, self._client = api, images, client
        self._manifests, self._namespace, self._run, self._others = manifests, namespace, run, others
        self._check = check
        self._routed = hosts.routed(manifests)
        self._host = next(iter(self._routed))
        self._shells: dict[tuple[str, str, str], Shell] = {}
        self._tools: dict[str, Shell] = {}
        self._helpers: list[subprocess.Popen[bytes]] = []
        self._pods = {role: self._ready(role) for role in ("proxy", "backend")}
        self._way_in: Role = "proxy" if self._pods["proxy"] else "backend"

    # -- where load goes --------------------------------------------------------------------------------

    def entry(self) -> Endpoint:
        return self._entry((self._host,), self._routed[self._host])

    def endpoint(self, point: Point) -> Endpoint:
        return self._entry(*hosts.chosen(self._routed, bool(self._pods["proxy"]), point))

    def backend_endpoint(self) -> Endpoint:
        way = ways.way(self._api, self._manifests, "backend")
        return Endpoint(f"http://{way.host}:{way.port}", self._host, (self._host,))

    def address(self) -> str:
        """Where the hosts of all routes are, for a client."""
        return ways.way(self._api, self._manifests, self._way_in).host

    def _entry(self, names: tuple[str, ...], tls: Tls) -> Endpoint:
        way = ways.way(self._api, self._manifests, self._way_in, "http" if tls == "none" else "https")
        base = f"http://{way.host}:{way.port}" if tls == "none" else f"https://{names[0]}:{way.port}"
        return Endpoint(base, names[0], names, tls, way.words)

    def pod_address(self, role: Role) -> str:
        return self._first(role)["status"]["podIP"]

    def fetch(
        self, endpoint: Endpoint, path: str, timeout_s: float, headers: Mapping[str, str] | None = None
    ) -> Response:
        connection = tunnel.connect(self._api, fetching.place(endpoint), timeout_s)
        return fetching.fetch(connection, endpoint, path, headers, timeout_s)

    def popen(
        self,
        argv: Sequence[str],
        cwd: Path,
        stdout: IO[bytes],
        stderr: IO[bytes],
        files: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        self._check()
        return self._client.popen(argv, files or {}, stdout, stderr)

    def generate(self, load: Load, files: Mapping[str, str]) -> Ran:
        self._check()
        hosts_at = dict.fromkeys(self._routed, self.address())
        return testrun.generate(self._api, self._images.named("loadgen"), self._run, load, files, hosts_at)

    def spawn(self, role: Role, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        if role == "generator":
            raise UsageError("role generator", "its helpers are started like generators", "use popen")
        pod = self._first(role)
        helper = self._tool(pod).popen(argv, None, subprocess.DEVNULL, subprocess.DEVNULL)
        self._helpers.append(helper)
        return helper

    def shape(self, link_mbit: float | None) -> None:
        if link_mbit is not None:
            raise MeasuringError(
                "client's link", "is not shaped on a cluster", "measure such a point with --target local"
            )

    # -- who runs ---------------------------------------------------------------------------------------

    def watch(self) -> Watch:
        places = [Place("generator", CLIENT_NAMESPACE, CLIENT_POD, self._client.node, self._client.shell)]
        for role in ("proxy", "backend"):
            for pod in self._pods[role]:
                name, node = pod["metadata"]["name"], pod["spec"]["nodeName"]
                places.append(Place(role, self._namespace, name, node, self._shell(pod)))
        return sampling.ClusterWatch(places, self.counters, self._others)

    def counters(self) -> Mapping[str, int]:
        """`proxy/tls_…`, where a HAProxy of ours ends TLS; the rest is the watch's own. MeasuringError if it does not say."""
        self._check()
        if not {"edge", "reencrypt"} & set(self._routed.values()):
            return {}
        found: Counter[str] = Counter()
        for pod in self._pods["proxy"]:
            shell = self._shell(pod)
            done = shell.script(
                f"[ -S {haproxy.SOCKET} ] || exit 0\necho 'show stat' | socat - UNIX-CONNECT:{haproxy.SOCKET}"
            )
            if done.returncode:
                fault = f"HAProxy does not tell its handshakes: {done.stderr.strip()[-200:] or 'nothing was said'}"
                raise MeasuringError(shell.place, fault, "its image needs socat; `kubectl logs` says whether it runs")
            found.update(haproxy.tls(done.stdout))
        return {f"proxy/{name}": count for name, count in found.items()}

    def pods(self, role: Role) -> Sequence[Mapping[str, Any]]:
        return self._ready(role)

    def deployed(self) -> Sequence[Mapping[str, Any]]:
        return pods_record([pod for role in ("proxy", "backend") for pod in self._all(role)])

    def processes(self, role: Role) -> list[int]:
        if role == "lab":
            return [os.getpid()]
        shells = [self._client.shell] if role == "generator" else [self._shell(pod) for pod in self._pods.get(role, ())]
        found: list[int] = []
        for number, shell in enumerate(shells):
            listed = shell.script(f"SHELL_PID={shell.pid}\n{_PIDS}").stdout.split()
            found += [(number << 32) + int(pid) for pid in listed]  # each pod counts from 1
        return found

    def restarts(self) -> Mapping[str, int]:
        return {
            f"{pod['metadata']['name']}/{status['name']}": status["restartCount"]
            for role in ("proxy", "backend")
            for pod in self._all(role)
            for status in pod["status"].get("containerStatuses", [])
        }

    def unapplied(self) -> Sequence[str]:
        return []

    # -- a way in ---------------------------------------------------------------------------------------

    def exec(self, role: Role, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
        if role == "node":
            return self._node_shell().run(argv)
        pod = self._first(role)
        done = self._shell(pod).run(argv)
        if done.returncode == NOT_FOUND and argv[0] in NETWORK_TOOLS:
            return self._tool(pod).run(argv)
        return done

    def log_tail(self) -> str:
        said = []
        for role in ("proxy", "backend"):
            for pod in self._all(role):
                name = pod["metadata"]["name"]
                try:
                    text = self._api.log(self._namespace, name, pod["spec"]["containers"][0]["name"], LOG_LINES)
                except LostError:
                    raise
                except LabError as error:  # what it explains is the fault to tell
                    text = f"its log cannot be had: {error.fault}"
                said += [f"--- {name}\n{text}"] if text.strip() else []
        return "\n".join(said)

    def wait(self, deadline: float, still_until: float) -> None:
        """Until the entry and the last route serve the probed page whole, and the proxy's processes are settled.

        A ready pod is not yet in every node's rules, nor its last configuration loaded: before `still_until` (monotonic)
        it may load another. MeasuringError at the deadline.
        """
        last = list(self._routed)[-1]
        fault = "not asked yet"
        settled_at = time.monotonic()
        running: list[int] = []
        while True:
            faults = [self._fault(endpoint) for endpoint in (self.entry(), self._entry((last,), self._routed[last]))]
            fault = next(filter(None, faults), "")
            now = sorted(self.processes(self._way_in))
            if now != running:
                running, settled_at = now, time.monotonic()
            if not fault and time.monotonic() - settled_at >= SETTLED_S and time.monotonic() >= still_until:
                return
            if time.monotonic() > deadline:
                fault = fault or "its processes come and go"
                raise MeasuringError(
                    self.entry().base_url, f"/{PROBED_PAGE}: {fault}", self.log_tail() or "nothing was logged"
                )
            time.sleep(0.1)

    def close(self) -> None:
        """End the shells and helpers; idempotent."""
        for helper in self._helpers:
            helper.kill()
            helper.wait()
        for shell in (*self._shells.values(), *self._tools.values()):
            shell.close()
        self._helpers, self._shells, self._tools = [], {}, {}

    # -- inside -----------------------------------------------------------------------------------------

    def _fault(self, endpoint: Endpoint) -> str:
        try:
            response = self.fetch(endpoint, f"/{PROBED_PAGE}", 2.0)
        except OSError as error:
            return str(error)
        whole = response.status == 200 and len(response.body) == PAGES[PROBED_PAGE]
        return "" if whole else f"{endpoint.host}: status {response.status}, {len(response.body)} bytes"

    def _all(self, role: Role) -> list[dict[str, Any]]:
        return self._api.list("v1", "Pod", self._namespace, f"{ROLE_LABEL}={role}")

    def _ready(self, role: Role) -> list[dict[str, Any]]:
        return [pod for pod in self._all(role) if ready(pod)]

    def _first(self, role: Role) -> dict[str, Any]:
        pods = self._pods.get(role)
        if not pods:
            raise UsageError(
                f"role {role}", "this variant has no such pod", "leave the check out, or name the other role"
            )
        return pods[0]

    def _shell(self, pod: Mapping[str, Any]) -> Shell:
        """Into the first container: the lab's own."""
        place = (pod["metadata"]["namespace"], pod["metadata"]["name"], pod["spec"]["containers"][0]["name"])
        if place not in self._shells:
            self._shells[place] = Shell(self._api, *place)
        return self._shells[place]

    def _tool(self, pod: dict[str, Any]) -> Shell:
        name = pod["metadata"]["name"]
        if name not in self._tools:
            self._tools[name] = tools(self._api, self._images, pod, pod["spec"]["containers"][0]["name"])
        return self._tools[name]

    def _node_shell(self) -> Shell:
        """Into the node-tuning pod on the proxy's node, which sees the node's own /proc and network."""
        node = self._first(self._way_in)["spec"]["nodeName"]
        pods = self._api.list("v1", "Pod", self._namespace, NODE_SCOPE)
        pod = next((pod for pod in pods if pod["spec"].get("nodeName") == node and ready(pod)), None)
        if pod is None:
            raise LookupError(f"no node-tuning pod is ready on {node}")
        return self._shell(pod)
