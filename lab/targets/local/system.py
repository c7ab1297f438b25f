"""One variant, up and answering on the local target: where load goes, who runs, and a way in."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

from lab.base.errors import MeasuringError, UsageError
from lab.base.files import readable, write_texts
from lab.model.endpoint import ClockOffset, Endpoint, HowToEnd, Ran, Response, Role, Tls
from lab.model.events import Event, EventLog
from lab.model.leftovers import Leftovers
from lab.model.load import Load
from lab.model.pages import PAGES
from lab.model.pairs import Renewed
from lab.model.sweeps import Point
from lab.model.system import Recorder
from lab.model.variants import hosts
from lab.systems import renewing, workers
from lab.systems.manifests.objects import Objects
from lab.systems.manifests.pods import Pod
from lab.systems.renewing import running
from lab.systems.system import ProxySystem
from lab.systems.table import PASSING, find
from lab.systems.workers import GAUGE
from lab.targets.common import fetching, leftovers
from lab.targets.common.process import composed
from lab.targets.common.sampler import Sampler, process_times, thread_ids
from lab.targets.local.control_plane import services
from lab.targets.local.control_plane.control import Control, LocalRecorder
from lab.targets.local.control_plane.routing import Routes
from lab.targets.local.kubelet.containers import ask, tree
from lab.targets.local.kubelet.kubelet import Kubelet, shown
from lab.targets.local.sandbox import cpus, network
from lab.targets.local.sandbox.namespaces import STATE
from lab.targets.local.sandbox.network import Network

PROBED_PAGE = "1kB.bin"
ERRORS = 400
"""Statuses from here on are none of a system that serves."""

AT_ONCE = "endpoints leave before their pod is told to end, and at once when it crashes (a cluster: beside it, within 0.1-1 s)"
"""What a sample of a changing system says of it."""


class LocalSystem:
    """One variant, up and answering; see `lab.targets.base.System`."""

    def __init__(
        self,
        manifests: Sequence[Mapping[str, Any]],
        wanted: Objects,
        net: Network,
        kubelet: Kubelet,
        pinned: Mapping[Role, frozenset[int]],
        routing: Routes,
        control: Control | None,
        log: EventLog,
    ) -> None:
        """`manifests`: as they were read into `wanted`; `control`: of a system whose pods may come and go; `log`: what all of them tell."""
        self._objects, self.net, self.kubelet, self._cpus = wanted, net, kubelet, pinned
        self.routing, self._changes, self._log = routing, control, log
        self._generators: list[subprocess.Popen[bytes]] = []
        self._helpers: list[tuple[subprocess.Popen[bytes], str]] = []
        self._ordinary = leftovers.Ordinary()
        if control is not None:
            control.ended = self.end_helpers
        self._routed, self._routers = hosts.routed(manifests), hosts.routers(manifests)
        self._host = next(iter(self._routed))
        ways = {self._routers.get(host) for host in self._routed}
        found = {by: services.address(wanted, net, self._way_in, by=by)[0] for by in ways}
        self._addresses = {host: found[self._routers.get(host)] for host in self._routed}
        """Host → where it is, for a client: the proxy's address, or its Service's."""
        own = STATE / "clients" / f"{net.lane.prefix}{network.CLIENT}"
        self._client = (*net[network.CLIENT].enter, *network.resolving(self._addresses, own))

    @property
    def events(self) -> Sequence[Event]:
        """What its containers and pods did so far."""
        return self._log.events

    @property
    def client(self) -> tuple[str, ...]:
        """The command that runs what follows in the client's place, where this system's hosts have their addresses."""
        return self._client

    def endpoint(self, point: Point) -> Endpoint:
        return self._entry(*hosts.chosen(self._routed, self._way_in != "backend", point))

    def backend_endpoint(self) -> Endpoint:
        return self._at("backend")

    def generate(self, load: Load, files: Mapping[str, str]) -> Ran:
        raise UsageError("generators", "this machine has a place for one", "leave `generators` out of the point")

    def pod_address(self, role: Role) -> str:
        return self.net[self._running(role)[0].name].address

    def spawn(self, role: Role, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        pods = [] if role == "generator" else self._running(role)
        if role != "generator" and not pods:
            raise UsageError(f"role {role}", "this variant has no such pod", "name the other role")
        if shutil.which(argv[0]) is None:
            raise OSError(f"is not on this machine: apt-get install {argv[0]}")
        place = network.CLIENT if role == "generator" else pods[0].name
        enter = self._client if role == "generator" else self.net[place].enter
        helper = self._started(role, enter, argv, None, subprocess.DEVNULL, subprocess.DEVNULL)
        self._helpers.append((helper, place))
        return helper

    def _started(
        self,
        role: Role,
        enter: Sequence[str],
        argv: Sequence[str],
        cwd: Path | None,
        stdout: IO[bytes] | int,
        stderr: IO[bytes] | int,
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*enter, "taskset", "-c", cpus.as_list(self._cpus[role]), *argv],
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
            env=composed() if cwd is None else composed(cwd),
        )

    def end_helpers(self, of: Pod | None = None) -> None:
        """SIGKILL to what `spawn` started, with its children; all, or those in one pod. Called before the network goes."""
        mine = [item for item in self._helpers if of is None or item[1] == of.name]
        self._helpers = [item for item in self._helpers if item not in mine]
        for helper, _ in mine:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(helper.pid, signal.SIGKILL)
            helper.wait()

    def shape(self, link_mbit: float | None) -> None:
        network.shape(services.client_links(self.net, self._objects), link_mbit)

    def watch(self) -> Sampler:
        roles: tuple[Role, ...] = ("lab", "proxy", "backend", "generator")
        roles = (*roles, *(["balancer"] if self._objects.role("balancer") else []))

        def processes() -> Mapping[str, list[int]]:
            found: dict[str, list[int]] = {role: self.processes(role) for role in roles}
            if apart := set(self.routing.apart()):
                found["proxy"] = [pid for pid in found["proxy"] if pid not in apart]
                found["control"] = sorted(apart)
            return found

        return Sampler(processes, self.counters)

    def counters(self) -> Mapping[str, int]:
        links = network.link_counters(services.client_links(self.net, self._objects))
        nat = services.counters(self.net, self._objects)
        return {**self.kubelet.groups.counters(), **links, **nat, **self._counted()}

    def pods(self, role: Role) -> Sequence[Mapping[str, Any]]:
        running = [pod for pod in self.kubelet.pods if pod.pod.role == role]
        return [
            shown(pod, services.on_the_node(self.net, self._objects, pod.pod))
            for pod in running
            if pod.ready and not pod.terminating
        ]

    def fetch(
        self, endpoint: Endpoint, path: str, timeout_s: float, headers: Mapping[str, str] | None = None
    ) -> Response:
        host, port = fetching.place(endpoint)
        address = self._addresses.get(host, host)
        connection = network.connect(self.net[network.CLIENT], (address, port), timeout_s)
        return fetching.fetch(connection, endpoint, path, headers, timeout_s)

    def popen(
        self,
        argv: Sequence[str],
        cwd: Path,
        stdout: IO[bytes],
        stderr: IO[bytes],
        files: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        write_texts(cwd, files or {})
        self._generators = [generator for generator in self._generators if generator.returncode is None]
        process = self._started("generator", self._client, argv, cwd, stdout, stderr)
        self._generators.append(process)
        return process

    def held(
        self, *what: Any, **named: Any
    ) -> contextlib.AbstractContextManager[Callable[[], subprocess.Popen[bytes]]]:
        """There is nothing to be made before."""
        return contextlib.nullcontext(partial(self.popen, *what, **named))

    def budgets(self, role: Role) -> Sequence[Mapping[str, Any]]:
        labels = [pod.labels for pod in self._objects.role(role)]
        return [
            budget.shown()
            for budget in self._objects.budgets
            if any(budget.selector.items() <= own.items() for own in labels)
        ]

    def configmap(self, namespace: str, name: str) -> Mapping[str, str]:
        return self.routing.configmap(namespace, name)

    def processes(self, role: Role) -> list[int]:
        if role == "lab":
            return [os.getpid()]
        if role == "generator":
            return [
                pid for generator in self._generators if generator.returncode is None for pid in tree(generator.pid)
            ]
        pids = [pid for runner in self.kubelet.runners(role) for pid in runner.process.processes()]
        return [pid for pid in pids if not readable(f"/proc/{pid}/cmdline").startswith(PASSING)]

    def exec(self, role: Role, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
        runners = self.kubelet.runners(role)
        if not runners:
            raise UsageError(
                f"role {role}", "this variant has no such pod", "leave the check out, or name the other role"
            )
        try:
            return subprocess.run(
                runners[0].process.enter(argv),
                capture_output=True,
                text=True,
                timeout=30,
                stdin=subprocess.DEVNULL,
                check=False,
            )
        except (ProcessLookupError, subprocess.TimeoutExpired) as error:
            return subprocess.CompletedProcess(list(argv), 1, "", str(error))

    def gauges(self) -> Mapping[str, float]:
        count = workers.started(
            (len(thread_ids(pid)), readable(f"/proc/{pid}/cmdline").replace("\0", " ").strip())
            for pid in self.processes("proxy")
        )
        told = {
            f"proxy/{name}": float(value) for name, value in self._told(lambda system: system.workers.running).items()
        }
        return {**self.routing.gauges(), **({GAUGE: float(count)} if count else {}), **told}

    def leftovers(self) -> Leftovers:
        """Each network namespace is looked at once, from a thread in it: pods on the host network share one."""
        seen: dict[str, leftovers.Sockets] = {}
        unseen: dict[str, str] = {}
        for place, pod in self._places_left():
            try:
                seen[place] = network.call_in(self.net[pod.name], leftovers.look)
            except (OSError, ValueError) as error:
                unseen[place] = str(error)
        pids = {role: self.processes(role) for role in ("proxy", "backend")}
        serving = self._serving()
        ending = sum(leftovers.SHUTTING_DOWN in readable(f"/proc/{pid}/cmdline") for pid in serving)
        return Leftovers(
            time_wait={place: dict(one.time_wait) for place, one in seen.items()},
            port_range={place: one.ports for place, one in seen.items()},
            open_connections={place: one.connections for place, one in seen.items()},
            accept_queue={place: one.queued for place, one in seen.items()},
            old_workers=self._ordinary.beyond(len(serving), ending) if serving else None,
            memory_bytes={
                role: sum(times.rss_bytes for times in map(process_times, mine) if times is not None)
                for role, mine in pids.items()
                if mine
            },
            unseen=unseen,
        )

    def _places_left(self) -> Iterator[tuple[str, Pod]]:
        """Yield the name and the first pod of each network namespace that runs a part of the system."""
        looked_at: set[Path] = set()
        for role in ("balancer", "proxy", "backend"):
            number = 0
            for pod in {runner.pod.name: runner.pod for runner in self.kubelet.runners(role)}.values():
                if (path := self.net[pod.name].path) not in looked_at:
                    looked_at.add(path)
                    number += 1
                    yield role if number == 1 else f"{role}-{number}", pod

    def recorder(self) -> Recorder:
        control = self._control("events")

        def check() -> None:
            control.check()
            self.routing.check()

        return LocalRecorder(self._log, check)

    def clock(self) -> ClockOffset:
        """One machine, one clock: what is left is that of a reading."""
        return ClockOffset(0.0, 1e-6)

    def end_pod(self, role: Role, how: HowToEnd) -> bool:
        return self._control("pods").end_pod(role, how)

    def scale(self, role: Role, replicas: int) -> None:
        self._control("replicas").scale(role, replicas)

    def roll(self, role: Role) -> None:
        self._control("pods").roll(role)

    def freeze(self, role: Role, frozen: bool) -> None:
        self._control("processes").freeze(role, frozen)

    def squeeze(self, role: Role, cpu: str | None) -> None:
        self._control("limits").squeeze(role, cpu)

    def apply(self, objects: Sequence[Mapping[str, Any]]) -> None:
        self._control("objects")
        self.routing.apply(objects)

    def renew(self) -> Renewed:
        found = renewing.renewed(self.routing.renew, self._serving, self._answers, self.log_tail)
        for runner in self.kubelet.runners("proxy"):
            runner.process.confine()  # its new workers may have chosen CPUs of their own
        self._ordinary.forget()
        return found

    def _serving(self) -> Mapping[int, renewing.Running]:
        """The proxy's processes, without what of its containers is the control plane's."""
        apart = set(self.routing.apart())
        return running(pid for pid in self.processes("proxy") if pid not in apart)

    def _answers(self) -> bool:
        try:
            return self.fetch(self.entry(), f"/{PROBED_PAGE}", 2.0).status < ERRORS
        except OSError:
            return False

    def restarts(self) -> Mapping[str, int]:
        return {
            f"{runner.pod.name}/{runner.container.name}": runner.restarts
            for role in ("balancer", "proxy", "backend")
            for runner in self.kubelet.runners(role)
        }

    def deployed(self) -> Sequence[Mapping[str, Any]]:
        return self.routing.deployed()

    def unapplied(self) -> Sequence[str]:
        return self.kubelet.groups.unapplied()

    def log_tail(self) -> str:
        parts = [
            (runner, runner.process.tail(output_too=False))
            for role in ("balancer", "proxy", "backend")
            for runner in self.kubelet.runners(role)
        ]
        said = [f"--- {name}\n{text}" for name, text in self.kubelet.groups.deaths()]
        said += [f"--- {runner.pod.name}/{runner.container.name}\n{text}" for runner, text in parts if text]
        return "\n".join(said)

    def wait(self, deadline: float) -> None:
        """Until the entry serves the probed page whole, or redirects whoever asks for it. MeasuringError at the deadline (monotonic)."""
        entry = self.entry()
        fault = ""
        while True:
            try:
                response = self.fetch(entry, f"/{PROBED_PAGE}", 2.0)
                whole = response.status == 200 and len(response.body) == PAGES[PROBED_PAGE]
                if whole or "location" in response.headers:
                    return
                fault = f"status {response.status}, {len(response.body)} bytes"
            except OSError as error:
                fault = str(error)
            if time.monotonic() > deadline:
                raise MeasuringError(
                    entry.base_url, f"/{PROBED_PAGE} is not served: {fault}", self.log_tail() or "nothing was logged"
                )
            time.sleep(0.01)

    def entry(self) -> Endpoint:
        return self._entry((self._host,), self._routed[self._host])

    def _control(self, what: str) -> Control:
        if self._changes is None:
            raise MeasuringError(
                "local target", f"{what} of a steady system do not change", "bring it up as `changing`"
            )
        return self._changes

    def _running(self, role: Role) -> Sequence[Pod]:
        """A role's pods, those that terminate last."""
        return self._objects.role(role) if self._changes is None else self._changes.pods(role)

    @property
    def _way_in(self) -> Role:
        return cast("Role", self._objects.entry[0].role)

    def _entry(self, names: tuple[str, ...], tls: Tls) -> Endpoint:
        def url(by: str | None, host: str) -> str:
            """Of one way in; TLS needs the name, which leads there."""
            port = "http" if tls == "none" else "https"
            address, number = services.address(self._objects, self.net, self._way_in, port, by)
            return f"http://{address}:{number}" if tls == "none" else f"https://{host}:{number}"

        shards = hosts.shards_of(names, self._routers, url)
        base_url = url(self._routers.get(names[0]), names[0])
        return Endpoint(base_url, names[0], names, tls, self._at(self._way_in).way, shards)

    def _counted(self) -> Mapping[str, int]:
        """`proxy/requests` and `proxy/requests_h2` as the proxies count them, and `proxy/tls_…` where the entry ends TLS; empty where they do not tell."""
        ends_tls = bool({"edge", "reencrypt"} & set(self._routed.values()))
        found = self._told(lambda system: system.counters)
        return {f"proxy/{name}": int(value) for name, value in found.items() if ends_tls or not name.startswith("tls_")}

    def _told(
        self, interface: Callable[[ProxySystem], Callable[[Any], Mapping[str, float]] | None]
    ) -> Mapping[str, float]:
        """What an interface of their systems says of all proxies together; nothing of one without it, or that has just ended."""
        found: Counter[str] = Counter()
        for runner in self.kubelet.runners("proxy"):
            system = find(runner.container.repository)
            ask_it = interface(system) if system is not None else None
            if ask_it is not None:
                with contextlib.suppress(OSError, ValueError):
                    found.update(ask_it(runner.process))
        return found

    def ask(self, role: Role, port: int, path: str) -> str:
        return ask(self.net[self._running(role)[0].name], port, path)

    def _at(self, role: Role) -> Endpoint:
        """The Service in front of a role's first pod, by its port called http (or its first).

        Its way, in words: with what the proxy does not take of its settings; of a changing system also how changes reach the way otherwise
        than in a cluster.
        """
        objects = self._objects
        if role == "backend" and (running := self._running(role)):
            objects = replace(objects, pods=(*objects.role("proxy"), *running))
        address, number = services.address(objects, self.net, role)
        late = [] if self._changes is None else [self.routing.note, AT_ONCE]
        ways = [] if role == "backend" else [services.way(objects), *late, self.routing.said]
        return Endpoint(f"http://{address}:{number}", self._host, way=", ".join(filter(None, ways)))
