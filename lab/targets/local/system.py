"""One variant, up and answering on the local target: where load goes, who runs, and a way in."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

from lab.base.errors import MeasuringError, UsageError
from lab.base.files import readable, write_texts
from lab.model.disturbance import Recorder
from lab.model.endpoint import ClockOffset, Endpoint, HowToEnd, Ran, Response, Role, Tls
from lab.model.events import Event, EventLog
from lab.model.leftovers import Leftovers
from lab.model.load import Load
from lab.model.pages import PAGES
from lab.model.pairs import Renewed
from lab.model.sweeps import Point
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
from lab.targets.local.kubelet.runner import Runner
from lab.targets.local.sandbox import cpus, network
from lab.targets.local.sandbox.namespaces import STATE
from lab.targets.local.sandbox.network import Network

PROBED_PAGE = "1kB.bin"
ERRORS = 400
"""Statuses from here on are none of a system that serves."""

NO_POD = "this variant has no such pod"
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
        self._way_in: Role = cast("Role", wanted.entry[0].role)
        self._routed, self._routers = hosts.routed(manifests), hosts.routers(manifests)
        self._addresses = {
            host: services.address(wanted, net, self._way_in, by=self._routers.get(host))[0] for host in self._routed
        }
        """Host → where it is, for a client: the proxy's address, or its Service's."""
        own = STATE / "clients" / f"{net.lane.prefix}{network.CLIENT}"
        self.client = (*net[network.CLIENT].enter, *network.resolving(self._addresses, own))
        """The command that runs what follows in the client's place, where this system's hosts have their addresses."""

    @property
    def events(self) -> Sequence[Event]:
        """What its containers and pods did so far."""
        return self._log.events

    def endpoint(self, point: Point) -> Endpoint:
        return self._entry(*hosts.chosen(self._routed, self._way_in != "backend", point))

    def backend_endpoint(self) -> Endpoint:
        return self._at("backend")

    def generate(self, load: Load, files: Mapping[str, str]) -> Ran:
        raise UsageError("generators", "this machine has a place for one", "leave `generators` out of the point")

    def pod_address(self, role: Role) -> str:
        return self.net[self._first(role).name].address

    def spawn(self, role: Role, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        name = network.CLIENT if role == "generator" else self._first(role).name
        if shutil.which(argv[0]) is None:
            raise OSError(f"is not on this machine: apt-get install {argv[0]}")
        argv = [*(self.client if role == "generator" else self.net[name].enter), *self._pinned(role, argv)]
        nothing = subprocess.DEVNULL
        helper = subprocess.Popen(
            argv, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True, env=composed()
        )
        self._helpers.append((helper, name))
        return helper

    def _pinned(self, role: Role, argv: Sequence[str]) -> list[str]:
        return ["taskset", "-c", cpus.as_list(self._cpus[role]), *argv]

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
        ends_tls = bool({"edge", "reencrypt"} & set(self._routed.values()))
        told = self._told(lambda system: system.counters)
        own = {f"proxy/{name}": int(told[name]) for name in told if ends_tls or not name.startswith("tls_")}
        return {**self.kubelet.groups.counters(), **links, **nat, **own}

    def pods(self, role: Role) -> Sequence[Mapping[str, Any]]:
        running = [pod for pod in self.kubelet.pods if pod.pod.role == role and pod.ready and not pod.terminating]
        return [shown(pod, services.on_the_node(self.net, self._objects, pod.pod)) for pod in running]

    def fetch(
        self, endpoint: Endpoint, path: str, timeout_s: float, headers: Mapping[str, str] | None = None
    ) -> Response:
        host, port = fetching.place(endpoint)
        connection = network.connect(self.net[network.CLIENT], (self._addresses.get(host, host), port), timeout_s)
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
        process = subprocess.Popen(
            [*self.client, *self._pinned("generator", argv)],
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
            env=composed(cwd),
        )
        self._generators.append(process)
        return process

    def held(
        self, *what: Any, **named: Any
    ) -> contextlib.AbstractContextManager[Callable[[], subprocess.Popen[bytes]]]:
        """There is nothing to be made before."""
        return contextlib.nullcontext(partial(self.popen, *what, **named))

    def budgets(self, role: Role) -> Sequence[Mapping[str, Any]]:
        pods = self._objects.role(role)
        return [each.shown() for each in self._objects.budgets if any(each.selects(pod.labels) for pod in pods)]

    def configmap(self, namespace: str, name: str) -> Mapping[str, str]:
        return self.routing.configmap(namespace, name)

    def processes(self, role: Role) -> list[int]:
        if role == "lab":
            return [os.getpid()]
        if role == "generator":
            running = [generator.pid for generator in self._generators if generator.returncode is None]
            return [pid for root in running for pid in tree(root)]
        pids = [pid for runner in self.kubelet.runners(role) for pid in runner.process.processes()]
        return [pid for pid in pids if not readable(f"/proc/{pid}/cmdline").startswith(PASSING)]

    def exec(self, role: Role, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
        nothing = subprocess.DEVNULL
        runners = self.kubelet.runners(role)
        if not runners:
            raise UsageError(f"role {role}", NO_POD, "leave the check out, or name the other role")
        try:
            entered = runners[0].process.enter(argv)
            return subprocess.run(entered, capture_output=True, text=True, timeout=30, stdin=nothing, check=False)
        except (ProcessLookupError, subprocess.TimeoutExpired) as error:
            return subprocess.CompletedProcess(list(argv), 1, "", str(error))

    def gauges(self) -> Mapping[str, float]:
        pids = self.processes("proxy")
        titles = ((pid, readable(f"/proc/{pid}/cmdline").replace("\0", " ").strip()) for pid in pids)
        count = workers.started((len(thread_ids(pid)), title) for pid, title in titles)
        told = self._told(lambda system: system.workers.running)
        found = {**self.routing.gauges(), **({GAUGE: float(count)} if count else {})}
        return found | {f"proxy/{name}": float(value) for name, value in told.items()}

    def leftovers(self) -> Leftovers:
        """Each network namespace is looked at once, from a thread in it: pods on the host network share one."""
        seen: dict[str, leftovers.Sockets] = {}
        unseen: dict[str, str] = {}
        places: dict[Path, str] = {}
        for role in ("balancer", "proxy", "backend"):
            pods = {runner.pod.name: runner.pod for runner in self.kubelet.runners(role)}
            fresh = {place.path: place for place in map(self.net.__getitem__, pods) if place.path not in places}
            for number, place in enumerate(fresh.values(), 1):
                name = places[place.path] = role if number == 1 else f"{role}-{number}"
                try:
                    seen[name] = network.call_in(place, leftovers.look)
                except (OSError, ValueError) as error:
                    unseen[name] = str(error)
        memory_bytes: dict[str, int] = {}
        for role in ("proxy", "backend"):
            if pids := self.processes(role):
                memory_bytes[role] = sum(times.rss_bytes for times in map(process_times, pids) if times is not None)
        serving = self._serving()
        ending = sum(leftovers.SHUTTING_DOWN in readable(f"/proc/{pid}/cmdline") for pid in serving)
        return Leftovers(
            time_wait={place: dict(one.time_wait) for place, one in seen.items()},
            port_range={place: one.ports for place, one in seen.items()},
            open_connections={place: one.connections for place, one in seen.items()},
            accept_queue={place: one.queued for place, one in seen.items()},
            old_workers=self._ordinary.beyond(len(serving), ending) if serving else None,
            memory_bytes=memory_bytes,
            unseen=unseen,
        )

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
        return {f"{runner.pod.name}/{runner.container.name}": runner.restarts for runner in self._runners()}

    def deployed(self) -> Sequence[Mapping[str, Any]]:
        return self.routing.deployed()

    def unapplied(self) -> Sequence[str]:
        return self.kubelet.groups.unapplied()

    def log_tail(self) -> str:
        named = ((f"{each.pod.name}/{each.container.name}", each) for each in self._runners())
        tails = [(name, runner.process.tail(output_too=False)) for name, runner in named]
        return "\n".join(f"--- {name}\n{text}" for name, text in [*self.kubelet.groups.deaths(), *tails] if text)

    def _runners(self) -> list[Runner]:
        return [runner for role in ("balancer", "proxy", "backend") for runner in self.kubelet.runners(role)]

    def wait(self, deadline: float) -> None:
        """Until the entry serves the probed page whole, or redirects whoever asks for it. MeasuringError at the deadline (monotonic)."""
        entry = self.entry()
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
                said = self.log_tail() or "nothing was logged"
                raise MeasuringError(entry.base_url, f"/{PROBED_PAGE} is not served: {fault}", said)
            time.sleep(0.01)

    def entry(self) -> Endpoint:
        host, tls = next(iter(self._routed.items()))
        return self._entry((host,), tls)

    def _control(self, what: str) -> Control:
        if self._changes is None:
            fault = f"{what} of a steady system do not change"
            raise MeasuringError("local target", fault, "bring it up as `changing`")
        return self._changes

    def _running(self, role: Role) -> Sequence[Pod]:
        """A role's pods, those that terminate last."""
        return self._objects.role(role) if self._changes is None else self._changes.pods(role)

    def _first(self, role: Role) -> Pod:
        pods = self._running(role)
        if not pods:
            raise UsageError(f"role {role}", NO_POD, "name the other role")
        return pods[0]

    def _entry(self, names: tuple[str, ...], tls: Tls) -> Endpoint:
        def url(by: str | None, host: str) -> str:
            """Of one way in; TLS needs the name, which leads there."""
            port = "http" if tls == "none" else "https"
            address, number = services.address(self._objects, self.net, self._way_in, port, by)
            return f"http://{address}:{number}" if tls == "none" else f"https://{host}:{number}"

        shards = hosts.shards_of(names, self._routers, url)
        base_url = url(self._routers.get(names[0]), names[0])
        return Endpoint(base_url, names[0], names, tls, self._at(self._way_in).way, shards)

    def _told(
        self, interface: Callable[[ProxySystem], Callable[[Any], Mapping[str, float]] | None]
    ) -> Mapping[str, float]:
        """What an interface of their systems says of all proxies together; nothing of one without it, or that has just ended."""
        found: Counter[str] = Counter()
        for runner in self.kubelet.runners("proxy"):
            system = find(runner.container.repository)
            if system is not None and (ask_it := interface(system)) is not None:
                with contextlib.suppress(OSError, ValueError):
                    found.update(ask_it(runner.process))
        return found

    def ask(self, role: Role, port: int, path: str) -> str:
        return ask(self.net[self._first(role).name], port, path)

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
        return Endpoint(f"http://{address}:{number}", next(iter(self._routed)), way=", ".join(filter(None, ways)))
