"""Which hosts a load goes to, where TLS ends for them, and that the client's place resolves them.

Refuses a load that the variant's routes cannot serve, before anything starts.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from lab.errors import MeasuringError, UsageError
from lab.sweeps import Point, Tls
from lab.targets.base import Endpoint
from lab.targets.local.objects import DEFAULT_HOST, Objects

HOSTS = Path("/etc/hosts")


def routed(objects: Objects) -> Mapping[str, Tls]:
    """Host → where TLS ends for it, in the manifests' order; the manifests' own host where no route names one."""
    found: dict[str, Tls] = {route.host: "none" for route in objects.routes}
    found |= {route.host: route.tls for route in objects.host_routes}
    return found or {DEFAULT_HOST: "none"}


def chosen(objects: Objects, point: Point) -> tuple[tuple[str, ...], Tls]:
    """The point's hosts and where TLS ends for all of them. UsageError when the variant cannot serve it."""
    known = routed(objects)
    ends = sorted(set(known.values()))
    place = f"point {point.name}"
    if point.tls == "routed" and len(ends) > 1:
        fault = f"'routed' is not one: the variant's routes have {', '.join(ends)}"
        raise UsageError(f"{place}: tls", fault, "name one of them")
    tls = ends[0] if point.tls == "routed" else point.tls
    hosts = tuple(host for host, end in known.items() if end == tls)
    if not hosts:
        fault = f"asks for '{tls}', the variant's routes have {', '.join(ends)}"
        raise UsageError(f"{place}: tls", fault, 'use tls = "routed", or a variant whose routes have it')
    count = len(hosts) if point.routes == "all" else point.routes
    if not objects.role("proxy"):  # the backend looks at no host
        hosts += tuple(f"bench-{number:04}.lab.test" for number in range(1, count))
    if count > len(hosts):
        raise UsageError(f"{place}: routes", f"asks for {count} routes, the variant has {len(hosts)}", "lower it")
    return hosts[:count], tls


def expected(objects: Objects, point: Point) -> Endpoint:
    """Where the point's load will go, as far as that is known before there is an address. UsageError as `chosen`."""
    names, tls = chosen(objects, point)
    return Endpoint(f"{'http' if tls == 'none' else 'https'}://{names[0]}", names[0], names, tls)


@contextmanager
def resolving(hosts: Sequence[str], address: str, hosts_file: Path = HOSTS) -> Iterator[None]:
    """These hosts are this address for everything in the lab's own mount namespace, till the end. MeasuringError."""
    with tempfile.NamedTemporaryFile("w", prefix="hosts-") as file:
        try:
            file.write(hosts_file.read_text())
        except OSError as error:
            raise MeasuringError(str(hosts_file), f"cannot be read: {error.strerror}", "the lab covers it") from None
        file.writelines(f"{address} {host}\n" for host in hosts)
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
