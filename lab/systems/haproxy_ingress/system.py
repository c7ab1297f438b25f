"""haproxytech's Kubernetes Ingress Controller 3.2 as a HAProxy with its defaults: *directive-equivalent, not the controller*.

What is missing: the controller process, its maps of hosts and paths (conditions stand here instead), its changes by the runtime API (a reload
does it here), and the HAProxy of its image (3.2; the one on PATH runs). Facts: its haproxy.cfg and pkg/haproxy/env/defaults.go, pkg/annotations.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from lab.base.errors import UsageError, refuse_unknown
from lab.systems.haproxy import admin
from lab.systems.haproxy.served import Sections
from lab.systems.haproxy.system import MasterControl, started
from lab.systems.renewing import by_signal
from lab.systems.system import (
    Context,
    Process,
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
HTTP, HTTPS = 8080, 8443
SYNC_S = 5.0
"""Its --sync-period, unless told otherwise."""

Where = Literal["globals", "defaults", "backend", "server", "text"]


@dataclass(frozen=True, slots=True)
class Key:
    """`kind`: `value` is written behind the directive, `flag` has it there or not, `switch` makes it `no …` where it is false."""

    where: Where
    directive: str
    default: str = ""
    kind: Literal["value", "flag", "switch"] = "value"


KEYS: Mapping[str, Key] = {
    "nbthread": Key("globals", "nbthread"),
    "maxconn": Key("globals", "maxconn"),
    "hard-stop-after": Key("globals", "hard-stop-after", "30m"),
    "timeout-http-request": Key("defaults", "timeout http-request", "5s"),
    "timeout-connect": Key("defaults", "timeout connect", "5s"),
    "timeout-client": Key("defaults", "timeout client", "50s"),
    "timeout-client-fin": Key("defaults", "timeout client-fin"),
    "timeout-queue": Key("defaults", "timeout queue", "5s"),
    "timeout-server": Key("defaults", "timeout server", "50s"),
    "timeout-server-fin": Key("defaults", "timeout server-fin"),
    "timeout-tunnel": Key("defaults", "timeout tunnel", "1h"),
    "timeout-http-keep-alive": Key("defaults", "timeout http-keep-alive", "1m"),
    "timeout-check": Key("defaults", "timeout check"),
    "dontlognull": Key("defaults", "option dontlognull", "true", "switch"),
    "logasap": Key("defaults", "option logasap", "", "flag"),
    "http-keep-alive": Key("defaults", "option http-keep-alive", "true", "flag"),
    "http-server-close": Key("defaults", "option http-server-close", "", "flag"),
    "forwarded-for": Key("backend", "option forwardfor", "true", "flag"),
    "load-balance": Key("backend", "balance", "roundrobin"),
    "abortonclose": Key("backend", "option abortonclose", "", "flag"),
    "check": Key("server", "check", "true", "flag"),
    "check-interval": Key("server", "inter"),
    "pod-maxconn": Key("server", "maxconn"),
    "scale-server-slots": Key("text", "", "42"),
    "global-config-snippet": Key("text", ""),
    "backend-config-snippet": Key("text", ""),
}
"""Keys of its ConfigMap, with its own defaults."""

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
    place, data = _configmap(context)
    for name in data:
        refuse_unknown(name, KEYS, f"{place}: {name}", "is no key that the local target knows of this controller")
    values = {name: key.default for name, key in KEYS.items()} | dict(data)
    if values["nbthread"].isdecimal():
        threads = capped(int(values["nbthread"]), cores(container.limits.get("cpu")))
        refuse_workers(f"{place}: nbthread", threads, context, "threads")
        values["nbthread"] = str(threads) if threads else ""
    ports = context.objects.served_ingresses(HTTP, HTTPS)
    return started(context, ports, sections(place, values), "haproxytech's controller")


def sections(place: str, values: Mapping[str, str]) -> Sections:
    """Of all keys with their values, empty = left out. UsageError for what is neither true nor false, or no number."""
    found: dict[str, dict[str, str]] = {"globals": {}, "defaults": {}, "backend": {}, "server": {}}
    for name, key in KEYS.items():
        text = values[name].strip()
        if key.where == "text" or not text:
            continue
        if key.kind == "value":
            found[key.where][key.directive] = text
        elif text in ("true", "false"):
            if text == "true" or key.kind == "switch":
                found[key.where][key.directive if text == "true" else f"no {key.directive}"] = ""
        else:
            raise UsageError(f"{place}: {name}", f"expected true or false, got {text!r}", "correct it")
    for name, section in (("global-config-snippet", "globals"), ("backend-config-snippet", "backend")):
        found[section] |= {line.strip(): "" for line in values[name].splitlines() if line.strip()}
    slots = values["scale-server-slots"]
    if not slots.isdecimal():
        raise UsageError(f"{place}: scale-server-slots", f"expected a number, got {slots!r}", "42 is its default")
    return Sections(
        found["globals"] | {"ssl-default-bind-options": "no-sslv3 no-tls-tickets no-tlsv10", "stats timeout": "36s"},
        found["defaults"],
        {"http-request set-var(txn.base)": "base", "http-request set-header X-Forwarded-Proto": "https if { ssl_fc }"},
        found["backend"],
        found["server"],
        int(slots),
    )


def capped(threads: int, limit: Fraction | None) -> int:
    """What it makes of so many threads that it is asked for: at most GOMAXPROCS, which automaxprocs sets (pkg/annotations/global/nbthread.go)."""
    return min(threads, limit_down(limit, None) or threads)


def control(process: Process) -> MasterControl:
    return MasterControl(process, SYNC_S)


def _configmap(context: Context) -> tuple[str, Mapping[str, str]]:
    """UsageError for arguments that are not honoured, and for a ConfigMap or class that is not there."""
    container = context.container
    at = f"{container.place}.args"
    expect(container, not container.command, "no command", "haproxy-ingress")
    given = arguments(container, container.args, _ARGUMENTS)
    fault = f"no IngressClass is of {CONTROLLER}: it would serve nothing"
    refuse_unknown(CONTROLLER, context.objects.classes.values(), at, fault)
    return configmap_of(at, given.get("--configmap", ""), context)


SYSTEM = ProxySystem(
    name="haproxy-ingress",
    image="haproxytech/kubernetes-ingress",
    realise=realise,
    note="directive-equivalent: endpoints change by a reload (the controller: by the runtime API, into free server slots)",
    control=control,
    renew=by_signal(signal.SIGUSR2),  # as its master is told
    counters=admin.count,
    migrations={"haproxy-ingress": "migrate.tsv"},
    workers=Workers(rules={"kubernetes-ingress": all_cpus}, keys=("nbthread",), capped=capped),
)
