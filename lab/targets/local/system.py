"""A running system (variant) on the local target: its address for load, its processes, and methods to change it."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

from lab.base.errors import MeasuringError, UsageError, refuse_if
from lab.base.files import read_text_if_readable, write_texts
from lab.model.disturbance import Recorder
from lab.model.endpoint import ClockOffset, Endpoint, GeneratorsOutput, HowToEnd, Response, Role, Tls
from lab.model.events import EventLog
from lab.model.leftovers import Leftovers
from lab.model.load import GeneratorLoad
from lab.model.pages import PAGES
from lab.model.pairs import Renewed
from lab.model.sweeps import LoadPoint
from lab.model.variants import hosts
from lab.systems import renewing, workers
from lab.systems.manifests.objects import Objects
from lab.systems.manifests.pods import Pod
from lab.systems.system import ProxySystem
from lab.systems.table import SHORT_LIVED_TITLES, find
from lab.targets.common import fetching, leftovers
from lab.targets.common.process import end_group, make_environment
from lab.targets.common.sampler import Sampler, process_times, thread_ids
from lab.targets.local.control_plane import services
from lab.targets.local.control_plane.control import ControlPlane, LocalRecorder
from lab.targets.local.control_plane.routing import Routes
from lab.targets.local.kubelet.containers import ask, list_descendants
from lab.targets.local.kubelet.kubelet import Kubelet, describe_pod
from lab.targets.local.kubelet.runner import ContainerRunner
from lab.targets.local.sandbox import cpus, network
from lab.targets.local.sandbox.link_delay import LinkDelay, begin_delay
from lab.targets.local.sandbox.namespaces import STATE

PROBED_PAGE = "1kB.bin"
"""The page that is requested to see whether the system serves."""
FIRST_ERROR_STATUS = 400
"""The lowest HTTP status that shows that a system does not serve."""

CONNECT_S = 5.0
"""The seconds within which a connection of a verification must be open."""
NO_POD = "this variant has no such pod"
"""The fault of an error for a role without a pod."""
CHANGES_NOTE = "endpoints leave before their pod is asked to end, and at once when it crashes (a cluster: at the same time, within 0.1-1 s)"
"""The note in samples of a system whose pods may come and go (changing)."""


class LocalSystem:
    """A variant that is up and answering on the local target; it implements `lab.model.system.System`."""

    def __init__(
        self,
        manifests: Sequence[Mapping[str, Any]],
        objects: Objects,
        net: network.Network,
        kubelet: Kubelet,
        pinned: Mapping[Role, frozenset[int]],
        routing: Routes,
        control: ControlPlane | None,
        log: EventLog,
    ) -> None:
        """Assemble the system from its parts, which are up or coming up.

        Args:
            manifests: The manifests that `objects` were read from.
            objects: The objects of the variant.
            net: The network of the system.
            kubelet: The kubelet with the system's pods.
            pinned: Role → the CPUs to which it is pinned.
            routing: The component that passes routes and endpoints to the proxies.
            control: The control plane, if pods and routes may change while the system is up; else None.
            log: The log into which all parts write events.

        """
        self.objects, self.net, self.kubelet, self._cpus = objects, net, kubelet, pinned
        self.routing, self._changes, self.log = routing, control, log
        self._generators: list[subprocess.Popen[bytes]] = []
        self._helpers: list[tuple[subprocess.Popen[bytes], str]] = []
        self._delay: LinkDelay | None = None
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

    def endpoint(self, point: LoadPoint) -> Endpoint:
        """Return the endpoint (URL and host) to which the load of a load point (one load of a sweep) is sent.

        Raises:
            UsageError: The system cannot serve the load point.

        """
        return self._make_endpoint(*hosts.choose_hosts(self._routed, self._way_in != "backend", point))

    def backend_endpoint(self) -> Endpoint:
        """Return the endpoint (URL and host) of the backend itself, without the proxy."""
        return self._locate_service("backend")

    def generate(self, load: GeneratorLoad, files: Mapping[str, str]) -> GeneratorsOutput:
        """Raise an error: a load of several generators needs a cluster, because this machine has CPUs for one generator only.

        Raises:
            UsageError: Always.

        """
        raise UsageError("generators", "this machine has a place for one", "leave `generators` out of the point")

    def pod_address(self, role: Role) -> str:
        """Return the IP address of the role's first pod."""
        return self.net[self._find_first(role).name].address

    def spawn(self, role: Role, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start a helper program in the network namespace and on the CPUs of a role, and return its process.

        The helper runs until its own end, or until `end_helpers` kills it.

        Args:
            role: The role, such as `proxy`; `generator` means the client's network namespace.
            argv: The command.

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
        """Kill helper programs that `spawn` has started, and their children; call this before the network is removed.

        Args:
            pod: The pod whose helpers to kill; None kills all helpers.

        """
        ending = [item for item in self._helpers if pod is None or item[1] == pod.name]
        self._helpers = [item for item in self._helpers if item not in ending]
        for helper, _ in ending:
            end_group(helper)

    def shape(self, link_mbit: float | None, delay_ms: float = 0.0) -> None:
        """Limit the rate of the client's link, and lengthen its round trips.

        Args:
            link_mbit: The rate in Mbit/s; None removes the limit.
            delay_ms: The added time of a round trip in milliseconds; 0 removes it.

        Raises:
            MeasuringError: The rate or the delay cannot be set, or the delay did not last.

        """
        links = services.client_links(self.net, self.objects)
        network.shape(links, link_mbit)
        if self._delay is not None and self._delay.delay_ms != delay_ms:
            ending, self._delay = self._delay, None
            ending.end()
        if delay_ms and self._delay is None:
            with network.as_measuring_error():
                self._delay = begin_delay(links, delay_ms, self._pin("lab", ()))

    def watch(self) -> Sampler:
        """Return a sampler, a context manager that measures the resource use of every role during its `with` block.

        Processes of the control plane, even those in a proxy's container, count for a separate role `control`.
        """
        roles: tuple[Role, ...] = ("lab", "proxy", "backend", "generator", "balancer")

        def processes() -> Mapping[str, list[int]]:
            pids: dict[str, list[int]] = {role: self.processes(role) for role in roles}
            if apart := set(self.routing.apart()):
                pids["proxy"] = [pid for pid in pids["proxy"] if pid not in apart]
                pids["control"] = sorted(apart)
            return pids

        return Sampler(processes, self.counters)

    def counters(self) -> Mapping[str, int]:
        """Return the cumulative counters of the system by `role/name`, such as `proxy/requests` or `client/rx_bytes`.

        They come from the cgroups, the client's link, the node's NAT, and the proxies themselves. Counters of TLS are
        left out if the proxy terminates no TLS.
        """
        links = network.link_counters(services.client_links(self.net, self.objects))
        nat = services.counters(self.net, self.objects)
        ends_tls = bool({"edge", "reencrypt"} & set(self._routed.values()))
        values = self._ask_proxies(lambda system: system.counters)
        proxy = {f"proxy/{name}": int(values[name]) for name in values if ends_tls or not name.startswith("tls_")}
        return {**self.kubelet.groups.counters(), **links, **nat, **proxy}

    def pods(self, role: Role) -> Sequence[Mapping[str, Any]]:
        """Return the ready pods of a role as Kubernetes objects (`metadata` and `spec`), without terminating pods."""
        running = [pod for pod in self.kubelet.pods if pod.pod.role == role and pod.ready and not pod.terminating]
        return [describe_pod(pod, services.on_the_node(self.net, self.objects, pod.pod)) for pod in running]

    def fetch(
        self, endpoint: Endpoint, path: str, timeout_s: float, headers: Mapping[str, str] | None = None
    ) -> Response:
        """Send a GET from the client's network namespace over a new connection, and return the response.

        Args:
            endpoint: The URL and the host name of the request.
            path: The path to request.
            timeout_s: The limit in seconds for the connecting and for each later read or write.
            headers: Further request headers; None = none.

        Raises:
            OSError: There is no answer in time, or it is not HTTP.

        """
        host, port = fetching.split_address(endpoint)
        connection = network.connect(self.net[network.CLIENT], (self._addresses.get(host, host), port), timeout_s)
        return fetching.fetch(connection, endpoint, path, headers, timeout_s)

    def connect(self, tls: bool) -> socket.socket:
        """Open a TCP connection from the client's network namespace to the system's port for HTTPS (`tls`) or HTTP.

        Raises:
            OSError: The connection cannot be opened.

        """
        address = services.address(self.objects, self.net, self._way_in, "https" if tls else "http")
        return network.connect(self.net[network.CLIENT], address, CONNECT_S)

    def popen(
        self,
        argv: Sequence[str],
        cwd: Path,
        stdout: IO[bytes],
        stderr: IO[bytes],
        files: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a load generator in the client's network namespace, on the generator's CPUs, and return its process.

        Args:
            argv: The command of the generator.
            cwd: The generator's working folder, which is also its home.
            stdout: The file for the output.
            stderr: The file for the error output.
            files: Name → text of files that are first written into the working folder; None = none.

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
        """Return a context manager that yields the function to start a load generator; the arguments are those of `popen`.

        On a cluster, entering the context connects to the generator's pod in advance. Here nothing needs to be
        prepared.
        """
        return contextlib.nullcontext(partial(self.popen, *arguments, **options))

    def budgets(self, role: Role) -> Sequence[Mapping[str, Any]]:
        """Return the PodDisruptionBudgets that apply to the role's pods, as Kubernetes objects."""
        pods = self.objects.role(role)
        return [budget.shown() for budget in self.objects.budgets if any(budget.selects(pod.labels) for pod in pods)]

    def configmap(self, namespace: str, name: str) -> Mapping[str, str]:
        """Return the data (key → text) of a ConfigMap; empty if there is no such ConfigMap."""
        return self.routing.configmap(namespace, name)

    def processes(self, role: Role) -> list[int]:
        """Return the ids of all processes of a role; `generator` means the load generators.

        `lab` means this process, and those that hold packets for a delay on the client's link. Programs that a proxy
        system starts for a moment only are left out.
        """
        if role == "lab":
            return [
                os.getpid(),
                *(program.pid for program in (self._delay.programs if self._delay is not None else ())),
            ]
        if role == "generator":
            running = [generator.pid for generator in self._generators if generator.returncode is None]
            return [pid for root in running for pid in list_descendants(root)]
        pids = [pid for runner in self.kubelet.runners(role) for pid in runner.process.processes()]
        return [pid for pid in pids if not read_text_if_readable(f"/proc/{pid}/cmdline").startswith(SHORT_LIVED_TITLES)]

    def exec(self, role: Role, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run a command inside the first container of a role's first pod, for 30 s at most.

        Args:
            role: The role, such as `proxy`.
            argv: The command.

        Returns:
            The completed command. Its exit status is 1 if the container does not run or the 30 s are over.

        Raises:
            UsageError: The role has no pod.

        """
        runners = self.kubelet.runners(role)
        refuse_if(not runners, f"role {role}", NO_POD, "leave the check out, or name the other role")
        try:
            entered = runners[0].process.enter(argv)
            return subprocess.run(
                entered, capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL, check=False
            )
        except (ProcessLookupError, subprocess.TimeoutExpired) as error:
            return subprocess.CompletedProcess(list(argv), 1, "", str(error))

    def gauges(self) -> Mapping[str, float]:
        """Return the proxy's gauges (values that rise and fall) by `role/name`, such as `proxy/workers`.

        `lab.model.system.System.gauges` describes the gauges.
        """
        pids = self.processes("proxy")
        titles = ((pid, read_text_if_readable(f"/proc/{pid}/cmdline").replace("\0", " ").strip()) for pid in pids)
        count = workers.count_running((len(thread_ids(pid)), title) for pid, title in titles)
        values = self._ask_proxies(lambda system: system.workers.running)
        gauges = {**self.routing.gauges(), **({workers.GAUGE: float(count)} if count else {})}
        return gauges | {f"proxy/{name}": float(value) for name, value in values.items()}

    def leftovers(self) -> Leftovers:
        """Return what earlier loads have left in the system: sockets, old workers of the proxy, and memory.

        Sockets are counted once per network namespace, even if several pods share it. A namespace that cannot be
        inspected is in `unseen`, with the reason.
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
        """Return a recorder of events; the system must have been brought up with `changing`.

        Raises:
            MeasuringError: The pods and routes of this system may not change.

        """
        return LocalRecorder(self.log, self._get_control("events").check)

    def clock(self) -> ClockOffset:
        """Return a clock offset of zero with an uncertainty of 1 µs: lab and generator use the clock of this machine."""
        return ClockOffset(0.0, 1e-6)

    def end_pod(self, role: Role, how: HowToEnd) -> bool:
        """End the role's first pod by deletion, eviction or crash, as `ControlPlane.end_pod` describes.

        Returns:
            False if a PodDisruptionBudget forbids the eviction, else True.

        """
        return self._get_control("pods").end_pod(role, how)

    def scale(self, role: Role, replicas: int) -> None:
        """Set the number of replicas of the Deployment that makes a role's pods."""
        self._get_control("replicas").scale(role, replicas)

    def roll(self, role: Role) -> None:
        """Replace all pods of a role by new ones, in the way that the strategy of their Deployment prescribes."""
        self._get_control("pods").roll(role)

    def freeze(self, role: Role, frozen: bool) -> None:
        """Stop all processes of the role's first pod, or let the processes of all the role's pods continue.

        Args:
            role: The role, such as `proxy`.
            frozen: True stops the processes; False lets them continue.

        """
        self._get_control("processes").freeze(role, frozen)

    def squeeze(self, role: Role, cpu: str | None) -> None:
        """Change the CPU limit of the first container in each of the role's pods.

        Args:
            role: The role, such as `proxy`.
            cpu: The limit as a manifest writes it, such as `20m`. None restores the limit that the manifest sets.

        """
        self._get_control("limits").squeeze(role, cpu)

    def apply(self, objects: Sequence[Mapping[str, Any]]) -> None:
        """Create or change objects, such as Routes; the system must have been brought up with `changing`.

        Raises:
            MeasuringError: The pods and routes of this system may not change, or an object is refused.

        """
        self._get_control("objects")
        self.routing.apply(objects)

    def renew(self) -> Renewed:
        """Reload the proxy's configuration unchanged, and return when only new worker processes serve.

        Returns:
            The processes that began and ended, and the seconds that this took.

        """
        renewed = renewing.wait_for_new_workers(
            self.routing.renew, self._find_serving_processes, self._is_answering, self.log_tail
        )
        for runner in self.kubelet.runners("proxy"):
            runner.process.confine()  # its new workers may have chosen other CPUs
        self._ordinary.forget()
        return renewed

    def _find_serving_processes(self) -> Mapping[int, renewing.Running]:
        """Return the proxy's processes by their ids, without a controller that runs in the proxy's container."""
        apart = set(self.routing.apart())
        return renewing.list_running(pid for pid in self.processes("proxy") if pid not in apart)

    def _is_answering(self) -> bool:
        try:
            return self.fetch(self.entry(), f"/{PROBED_PAGE}", 2.0).status < FIRST_ERROR_STATUS
        except OSError:
            return False

    def restarts(self) -> Mapping[str, int]:
        """Return how often each container was restarted: `pod/container` → number."""
        return {f"{runner.pod.name}/{runner.container.name}": runner.restarts for runner in self._list_runners()}

    def deployed(self) -> Sequence[Mapping[str, Any]]:
        """Return the Pod objects as the API server has them, for the run's record; empty on a target without an API server."""
        return self.routing.deployed()

    def unapplied(self) -> Sequence[str]:
        """Return one text for each limit of the manifests that could not be applied, with the reason."""
        return self.kubelet.groups.unapplied()

    def log_tail(self) -> str:
        """Return the last lines of each container's error output, and messages about containers that ran out of memory."""
        tails = [
            (f"{runner.pod.name}/{runner.container.name}", runner.process.tail(output_too=False))
            for runner in self._list_runners()
        ]
        return "\n".join(f"--- {name}\n{text}" for name, text in [*self.kubelet.groups.deaths(), *tails] if text)

    def _list_runners(self) -> list[ContainerRunner]:
        return [runner for role in ("balancer", "proxy", "backend") for runner in self.kubelet.runners(role)]

    def wait(self, deadline: float) -> None:
        """Wait until the system serves a complete page, or answers with a redirect, at the address that clients use.

        Args:
            deadline: The end of the wait, by time.monotonic().

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
        """Return the endpoint (URL and host) at which clients reach the first host that has a route."""
        host, tls = next(iter(self._routed.items()))
        return self._make_endpoint((host,), tls)

    def _get_control(self, subject: str) -> ControlPlane:
        """Return the control plane, which exists only if pods and routes may change while the system is up.

        Args:
            subject: What the caller wants to change (such as `pods` or `limits`), for the error's text.

        Raises:
            MeasuringError: There is no control plane.

        """
        if self._changes is None:
            fault = f"{subject} of a steady system do not change"
            raise MeasuringError("local target", fault, "bring it up as `changing`")
        return self._changes

    def _list_pods(self, role: Role) -> Sequence[Pod]:
        """Return the pods of a role; terminating pods come last."""
        return self.objects.role(role) if self._changes is None else self._changes.pods(role)

    def _find_first(self, role: Role) -> Pod:
        """Return the first pod of a role.

        Raises:
            UsageError: The role has no pod.

        """
        pods = self._list_pods(role)
        refuse_if(not pods, f"role {role}", NO_POD, "name the other role")
        return pods[0]

    def _make_endpoint(self, names: tuple[str, ...], tls: Tls) -> Endpoint:
        """Return the endpoint for requests to several hosts.

        Args:
            names: The names of the hosts. The endpoint's URL is that of the first one.
            tls: The kind of TLS termination of these hosts, such as `none` or `edge`.

        """

        def url(by: str | None, host: str) -> str:
            """Return the URL at which clients reach a host.

            With TLS the URL contains the host's name, because the handshake needs the name. Otherwise it contains the
            IP address.

            Args:
                by: The name of the Deployment that serves the host, if the routes are divided among several proxies;
                    else None.
                host: The name of the host.

            """
            port = "http" if tls == "none" else "https"
            address, number = services.address(self.objects, self.net, self._way_in, port, by)
            return f"http://{address}:{number}" if tls == "none" else f"https://{host}:{number}"

        shards = hosts.shards_of(names, self._routers, url)
        base_url = url(self._routers.get(names[0]), names[0])
        return Endpoint(base_url, names[0], names, tls, self._locate_service(self._way_in).way, shards)

    def _ask_proxies(
        self, interface: Callable[[ProxySystem], Callable[[Any], Mapping[str, float]] | None]
    ) -> Mapping[str, float]:
        """Ask all proxies for numbers about themselves, and return their sums by name.

        A proxy that cannot report such numbers, or that has just ended, adds nothing.

        Args:
            interface: A function that gets a proxy system. It returns the function that asks a container process of
                this system for its numbers, or None if the system cannot report such numbers.

        """
        totals: Counter[str] = Counter()
        for runner in self.kubelet.runners("proxy"):
            system = find(runner.container.repository)
            if system is not None and (ask_it := interface(system)) is not None:
                with contextlib.suppress(OSError, ValueError):
                    totals.update(ask_it(runner.process))
        return totals

    def ask(self, role: Role, port: int, path: str) -> str:
        """Send a GET to a port on the loopback of the role's first pod, and return the body of the answer.

        Raises:
            OSError: Nothing answers.

        """
        return ask(self.net[self._find_first(role).name], port, path)

    def _locate_service(self, role: Role) -> Endpoint:
        """Return the endpoint of the Service in front of a role's pods, for the Service's port `http` or else its first port.

        For every role but the backend, the endpoint's attribute `way` describes in words:

        - what lies between clients and the proxy, such as a NAT;
        - which settings the proxy does not accept;
        - how changes of pods and routes reach the proxy here in another way than in a cluster. This part is left out
          if pods and routes may not change while the system is up.
        """
        objects = self.objects
        if role == "backend" and (running := self._list_pods(role)):
            objects = replace(objects, pods=(*objects.role("proxy"), *running))
        address, number = services.address(objects, self.net, role)
        notes = [] if self._changes is None else [self.routing.note, CHANGES_NOTE]
        ways = [] if role == "backend" else [services.describe_way(objects), *notes, self.routing.said]
        return Endpoint(f"http://{address}:{number}", next(iter(self._routed)), way=", ".join(filter(None, ways)))
