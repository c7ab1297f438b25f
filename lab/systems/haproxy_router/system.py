"""OKD's router (openshift/router) as a HAProxy with the same configuration: *directive-equivalent, not the router*.

What is missing: the router process, which watches an API server and admits Routes (`routing` stands in), its metrics,
and that it is not ready any more during its graceful shutdown delay. The bash script `router.bash` beside this file stands in for what it
does to HAProxy.

The target `apiserver` runs the router itself, its Go process, template and HAProxy, where you name the files of its image: its source is in no
package registry, and the image is not fetched unasked (LAB_IMAGES: `haproxy-router: …`). Never run by us on that target.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from lab.base import quantities
from lab.base.errors import MeasuringError, NotMeasurableError, UsageError, did_you_mean
from lab.model.variants.hosts import ROUTE_LABELS, route_labels
from lab.systems import programs
from lab.systems.haproxy import admin
from lab.systems.haproxy.system import FD_CEILING
from lab.systems.haproxy_router.config import CERTIFICATE, CONF, HOME, Backend, render
from lab.systems.haproxy_router.control import TAKEN_S, RouterControl
from lab.systems.manifests.objects import Objects
from lab.systems.system import (
    KLOG_FAULT,
    Context,
    Controller,
    Process,
    ProxySystem,
    Realisation,
    Root,
    Tool,
    Workers,
    all_cpus,
    expect,
    find_program,
    is_repository_of,
    refuse_open_files,
    refuse_workers,
)
from lab.systems.system import NODE_ADDRESS as SINK

IMAGE = "origin-haproxy-router"
NAME = "haproxy-router"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
OWN = ("/var/lib/haproxy", "/tmp", "/var/log", "/run")
"""Folders of its image that every container has a copy of, on the target `apiserver`."""
SCRIPT = Path(__file__).with_name("router.bash")
INSIDE = f"{HOME}/router.bash"

MAX_CONNECTIONS = 20000
"""The router's own default where ROUTER_MAX_CONNECTIONS is not set; the operator sets 50000, and `auto` for -1."""

SPARE_FDS = 100
"""Open files that HAProxy needs beside two per connection: listeners, pollers, its socket (29 with two threads)."""

_CHECKED = f'mkdir -p {HOME}/run "${{0%/*}}"; cat "$1/tls.crt" "$1/tls.key" >"$0"; shift; exec "$@"'
"""The script's own beginning, then what follows."""

# Fixed: another value would need what is not here. Value: what it must be.
_FIXED = {
    "ROUTER_METRICS_TYPE": "haproxy",
    "ROUTER_SET_FORWARDED_HEADERS": "append",
    "ROUTER_DISABLE_HTTP2": "true",
}
_WAIVED = {"ROUTER_SERVICE_NAME", "ROUTER_SERVICE_NAMESPACE"}  # what it calls itself
DEFAULTS = {
    "timeout connect": ("ROUTER_DEFAULT_CONNECT_TIMEOUT", "5s"),
    "timeout client": ("ROUTER_DEFAULT_CLIENT_TIMEOUT", "30s"),
    "timeout client-fin": ("ROUTER_CLIENT_FIN_TIMEOUT", "1s"),
    "timeout server": ("ROUTER_DEFAULT_SERVER_TIMEOUT", "30s"),
    "timeout server-fin": ("ROUTER_DEFAULT_SERVER_FIN_TIMEOUT", "1s"),
    "timeout http-request": ("ROUTER_SLOWLORIS_TIMEOUT", "10s"),
    "timeout http-keep-alive": ("ROUTER_SLOWLORIS_HTTP_KEEPALIVE", "300s"),
    "timeout tunnel": ("ROUTER_DEFAULT_TUNNEL_TIMEOUT", "1h"),
}
"""Directive of the section `defaults` → the variable that sets it, and the router's own value (haproxy-config.template)."""

OPTIONS = {
    "option dontlognull": "ROUTER_DONT_LOG_NULL",
    "option http-ignore-probes": "ROUTER_HTTP_IGNORE_PROBES",
    "option contstats": "ROUTER_HAPROXY_CONTSTATS",
    "option abortonclose": "ROUTER_ABORT_ON_CLOSE",
    "compression algo gzip": "ROUTER_ENABLE_COMPRESSION",
}
"""The same of those that are there or not."""

_TRUTH = re.compile(r"true|TRUE|1|false|FALSE|0")
_TRUE = ("true", "TRUE", "1")
_HAPROXY_TIME = re.compile(r"[1-9]\d*(us|ms|s|m|h|d)?")


def realise(context: Context) -> Realisation:
    container = context.container
    expect(container, not (container.command or container.args), "neither command nor args", NAME)
    find_program(container.place, "haproxy")
    env = _Environment(f"{container.place}.env", container.env)
    settings = {
        "http_port": env.integer("ROUTER_SERVICE_HTTP_PORT", 80),
        "https_port": env.integer("ROUTER_SERVICE_HTTPS_PORT", 443),
        "stats_port": env.integer("STATS_PORT", 1936),
        "threads": _threads(env, context),
        "max_connections": _max_connections(env, context),
        "hard_stop_after": env.matching("ROUTER_HARD_STOP_AFTER", _HAPROXY_TIME, "a time such as 30m") or None,
        "fd_limit": FD_CEILING if context.open_files > FD_CEILING else None,
        "balance": env.matching("ROUTER_LOAD_BALANCE_ALGORITHM", _ALGORITHM, "an algorithm of HAProxy's") or "random",
        "tcp_balance": env.matching("ROUTER_TCP_BALANCE_SCHEME", _ALGORITHM, "an algorithm of HAProxy's") or "source",
        "min_tls": env.text("SSL_MIN_VERSION", "TLSv1.2"),
        "ciphers": env.text("ROUTER_CIPHERS"),
        "ciphersuites": env.text("ROUTER_CIPHERSUITES"),
        "defaults": _defaults(env),
        "log": _log(env),
        "inspect_delay": env.matching("ROUTER_INSPECT_DELAY", _HAPROXY_TIME, "a time such as 5s") or "5s",
        "check_interval": env.matching("ROUTER_BACKEND_CHECK_INTERVAL", _HAPROXY_TIME, "a time such as 5s") or "5000ms",
        "rewrite_size": env.integer("ROUTER_MAX_REWRITE_SIZE", 8192),
        "buffer_size": env.integer("ROUTER_BUF_SIZE", 32768),
        "accept_proxy": _accept_proxy(env, context),
        "clients": _clients(env),
        "destination_ca": env.text("DEFAULT_DESTINATION_CA_PATH", "") or None,
    }
    # From SIGTERM until it tells its HAProxy to end: what cloud balancers take to notice.
    delay = env.text("ROUTER_GRACEFUL_SHUTDOWN_DELAY", "45s")
    delay_s = _seconds(env.at("ROUTER_GRACEFUL_SHUTDOWN_DELAY"), delay)
    interval = reload_interval_s(env.at("RELOAD_INTERVAL"), env.text("RELOAD_INTERVAL", "5s"))
    certificates = env.text("DEFAULT_CERTIFICATE_DIR")
    form = re.compile(r"[\w./-]+=[\w.-]+(,[\w./-]+=[\w.-]+)*")
    wanted = route_labels(env.matching(ROUTE_LABELS, form, "KEY=VALUE,…"))
    env.finish()
    routes = [route for route in context.objects.host_routes if wanted.items() <= route.labels.items()]
    members = (context.objects.members(route.service, route.port, context.addresses) for route in routes)
    files = render(settings, list(map(Backend, routes, members)))
    return Realisation(
        command=("bash", INSIDE, certificates),
        env={**container.env, "RELOAD_INTERVAL": f"{interval}s"},
        files={**files, INSIDE: SCRIPT.read_text()},
        checker=("sh", "-euc", _CHECKED, CERTIFICATE, certificates, "haproxy", "-c", "-f", f"{CONF}/haproxy.config"),
        waits=(delay_s, 1.0),
    )


def renew(process: Process) -> None:
    """A reload as the router asks for one."""
    router, deadline = RouterControl(process, 0.0), time.monotonic() + TAKEN_S
    while not router.ask():
        if process.pid is None or time.monotonic() > deadline:
            raise MeasuringError(process.container.place, f"took no reload within {TAKEN_S:g} s", process.tail(5))
        time.sleep(0.01)


def control(process: Process) -> RouterControl:
    place = f"{process.container.place}.env[RELOAD_INTERVAL]"
    return RouterControl(process, reload_interval_s(place, process.started.env["RELOAD_INTERVAL"]))


def reload_interval_s(place: str, text: str) -> int:
    """Seconds of a Go duration. UsageError outside of what OKD allows: 1s to 120s (`spec.tuningOptions.reloadInterval`)."""
    seconds = _seconds(place, text)
    if not 1 <= seconds <= 120 or seconds != int(seconds):
        fault = f"expected 1s to 120s, got {text}: OKD allows no other minimum interval between reloads"
        raise UsageError(place, fault, "choose whole seconds in that range")
    return int(seconds)


_SYSLOG = re.compile(r"[\w.-]+:[1-9]\d{0,4}")
_LEVEL = re.compile(r"emerg|alert|crit|err|warning|notice|info|debug")
_ALGORITHM = re.compile(r"roundrobin|leastconn|source|random")


class _Environment:
    """Reads variables one by one, so that none is ignored in silence."""

    def __init__(self, place: str, values: Mapping[str, str]) -> None:
        self._place, self._values = place, values
        self._asked = {*_FIXED, *_WAIVED}

    def at(self, name: str) -> str:
        return f"{self._place}[{name}]"

    def text(self, name: str, default: str | None = None) -> str:
        self._asked.add(name)
        value = self._values.get(name, default)
        if value is None:
            raise UsageError(self._place, f"'{name}' is missing", "as in manifests/base/haproxy-router")
        return value

    def matching(self, name: str, form: re.Pattern[str], wanted: str) -> str:
        """The value; empty where it is not set."""
        value = self.text(name, "")
        if value and not form.fullmatch(value):
            raise UsageError(self.at(name), f"expected {wanted}, got {value!r}", "correct it")
        return value

    def integer(self, name: str, default: int) -> int:
        return int(self.matching(name, re.compile(r"[1-9]\d{0,8}"), "a positive integer") or default)

    def finish(self) -> None:
        """UsageError for a variable that nothing has asked for, or a fixed one that says something else."""
        for name, value in self._values.items():
            if name not in self._asked:
                fault = f"the local target does not honour {name}"
                raise UsageError(self._place, fault, f"{did_you_mean(name, self._asked)} (or --target kind)")
            if _FIXED.get(name, value) != value:
                raise UsageError(
                    self.at(name),
                    f"only {_FIXED[name]!r} can be had here, got {value!r}",
                    "remove it, or use --target kind",
                )


def _defaults(env: _Environment) -> list[str]:
    """Lines of the section `defaults`."""
    times = {
        directive: env.matching(name, _HAPROXY_TIME, "a time such as 30s") or own
        for directive, (name, own) in DEFAULTS.items()
    }
    chosen = {line: env.matching(name, _TRUTH, "true or false") for line, name in OPTIONS.items()}
    mime = env.text("ROUTER_COMPRESSION_MIME", "text/html text/plain text/css")
    lines = [f"{directive} {value}" for directive, value in times.items()]
    lines += [line for line, value in chosen.items() if value in _TRUE]
    if env.text("ROUTER_SYSLOG_ADDRESS", ""):
        lines = ["option httplog", "log global", *lines]
    return [*lines, *([f"compression type {mime}"] if "compression algo gzip" in lines else [])]


def _accept_proxy(env: _Environment, context: Context) -> bool:
    name = "ROUTER_USE_PROXY_PROTOCOL"
    asked = env.matching(name, _TRUTH, "true or false") in _TRUE
    if asked and not context.objects.role("balancer"):
        fault = "nobody in front of the router speaks the PROXY protocol: nothing would be served"
        raise UsageError(
            env.at(name), fault, "the variant okd-load-balancer+okd-use-proxy-protocol has a load balancer that does"
        )
    return asked


def _clients(env: _Environment) -> str:
    """What of its clients' certificates every bind with TLS says; empty where none is asked for."""
    asked = env.matching("ROUTER_MUTUAL_TLS_AUTH", re.compile("none|optional|required"), "none, optional or required")
    ca = env.text("ROUTER_MUTUAL_TLS_AUTH_CA", "")
    if asked in ("", "none"):
        return ""
    if not ca:
        raise UsageError(
            env.at("ROUTER_MUTUAL_TLS_AUTH"), f"{asked}, and no ROUTER_MUTUAL_TLS_AUTH_CA", "name its file"
        )
    return f" verify {asked} ca-file {ca}"


def _log(env: _Environment) -> str:
    """Of the section `global`; empty where nothing is logged. Whatever the host, it goes to a sink of the lab's own."""
    address = env.matching(
        "ROUTER_SYSLOG_ADDRESS", _SYSLOG, "HOST:PORT (the operator's sidecar has a socket: --target kind)"
    )
    level = env.matching("ROUTER_LOG_LEVEL", _LEVEL, "a level of syslog") or "warning"
    if not address:
        return ""
    return f"log {SINK}:{address.rpartition(':')[2]} local1 {level}"


def syslog_ports(objects: Objects) -> set[int]:
    """The ports to which routers among these objects would log."""
    found = (
        container.env.get("ROUTER_SYSLOG_ADDRESS", "")
        for pod in objects.pods
        for container in pod.containers
        if is_repository_of(IMAGE, container.repository)
    )
    return {int(address.rpartition(":")[2]) for address in found if _SYSLOG.fullmatch(address)}


def _threads(env: _Environment, context: Context) -> int | None:
    if not env.text("ROUTER_THREADS", ""):
        return None
    threads = env.integer("ROUTER_THREADS", 0)
    refuse_workers(env.at("ROUTER_THREADS"), threads, context, "threads")
    return threads


def _max_connections(env: _Environment, context: Context) -> int | None:
    """None = `auto`: as many as the limit of open files allows, by HAProxy's own reckoning."""
    if env.text("ROUTER_MAX_CONNECTIONS", str(MAX_CONNECTIONS)) in ("", "auto"):
        return None
    wanted = env.integer("ROUTER_MAX_CONNECTIONS", MAX_CONNECTIONS)
    refuse_open_files(env.at("ROUTER_MAX_CONNECTIONS"), 2 * wanted + SPARE_FDS, context, asked=f"{wanted} connections")
    return wanted


def _seconds(place: str, text: str) -> float:
    if (seconds := quantities.seconds(text)) is None:
        raise UsageError(place, f"expected a duration such as 15s, got {text!r}", "a number and its unit, s or m")
    return float(seconds)


def realise_router(context: Context) -> Realisation:
    """The router itself. Refuses more threads than a container has CPUs."""
    container = context.container
    try:
        files = programs.files(NAME, NAME)
    except UsageError:
        fault = "the router's own files are not here"
        remedy = f"LAB_IMAGES=<file> with a line `{NAME}: …` names them: a folder, an archive, or an image; or measure on local or kind"
        raise NotMeasurableError("OKD's router", container.place, fault, remedy) from None
    if (threads := container.env.get("ROUTER_THREADS", "")).isdigit():
        refuse_workers(f"{container.place}.env[ROUTER_THREADS]", int(threads), context, "threads")
    command = (*(container.command or ("/usr/bin/openshift-router",)), *container.args)
    return Realisation(command, {"PATH": PATH, **container.env}, root=Root(files.folder, OWN, "/var/lib/haproxy"))


def complaints(log: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(match["words"] for line in log if (match := KLOG_FAULT.match(line))))


SYSTEM = ProxySystem(
    name=NAME,
    image=IMAGE,
    realise=realise,
    control=control,
    renew=renew,
    counters=admin.count,
    tools=(
        Tool("haproxy", ("-v",), (2, 6), "the OKD router's variants", "apt-get install haproxy"),
        Tool("bash", ("--version",), (5, 0), "starts HAProxy anew", "apt-get install bash"),
        Tool("socat", ("-V",), (1, 7), "reads HAProxy back, serves WebSockets", "apt-get install socat"),
    ),
    sinks=syslog_ports,
    controllers=(
        Controller(
            image=IMAGE,
            realise=realise_router,
            proxy="haproxy",
            system=NAME,
            short=NAME,
            config="/var/lib/haproxy/conf/haproxy.config",
            about=lambda: f"{NAME}: {programs.files(NAME, NAME).about}",
            complaints=complaints,
            load_lines={'"router reloaded"': "Reloaded"},  # it tells no beginning
            # No renew: its reloads are the router's own, and no run here has shown them.
        ),
    ),
    config_files=("/var/lib/haproxy/conf/*.config", "/var/lib/haproxy/conf/*.map"),
    interval_variable="RELOAD_INTERVAL",
    definitions=("route-crd.yaml",),
    definitions_of="OKD's router",
    # Without a number a thread for each CPU that it may use, limit or not; OKD's operator tells the router 4.
    workers=Workers(rules={IMAGE: all_cpus}, variables=("ROUTER_THREADS",)),
)
