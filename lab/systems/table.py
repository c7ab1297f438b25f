"""The table of the proxy systems, and what is asked of all of them together. One more system is a package beside this and a row here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lab.base.errors import UsageError, refuse_unknown
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
from lab.systems.lighttpd.system import SYSTEM as LIGHTTPD
from lab.systems.manifests.objects import Objects
from lab.systems.nginx.system import SYSTEM as NGINX
from lab.systems.nginx_f5.system import SYSTEM as NGINX_F5
from lab.systems.nginx_ngf.system import SYSTEM as NGINX_NGF
from lab.systems.system import Controller, ProxySystem, ReadbackKind, is_repository_of
from lab.systems.traefik.system import SYSTEM as TRAEFIK

SYSTEMS: tuple[ProxySystem, ...] = (
    INGRESS_NGINX,
    NGINX,
    CONTOUR,
    HAPROXY_ROUTER,
    HAPROXY_INGRESS,
    NGINX_F5,
    NGINX_NGF,
    HTTPD,
    LIGHTTPD,
    HAPROXY,
    ENVOY,
    ENVOY_GATEWAY,
    TRAEFIK,
    CADDY,
)
"""In the order in which a run's stand-ins are told."""

READBACKS: Mapping[str, ReadbackKind] = {kind: how for system in SYSTEMS for kind, how in system.readbacks.items()}
"""Kind of check of a system's own → how it is read back."""

CONTROLLERS: Mapping[str, Controller] = {found.image: found for system in SYSTEMS for found in system.controllers}
"""The last parts of an image's repository → its own programs, for the apiserver target."""

PASSING = tuple(dict.fromkeys(system.passing for system in SYSTEMS if system.passing))
"""How the titles of processes begin that end by themselves: none that a proxy must have."""
PASSING_PATTERN = "|".join(f"'{title}'*" for title in PASSING)
"""The same as a pattern of a shell's `case`."""


MASTERS = tuple(dict.fromkeys(system.renew_in_cluster for system in SYSTEMS if system.renew_in_cluster))
"""What the kernel calls the processes that make new workers on a cluster when they are told so."""

DEFINITIONS = tuple(file for system in SYSTEMS for file in system.definitions)
"""Files in manifests/clusters that define the kinds which variants need on a cluster beside Kubernetes' own."""
DEFINITIONS_OF = " and of ".join(system.definitions_of for system in SYSTEMS if system.definitions_of)
"""Whose kinds these are, in words."""

MADE = {kind: path for system in SYSTEMS for kind, path in system.workloads.items()}
"""Kind of an object of which a controller makes a Deployment → the path of what is laid over that."""

INTERVALS = frozenset(system.interval_variable for system in SYSTEMS if system.interval_variable)
"""Environment variables that set the least time between two loads."""


def find(repository: str) -> ProxySystem | None:
    """Return the system of an image, whatever registry it comes from, by the longest name that fits; None if it needs nothing special."""
    fitting = [system for system in SYSTEMS if is_repository_of(system.image, repository)]
    return max(fitting, key=lambda system: len(system.image), default=None)


def find_controller(repository: str) -> Controller | None:
    """Return the controller of an image, whatever registry it comes from; None where it is what the local target has."""
    return next((found for name, found in CONTROLLERS.items() if is_repository_of(name, repository)), None)


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


def speak(check: Check) -> str:
    """Put a check into a sentence's worth of words."""
    context = f" in {check.context}" if check.context else ""
    own = READBACKS.get(check.kind)
    form = own.spoken if own else Check.KINDS.get(check.kind, ("", "{kind}: {name}{context}"))[1]
    what = form.format(kind=check.kind, name=check.name, context=context, port=check.port, process=check.process)
    often = "" if check.times is None else f", {check.times} times"
    return f"{check.role}: {what} = {check.value}{often}"


def refuse_checks(place: str, checks: Iterable[Check]) -> None:
    """UsageError for a check of a kind that neither `Check` nor a system has, or with a key that its kind has not."""
    for check in checks:
        if check.kind in Check.KINDS:
            continue
        refuse_unknown(check.kind, [*Check.KINDS, *READBACKS], place, f"readback: there is no kind {check.kind!r}")
        given = {key for key in ("context", "among", "times") if getattr(check, key) is not None}
        if extra := sorted(given - READBACKS[check.kind].possible):
            raise UsageError(place, f"readback: a check of kind {check.kind!r} has no {extra[0]}", "leave it out")
