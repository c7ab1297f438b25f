"""The local target: real processes in network namespaces, started from the same manifests as everywhere."""

from __future__ import annotations

import http.client
import os
import platform
import resource
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import psutil

from lab.errors import MeasuringError, UsageError
from lab.sweeps import PAGES, Point
from lab.targets.base import Endpoint, Response, Role
from lab.targets.local import bringup, cpus, namespaces, network, objects
from lab.targets.local.containers import tree
from lab.targets.local.images import ingress_nginx
from lab.targets.local.kubelet import Event, Kubelet
from lab.targets.local.network import Network
from lab.targets.local.objects import Objects
from lab.variants import Variant

DEADLINE_S = 30.0
PROBED_PAGE = "1kB.bin"
TOOLS = ("unshare", "nsenter", "setpriv", "taskset", "mount", "ip", "ss", "sysctl", "hostname", "env", "sh")


class LocalTarget:
    """Works inside the lab's namespaces, which `enter` makes; remembers the CPUs it found before it pinned itself."""

    name = "local"

    def __init__(self) -> None:
        self._cpus = cpus.available()

    def enter(self, argv: Sequence[str]) -> int | None:
        """The exit status of `python -m lab ARGV` in namespaces of its own; None if this process is that one."""
        if namespaces.INSIDE not in os.environ:
            return namespaces.enter(argv)
        namespaces.attach()
        return None

    def check(self) -> None:
        if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
            raise UsageError("local target", f"not on PATH: {', '.join(missing)}", "Debian: apt install util-linux iproute2 procps hostname")
        os.sched_setaffinity(0, self.cpus()["lab"])  # and with it every thread and helper from here on
        ingress_nginx.nginx_version()
        if not os.access("/run/lab", os.W_OK):
            raise UsageError("local target", "the lab is not inside its namespaces", "start it with `python -m lab`")

    def facts(self) -> Mapping[str, str]:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        return {
            "target": "local: directive-equivalent, not the controller (no Lua, no API server)",
            "privilege": "root" if Path("/proc/self/uid_map").read_text().split()[1] == "0" else "user namespace",
            "kernel": platform.release(),
            "nginx": ".".join(map(str, ingress_nginx.nginx_version())),
            "open_files": f"{soft} (hard {hard})",
            "container_output": "tmpfs, cut to nothing beyond 64 MiB",
            "pod_sysctls": "net.ipv4.ip_unprivileged_port_start=0",
            "client_sysctls": "net.ipv4.ip_local_port_range=1024 65535, net.ipv4.tcp_tw_reuse=1",
            **{f"cpus_{role}": cpus.as_list(numbers) for role, numbers in self.cpus().items()},
        }

    def cpus(self) -> Mapping[Role, frozenset[int]]:
        return cpus.split(self._cpus)

    def check_variant(self, variant: Variant, points: Sequence[Point]) -> None:
        """UsageError for anything in a variant's manifests or a point that this target cannot honour; nothing is started."""
        wanted = objects.read(variant.manifests)
        bringup.vet(wanted, self.cpus())
        for point in points:
            check_point(wanted, point)

    @contextmanager
    def up(self, variant: Variant) -> Iterator[LocalSystem]:
        wanted = objects.read(variant.manifests)
        bringup.vet(wanted, self.cpus())
        deadline = time.monotonic() + DEADLINE_S
        kubelet = Kubelet()
        net: Network | None = None
        try:
            net = network.build([pod.name for pod in wanted.pods], bringup.links(wanted))
            system = LocalSystem(wanted, net, kubelet, self.cpus())
            kubelet.start([bringup.job(pod, wanted, net, self.cpus()) for pod in wanted.pods])
            kubelet.wait(deadline)
            system.wait(deadline)
            yield system
        except subprocess.CalledProcessError as error:
            raise MeasuringError("local target", f"{' '.join(map(str, error.cmd))} failed: {str(error.stderr).strip()}", "`just doctor` checks what it needs") from None
        finally:
            kubelet.stop()
            if net is not None:
                net.remove()
            bringup.remove(wanted)


class LocalSystem:
    """One variant, up and answering; see `lab.targets.base.System`."""

    def __init__(self, wanted: Objects, net: Network, kubelet: Kubelet, pinned: Mapping[Role, frozenset[int]]) -> None:
        self._objects, self._net, self._kubelet, self._cpus = wanted, net, kubelet, pinned
        self._generators: list[subprocess.Popen[bytes]] = []
        self._host = next((route.host for route in wanted.routes), objects.DEFAULT_HOST)

    @property
    def events(self) -> Sequence[Event]:
        """The kubelet's log so far."""
        return tuple(self._kubelet.log.events)

    @property
    def kubelet(self) -> Kubelet:
        return self._kubelet

    def endpoint(self, point: Point) -> Endpoint:
        check_point(self._objects, point)
        return self._entry()

    def backend_endpoint(self) -> Endpoint:
        return self._at("backend")

    def fetch(self, endpoint: Endpoint, path: str, timeout_s: float) -> Response:
        address, _, port = endpoint.base_url.removeprefix("http://").partition(":")
        connection = http.client.HTTPConnection(address, int(port or 80), timeout=timeout_s)
        connection.sock = network.connect(self._net[network.CLIENT], (address, int(port or 80)), timeout_s)
        try:
            connection.request("GET", path, headers={"Host": endpoint.host, "Connection": "close"})
            answer = connection.getresponse()
            return Response(answer.status, answer.read(), {name.lower(): value for name, value in answer.getheaders()})
        except http.client.HTTPException as error:
            raise OSError(f"not an HTTP answer: {error!r}") from error
        finally:
            connection.close()

    def popen(self, argv: Sequence[str], cwd: Path, stdout: IO[bytes], stderr: IO[bytes]) -> subprocess.Popen[bytes]:
        self._generators = [generator for generator in self._generators if generator.returncode is None]
        command = [*self._net[network.CLIENT].enter, "taskset", "-c", cpus.as_list(self._cpus["generator"]), *argv]
        process = subprocess.Popen(command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, start_new_session=True)
        self._generators.append(process)
        return process

    def processes(self, role: Role) -> list[int]:
        if role == "lab":
            return [os.getpid()]
        if role == "generator":
            return [pid for generator in self._generators if generator.returncode is None for pid in tree(generator.pid)]
        return [pid for runner in self._kubelet.runners(role) for pid in runner.process.processes()]

    def exec(self, role: Role, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
        runners = self._kubelet.runners(role)
        if not runners:
            raise UsageError(f"role {role}", "this variant has no such pod", "leave the check out, or name the other role")
        try:
            return subprocess.run(runners[0].process.enter(argv), capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL, check=False)
        except (ProcessLookupError, subprocess.TimeoutExpired) as error:
            return subprocess.CompletedProcess(list(argv), 1, "", str(error))

    def restarts(self) -> Mapping[str, int]:
        return {f"{runner.pod.name}/{runner.container.name}": runner.restarts for role in ("proxy", "backend") for runner in self._kubelet.runners(role)}

    def unapplied(self) -> Sequence[str]:
        return [
            f"limit not applied: {container.place}: {name} {value}"
            for pod in self._objects.pods
            for container in pod.init + pod.containers
            for name, value in container.limits.items()
        ]

    def log_tail(self) -> str:
        parts = [(runner, runner.process.tail(output_too=False)) for role in ("proxy", "backend") for runner in self._kubelet.runners(role)]
        return "\n".join(f"--- {runner.pod.name}/{runner.container.name}\n{text}" for runner, text in parts if text)

    def truncate_logs(self) -> None:
        """Cut all container output to nothing, for example between points."""
        for role in ("proxy", "backend"):
            for runner in self._kubelet.runners(role):
                runner.process.truncate()

    def wait(self, deadline: float) -> None:
        """Until the entry serves the probed page whole. MeasuringError at the deadline (monotonic)."""
        entry = self._entry()
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
                raise MeasuringError(entry.base_url, f"/{PROBED_PAGE} is not served: {fault}", self.log_tail() or "nothing was logged")
            time.sleep(0.01)

    def _entry(self) -> Endpoint:
        return self._at("proxy" if self._objects.role("proxy") else "backend")

    def _at(self, role: Role) -> Endpoint:
        """The Service in front of a role's first pod, by its port called http (or its first)."""
        pod = self._objects.role(role)[0]
        service = next((item for item in self._objects.services.values() if item.selector.items() <= pod.labels.items()), None)
        if service is None:
            raise UsageError(pod.place, "no Service selects these pods", "add one, as in manifests/base")
        port = "http" if "http" in service.ports else next(iter(service.ports))
        number = self._objects.target_port(service.name, port)
        return Endpoint(f"http://{self._net[pod.name].address}:{number}", self._host)


def check_point(wanted: Objects, point: Point) -> None:
    """UsageError when the system cannot serve the point."""
    if point.tls != "none":
        fault = f"asks for '{point.tls}', the local target has no certificates yet"
        raise UsageError(f"point {point.name}: tls", fault, 'use tls = "none"')
    if point.routes > max(1, len(wanted.routes)):
        fault = f"asks for {point.routes} routes, the variant has {len(wanted.routes)}"
        raise UsageError(f"point {point.name}: routes", fault, "lower it")


def _check_point(point: Point, wanted: Objects) -> None:
    if point.tls != "none":
        raise UsageError(f"point {point.name}: tls", "the local target has no certificates yet", 'use tls = "none"')
    if point.routes > max(1, len(wanted.routes)):
        raise UsageError(f"point {point.name}: routes", f"asks for {point.routes}, the variant has {len(wanted.routes)}", "lower it")
