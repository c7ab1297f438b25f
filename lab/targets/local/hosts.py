"""The hosts of what the local target has read (`lab.model.variants.hosts` chooses among them), and that the client's place resolves them."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from lab.base.errors import MeasuringError
from lab.model.endpoint import Endpoint, Tls
from lab.model.sweeps import Point
from lab.model.variants import hosts
from lab.targets.local import services
from lab.targets.local.objects import Objects

HOSTS = Path("/etc/hosts")


def routed(objects: Objects) -> Mapping[str, Tls]:
    """`lab.model.variants.hosts.routed` of what was read, whose fields were all honoured."""
    found: dict[str, Tls] = {route.host: "none" for route in objects.routes}
    found |= {route.host: route.tls for route in objects.host_routes}
    return found or {hosts.DEFAULT_HOST: "none"}


def chosen(objects: Objects, point: Point) -> tuple[tuple[str, ...], Tls]:
    """The point's hosts and where TLS ends for all of them. UsageError when the variant cannot serve it."""
    return hosts.chosen(routed(objects), bool(objects.role("proxy")), point)


def expected(objects: Objects, point: Point) -> Endpoint:
    """Where the point's load will go, as far as that is known before there is an address. UsageError as `chosen`."""
    return hosts.expected(routed(objects), bool(objects.role("proxy")), point, routers(objects))


def routers(objects: Objects) -> Mapping[str, str]:
    """Host → the Service in front of the router that has its Route, where several share them; empty where there is one."""
    wanted = {
        service.name: hosts.route_labels(container.env[hosts.ROUTE_LABELS])
        for service in services.balancers(objects)
        for container in objects.endpoints(service.name)[0].containers
        if hosts.ROUTE_LABELS in container.env
    }
    return hosts.divided({route.host: route.labels for route in objects.host_routes}, wanted)


@contextmanager
def resolving(addresses: Mapping[str, str], hosts_file: Path = HOSTS) -> Iterator[None]:
    """Host → address, for everything in the lab's own mount namespace, till the end. MeasuringError."""
    with tempfile.NamedTemporaryFile("w", prefix="hosts-") as file:
        try:
            file.write(hosts_file.read_text())
        except OSError as error:
            raise MeasuringError(str(hosts_file), f"cannot be read: {error.strerror}", "the lab covers it") from None
        file.writelines(f"{address} {name}\n" for name, address in addresses.items())
        file.flush()
        Path(file.name).chmod(0o644)
        _mount("mount", "--bind", file.name, str(hosts_file))
        try:
            yield
        finally:
            _mount("umount", "--lazy", str(hosts_file))


def _mount(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MeasuringError("local target", f"{' '.join(argv)}: {done.stderr.strip()}", "`just doctor` checks mounts")
