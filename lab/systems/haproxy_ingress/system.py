"""haproxytech's Kubernetes Ingress Controller 3.2 as a HAProxy with its defaults: *directive-equivalent, not the controller*.

What is missing: the controller process, its maps of hosts and paths (conditions stand here instead), its changes by the runtime API (a reload
does it here), and the HAProxy of its image (3.2; the one on PATH runs). Facts: its haproxy.cfg and pkg/haproxy/env/defaults.go, pkg/annotations.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

from lab.base.errors import UsageError, refuse_unknown
from lab.systems.haproxy import system as haproxy
from lab.systems.haproxy.system import MasterControl, Sections, started
from lab.systems.renewing import by_signal
from lab.systems.settings import filled, load_keys
from lab.systems.system import (
    Context,
    ProxySystem,
    Realisation,
    Workers,
    all_cpus,
    arguments,
    configmap_of,
    cores,
    expect,
    limit_down,
    refuse_workers,
)

CONTROLLER = "haproxy.org/ingress-controller"

KEYS = load_keys(Path(__file__).with_name("keys.tsv"))
"""Keys of its ConfigMap, with its own defaults. A flag is there or not, a switch becomes `no …` where it is false."""

_ARGUMENTS = (
    "--configmap",
    "--ingress.class",
    "--sync-period",
    "--disable-ipv6",
    "--http-bind-port",
    "--https-bind-port",
)


def realise(context: Context) -> Realisation:
    container = context.container
    at = f"{container.place}.args"
    expect(container, not container.command, "no command", "haproxy-ingress")
    given = arguments(container, container.args, _ARGUMENTS)
    fault = f"no IngressClass is of {CONTROLLER}: it would serve nothing"
    refuse_unknown(CONTROLLER, context.objects.classes.values(), at, fault)
    place, data = configmap_of(at, given.get("--configmap", ""), context)
    values = filled(place, data, KEYS)
    if values["nbthread"].isdecimal():
        threads = capped(int(values["nbthread"]), cores(container.limits.get("cpu")))
        refuse_workers(f"{place}: nbthread", threads, context, "threads")
        values["nbthread"] = str(threads) if threads else ""
    slots = values["scale-server-slots"]
    if not slots.isdecimal():
        raise UsageError(f"{place}: scale-server-slots", f"expected a number, got {slots!r}", "42 is its default")
    ports = context.objects.served_ingresses(8080, 8443)
    return started(context, ports, _sections(place, values), "haproxytech's controller", int(slots))


def _sections(place: str, values: Mapping[str, str]) -> Sections:
    """Of all keys with their values, empty = left out. UsageError for what is neither true nor false."""
    frontend = {
        "http-request set-var(txn.base)": "base",
        "http-request set-header X-Forwarded-Proto": "https if { ssl_fc }",
    }
    found: dict[str, dict[str, str]] = {"global": {}, "defaults": {}, "frontend": frontend, "backend": {}, "server": {}}
    for name, key in KEYS.items():
        text = values[name].strip()
        if not key.section or not text:
            continue
        if key.kind == "text":
            found[key.section][key.directive] = text
        elif text in ("true", "false"):
            if text == "true" or key.kind == "switch":
                found[key.section][key.directive if text == "true" else f"no {key.directive}"] = ""
        else:
            raise UsageError(f"{place}: {name}", f"expected true or false, got {text!r}", "correct it")
    for name, section in (("global-config-snippet", "global"), ("backend-config-snippet", "backend")):
        found[section] |= {line.strip(): "" for line in values[name].splitlines() if line.strip()}
    found["global"] |= {"ssl-default-bind-options": "no-sslv3 no-tls-tickets no-tlsv10", "stats timeout": "36s"}
    return found


def capped(threads: int, limit: Fraction | None) -> int:
    """What it makes of so many threads that it is asked for: at most GOMAXPROCS, which automaxprocs sets (pkg/annotations/global/nbthread.go)."""
    return min(threads, limit_down(limit, None) or threads)


SYSTEM = ProxySystem(
    name="haproxy-ingress",
    image="haproxytech/kubernetes-ingress",
    realise=realise,
    note="directive-equivalent: endpoints change by a reload (the controller: by the runtime API, into free server slots)",
    control=lambda process: MasterControl(process, 5.0),  # its --sync-period, unless told otherwise
    renew=by_signal(signal.SIGUSR2),  # as its master is told
    counters=haproxy.count,
    migrations={"haproxy-ingress": "migrate.tsv"},
    workers=Workers(rules={"kubernetes-ingress": all_cpus}, keys=("nbthread",), capped=capped),
)
