"""The table of the proxy systems, and what is asked of all of them together. One more system is a package beside this and a row here."""

from __future__ import annotations

from collections.abc import Mapping

from lab.model.variants.variants import Check
from lab.systems.caddy.system import SYSTEM as CADDY
from lab.systems.contour.system import SYSTEM as CONTOUR
from lab.systems.envoy.system import SYSTEM as ENVOY
from lab.systems.envoy_gateway.system import SYSTEM as ENVOY_GATEWAY
from lab.systems.haproxy.system import SYSTEM as HAPROXY
from lab.systems.haproxy_ingress.system import SYSTEM as HAPROXY_INGRESS
from lab.systems.haproxy_router.system import SYSTEM as HAPROXY_ROUTER
from lab.systems.httpd.system import SYSTEM as HTTPD
from lab.systems.ingress_nginx.system import SYSTEM as INGRESS_NGINX
from lab.systems.manifests.objects import Objects
from lab.systems.nginx.system import SYSTEM as NGINX
from lab.systems.nginx_f5.system import SYSTEM as NGINX_F5
from lab.systems.nginx_ngf.system import SYSTEM as NGINX_NGF
from lab.systems.system import Controller, ProxySystem, ReadbackKind
from lab.systems.traefik.system import SYSTEM as TRAEFIK

SYSTEMS: tuple[ProxySystem, ...] = (
    HAPROXY,
    HAPROXY_INGRESS,
    HAPROXY_ROUTER,
    INGRESS_NGINX,
    NGINX,
    NGINX_F5,
    NGINX_NGF,
    ENVOY,
    ENVOY_GATEWAY,
    CONTOUR,
    TRAEFIK,
    CADDY,
    HTTPD,
)
"""What a container of a cluster counts is asked in this order, the cheapest question first."""

READBACKS: Mapping[str, ReadbackKind] = {kind: how for system in SYSTEMS for kind, how in system.readbacks.items()}
"""Kind of check of a system's own → how it is read back."""

CONTROLLERS: Mapping[str, Controller] = {found.image: found for system in SYSTEMS for found in system.controllers}
"""The last parts of an image's repository → its own programs, for the apiserver target."""

PASSING = tuple(dict.fromkeys(system.passing for system in SYSTEMS if system.passing))
"""How the titles of processes begin that end by themselves: none that a proxy must have."""


def find(repository: str) -> ProxySystem | None:
    """Return the system of an image, whatever registry it comes from, by the longest name that fits; None if it needs nothing special."""
    fitting = [system for system in SYSTEMS if f"/{repository}".endswith(f"/{system.image}")]
    return max(fitting, key=lambda system: len(system.image), default=None)


def find_controller(repository: str) -> Controller | None:
    """Return the controller of an image, whatever registry it comes from; None where it is what the local target has."""
    return next((found for name, found in CONTROLLERS.items() if f"/{repository}".endswith(f"/{name}")), None)


def program_versions(of_backend: bool = False) -> dict[str, str]:
    """Return the version of each program on PATH that stands for an image's, by the fact that tells it. UsageError where one must be there.

    Args:
        of_backend: only what the lab's backend runs, too.
    """
    found = sorted(SYSTEMS, key=lambda system: not system.of_backend)
    asked = (system for system in found if system.of_backend or not of_backend)
    return {name: version() for system in asked for name, version in system.versions.items()}


def sinks(objects: Objects) -> set[int]:
    """Return the ports of the node to which proxies among these objects would log."""
    return set[int]().union(*(system.sinks(objects) for system in SYSTEMS))


def event_of(line: str) -> str | None:
    """Return the event that a line of any controller's log tells, `Reload` or `Reloaded`; None where it tells none."""
    return next(filter(None, (found.event_of(line) for found in CONTROLLERS.values())), None)


def speak(check: Check, forms: Mapping[str, str]) -> str:
    """Put a check into a sentence's worth of words. `forms`: of the kinds that are no system's own."""
    context = f" in {check.context}" if check.context else ""
    own = READBACKS.get(check.kind)
    form = own.spoken if own else forms.get(check.kind, "{kind}: {name}{context}")
    what = form.format(kind=check.kind, name=check.name, context=context, port=check.port, process=check.process)
    often = "" if check.times is None else f", {check.times} times"
    return f"{check.role}: {what} = {check.value}{often}"
