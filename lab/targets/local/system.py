"""A variant that is up and answering on the local target: the address for load, its processes, and access to them."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

from lab.base.errors import MeasuringError, UsageError
from lab.base.files import read_text_if_readable, write_texts
from lab.model.disturbance import Recorder
from lab.model.endpoint import ClockOffset, Endpoint, GeneratorsOutput, HowToEnd, Response, Role, Tls
from lab.model.events import Event, EventLog
from lab.model.leftovers import Leftovers
from lab.model.load import GeneratorLoad
from lab.model.pages import PAGES
from lab.model.pairs import Renewed
from lab.model.sweeps import LoadPoint
from lab.model.variants import hosts
from lab.systems import renewing, workers
from lab.systems.manifests.objects import Objects
from lab.systems.manifests.pods import Pod
from lab.systems.renewing import list_running
from lab.systems.system import ProxySystem
from lab.systems.table import SHORT_LIVED_TITLES, find
from lab.systems.workers import GAUGE
from lab.targets.common import fetching, leftovers
from lab.targets.common.process import make_environment
from lab.targets.common.sampler import Sampler, process_times, thread_ids
from lab.targets.local.control_plane import services
from lab.targets.local.control_plane.control import ControlPlane, LocalRecorder
from lab.targets.local.control_plane.routing import Routes
from lab.targets.local.kubelet.containers import ask, list_descendants
from lab.targets.local.kubelet.kubelet import Kubelet, describe_pod
from lab.targets.local.kubelet.runner import ContainerRunner
from lab.targets.local.sandbox import cpus, network
from lab.targets.local.sandbox.namespaces import STATE
from lab.targets.local.sandbox.network import Network

PROBED_PAGE = "1kB.bin"
"""The page that is requested to see whether the system serves."""
FIRST_ERROR_STATUS = 400
"""The lowest HTTP status that shows that a system does not serve."""

CONNECT_S = 5.0
"""The seconds within which a connection of a verification must be open."""
NO_POD = "this variant has no such pod"
"""The fault of an error for a role without a pod."""
CHANGES_NOTE = "endpoints leave before their pod is told to end, and at once when it crashes (a cluster: beside it, within 0.1-1 s)"
"""The note in samples of a system whose pods may come and go (changing)."""


class LocalSystem:
    """A variant that is up and answering on the local target; it implements `lab.model.system.System`."""

    def __init__(
        self,
        manifests: Sequence[Mapping[str, Any]],
        objects: Objects,
        net: Network,
        kubelet: Kubelet,
        pinned: Mapping[Role, frozenset[int]],
        routing: Routes,
        control: ControlPlane | None,
        log: EventLog,
    ) -> None:
        """Take over the parts of a system.

        Args:
            manifests: The manifests that `objects` were read from.
            objects: The objects of the variant.
            net: The network.
            kubelet: The pods.
            pinned: The CPUs of each role.
            routing: Passes routes and endpoints to the proxies.
            control: The control plane of a system whose pods may come and go; None for a steady system.
            log: The log into which all parts write events.

        """
        self._objects, self.net, self.kubelet, self._cpus = objects, net, kubelet, pinned
        self.routing, self._changes, self._log = routing, control, log
        self._generators: list[subprocess.Popen[bytes]] = []
        self._helpers: list[tuple[subprocess.Popen[bytes], str]] = []
        self._ordinary = leftovers.OrdinaryProcessCount()
        if control is not None:
            control.ended = self.end_helpers
        self._way_in: Role = cast("Role", objects.entry[0].role)
        self._routed, self._routers = hosts.find_hosts(manifests), hosts.find_routers(manifests)
        self._addresses = {
            host: services.address(objects, net, self._way_in, by=self._routers.get(host))[0] for host in self._routed
        }
        """Host → its address for a client: the proxy's address, or its Service's."""
        folder = STATE / "clients" / f"{net.lane.prefix}{network.CLIENT}"
        self.client = (*net[network.CLIENT].enter, *network.make_hosts_command(self._addresses, folder))
        """The beginning of a command line that runs a command in the client's place, where host names resolve."""

    @property
    def events(self) -> Sequence[Event]:
        """The events of the system's containers and pods so far."""
        return self._log.events

    def endpoint(self, point: LoadPoint) -> Endpoint:
        """Return the endpoint (URL and host) that the load of a point is sent to.

        Raises:
            UsageError: The system cannot serve the point.

        """
        return self._make_endpoint(*hosts.choose_hosts(self._routed, self._way_in != "backend", point))

    def backend_endpoint(self) -> Endpoint:
        """Return the endpoint (URL and host) of the backend itself, without the proxy."""
        return self._locate_service("backend")

    def generate(self, load: GeneratorLoad, files: Mapping[str, str]) -> GeneratorsOutput:
        """Refuse a load of several generators: this machine has a place for one.

        Raises:
            UsageError: Always.

        """
        raise UsageError("generators", "this machine has a place for one", "leave `generators` out of the point")

    def pod_address(self, role: Role) -> str:
        """Return the IP address of the role's first pod."""
        return self.net[self._find_first(role).name].address

    def spawn(self, role: Role, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start a helper process in the network and on the CPUs of a role; it ends with the system at the latest.

        Raises:
            OSError: The helper's program is not on this machine.

        """
        name = network.CLIENT if role == "generator" else self._find_first(role).name
        if shutil.which(argv[0]) is None:
            raise OSError(f"is not on this machine: apt-get install {argv[0]}")
        argv = [*(self.client if role == "generator" else self.net[name].enter), *self._pin(role, argv)]
        null = subprocess.DEVNULL
        helper = subprocess.Popen(
            argv, stdin=null, stdout=null, stderr=null, start_new_session=True, env=make_environment()
        )
        self._helpers.append((helper, name))
        return helper

    def _pin(self, role: Role, argv: Sequence[str]) -> list[str]:
        return ["taskset", "-c", cpus.format_list(self._cpus[role]), *argv]

    def end_helpers(self, pod: Pod | None = None) -> None:
        """Kill the processes that `spawn` started, with their children; called before the network is removed.

        Args:
            pod: The pod whose helpers to kill; None kills all.

        """
        ending = [item for item in self._helpers if pod is None or item[1] == pod.name]
        self._helpers = [item for item in self._helpers if item not in ending]
        for helper, _ in ending:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(helper.pid, signal.SIGKILL)
            helper.wait()

    def shape(self, link_mbit: float | None) -> None:
        """Shape the client's link to a rate in Mbit/s; None removes the shaping.

        Raises:
            MeasuringError: The rate cannot be set.

        """
        network.shape(services.client_links(self.net, self._objects), link_mbit)

    def watch(self) -> Sampler:
        """Return a sampler of every role's resource use; the control plane's processes have the role `control`."""
        roles: tuple[Role, ...] = ("lab", "proxy", "backend", "generator")
        roles = (*roles, *(["balancer"] if self._objects.role("balancer") else []))

        def processes() -> Mapping[str, list[int]]:
            pids: dict[str, list[int]] = {role: self.processes(role) for role in roles}
            if apart := set(self.routing.apart()):
                pids["proxy"] = [pid for pid in pids["proxy"] if pid not in apart]
                pids["control"] = sorted(apart)
            return pids

        return Sampler(processes, self.counters)

    def counters(self) -> Mapping[str, int]:
        """Return cumulative counts by `role/name`: of cgroups, the client's link, the node's NAT, and the proxy.

        TLS counts are left out if the proxy ends no TLS.
        """
        links = network.link_counters(services.client_links(self.net, self._objects))
        nat = services.counters(self.net, self._objects)
        ends_tls = bool({"edge", "reencrypt"} & set(self._routed.values()))
        values = self._ask_proxies(lambda system: system.counters)
        proxy = {f"proxy/{name}": int(values[name]) for name in values if ends_tls or not name.startswith("tls_")}
        return {**self.kubelet.groups.counters(), **links, **nat, **proxy}

    def pods(self, role: Role) -> Sequence[Mapping[str, Any]]:
        """Return the ready pods of a role in Kubernetes' form, without terminating ones."""
        running = [pod for pod in self.kubelet.pods if pod.pod.role == role and pod.ready and not pod.terminating]
        return [describe_pod(pod, services.on_the_node(self.net, self._objects, pod.pod)) for pod in running]

    def fetch(
        self, endpoint: Endpoint, path: str, timeout_s: float, headers: Mapping[str, str] | None = None
    ) -> Response:
        """Send a GET from the client's network namespace over a new connection and return the response.

        Raises:
            OSError: There is no answer in time, or it is not HTTP.

        """
        host, port = fetching.split_address(endpoint)
        connection = network.connect(self.net[network.CLIENT], (self._addresses.get(host, host), port), timeout_s)
        return fetching.fetch(connection, endpoint, path, headers, timeout_s)

    def connect(self, tls: bool) -> socket.socket:
        """Open a TCP connection from the client's place to the system's port for HTTP, or the one for TLS.

        Raises:
            OSError: The connection cannot be opened.

        """
        address = services.address(self._objects, self.net, self._way_in, "https" if tls else "http")
        return network.connect(self.net[network.CLIENT], address, CONNECT_S)

    def popen(
        self,
        argv: Sequence[str],
        cwd: Path,
        stdout: IO[bytes],
        stderr: IO[bytes],
        files: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a load generator in the client's network namespace, on the generator's CPUs, in a new session.

        Args:
            argv: The command of the generator.
            cwd: The generator's working folder, which is also its home.
            stdout: The file for the output.
            stderr: The file for the error output.
            files: Name → text of files to write into the working folder first.

        """
        write_texts(cwd, files or {})
        self._generators = [generator for generator in self._generators if generator.returncode is None]
        process = subprocess.Popen(
            [*self.client, *self._pin("generator", argv)],
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
            env=make_environment(cwd),
        )
        self._generators.append(process)
        return process

    def held(
        self, *arguments: Any, **options: Any
    ) -> contextlib.AbstractContextManager[Callable[[], subprocess.Popen[bytes]]]:
        """Return a context with a function that calls `popen` with these arguments, and so starts a generator.

        On other targets, entering the context prepares the start; on this target nothing needs preparation.
        """
        return contextlib.nullcontext(partial(self.popen, *arguments, **options))

    def budgets(self, role: Role) -> Sequence[Mapping[str, Any]]:
        """Return the PodDisruptionBudgets over the role's pods in Kubernetes' form."""
        pods = self._objects.role(role)
        return [budget.shown() for budget in self._objects.budgets if any(budget.selects(pod.labels) for pod in pods)]

    def configmap(self, namespace: str, name: str) -> Mapping[str, str]:
        """Return the data of a ConfigMap; empty if there is none."""
        return self.routing.configmap(namespace, name)

    def processes(self, role: Role) -> list[int]:
        """Return the process ids of a role, without short-lived helpers that a proxy system starts for a moment."""
        if role == "lab":
            return [os.getpid()]
        if role == "generator":
            running = [generator.pid for generator in self._generators if generator.returncode is None]
            return [pid for root in running for pid in list_descendants(root)]
        pids = [pid for runner in self.kubelet.runners(role) for pid in runner.process.processes()]
        return [pid for pid in pids if not read_text_if_readable(f"/proc/{pid}/cmdline").startswith(SHORT_LIVED_TITLES)]

    def exec(self, role: Role, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run a command inside the first container of the role's first pod, for 30 s at most.

        Returns:
            The completed command; exit status 1 if the container does not run or the time is over.

        Raises:
            UsageError: The role has no pod.

        """
        null = subprocess.DEVNULL
        runners = self.kubelet.runners(role)
        if not runners:
            raise UsageError(f"role {role}", NO_POD, "leave the check out, or name the other role")
        try:
            entered = runners[0].process.enter(argv)
            return subprocess.run(entered, capture_output=True, text=True, timeout=30, stdin=null, check=False)
        except (ProcessLookupError, subprocess.TimeoutExpired) as error:
            return subprocess.CompletedProcess(list(argv), 1, "", str(error))

    def gauges(self) -> Mapping[str, float]:
        """Return the current gauges of the proxy by `role/name`, such as the number of the proxy's workers.

        `lab.model.system.System.gauges` lists the gauges.
        """
        pids = self.processes("proxy")
        titles = ((pid, read_text_if_readable(f"/proc/{pid}/cmdline").replace("\0", " ").strip()) for pid in pids)
        count = workers.count_running((len(thread_ids(pid)), title) for pid, title in titles)
        values = self._ask_proxies(lambda system: system.workers.running)
        gauges = {**self.routing.gauges(), **({GAUGE: float(count)} if count else {})}
        return gauges | {f"proxy/{name}": float(value) for name, value in values.items()}

    def leftovers(self) -> Leftovers:
        """Return what earlier loads have left in the system: sockets, old workers of the proxy, and memory.

        Each network namespace is inspected once, from a thread in it, even if several pods share the namespace.
        """
        sockets: dict[str, leftovers.Sockets] = {}
        unseen: dict[str, str] = {}
        places: dict[Path, str] = {}
        for role in ("balancer", "proxy", "backend"):
            pods = {runner.pod.name: runner.pod for runner in self.kubelet.runners(role)}
            fresh = {place.path: place for place in map(self.net.__getitem__, pods) if place.path not in places}
            for number, place in enumerate(fresh.values(), 1):
                name = places[place.path] = role if number == 1 else f"{role}-{number}"
                try:
                    sockets[name] = network.call_in(place, leftovers.read_sockets)
                except (OSError, ValueError) as error:
                    unseen[name] = str(error)
        memory_bytes: dict[str, int] = {}
        for role in ("proxy", "backend"):
            if pids := self.processes(role):
                memory_bytes[role] = sum(times.rss_bytes for times in map(process_times, pids) if times is not None)
        serving = self._find_serving_processes()
        ending = sum(leftovers.SHUTTING_DOWN in read_text_if_readable(f"/proc/{pid}/cmdline") for pid in serving)
        return Leftovers(
            time_wait={place: dict(counts.time_wait) for place, counts in sockets.items()},
            port_range={place: counts.ports for place, counts in sockets.items()},
            open_connections={place: counts.connections for place, counts in sockets.items()},
            accept_queue={place: counts.queued for place, counts in sockets.items()},
            old_workers=self._ordinary.beyond(len(serving), ending) if serving else None,
            memory_bytes=memory_bytes,
            unseen=unseen,
        )

    def recorder(self) -> Recorder:
        """Return a recorder of the events of a system whose pods may come and go (changing)."""
        control = self._get_control("events")

        def check() -> None:
            control.check()
            self.routing.check()

        return LocalRecorder(self._log, check)

    def clock(self) -> ClockOffset:
        """Return a clock offset of zero: there is one machine with one clock, read with an uncertainty of 1 µs."""
        return ClockOffset(0.0, 1e-6)

    def end_pod(self, role: Role, how: HowToEnd) -> bool:
        """End the role's first pod; return False if an eviction is refused (see `ControlPlane.end_pod`)."""
        return self._get_control("pods").end_pod(role, how)

    def scale(self, role: Role, replicas: int) -> None:
        """Set the number of replicas of the role's Deployment."""
        self._get_control("replicas").scale(role, replicas)

    def roll(self, role: Role) -> None:
        """Replace all pods of the role's Deployment, in the way that the Deployment's strategy prescribes."""
        self._get_control("pods").roll(role)

    def freeze(self, role: Role, frozen: bool) -> None:
        """Stop all processes of the role's first pod (`frozen`), or let all processes of the role continue."""
        self._get_control("processes").freeze(role, frozen)

    def squeeze(self, role: Role, cpu: str | None) -> None:
        """Set another CPU limit for the role's pods; None restores the manifest's limit."""
        self._get_control("limits").squeeze(role, cpu)

    def apply(self, objects: Sequence[Mapping[str, Any]]) -> None:
        """Create or change objects of a system that was brought up as changing."""
        self._get_control("objects")
        self.routing.apply(objects)

    def renew(self) -> Renewed:
        """Reload the proxy so that it makes new workers, and return when only the new workers serve.

        Returns:
            The processes that began and ended, and how long this took.

        """
        renewed = renewing.wait_for_new_workers(
            self.routing.renew, self._find_serving_processes, self._is_answering, self.log_tail
        )
        for runner in self.kubelet.runners("proxy"):
            runner.process.confine()  # its new workers may have chosen other CPUs
        self._ordinary.forget()
        return renewed

    def _find_serving_processes(self) -> Mapping[int, renewing.Running]:
        """Return the proxy's processes by id, without the control plane's processes in the proxy's containers."""
        apart = set(self.routing.apart())
        return list_running(pid for pid in self.processes("proxy") if pid not in apart)

    def _is_answering(self) -> bool:
        try:
            return self.fetch(self.entry(), f"/{PROBED_PAGE}", 2.0).status < FIRST_ERROR_STATUS
        except OSError:
            return False

    def restarts(self) -> Mapping[str, int]:
        """Return how often each container was restarted, by `pod/container`."""
        return {f"{runner.pod.name}/{runner.container.name}": runner.restarts for runner in self._list_runners()}

    def deployed(self) -> Sequence[Mapping[str, Any]]:
        """Return the pods as the API server has them, for the run's record; empty on a target without API server."""
        return self.routing.deployed()

    def unapplied(self) -> Sequence[str]:
        """Return the limits of the manifests that could not be applied, each as a text with the reason."""
        return self.kubelet.groups.unapplied()

    def log_tail(self) -> str:
        """Return the last lines of the containers' error output, and which containers ran out of memory."""
        runners = ((f"{runner.pod.name}/{runner.container.name}", runner) for runner in self._list_runners())
        tails = [(name, runner.process.tail(output_too=False)) for name, runner in runners]
        return "\n".join(f"--- {name}\n{text}" for name, text in [*self.kubelet.groups.deaths(), *tails] if text)

    def _list_runners(self) -> list[ContainerRunner]:
        return [runner for role in ("balancer", "proxy", "backend") for runner in self.kubelet.runners(role)]

    def wait(self, deadline: float) -> None:
        """Wait until the system, at the address that clients use, serves a complete page or redirects the request.

        Args:
            deadline: The end of the wait (monotonic clock).

        Raises:
            MeasuringError: The page is not served by the deadline.

        """
        entry = self.entry()
        while True:
            try:
                response = self.fetch(entry, f"/{PROBED_PAGE}", 2.0)
                complete = response.status == 200 and len(response.body) == PAGES[PROBED_PAGE]
                if complete or "location" in response.headers:
                    return
                fault = f"status {response.status}, {len(response.body)} bytes"
            except OSError as error:
                fault = str(error)
            if time.monotonic() > deadline:
                logged = self.log_tail() or "nothing was logged"
                raise MeasuringError(entry.base_url, f"/{PROBED_PAGE} is not served: {fault}", logged)
            time.sleep(0.01)

    def entry(self) -> Endpoint:
        """Return the endpoint (URL and host) where clients reach the system, for the first host that has a route."""
        host, tls = next(iter(self._routed.items()))
        return self._make_endpoint((host,), tls)

    def _get_control(self, subject: str) -> ControlPlane:
        """Return the control plane. Raises MeasuringError for a steady system, which has none.

        Args:
            subject: What the caller wants to change, for the error: `pods`, `limits`.

        """
        if self._changes is None:
            fault = f"{subject} of a steady system do not change"
            raise MeasuringError("local target", fault, "bring it up as `changing`")
        return self._changes

    def _list_pods(self, role: Role) -> Sequence[Pod]:
        """Return a role's pods, terminating ones last."""
        return self._objects.role(role) if self._changes is None else self._changes.pods(role)

    def _find_first(self, role: Role) -> Pod:
        """Return the first pod of a role. Raises UsageError if there is none."""
        pods = self._list_pods(role)
        if not pods:
            raise UsageError(f"role {role}", NO_POD, "name the other role")
        return pods[0]

    def _make_endpoint(self, names: tuple[str, ...], tls: Tls) -> Endpoint:
        """Return the endpoint for requests to these hosts; its URL is that of the first host."""

        def url(by: str | None, host: str) -> str:
            """Return the URL for a host at the Deployment `by` (None: the first) of the role that clients reach.

            With TLS the URL has the host's name, because the handshake needs the name.
            """
            port = "http" if tls == "none" else "https"
            address, number = services.address(self._objects, self.net, self._way_in, port, by)
            return f"http://{address}:{number}" if tls == "none" else f"https://{host}:{number}"

        shards = hosts.shards_of(names, self._routers, url)
        base_url = url(self._routers.get(names[0]), names[0])
        return Endpoint(base_url, names[0], names, tls, self._locate_service(self._way_in).way, shards)

    def _ask_proxies(
        self, interface: Callable[[ProxySystem], Callable[[Any], Mapping[str, float]] | None]
    ) -> Mapping[str, float]:
        """Return the numbers that the proxies report through an interface, by name, summed over all proxies.

        A proxy without the interface, or one that has just ended, adds nothing.

        Args:
            interface: Returns, for a proxy system, the function that asks a process for its numbers; None if the
                system has no such interface.

        """
        totals: Counter[str] = Counter()
        for runner in self.kubelet.runners("proxy"):
            system = find(runner.container.repository)
            if system is not None and (ask_it := interface(system)) is not None:
                with contextlib.suppress(OSError, ValueError):
                    totals.update(ask_it(runner.process))
        return totals

    def ask(self, role: Role, port: int, path: str) -> str:
        """Return the answer to a GET on the loopback of the role's first pod.

        Raises:
            OSError: Nothing answers.

        """
        return ask(self.net[self._find_first(role).name], port, path)

    def _locate_service(self, role: Role) -> Endpoint:
        """Return the endpoint of the Service of a role's first pod, at the port called http or else the first port.

        For the proxy, the endpoint's `way` describes in words the way to the proxy and the settings that the proxy
        does not accept. For a changing system it also describes how changes arrive otherwise than in a cluster.
        """
        objects = self._objects
        if role == "backend" and (running := self._list_pods(role)):
            objects = replace(objects, pods=(*objects.role("proxy"), *running))
        address, number = services.address(objects, self.net, role)
        notes = [] if self._changes is None else [self.routing.note, CHANGES_NOTE]
        ways = [] if role == "backend" else [services.describe_way(objects), *notes, self.routing.said]
        return Endpoint(f"http://{address}:{number}", next(iter(self._routed)), way=", ".join(filter(None, ways)))
