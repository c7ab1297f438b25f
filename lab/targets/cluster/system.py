"""One variant, up and answering on a cluster: where load goes, who runs, and a way in."""

from __future__ import annotations

import os
import secrets
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import IO, Any, TypeVar

from lab.base.errors import LostError, MeasuringError, UsageError
from lab.model.endpoint import ClockOffset, Endpoint, Ran, Response, Role, Tls
from lab.model.leftovers import Leftovers
from lab.model.load import Load
from lab.model.pages import PAGES
from lab.model.pairs import Renewed
from lab.model.sweeps import Point
from lab.model.variants import hosts
from lab.systems import inside, renewing, table, workers
from lab.targets.base import Watch
from lab.targets.cluster.api import CLIENT_NAMESPACE, CLIENT_POD, Api, right
from lab.targets.cluster.changes import Changes
from lab.targets.cluster.client import ClientPod, clock_offset, tools
from lab.targets.cluster.entrypoint import Entrypoint, connect, each_pod, entrypoint
from lab.targets.cluster.facts import pods_record
from lab.targets.cluster.images import Images
from lab.targets.cluster.inventory import CONTROLLER_SCOPE, NODE_SCOPE, Inventory
from lab.targets.cluster.objects import ROLES
from lab.targets.cluster.others import Others
from lab.targets.cluster.pods import container_id, or_why, ready, running
from lab.targets.cluster.recorder import ClusterRecorder
from lab.targets.cluster.runners import Runners
from lab.targets.cluster.sampling import CONTROL, ClusterWatch, Place
from lab.targets.cluster.shell import Shell
from lab.targets.common import fetching, leftovers

T = TypeVar("T")

PROBED_PAGE = "1kB.bin"
TOOLS = frozenset({"curl", "lsattr", "ss", "sockperf"})
"""Programs that look at a pod's network or volumes only: where its image has none, another container of the pod can run them."""
SETTLED_S = 0.5
"""No process of the proxy has come or gone for so long: the workers of its first configuration have ended."""
CONNECT_S = 0.25
"""For one try: a first packet that was lost is sent again after a second, by another try sooner."""
_PARENTS = rf"""
for p in /proc/[0-9]*; do
  IFS= read -r line <$p/stat || continue
  title=
  IFS= read -r title <$p/cmdline || :
  case $title in {table.PASSING_PATTERN}) continue ;; esac
  rest=${{line##*) }}
  parent=${{rest#* }}
  parent=${{parent%% *}}
  name=${{line#*(}}
  [ "${{p#/proc/}}" = "$SHELL_PID" ] || [ "$parent" = "$SHELL_PID" ] || echo "${{p#/proc/}} $parent ${{name%)*}}"
done 2>/dev/null
"""
_SIZE = f"cat {' '.join(file for system in table.SYSTEMS for file in system.config_files)} 2>/dev/null | wc -c"
_COUNTS = "\n".join([*sorted((each.count_script for each in table.SYSTEMS if each.count_script), key=len), "exit 0"])
"""What the proxy tells that is there and tells anything; the shortest first, which look for a file and start no program."""


def processes_of(shell: Shell) -> Mapping[int, renewing.Running]:
    """Those of a container, without the shell and what ends by itself."""
    script = f"SHELL_PID={shell.pid}\n{_PARENTS}"
    words = [line.split(" ", 2) for line in shell.script(script).stdout.splitlines()]
    return {int(pid): renewing.Running(int(parent), name) for pid, parent, name in words}


def _numbered(shells: Iterable[Shell]) -> dict[int, renewing.Running]:
    """The processes of several containers, in each of which they count from 1."""
    return {
        (number << 32) + pid: renewing.Running((number << 32) + one.parent, one.name)
        for number, shell in enumerate(shells)
        for pid, one in processes_of(shell).items()
    }


class ClusterSystem(Changes):
    """See `lab.targets.base.System`. `namespace` is the one that the variant's pods are in.

    `check` raises LostError when the lab may no longer measure there: asked before load is made and at both ends of a
    sample, so that none is kept that another lab may have disturbed. `inventory`: where pods and routes may change, and
    what is applied meanwhile is listed.
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
        inventory: Inventory | None = None,
    ) -> None:
        super().__init__(api, images, inventory, manifests, namespace, run)
        self._client, self._others, self._check = client, others, check
        self._routed, self._routers = hosts.routed(manifests), hosts.routers(manifests)
        self._shells: dict[tuple[str, ...], Shell] = {}
        self._used: list[str] = []
        """Where the pod keeps what generators used that nobody has asked for yet."""
        self._helpers: list[subprocess.Popen[bytes]] = []
        self._watch: ClusterWatch | None = None
        self._frozen: dict[Role, Mapping[str, Any]] = {}
        self._ordinary = leftovers.Ordinary()
        self._came_up = {role: self.pods(role) for role in ROLES}
        self._way_in: Role = "proxy" if self._came_up["proxy"] else "backend"

    def entry(self) -> Endpoint:
        host, tls = next(iter(self._routed.items()))
        return self._entry((host,), tls)

    def endpoint(self, point: Point) -> Endpoint:
        return self._entry(*hosts.chosen(self._routed, self._way_in == "proxy", point))

    def backend_endpoint(self) -> Endpoint:
        way, host = self._entrypoint("backend"), next(iter(self._routed))
        return Endpoint(f"http://{way.host}:{way.port}", host, (host,))

    def addresses(self) -> Mapping[str, str]:
        """Host → where it is, for a client."""
        routers = {host: self._routers.get(host) for host in self._routed}
        found = {by: self._entrypoint(self._way_in, by=by).host for by in set(routers.values())}
        return {host: found[by] for host, by in routers.items()}

    def _entry(self, names: tuple[str, ...], tls: Tls) -> Endpoint:
        routers = dict.fromkeys(self._routers.get(name) for name in names)
        found = {by: self._entrypoint(self._way_in, "http" if tls == "none" else "https", by) for by in routers}

        def url(by: str | None, host: str) -> str:
            """Of one way in; TLS needs the name, which leads there."""
            return f"http://{found[by].host}:{found[by].port}" if tls == "none" else f"https://{host}:{found[by].port}"

        first, shards = self._routers.get(names[0]), hosts.shards_of(names, self._routers, url)
        words = "; ".join(dict.fromkeys(way.words for way in found.values()))
        return Endpoint(url(first, names[0]), names[0], names, tls, words, shards)

    def _entrypoint(self, role: Role, port: str = "http", by: str | None = None) -> Entrypoint:
        return entrypoint(self._api, self._manifests, role, port, self._changing, by)

    def pod_address(self, role: Role) -> str:
        return self._first(role)["status"]["podIP"]

    def fetch(
        self,
        endpoint: Endpoint,
        path: str,
        timeout_s: float,
        headers: Mapping[str, str] | None = None,
        place: tuple[str, int] | None = None,
    ) -> Response:
        """`place`: an address and port other than the endpoint's."""
        connection = connect(self._api, place or fetching.place(endpoint), timeout_s)
        return fetching.fetch(connection, endpoint, path, headers, timeout_s)

    def popen(
        self,
        argv: Sequence[str],
        cwd: Path,
        stdout: IO[bytes],
        stderr: IO[bytes],
        files: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        with self.held(argv, cwd, stdout, stderr, files) as begin:
            return begin()

    @contextmanager
    def held(
        self,
        argv: Sequence[str],
        cwd: Path,
        stdout: IO[bytes],
        stderr: IO[bytes],
        files: Mapping[str, str] | None = None,
    ) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
        self._check()
        used = f"tmp.used-{secrets.token_hex(8)}"  # a name that the pod's next lab clears away
        with self._client.held(argv, files or {}, stdout, stderr, used) as waiting:

            def begin() -> subprocess.Popen[bytes]:
                self._check()
                self._used.append(used)
                return waiting.go()

            yield begin

    def generate(self, load: Load, files: Mapping[str, str]) -> Ran:
        self._check()
        assert self._watch is not None, "a sample begins when its generators can"
        runners, image = Runners(self._api, self._client), self._images.named("loadgen")
        return runners.generate(image, self._run, load, files, self.addresses(), self._watch)

    @right()
    def spawn(self, role: Role, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        self._helpers.append(self._tools(self._first(role)).held(argv).go())
        return self._helpers[-1]

    def shape(self, link_mbit: float | None) -> None:
        """`check_variant` lets no point pass that shapes the client's link."""

    def watch(self) -> Watch:
        self._generator_s()  # of warm-ups
        client = Place("generator", CLIENT_NAMESPACE, CLIENT_POD, self._client.node, self._client)
        self._watch = ClusterWatch(
            [client, *self._running()],
            self.counters,
            self._others,
            places_now=self._running if self._changing else None,
            spared=self._squeezed.__contains__,
            generator_s=self._generator_s,
        )
        return self._watch

    def _generator_s(self) -> float | None:
        """Since it was last asked."""
        files, self._used = self._used, []
        return self._client.used_s(files)

    def _running(self) -> list[Place]:
        """First containers that run now, a controller's with them; where nothing changes, those of the pods that came up."""
        pods = {role: self._all(role) if self._changing else self._came_up[role] for role in ROLES}
        return [
            Place(
                role,
                self._namespace,
                pod["metadata"]["name"],
                pod["spec"].get("nodeName", ""),
                self._shell(pod),
                container_id(pod),
            )
            for role, found in {**pods, CONTROL: self._controllers}.items()
            for pod in found
            if running(pod)
        ]

    def counters(self) -> Mapping[str, int]:
        """`proxy/requests` and `proxy/requests_h2` as the proxies count them, `proxy/tls_…` where the entry ends TLS; the rest is the watch's own.

        MeasuringError if handshakes are not told; requests are where the image has what asks for them.
        """
        self._check()
        if self._changing:
            return {}  # counts of pods that come and go have no increase
        handshakes = bool({"edge", "reencrypt"} & set(self._routed.values()))
        found: Counter[str] = Counter()
        for pod in self._came_up["proxy"]:
            shell = self._shell(pod)
            done = shell.script(_COUNTS)
            if done.returncode and handshakes:
                fault = f"the proxy does not tell its handshakes: {done.stderr.strip()[-200:] or 'nothing was said'}"
                raise MeasuringError(shell.place, fault, "its image needs socat; `kubectl logs` says whether it runs")
            parsed = (system.parse_counts(done.stdout) for system in table.SYSTEMS if system.parse_counts)
            found.update(next(filter(None, parsed), {}))
        return {f"proxy/{name}": count for name, count in found.items() if handshakes or not name.startswith("tls_")}

    def nodes(self) -> Mapping[str, Collection[str]]:
        """Role → those that its pods came up on."""
        return {role: {pod["spec"]["nodeName"] for pod in pods} for role, pods in self._came_up.items()}

    def pods(self, role: Role) -> Sequence[Mapping[str, Any]]:
        return [pod for pod in self._all(role) if ready(pod)]

    def budgets(self, role: Role) -> Sequence[Mapping[str, Any]]:
        labels = self._first(role)["metadata"].get("labels", {})
        return [
            budget
            for budget in self._api.list("policy/v1", "PodDisruptionBudget", self._namespace)
            if budget["spec"].get("selector", {}).get("matchLabels", {}).items() <= labels.items()
        ]

    def configmap(self, namespace: str, name: str) -> Mapping[str, str]:
        return (self._api.get("v1", "ConfigMap", name, namespace) or {}).get("data") or {}

    def deployed(self) -> Sequence[Mapping[str, Any]]:
        return pods_record([pod for role in ROLES for pod in self._all(role)])

    def processes(self, role: Role) -> list[int]:
        if role == "lab":
            return [os.getpid()]
        if role == "generator":
            return list(_numbered([self._client]))
        return list(self._again(lambda: _numbered(map(self._shell, self._present(role)))))

    def _present(self, role: Role) -> Sequence[Mapping[str, Any]]:
        """The pods that serve now; where nothing changes, those that came up."""
        return self.pods(role) if self._changing else self._came_up.get(role, ())

    @right()
    def renew(self) -> Renewed:
        """As its controller tells its master, of the configuration that is there."""

        def ask() -> None:
            for shell in map(self._shell, self._came_up["proxy"]):
                found = processes_of(shell)
                pid = next(filter(None, (renewing.master(found, name) for name in table.MASTERS)), None)
                done = shell.script(f"kill -HUP {pid}") if pid else None
                if done is None or done.returncode:
                    why = done.stderr.strip() if done else f"no {' or '.join(table.MASTERS)} is there"
                    raise MeasuringError(
                        shell.place, f"takes no reload: {why}", "its shell must be the same user, or root"
                    )

        found = renewing.renewed(
            ask,
            lambda: _numbered(map(self._shell, self._came_up["proxy"])),
            lambda: not self._fault(self.entry()),
            self.log_tail,
            look_s=0.1,  # each look costs the proxy a millisecond
        )
        self._ordinary.forget()
        return found

    def restarts(self) -> Mapping[str, int]:
        return {
            f"{pod['metadata']['name']}/{status['name']}": status["restartCount"]
            for role in ROLES
            for pod in self._all(role)
            for status in pod["status"].get("containerStatuses", [])
        }

    def unapplied(self) -> Sequence[str]:
        return []

    def exec(self, role: Role, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
        if role == "node":  # by the node-tuning pod on the proxy's node, which sees the node's own /proc and network
            node = self._first(self._way_in)["spec"]["nodeName"]
            tuning = self._api.list("v1", "Pod", self._namespace, "=".join(NODE_SCOPE))
            there = next((pod for pod in tuning if pod["spec"].get("nodeName") == node and ready(pod)), None)
            if there is None:
                raise LookupError(f"no node-tuning pod is ready on {node}")
            return self._shell(there).run(argv)
        pod = self._first(role)
        done = self._shell(pod).run(argv)
        if done.returncode == 127 and argv[0] in TOOLS:
            return self._tools(pod).run(argv)
        return done

    def ask(self, role: Role, port: int, path: str) -> str:
        argv = ["curl", "-sf", "-m", str(inside.TIMEOUT_S), f"http://{inside.HOST}:{port}{path}"]
        done = self.exec(role, argv)
        if done.returncode:
            raise OSError(f"127.0.0.1:{port}{path}: {done.stderr.strip() or f'curl ended with {done.returncode}'}")
        return done.stdout

    def log_tail(self) -> str:
        def asked(pod: Mapping[str, Any]) -> list[str]:
            place = pod["metadata"]["name"], pod["spec"]["containers"][0]["name"]
            return [self._api.log(self._namespace, *place, lines=20)]

        logs = {
            pod["metadata"]["name"]: or_why("its log cannot be had", lambda one=pod: asked(one))
            for role in ROLES
            for pod in self._all(role)
        }
        return "\n".join(f"--- {name}\n{text}" for name, lines in logs.items() for text in lines if text.strip())

    def gauges(self) -> Mapping[str, float]:
        return self._again(self._gauges) if self._way_in == "proxy" else {}

    def _gauges(self) -> Mapping[str, float]:
        """`proxy/config_bytes`, as its configuration and maps lie in the container, and `proxy/workers`; without what cannot be told."""
        size = self._shell(self._first("proxy")).script(_SIZE).stdout.strip()
        listed = [self._shell(each).script(workers.list_script()).stdout for each in self.pods("proxy")]
        count = workers.started(process for text in listed for process in workers.listed(text))
        count = count or sum(workers.told(text) or 0 for text in listed)
        told = {"proxy/config_bytes": float(size) if size.isdigit() else 0.0, workers.GAUGE: float(count)}
        return {name: value for name, value in told.items() if value}

    def leftovers(self) -> Leftovers:
        return self._again(self._leftovers)

    def _leftovers(self) -> Leftovers:
        """Every pod is asked through its shell, all at once; pods on the host network show their node's sockets."""
        present = {role: self._present(role) for role in ROLES}
        places = {
            role if number == 0 else f"{role}-{number + 1}": (role, self._shell(pod))
            for role, pods in present.items()
            for number, pod in enumerate(pods)
        }
        unseen: dict[str, str] = {}

        def look(place: str) -> leftovers.ContainerState | None:
            shell = places[place][1]
            try:
                script = f"SHELL_PID={shell.pid}\n{leftovers.SCRIPT}"
                return leftovers.parse_container(shell.script(script).stdout)
            except LostError:
                raise
            except (MeasuringError, ValueError) as error:
                unseen[place] = f"{shell.place}: {error}"
                return None

        with ThreadPoolExecutor(max(1, len(places)), "leftovers") as pool:
            answers = zip(places, pool.map(look, places), strict=True)
            seen = {place: one for place, one in answers if one is not None}
        by_role = {role: [one for place, one in seen.items() if places[place][0] == role] for role in ROLES}
        proxies = by_role["proxy"]
        whole = bool(proxies) and len(proxies) == len(present["proxy"])
        processes, ending = sum(one.processes for one in proxies), sum(one.ending for one in proxies)
        return Leftovers(
            time_wait={place: dict(one.sockets.time_wait) for place, one in seen.items()},
            port_range={place: one.sockets.ports for place, one in seen.items()},
            open_connections={place: one.sockets.connections for place, one in seen.items()},
            accept_queue={place: one.sockets.queued for place, one in seen.items()},
            old_workers=self._ordinary.beyond(processes, ending) if whole else None,
            memory_bytes={role: sum(one.memory_bytes for one in mine) for role, mine in by_role.items() if mine},
            unseen=unseen,
        )

    def recorder(self) -> ClusterRecorder:
        self._recorder = ClusterRecorder(self._api, self._namespace)
        return self._recorder

    def clock(self) -> ClockOffset:
        return clock_offset(self._client)

    @right()
    def freeze(self, role: Role, frozen: bool) -> None:
        """Its PID 1 excepted, which nothing inside its container can stop: an init, a controller or a master, no server.

        Where the container that was frozen is no more, nothing is left to continue.
        """
        pod = self._frozen.get(role) or self._first(role)
        if frozen:
            self._signal(pod, "STOP", "stopped")
            self._frozen[role] = pod
            return
        try:
            self._signal(pod, "CONT", "continued")
        except MeasuringError:
            if self._runs_on(pod):
                raise
        self._frozen.pop(role, None)

    def _signal(self, pod: Mapping[str, Any], signal: str, done_to_it: str) -> None:
        """To all of its processes but the first."""
        shell = self._shell(pod)
        pids = " ".join(str(pid) for pid in processes_of(shell) if pid != 1)
        done = shell.script(f"for pid in {pids}; do kill -{signal} $pid && echo $pid; done")
        if not done.stdout.strip():
            fault = f"its processes are not {done_to_it}: {done.stderr.strip() or 'none is there'}"
            raise MeasuringError(shell.place, fault, "its shell must be the same user, or root")

    def kill(self, pod: Mapping[str, Any]) -> None:
        """Its processes, from inside: a pod that has ended by then is no loss."""
        try:
            self._signal(pod, "KILL", "killed")
        except LostError:
            if self._runs_on(pod):
                raise

    def wait(self, deadline: float, still_until: float) -> None:
        """Until the entry, the last route and, of several pods, each by itself serve the probed page whole, and the proxy's processes are
        settled.

        A ready pod is not yet in every node's rules, nor its last configuration loaded: before `still_until` (monotonic)
        it may load another; and the one that a Service picks says nothing of the others. MeasuringError at the deadline.
        """
        last, settled_at = list(self._routed)[-1], time.monotonic()
        running: list[int] = []
        closed = "not tried"
        while True:
            closed = closed and self._closed(self.entry())  # once open, not asked again
            ways = self.entry(), self._entry((last,), self._routed[last])  # anew: a pod may be replaced meanwhile
            fault = closed or next(filter(None, chain(map(self._fault, ways), self._faults_by_pod(ways[0]))), "")
            now = sorted(self.processes(self._way_in))
            if now != running:
                running, settled_at = now, time.monotonic()
            if not fault and time.monotonic() - settled_at >= SETTLED_S and time.monotonic() >= still_until:
                return
            if time.monotonic() > deadline:
                fault = f"/{PROBED_PAGE}: {fault or 'its processes come and go'}"
                raise MeasuringError(self.entry().base_url, fault, self.log_tail() or "nothing was logged")
            time.sleep(0.1)

    def close(self) -> None:
        """End the shells and helpers; idempotent."""
        for helper in self._helpers:
            helper.kill()
            helper.wait()
        for shell in list(self._shells.values()):
            shell.close()
        self._helpers, self._shells = [], {}

    def _closed(self, endpoint: Endpoint) -> str:
        """That nobody takes a connection there, in words; empty when somebody does.

        Asked by a program that ends. What the SOCKS server is to connect to may answer when nobody waits for it any more: it keeps that
        connection, on which nothing is ever said, and workers may wait a minute for its request before a reload ends them.
        """
        host, port = fetching.place(endpoint)
        done = self._client.script(f"timeout {CONNECT_S} bash -c '</dev/tcp/{host}/{port}'")
        return f"{host}:{port} takes no connection within {CONNECT_S:g} s" if done.returncode else ""

    def _fault(self, endpoint: Endpoint, place: tuple[str, int] | None = None) -> str:
        try:
            response = self.fetch(endpoint, f"/{PROBED_PAGE}", 2.0, place=place)
        except OSError as error:
            return str(error)
        whole = response.status == 200 and len(response.body) == PAGES[PROBED_PAGE]
        where = f" at {place[0]}" if place else ""
        return "" if whole else f"{endpoint.host}{where}: status {response.status}, {len(response.body)} bytes"

    def _faults_by_pod(self, endpoint: Endpoint) -> Iterator[str]:
        port, by = "http" if endpoint.tls == "none" else "https", self._routers.get(endpoint.host)
        places = each_pod(self._api, self._manifests, self._way_in, port, by)
        if len(places) > 1:
            yield from (self._fault(endpoint, place) for place in places)

    def _again(self, ask: Callable[[], T]) -> T:
        """Once more where a pod was deleted after it had been listed: in a system that changes that is meant to happen."""
        try:
            return ask()
        except LostError:
            if not self._changing:
                raise
            return ask()

    def _first(self, role: Role) -> Mapping[str, Any]:
        if not self._came_up.get(role):
            raise UsageError(
                f"role {role}", "this variant has no such pod", "leave the check out, or name the other role"
            )
        return self.first(role) if self._changing else self._came_up[role][0]

    def _shell(self, pod: Mapping[str, Any]) -> Shell:
        """Into the first container: the lab's own. A disturbance, a watch and the engine ask at once for the same one."""
        place = (pod["metadata"]["namespace"], pod["metadata"]["name"], pod["spec"]["containers"][0]["name"])
        return self._shells.setdefault(place, Shell(self._api, *place))

    @cached_property
    def _controllers(self) -> list[Mapping[str, Any]]:
        """Pods of controllers that can be looked into: an official image may have no shell, and then nothing is told of it."""
        found: list[Mapping[str, Any]] = []
        for pod in self._api.list("v1", "Pod", self._namespace, "=".join(CONTROLLER_SCOPE)):
            try:
                found += [pod] if self._shell(pod).pid else []
            except LostError:
                raise
            except MeasuringError:
                continue
        return found

    def _tools(self, pod: Mapping[str, Any]) -> Shell:
        place = (pod["metadata"]["name"], "tools")
        if place not in self._shells:
            started = tools(self._api, self._images, pod, pod["spec"]["containers"][0]["name"])
            self._shells.setdefault(place, started)
        return self._shells[place]
