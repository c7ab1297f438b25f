"""The table of all proxy systems, and functions that find a system or combine values of several systems.

A further system needs a package in this folder and a row in `SYSTEMS`.
"""

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
"""The systems, in the order in which a run's stand-ins are listed."""

READBACKS: Mapping[str, ReadbackKind] = {kind: how for system in SYSTEMS for kind, how in system.readbacks.items()}
"""Name → kind of read-back check, for all kinds that the systems add."""

CONTROLLERS: Mapping[str, Controller] = {
    controller.image: controller for system in SYSTEMS for controller in system.controllers
}
"""Last parts of the repository of a controller image → the controller that runs for that image on the target `apiserver`."""

SHORT_LIVED_TITLES = tuple(dict.fromkeys(system.passing for system in SYSTEMS if system.passing))
"""The beginnings of the titles of processes that end soon after a start and that no proxy needs."""
PASSING_PATTERN = "|".join(f"'{title}'*" for title in SHORT_LIVED_TITLES)
"""The entries of SHORT_LIVED_TITLES as a pattern for `case` in a shell."""


MASTERS = tuple(dict.fromkeys(system.renew_in_cluster for system in SYSTEMS if system.renew_in_cluster))
"""The kernel's names for the master processes that start new workers on SIGHUP in a cluster."""

DEFINITIONS = tuple(file for system in SYSTEMS for file in system.definitions)
"""The files in manifests/clusters that define the kinds of objects that variants need besides Kubernetes' own."""
DEFINITIONS_OF = " and of ".join(system.definitions_of for system in SYSTEMS if system.definitions_of)
"""The projects that define these kinds, in words."""

WORKLOAD_PATHS = {kind: path for system in SYSTEMS for kind, path in system.workloads.items()}
"""Kind of an object from which a controller creates a Deployment → the path in it of the Deployment's settings."""

INTERVALS = frozenset(system.interval_variable for system in SYSTEMS if system.interval_variable)
"""The environment variables that set the minimum time between two loads."""


def find(repository: str) -> ProxySystem | None:
    """Return the proxy system to which a container image belongs; None if the image belongs to no known system.

    If several systems match, the one with the longest image name is returned.

    Args:
        repository: the image's repository, from any registry, without tag.

    """
    fitting = [system for system in SYSTEMS if is_repository_of(system.image, repository)]
    return max(fitting, key=lambda system: len(system.image), default=None)


def find_controller(repository: str) -> Controller | None:
    """Return the controller whose own program runs on the target `apiserver` for a container image; None if there is none.

    Without such a controller, the target treats the image as the local target does.

    Args:
        repository: the image's repository, from any registry, without tag.

    """
    return next(
        (controller for name, controller in CONTROLLERS.items() if is_repository_of(name, repository)),
        None,
    )


def program_versions(of_backend: bool = False) -> dict[str, str]:
    """Return the versions of the programs on PATH that the lab runs in place of container images: name → version.

    A run records them among its facts, under names such as `nginx`.

    Args:
        of_backend: whether to include only programs that also serve as the lab's backend.

    Raises:
        UsageError: when a required program is missing.

    """
    systems = sorted(SYSTEMS, key=lambda system: not system.of_backend)
    included = (system for system in systems if system.of_backend or not of_backend)
    return {name: version() for system in included for name, version in system.versions.items()}


def list_sinks(objects: Objects) -> set[int]:
    """Return the numbers of the node's ports to which the proxies of a variant send their logs."""
    return set[int]().union(*(system.sinks(objects) for system in SYSTEMS))


def find_event(line: str) -> str | None:
    """Return the event (a reload of the proxy) that a line in the log of any controller reports.

    Returns:
        `Reload` when a reload of the proxy begins, `Reloaded` when it has succeeded, None for any other line.

    """
    return next(filter(None, (controller.event_of(line) for controller in CONTROLLERS.values())), None)


def describe_check(check: Check) -> str:
    """Describe a read-back check (a test whether a setting took effect) in words, such as `proxy: nginx -T: gzip = on`."""
    context = f" in {check.context}" if check.context else ""
    kind = READBACKS.get(check.kind)
    form = kind.spoken if kind else Check.KINDS.get(check.kind, ("", "{kind}: {name}{context}"))[1]
    subject = form.format(kind=check.kind, name=check.name, context=context, port=check.port, process=check.process)
    times = "" if check.times is None else f", {check.times} times"
    return f"{check.role}: {subject} = {check.value}{times}"


def refuse_checks(place: str, checks: Iterable[Check]) -> None:
    """Check that each read-back check (a test whether a setting took effect) has a known kind, and only keys of this kind.

    Some kinds exist for all systems (`Check.KINDS`). Others belong to one proxy system (`READBACKS`).

    Args:
        place: the place of the checks, for the error message.
        checks: the checks.

    Raises:
        UsageError: when a check has an unknown kind or key.

    """
    for check in checks:
        if check.kind in Check.KINDS:
            continue
        refuse_unknown(check.kind, [*Check.KINDS, *READBACKS], place, f"readback: there is no kind {check.kind!r}")
        keys = {key for key in ("context", "among", "times") if getattr(check, key) is not None}
        if extra := sorted(keys - READBACKS[check.kind].possible):
            raise UsageError(place, f"readback: a check of kind {check.kind!r} has no {extra[0]}", "leave it out")
