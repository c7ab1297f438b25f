"""One variant, up and answering on the local target: where load goes, who runs, and a way in."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from lab import fetching, haproxy
from lab.errors import MeasuringError, UsageError
from lab.files import write_texts
from lab.generators import Load
from lab.sampler import Sampler
from lab.sweeps import PAGES, Point, Tls
from lab.targets.base import Endpoint, Ran, Response, Role
from lab.targets.local import cpus, hosts, hostwide, network, pod_objects, services, shaping
from lab.targets.local.containers import tree
from lab.targets.local.kubelet import Kubelet
from lab.targets.local.network import Network
from lab.targets.local.objects import Objects
from lab.targets.local.runner import Event

PROBED_PAGE = "1kB.bin"


class LocalSystem:
    """One variant, up and answering; see `lab.targets.base.System`."""

    def __init__(self, wanted: Objects, net: Network, kubelet: Kubelet, pinned: Mapping[Role, frozenset[int]]) -> None:
        self._objects, self._net, self._kubelet, self._cpus = wanted, net, kubelet, pinned
        self._generators: list[subprocess.Popen[bytes]] = []
        self._helpers: list[subprocess.Popen[bytes]] = []
        self._routed = hosts.routed(wanted)
        self._host = next(iter(self._routed))

    @property
    def events(self) -> Sequence[Event]:
        """The kubelet's log so far."""
        return tuple(self._kubelet.log.events)

    @property
    def kubelet(self) -> Kubelet:
        return self._kubelet

    def endpoint(self, point: Point) -> Endpoint:
        return self._entry(*hosts.chosen(self._objects, point))

    def backend_endpoint(self) -> Endpoint:
        return self._at("backend")

    def generate(self, load: Load, files: Mapping[str, str]) -> Ran:
        raise UsageError("generators", "this machine has a place for one", "leave `generators` out of the point")

    def pod_address(self, role: Role) -> str:
        return self._net[self._objects.role(role)[0].name].address

    def spawn(self, role: Role, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        pods = self._objects.role(role)
        if role != "generator" and not pods:
            raise UsageError(f"role {role}", "this variant has no such pod", "name the other role")
        if shutil.which(argv[0]) is None:
            raise OSError(f"is not on this machine: apt-get install {argv[0]}")
        place = network.CLIENT if role == "generator" else pods[0].name
        command = [*self._net[place].enter, "taskset", "-c", cpus.as_list(self._cpus[role]), *argv]
        helper = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._helpers.append(helper)
        return helper

    def end_helpers(self) -> None:
        """SIGKILL to what `spawn` started, with its children. Called before the network goes."""
        for helper in self._helpers:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(helper.pid, signal.SIGKILL)
            helper.wait()

    def shape(self, link_mbit: float | None) -> None:
        shaping.shape(shaping.ends(self._net, self._objects), link_mbit)

    def watch(self) -> Sampler:
        roles: tuple[Role, ...] = ("lab", "proxy", "backend", "generator")
        return Sampler(lambda: {role: self.processes(role) for role in roles}, self.counters)

    def counters(self) -> Mapping[str, int]:
        links = shaping.counters(shaping.ends(self._net, self._objects))
        nat = services.counters(self._net, self._objects)
        return {**self._kubelet.groups.counters(), **links, **nat, **self._handshakes()}

    def pods(self, role: Role) -> Sequence[Mapping[str, Any]]:
        running = [pod for pod in self._kubelet.pods if pod.pod.role == role]
        return [
            pod_objects.shown(pod, services.on_the_node(self._net, self._objects, pod.pod))
            for pod in running
            if pod_objects.ready(pod)
        ]

    def fetch(
        self, endpoint: Endpoint, path: str, timeout_s: float, headers: Mapping[str, str] | None = None
    ) -> Response:
        connection = network.connect(self._net[network.CLIENT], fetching.place(endpoint), timeout_s)
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
        command = [*self._net[network.CLIENT].enter, "taskset", "-c", cpus.as_list(self._cpus["generator"]), *argv]
        process = subprocess.Popen(
            command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, start_new_session=True
        )
        self._generators.append(process)
        return process

    def processes(self, role: Role) -> list[int]:
        if role == "lab":
            return [os.getpid()]
        if role == "generator":
            return [
                pid for generator in self._generators if generator.returncode is None for pid in tree(generator.pid)
            ]
        return [pid for runner in self._kubelet.runners(role) for pid in runner.process.processes()]

    def exec(self, role: Role, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
        if role == "node":
            return hostwide.run(argv)
        runners = self._kubelet.runners(role)
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

    def restarts(self) -> Mapping[str, int]:
        return {
            f"{runner.pod.name}/{runner.container.name}": runner.restarts
            for role in ("proxy", "backend")
            for runner in self._kubelet.runners(role)
        }

    def deployed(self) -> Sequence[Mapping[str, Any]]:
        return []

    def unapplied(self) -> Sequence[str]:
        return self._kubelet.groups.unapplied()

    def log_tail(self) -> str:
        parts = [
            (runner, runner.process.tail(output_too=False))
            for role in ("proxy", "backend")
            for runner in self._kubelet.runners(role)
        ]
        said = [f"--- {name}\n{text}" for name, text in self._kubelet.groups.deaths()]
        said += [f"--- {runner.pod.name}/{runner.container.name}\n{text}" for runner, text in parts if text]
        return "\n".join(said)

    def wait(self, deadline: float) -> None:
        """Until the entry serves the probed page whole. MeasuringError at the deadline (monotonic)."""
        entry = self.entry()
        fault = ""
        while True:
            try:
                response = self.fetch(entry, f"/{PROBED_PAGE}", 2.0)
                if response.status == 200 and len(response.body) == PAGES[PROBED_PAGE]:
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

    def address(self) -> str:
        """Where the hosts of all routes are, for a client: the proxy's address, or its Service's."""
        return services.address(self._objects, self._net, self._way_in)[0]

    @property
    def _way_in(self) -> Role:
        return "proxy" if self._objects.role("proxy") else "backend"

    def _entry(self, names: tuple[str, ...], tls: Tls) -> Endpoint:
        plain = self._at(self._way_in)
        if tls == "none":
            return replace(plain, host=names[0], hosts=names)
        _, number = services.address(self._objects, self._net, self._way_in, "https")
        return replace(plain, base_url=f"https://{names[0]}:{number}", host=names[0], hosts=names, tls=tls)

    def _handshakes(self) -> Mapping[str, int]:
        """`proxy/tls_…`, where a HAProxy of ours ends TLS; empty where it cannot be asked."""
        if not {"edge", "reencrypt"} & set(self._routed.values()):
            return {}
        found: Counter[str] = Counter()
        for runner in self._kubelet.runners("proxy"):
            path = runner.process.inside(haproxy.SOCKET)
            if path is not None and path.exists():
                with contextlib.suppress(OSError):  # it has just ended, which the restarts tell
                    found.update(haproxy.tls(haproxy.ask(path, "show stat")))
        return {f"proxy/{name}": value for name, value in found.items()}

    def _at(self, role: Role) -> Endpoint:
        """The Service in front of a role's first pod, by its port called http (or its first)."""
        address, number = services.address(self._objects, self._net, role)
        way = services.way(self._objects) if role == "proxy" else ""
        return Endpoint(f"http://{address}:{number}", self._host, way=way)
