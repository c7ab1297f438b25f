"""A variant (a proxy and its backend, in one configuration) that is up on a cluster, and the access to it.

It has the addresses to which load is sent, the processes in the pods, and shells in which commands run inside the containers.
"""

from __future__ import annotations

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
from lab.model.endpoint import ClockOffset, Endpoint, GeneratorsOutput, Response, Role, Tls
from lab.model.leftovers import Leftovers
from lab.model.load import GeneratorLoad
from lab.model.pages import PAGES
from lab.model.pairs import Renewed
from lab.model.sweeps import LoadPoint
from lab.model.system import Watch
from lab.model.variants import hosts
from lab.systems import inside, renewing, table, workers
from lab.targets.cluster.api import CLIENT_NAMESPACE, CLIENT_POD, Api, lost_without_right
from lab.targets.cluster.changes import Changes
from lab.targets.cluster.client import ClientPod, measure_clock_offset, open_tools
from lab.targets.cluster.entrypoint import Entrypoint, connect, find_entrypoint, list_pod_addresses
from lab.targets.cluster.facts import build_pod_record
from lab.targets.cluster.images import Images
from lab.targets.cluster.inventory import CONTROLLER_SCOPE, NODE_SCOPE, Inventory
from lab.targets.cluster.objects import ROLES
from lab.targets.cluster.others import OtherUsageSource
from lab.targets.cluster.pods import container_id, lines_or_reason, ready, running
from lab.targets.cluster.recorder import ClusterRecorder
from lab.targets.cluster.runners import RunnerLoad
from lab.targets.cluster.sampling import CONTROL, ClusterWatch, WatchedContainer
from lab.targets.cluster.shell import Shell
from lab.targets.common import fetching, leftovers

T = TypeVar("T")

PROBED_PAGE = "1kB.bin"
TOOLS = frozenset({"curl", "lsattr", "ss", "sockperf"})
"""The programs that only look at a pod's network or volumes.

Where its image lacks one, another container of the pod can run it.
"""
SETTLED_S = 0.5
"""The seconds without a change of the proxy's processes after which it counts as settled.

Then the workers of its first configuration have ended.
"""
CONNECT_S = 0.25
"""The seconds for one attempt to connect. A lost first packet is sent again after a second, so a new attempt is faster."""
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
_COUNTS = "\n".join(
    [*sorted((system.count_script for system in table.SYSTEMS if system.count_script), key=len), "exit 0"]
)
"""The script that prints the proxy's counts, if it has any.

The shortest system scripts come first: they look for a file and start no program.
"""


def list_processes(shell: Shell) -> Mapping[int, renewing.Running]:
    """Return process id → process for the processes in a shell's container; the ids are the container's own.

    The shell itself, and programs that run for a moment only, are left out.
    """
    script = f"SHELL_PID={shell.pid}\n{_PARENTS}"
    rows = [line.split(" ", 2) for line in shell.script(script).stdout.splitlines()]
    return {int(pid): renewing.Running(int(parent), name) for pid, parent, name in rows}


def _number_processes(shells: Iterable[Shell]) -> dict[int, renewing.Running]:
    """Return number → process for the processes of several containers.

    Each container numbers its processes from 1, so a different multiple of 2^32 is added to the numbers of each
    container.
    """
    return {
        (number << 32) + pid: renewing.Running((number << 32) + process.parent, process.name)
        for number, shell in enumerate(shells)
        for pid, process in list_processes(shell).items()
    }


class ClusterSystem(Changes):
    """A variant that is up on a cluster; it implements the protocol `lab.targets.base.System`."""

    def __init__(
        self,
        api: Api,
        images: Images,
        client: ClientPod,
        manifests: Sequence[Mapping[str, Any]],
        namespace: str,
        run: str,
        other_usage: OtherUsageSource,
        check: Callable[[], None],
        inventory: Inventory | None = None,
    ) -> None:
        """Store the pods that are ready now as the system's pods; call this after the variant has come up.

        Args:
            api: The cluster.
            images: The images to use.
            client: The generator's pod.
            manifests: The variant's objects.
            namespace: The namespace of the variant's pods.
            run: The name of the run, for labels.
            other_usage: The source of the CPU that other people's programs use on the nodes.
            check: A function that raises LostError when the lab may no longer measure on the cluster. It is called
                before load is made and at both ends of a sample. So no sample (single measurement) is kept that another
                process of the lab may have disturbed.
            inventory: The list of the lab's objects on the cluster, to which `apply` adds new ones. None if pods and
                routes may not change while the system is up.

        """
        super().__init__(api, images, inventory, manifests, namespace, run)
        self._client, self._other_usage, self._check = client, other_usage, check
        self._routed, self._routers = hosts.find_hosts(manifests), hosts.find_routers(manifests)
        self._shells: dict[tuple[str, ...], Shell] = {}
        self._used_files: list[str] = []
        """The files in the pod with the CPU use of generators that has not been read yet."""
        self._helpers: list[subprocess.Popen[bytes]] = []
        self._watch: ClusterWatch | None = None
        self._frozen: dict[Role, Mapping[str, Any]] = {}
        self._ordinary = leftovers.OrdinaryProcessCount()
        self._came_up = {role: self.pods(role) for role in ROLES}
        self._way_in: Role = "proxy" if self._came_up["proxy"] else "backend"

    def entry(self) -> Endpoint:
        """Return the endpoint (URL and host) of the proxy for clients, for the first host that has a route.

        Without a proxy it is the endpoint of the backend.
        """
        host, tls = next(iter(self._routed.items()))
        return self._build_endpoint((host,), tls)

    def endpoint(self, point: LoadPoint) -> Endpoint:
        """Return the endpoint (URL and host) to which the load of a load point (one load of a sweep) is sent.

        Raises:
            UsageError: The variant's routes cannot serve the load point.

        """
        return self._build_endpoint(*hosts.choose_hosts(self._routed, self._way_in == "proxy", point))

    def backend_endpoint(self) -> Endpoint:
        """Return the endpoint (URL and host) of the backend itself, without the proxy."""
        way, host = self._find_entrypoint("backend"), next(iter(self._routed))
        return Endpoint(f"http://{way.host}:{way.port}", host, (host,))

    def addresses(self) -> Mapping[str, str]:
        """Return host name → the IP address at which a client reaches the host, for each host of the routes."""
        routers = {host: self._routers.get(host) for host in self._routed}
        by_router = {by: self._find_entrypoint(self._way_in, by=by).host for by in set(routers.values())}
        return {host: by_router[by] for host, by in routers.items()}

    def _build_endpoint(self, names: tuple[str, ...], tls: Tls) -> Endpoint:
        routers = dict.fromkeys(self._routers.get(name) for name in names)
        ways = {by: self._find_entrypoint(self._way_in, "http" if tls == "none" else "https", by) for by in routers}

        def url(by: str | None, host: str) -> str:
            """Return the URL at which clients reach a host.

            With TLS the URL contains the host's name, because the handshake needs it; the name resolves to the proxy's
            address. Otherwise it contains the IP address.

            Args:
                by: The name of the Deployment that serves the host, if the routes are divided among several proxies;
                    else None.
                host: The name of the host.

            """
            return f"http://{ways[by].host}:{ways[by].port}" if tls == "none" else f"https://{host}:{ways[by].port}"

        first, shards = self._routers.get(names[0]), hosts.shards_of(names, self._routers, url)
        description = "; ".join(dict.fromkeys(way.words for way in ways.values()))
        return Endpoint(url(first, names[0]), names[0], names, tls, description, shards)

    def _find_entrypoint(self, role: Role, port: str = "http", by: str | None = None) -> Entrypoint:
        return find_entrypoint(self._api, self._manifests, role, port, self._changing, by)

    def pod_address(self, role: Role) -> str:
        """Return the IP address of the role's first pod."""
        return self._first_pod(role)["status"]["podIP"]

    def fetch(
        self,
        endpoint: Endpoint,
        path: str,
        timeout_s: float,
        headers: Mapping[str, str] | None = None,
        place: tuple[str, int] | None = None,
    ) -> Response:
        """Send one GET from the generator's pod on a new connection, and return the response.

        Args:
            endpoint: The URL and the host name of the request.
            path: The path to request.
            timeout_s: The limit in seconds for the connecting and for each later read or write.
            headers: Further request headers; None = none.
            place: An IP address and port to connect to instead of the endpoint's; None = the endpoint's.

        Raises:
            OSError: There is no answer in time, or it is not HTTP.

        """
        connection = connect(self._api, place or fetching.split_address(endpoint), timeout_s)
        return fetching.fetch(connection, endpoint, path, headers, timeout_s)

    def popen(
        self,
        argv: Sequence[str],
        cwd: Path,
        stdout: IO[bytes],
        stderr: IO[bytes],
        files: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a load generator in the generator's pod, and return the local kubectl process.

        The exit status and the output of this process are those of the generator.

        Args:
            argv: The command.
            cwd: Ignored: the generator starts in a new folder in the pod.
            stdout: The file for the generator's output.
            stderr: The file for the generator's error output.
            files: Name → text of files in the new folder; None = none.

        """
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
        """Connect to the generator's pod in advance, so that a load generator starts there without delay.

        The arguments are those of `popen`. If the generator was not started in the `with` block, the connection is
        closed after the block.

        Yields:
            The function that starts the generator and returns what `popen` returns.

        """
        self._check()
        self._client.check()
        used = f"tmp.used-{secrets.token_hex(8)}"  # a name that the pod's next lab clears away
        with self._client.held(argv, files or {}, stdout, stderr, used) as waiting:

            def begin() -> subprocess.Popen[bytes]:
                self._check()
                self._used_files.append(used)
                return waiting.go()

            yield begin

    def generate(self, load: GeneratorLoad, files: Mapping[str, str]) -> GeneratorsOutput:
        """Run a load of several load generators, each in a separate pod, and return their output.

        Call it only inside a `watch` (a recording of resource use and counters) of this system. The recording is begun
        again when all generators are ready to start, so that it covers the load alone.

        Args:
            load: The load to make.
            files: Name → text of the files of the generators' script.

        """
        self._check()
        assert self._watch is not None, "a sample begins when its generators can"
        runners, image = RunnerLoad(self._api, self._client), self._images.named("loadgen")
        return runners.generate(image, self._run, load, files, self.addresses(), self._watch)

    @lost_without_right()
    def spawn(self, role: Role, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start a helper program in an ephemeral container of a role's first pod, and return the local kubectl process.

        The program ends when the local process ends, or when `close` is called.

        Args:
            role: The role, such as `proxy`.
            argv: The command.

        """
        self._helpers.append(self._open_tools(self._first_pod(role)).held(argv).go())
        return self._helpers[-1]

    def shape(self, link_mbit: float | None, delay_ms: float = 0.0) -> None:
        """Do nothing, because the client's link cannot be slowed down or delayed on a cluster.

        A load point that requires this was already refused by `check_variant`.
        """

    def watch(self) -> Watch:
        """Return a context manager that watches the CPU, memory and counters of every role while its `with` block runs."""
        self._read_generator_s()  # drops the use of warm-ups
        client = WatchedContainer("generator", CLIENT_NAMESPACE, CLIENT_POD, self._client.node, self._client)
        self._watch = ClusterWatch(
            [client, *self._list_places()],
            self.counters,
            self._other_usage,
            places_now=self._list_places if self._changing else None,
            spared=self._squeezed.__contains__,
            generator_s=self._read_generator_s,
        )
        return self._watch

    def _read_generator_s(self) -> float | None:
        """Return the CPU seconds of the load generators that `popen` and `held` have started since the last call.

        Call it only when these generators have ended.

        Returns:
            The sum over the generators. None if there were none, or if one of them has left no number, for example
            because it was killed.

        """
        files, self._used_files = self._used_files, []
        return self._client.used_s(files)

    def _list_places(self) -> list[WatchedContainer]:
        """Return the containers whose CPU, memory and counters are watched: the first container of each pod, if it runs.

        The pods are those of proxy, backend and controllers; a controller's pod must have a shell. If pods may change
        while the system is up, the pods of proxy and backend are requested anew at each call. Otherwise they are those
        that came up.
        """
        pods = {role: self._list_pods(role) if self._changing else self._came_up[role] for role in ROLES}
        return [
            WatchedContainer(
                role,
                self._namespace,
                pod["metadata"]["name"],
                pod["spec"].get("nodeName", ""),
                self._shell(pod),
                container_id(pod),
            )
            for role, role_pods in {**pods, CONTROL: self._controllers}.items()
            for pod in role_pods
            if running(pod)
        ]

    def counters(self) -> Mapping[str, int]:
        """Return the cumulative counters that the proxies keep about themselves, summed over all proxy pods.

        The kernel's counters are not included; the `watch` of a sample reports them. If pods may change while the
        system is up, the result is empty: a counter of a pod that starts or ends during a sample has no value at one
        end of the sample, so its increase cannot be computed.

        Returns:
            `proxy/requests` and `proxy/requests_h2`, if the proxy's image has a program that reads them; and
            `proxy/tls_…` if the proxy terminates TLS.

        Raises:
            MeasuringError: The proxy terminates TLS and does not report its handshakes.

        """
        self._check()
        if self._changing:
            return {}  # counts of pods that come and go have no increase
        handshakes = bool({"edge", "reencrypt"} & set(self._routed.values()))
        counts: Counter[str] = Counter()
        for pod in self._came_up["proxy"]:
            shell = self._shell(pod)
            done = shell.script(_COUNTS)
            if done.returncode and handshakes:
                fault = f"the proxy does not report its handshakes: {done.stderr.strip()[-200:] or 'nothing was said'}"
                raise MeasuringError(shell.place, fault, "its image needs socat; `kubectl logs` says whether it runs")
            parsed = (system.parse_counts(done.stdout) for system in table.SYSTEMS if system.parse_counts)
            counts.update(next(filter(None, parsed), {}))
        return {f"proxy/{name}": count for name, count in counts.items() if handshakes or not name.startswith("tls_")}

    def nodes(self) -> Mapping[str, Collection[str]]:
        """Return role → the names of the nodes on which the role's pods came up."""
        return {role: {pod["spec"]["nodeName"] for pod in pods} for role, pods in self._came_up.items()}

    def pods(self, role: Role) -> Sequence[Mapping[str, Any]]:
        """Return the ready pods of a role, as the API server describes them."""
        return [pod for pod in self._list_pods(role) if ready(pod)]

    def budgets(self, role: Role) -> Sequence[Mapping[str, Any]]:
        """Return the PodDisruptionBudgets that apply to the role's pods, as the API server describes them."""
        labels = self._first_pod(role)["metadata"].get("labels", {})
        return [
            budget
            for budget in self._api.list("policy/v1", "PodDisruptionBudget", self._namespace)
            if budget["spec"].get("selector", {}).get("matchLabels", {}).items() <= labels.items()
        ]

    def configmap(self, namespace: str, name: str) -> Mapping[str, str]:
        """Return the data (key → text) of a ConfigMap; empty if there is no such ConfigMap."""
        return (self._api.get("v1", "ConfigMap", name, namespace) or {}).get("data") or {}

    def deployed(self) -> Sequence[Mapping[str, Any]]:
        """Return a record (role, node, images, restarts and more) of each pod of proxy and backend."""
        return [build_pod_record(pod) for role in ROLES for pod in self._list_pods(role)]

    def processes(self, role: Role) -> list[int]:
        """Return a number for each process of a role (`proxy` or `backend`), in all its pods.

        If a role has several pods, the numbers are made unique, so they are not always process ids.
        """
        return list(self._retry_lost(lambda: _number_processes(map(self._shell, self._list_present(role)))))

    def _list_present(self, role: Role) -> Sequence[Mapping[str, Any]]:
        """Return the pods of a role: if pods may change, those that are ready now; otherwise those that came up."""
        return self.pods(role) if self._changing else self._came_up.get(role, ())

    @lost_without_right()
    def renew(self) -> Renewed:
        """Reload the proxy's configuration unchanged, and return when only new worker processes serve.

        A signal (SIGHUP) is sent to the proxy's master process, as the proxy's controller does.

        Returns:
            The processes that began and ended, and the seconds that this took.

        Raises:
            MeasuringError: There is no master process, it cannot be sent the signal, or the workers are not replaced.

        """

        def ask() -> None:
            for shell in map(self._shell, self._came_up["proxy"]):
                processes = list_processes(shell)
                pid = next(filter(None, (renewing.find_master(processes, name) for name in table.MASTERS)), None)
                done = shell.script(f"kill -HUP {pid}") if pid else None
                if done is None or done.returncode:
                    reason = done.stderr.strip() if done else f"no {' or '.join(table.MASTERS)} is there"
                    raise MeasuringError(
                        shell.place, f"takes no reload: {reason}", "its shell must be the same user, or root"
                    )

        renewed = renewing.wait_for_new_workers(
            ask,
            lambda: _number_processes(map(self._shell, self._came_up["proxy"])),
            lambda: not self._fault(self.entry()),
            self.log_tail,
            look_s=0.1,  # each look costs the proxy a millisecond
        )
        self._ordinary.forget()
        return renewed

    def restarts(self) -> Mapping[str, int]:
        """Return how often each container was restarted, by `pod/container`."""
        return {
            f"{pod['metadata']['name']}/{status['name']}": status["restartCount"]
            for role in ROLES
            for pod in self._list_pods(role)
            for status in pod["status"].get("containerStatuses", [])
        }

    def unapplied(self) -> Sequence[str]:
        """Return the limits in the manifests that were not applied: an empty list, because a cluster applies all of them."""
        return []

    def exec(self, role: Role, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run a command in the first container of the role's first pod, and return the completed command.

        If the container's image lacks the program and the program is one of TOOLS, an ephemeral container of the pod
        runs the command.

        Args:
            role: The role, such as `proxy`. For `node`, the command runs in the node-tuning pod on the proxy's node,
                which sees the node's settings.
            argv: The command.

        Raises:
            LookupError: The role is `node` and no node-tuning pod is ready on that node.

        """
        if role == "node":  # by the node-tuning pod on the proxy's node, which sees the node's own /proc and network
            node = self._first_pod(self._way_in)["spec"]["nodeName"]
            tuning = self._api.list("v1", "Pod", self._namespace, "=".join(NODE_SCOPE))
            node_pod = next((pod for pod in tuning if pod["spec"].get("nodeName") == node and ready(pod)), None)
            if node_pod is None:
                raise LookupError(f"no node-tuning pod is ready on {node}")
            return self._shell(node_pod).run(argv)
        pod = self._first_pod(role)
        done = self._shell(pod).run(argv)
        if done.returncode == 127 and argv[0] in TOOLS:
            return self._open_tools(pod).run(argv)
        return done

    def ask(self, role: Role, port: int, path: str) -> str:
        """Send a GET to a port on the loopback of the role's first pod, and return the body of the answer.

        Raises:
            OSError: The request, which curl sends inside the pod, fails.

        """
        argv = ["curl", "-sf", "-m", str(inside.TIMEOUT_S), f"http://{inside.HOST}:{port}{path}"]
        done = self.exec(role, argv)
        if done.returncode:
            raise OSError(f"127.0.0.1:{port}{path}: {done.stderr.strip() or f'curl ended with {done.returncode}'}")
        return done.stdout

    def log_tail(self) -> str:
        """Return the last 20 lines of the log of each pod of proxy and backend, after a line with the pod's name.

        The log is that of the pod's first container. Pods with an empty log are left out. If a log cannot be read, the
        reason replaces it.
        """

        def read_log(pod: Mapping[str, Any]) -> list[str]:
            place = pod["metadata"]["name"], pod["spec"]["containers"][0]["name"]
            return [self._api.log(self._namespace, *place, lines=20)]

        logs = {
            pod["metadata"]["name"]: lines_or_reason("its log cannot be had", lambda pod=pod: read_log(pod))
            for role in ROLES
            for pod in self._list_pods(role)
        }
        return "\n".join(f"--- {name}\n{text}" for name, lines in logs.items() for text in lines if text.strip())

    def gauges(self) -> Mapping[str, float]:
        """Return the proxy's gauges (values that rise and fall), as far as they are known; empty without a proxy.

        They are `proxy/config_bytes` (the size of the configuration) and `proxy/workers` (the number of workers).
        """
        return self._retry_lost(self._read_gauges) if self._way_in == "proxy" else {}

    def _read_gauges(self) -> Mapping[str, float]:
        """Read the size of the proxy's configuration files and the number of its workers, and return name → value.

        The size is in bytes (`proxy/config_bytes`), from the first pod. The number of workers is that of all the proxy's
        pods. A value that is unknown or 0 is left out.
        """
        size = self._shell(self._first_pod("proxy")).script(_SIZE).stdout.strip()
        listings = [self._shell(pod).script(workers.list_script()).stdout for pod in self.pods("proxy")]
        count = workers.count_running(process for text in listings for process in workers.parse_processes(text))
        count = count or sum(workers.parse_reported_count(text) or 0 for text in listings)
        gauges = {"proxy/config_bytes": float(size) if size.isdigit() else 0.0, workers.GAUGE: float(count)}
        return {name: value for name, value in gauges.items() if value}

    def leftovers(self) -> Leftovers:
        """Return what earlier loads have left in the pods until now, such as sockets and old workers."""
        return self._retry_lost(self._read_leftovers)

    def _read_leftovers(self) -> Leftovers:
        """Run a script in each pod of proxy and backend that reports what earlier loads have left, and return the results.

        A pod on the host network reports the sockets of its node.
        """
        present = {role: self._list_present(role) for role in ROLES}
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
            states = {place: state for place, state in answers if state is not None}
        by_role = {role: [state for place, state in states.items() if places[place][0] == role] for role in ROLES}
        proxies = by_role["proxy"]
        complete = bool(proxies) and len(proxies) == len(present["proxy"])
        processes, ending = sum(state.processes for state in proxies), sum(state.ending for state in proxies)
        return Leftovers(
            time_wait={place: dict(state.sockets.time_wait) for place, state in states.items()},
            port_range={place: state.sockets.ports for place, state in states.items()},
            open_connections={place: state.sockets.connections for place, state in states.items()},
            accept_queue={place: state.sockets.queued for place, state in states.items()},
            old_workers=self._ordinary.beyond(processes, ending) if complete else None,
            memory_bytes={
                role: sum(state.memory_bytes for state in of_role) for role, of_role in by_role.items() if of_role
            },
            unseen=unseen,
        )

    def recorder(self) -> ClusterRecorder:
        """Return a context manager that records the events of the variant's pods while its `with` block runs."""
        self._recorder = ClusterRecorder(self._api, self._namespace)
        return self._recorder

    def clock(self) -> ClockOffset:
        """Measure by how much the clock of the generator's pod is ahead of the lab's, and return it."""
        return measure_clock_offset(self._client)

    @lost_without_right()
    def freeze(self, role: Role, frozen: bool) -> None:
        """Stop all processes in the first pod of a role (SIGSTOP), or let them continue (SIGCONT).

        The container's PID 1 is left out, because no process inside the container can stop it. It serves no requests:
        it is an init, a controller or a master process. If the stopped container no longer exists, continuing does
        nothing.

        Args:
            role: The role, such as `proxy`.
            frozen: True stops the processes; False lets them continue.

        """
        pod = self._frozen.get(role) or self._first_pod(role)
        if frozen:
            self._signal(pod, "STOP", "stopped")
            self._frozen[role] = pod
            return
        try:
            self._signal(pod, "CONT", "continued")
        except MeasuringError:
            if self._is_running(pod):
                raise
        self._frozen.pop(role, None)

    def _signal(self, pod: Mapping[str, Any], signal: str, participle: str) -> None:
        """Send a signal to all processes of a pod's first container, except its PID 1.

        Args:
            pod: The pod.
            signal: The name of the signal, such as `STOP`.
            participle: The effect of the signal for the error's text, such as `stopped`.

        Raises:
            MeasuringError: The signal could not be sent to any process.

        """
        shell = self._shell(pod)
        pids = " ".join(str(pid) for pid in list_processes(shell) if pid != 1)
        done = shell.script(f"for pid in {pids}; do kill -{signal} $pid && echo $pid; done")
        if not done.stdout.strip():
            fault = f"its processes are not {participle}: {done.stderr.strip() or 'none is there'}"
            raise MeasuringError(shell.place, fault, "its shell must be the same user, or root")

    def kill(self, pod: Mapping[str, Any]) -> None:
        """Kill all processes of a pod's first container except its PID 1, from inside the container.

        A container that no longer runs is no error.
        """
        try:
            self._signal(pod, "KILL", "killed")
        except LostError:
            if self._is_running(pod):
                raise

    def wait(self, deadline: float, still_until: float) -> None:
        """Wait until the system serves a complete page, and the proxy's processes no longer change.

        Ready pods do not suffice: the nodes' rules may not lead to a pod yet, and the pod may not have loaded its last
        configuration. So the first and the last route must serve the page. If there are several pods, the page of the
        first route is requested from each of them, because a request to the Service reaches only one of them.

        Args:
            deadline: The last moment, by time.monotonic().
            still_until: The time by time.monotonic() until which the proxy may load another configuration; the wait
                does not end earlier.

        Raises:
            MeasuringError: The deadline has passed.

        """
        last, settled_s = list(self._routed)[-1], time.monotonic()
        running: list[int] = []
        closed = "not tried"
        while True:
            closed = closed and self._try_connect(self.entry())  # once open, not tried again
            # Looked up in every round, because a pod may be replaced meanwhile.
            ways = self.entry(), self._build_endpoint((last,), self._routed[last])
            fault = closed or next(filter(None, chain(map(self._fault, ways), self._find_faults_by_pod(ways[0]))), "")
            now = sorted(self.processes(self._way_in))
            if now != running:
                running, settled_s = now, time.monotonic()
            if not fault and time.monotonic() - settled_s >= SETTLED_S and time.monotonic() >= still_until:
                return
            if time.monotonic() > deadline:
                fault = f"/{PROBED_PAGE}: {fault or 'its processes come and go'}"
                raise MeasuringError(self.entry().base_url, fault, self.log_tail() or "nothing was logged")
            time.sleep(0.1)

    def close(self) -> None:
        """Close the shells into the system's containers, and end its helper programs; further calls do nothing."""
        for helper in self._helpers:
            helper.kill()
            helper.wait()
        for shell in list(self._shells.values()):
            shell.close()
        self._helpers, self._shells = [], {}

    def _try_connect(self, endpoint: Endpoint) -> str:
        """Try to open a TCP connection to an endpoint, and return a message if this fails; empty if it succeeds.

        A program in the generator's pod opens the connection and ends at once. The pod's SOCKS server is not used. It
        would keep a connection that is accepted only after its client has given up. Workers wait up to a minute for a
        request on such a connection before a reload can end them.
        """
        host, port = fetching.split_address(endpoint)
        done = self._client.script(f"timeout {CONNECT_S} bash -c '</dev/tcp/{host}/{port}'")
        return f"{host}:{port} takes no connection within {CONNECT_S:g} s" if done.returncode else ""

    def _fault(self, endpoint: Endpoint, place: tuple[str, int] | None = None) -> str:
        """Fetch the test page, and return a message about what is wrong with the answer; empty if the page is complete.

        Args:
            endpoint: The endpoint that must serve the page.
            place: An IP address and port to connect to instead of the endpoint's; None = the endpoint's.

        """
        try:
            response = self.fetch(endpoint, f"/{PROBED_PAGE}", 2.0, place=place)
        except OSError as error:
            return str(error)
        complete = response.status == 200 and len(response.body) == PAGES[PROBED_PAGE]
        location = f" at {place[0]}" if place else ""
        return "" if complete else f"{endpoint.host}{location}: status {response.status}, {len(response.body)} bytes"

    def _find_faults_by_pod(self, endpoint: Endpoint) -> Iterator[str]:
        """Fetch the test page from each pod behind an endpoint, and yield a message about what is wrong with each answer.

        The message is empty if the page is complete. If there is only one pod, nothing is yielded.
        """
        port, by = "http" if endpoint.tls == "none" else "https", self._routers.get(endpoint.host)
        places = list_pod_addresses(self._api, self._manifests, self._way_in, port, by)
        if len(places) > 1:
            yield from (self._fault(endpoint, place) for place in places)

    def _retry_lost(self, ask: Callable[[], T]) -> T:
        """Call a function and return its result; if a pod is lost meanwhile and pods may change, call it once more.

        A disruption may delete a pod after the function has listed the pods.

        Args:
            ask: The function.

        Raises:
            LostError: A pod is lost and pods may not change, or a pod is lost in the second call, too.

        """
        try:
            return ask()
        except LostError:
            if not self._changing:
                raise
            return ask()

    def _first_pod(self, role: Role) -> Mapping[str, Any]:
        if not self._came_up.get(role):
            raise UsageError(
                f"role {role}", "this variant has no such pod", "leave the check out, or name the other role"
            )
        return self.first(role) if self._changing else self._came_up[role][0]

    def _shell(self, pod: Mapping[str, Any]) -> Shell:
        """Return the shell into a pod's first container; every call for a pod returns the same shell.

        Several threads may call this at the same time.
        """
        place = (pod["metadata"]["namespace"], pod["metadata"]["name"], pod["spec"]["containers"][0]["name"])
        return self._shells.setdefault(place, Shell(self._api, *place))

    @cached_property
    def _controllers(self) -> list[Mapping[str, Any]]:
        """The pods of the variant's controllers that can be watched, because their containers have a shell.

        An official image may have no shell. The CPU use of such a controller is not measured.
        """
        controllers: list[Mapping[str, Any]] = []
        for pod in self._api.list("v1", "Pod", self._namespace, "=".join(CONTROLLER_SCOPE)):
            try:
                controllers += [pod] if self._shell(pod).pid else []
            except LostError:
                raise
            except MeasuringError:
                continue
        return controllers

    def _open_tools(self, pod: Mapping[str, Any]) -> Shell:
        """Return a shell with programs such as `ss`, in an ephemeral container that can look into a pod's first container."""
        place = (pod["metadata"]["name"], "tools")
        if place not in self._shells:
            started = open_tools(self._api, self._images, pod, pod["spec"]["containers"][0]["name"])
            self._shells.setdefault(place, started)
        return self._shells[place]
