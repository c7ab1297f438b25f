"""One variant, up and answering on the local target: where load goes, who runs, and a way in."""

from __future__ import annotations

import http.client
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from lab.errors import MeasuringError, UsageError
from lab.sweeps import PAGES, Point
from lab.targets.base import Endpoint, Response, Role
from lab.targets.local import cpus, network
from lab.targets.local.containers import tree
from lab.targets.local.kubelet import Kubelet
from lab.targets.local.network import Network
from lab.targets.local.objects import DEFAULT_HOST, Objects
from lab.targets.local.runner import Event

PROBED_PAGE = "1kB.bin"


class LocalSystem:
    """One variant, up and answering; see `lab.targets.base.System`."""

    def __init__(self, wanted: Objects, net: Network, kubelet: Kubelet, pinned: Mapping[Role, frozenset[int]]) -> None:
        self._objects, self._net, self._kubelet, self._cpus = wanted, net, kubelet, pinned
        self._generators: list[subprocess.Popen[bytes]] = []
        self._host = next((route.host for route in wanted.routes), DEFAULT_HOST)

    @property
    def events(self) -> Sequence[Event]:
        """The kubelet's log so far."""
        return tuple(self._kubelet.log.events)

    @property
    def kubelet(self) -> Kubelet:
        return self._kubelet

    def endpoint(self, point: Point) -> Endpoint:
        check_point(self._objects, point)
        return self.entry()

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

    def unapplied(self) -> Sequence[str]:
        return [
            f"limit not applied: {container.place}: {name} {value}"
            for pod in self._objects.pods
            for container in pod.init + pod.containers
            for name, value in container.limits.items()
        ]

    def log_tail(self) -> str:
        parts = [
            (runner, runner.process.tail(output_too=False))
            for role in ("proxy", "backend")
            for runner in self._kubelet.runners(role)
        ]
        return "\n".join(f"--- {runner.pod.name}/{runner.container.name}\n{text}" for runner, text in parts if text)

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
        return self._at("proxy" if self._objects.role("proxy") else "backend")

    def _at(self, role: Role) -> Endpoint:
        """The Service in front of a role's first pod, by its port called http (or its first)."""
        pod = self._objects.role(role)[0]
        service = next(
            (item for item in self._objects.services.values() if item.selector.items() <= pod.labels.items()), None
        )
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
