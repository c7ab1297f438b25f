"""The hosts of what the local target has read (`lab.model.variants.hosts` chooses among them), and that what runs in the client's place resolves them."""

from __future__ import annotations

from collections.abc import Mapping
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


def resolving(addresses: Mapping[str, str], folder: Path, hosts_file: Path = HOSTS) -> tuple[str, ...]:
    """The command that runs what follows where each host has its address, beside what is known anyway. MeasuringError.

    A mount namespace of its own covers the file: another system's hosts may have the same names.
    """
    try:
        known = hosts_file.read_text()
    except OSError as error:
        raise MeasuringError(str(hosts_file), f"cannot be read: {error.strerror}", "the lab covers it") from None
    own = folder / "hosts"
    folder.mkdir(parents=True, exist_ok=True)
    own.write_text(known + "".join(f"{address} {name}\n" for name, address in addresses.items()))
    own.chmod(0o644)
    cover = 'mount --bind "$0" "$1" && shift && exec "$@"'
    return ("unshare", "--mount", "--propagation", "private", "sh", "-c", cover, str(own), str(hosts_file))
