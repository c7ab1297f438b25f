"""haproxytech's Kubernetes Ingress Controller 3.2 as a HAProxy: *directive-equivalent, not the controller*.

These parts are missing or different:

- the controller process does not run
- conditions replace the controller's maps of hosts and paths
- reloads replace the controller's changes by the runtime API
- the HAProxy on PATH replaces the HAProxy of the controller's image (3.2)

The facts come from its haproxy.cfg, pkg/haproxy/env/defaults.go and pkg/annotations.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

from lab.base.errors import UsageError, refuse_unknown
from lab.systems.haproxy.system import MasterControl, Sections, count, realise_haproxy
from lab.systems.renewing import make_signal_renewal
from lab.systems.settings import fill_defaults, load_keys
from lab.systems.system import (
    Context,
    ProxySystem,
    Realisation,
    Workers,
    all_cpus,
    find_configmap,
    limit_down,
    parse_arguments,
    parse_cpu_limit,
    refuse_unexpected,
    refuse_workers,
)

CONTROLLER = "haproxy.org/ingress-controller"

KEYS = load_keys(Path(__file__).with_name("keys.tsv"))
"""The keys of the controller's ConfigMap, with the controller's own defaults.

A key of kind `flag` results in its directive only if it is true; one of kind `switch` becomes `no …` if it is false.
"""

_ARGUMENTS = (
    "--configmap",
    "--ingress.class",
    "--sync-period",
    "--disable-ipv6",
    "--http-bind-port",
    "--https-bind-port",
)


def realise(context: Context) -> Realisation:
    """Return how the lab starts a HAProxy in place of a container of haproxytech's ingress controller.

    The HAProxy on PATH gets the configuration that the controller would write. The controller itself does not run.

    Args:
        context: the facts about the container.

    Raises:
        UsageError: for arguments, ConfigMap keys and routes that the lab cannot apply to this HAProxy.
        NotMeasurableError: for more threads than the container has CPUs.

    """
    container = context.container
    args_place = f"{container.place}.args"
    refuse_unexpected(container, not container.command, "no command", "haproxy-ingress")
    flags = parse_arguments(container, container.args, _ARGUMENTS)
    fault = f"no IngressClass is of {CONTROLLER}: it would serve nothing"
    refuse_unknown(CONTROLLER, context.objects.classes.values(), args_place, fault)
    place, data = find_configmap(args_place, flags.get("--configmap", ""), context)
    values = fill_defaults(place, data, KEYS)
    if values["nbthread"].isdecimal():
        threads = capped(int(values["nbthread"]), parse_cpu_limit(container.limits.get("cpu")))
        refuse_workers(f"{place}: nbthread", threads, context, "threads")
        values["nbthread"] = str(threads) if threads else ""
    slots = values["scale-server-slots"]
    if not slots.isdecimal():
        raise UsageError(f"{place}: scale-server-slots", f"expected a number, got {slots!r}", "42 is its default")
    ports = context.objects.served_ingresses(8080, 8443)
    return realise_haproxy(context, ports, _render_sections(place, values), "haproxytech's controller", int(slots))


def _render_sections(place: str, values: Mapping[str, str]) -> Sections:
    """Return the directives of HAProxy's configuration that result from the keys of the controller's ConfigMap.

    A key with an empty value results in no directive.

    Args:
        place: the ConfigMap, for error messages.
        values: key → value, for all keys of the controller.

    Returns:
        Section → directive → arguments.

    Raises:
        UsageError: for a value that must be `true` or `false` and is neither.

    """
    frontend = {
        "http-request set-var(txn.base)": "base",
        "http-request set-header X-Forwarded-Proto": "https if { ssl_fc }",
    }
    sections: dict[str, dict[str, str]] = {
        "global": {},
        "defaults": {},
        "frontend": frontend,
        "backend": {},
        "server": {},
    }
    for name, key in KEYS.items():
        text = values[name].strip()
        if not key.section or not text:
            continue
        if key.kind == "text":
            sections[key.section][key.directive] = text
        elif text in ("true", "false"):
            if text == "true" or key.kind == "switch":
                sections[key.section][key.directive if text == "true" else f"no {key.directive}"] = ""
        else:
            raise UsageError(f"{place}: {name}", f"expected true or false, got {text!r}", "correct it")
    for name, section in (("global-config-snippet", "global"), ("backend-config-snippet", "backend")):
        sections[section] |= {line.strip(): "" for line in values[name].splitlines() if line.strip()}
    sections["global"] |= {"ssl-default-bind-options": "no-sslv3 no-tls-tickets no-tlsv10", "stats timeout": "36s"}
    return sections


def capped(threads: int, limit: Fraction | None) -> int:
    """Return the number of threads that HAProxy really gets from the controller if the ConfigMap sets a number.

    The controller uses at most GOMAXPROCS threads (pkg/annotations/global/nbthread.go). The library automaxprocs sets GOMAXPROCS
    to the CPU limit, rounded down, at least 1.

    Args:
        threads: the number in the ConfigMap.
        limit: the container's CPU limit; None = no limit.

    """
    return min(threads, limit_down(limit, None) or threads)


SYSTEM = ProxySystem(
    name="haproxy-ingress",
    image="haproxytech/kubernetes-ingress",
    realise=realise,
    note="directive-equivalent: endpoints change by a reload (the controller: by the runtime API, into free server slots)",
    control=lambda process: MasterControl(process, 5.0),  # the default of its --sync-period
    renew=make_signal_renewal(signal.SIGUSR2),  # the signal for its master
    counters=count,
    migrations={"haproxy-ingress": "migrate.tsv"},
    workers=Workers(rules={"kubernetes-ingress": all_cpus}, keys=("nbthread",), capped=capped),
)
