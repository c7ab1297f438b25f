"""OKD's router (openshift/router) as a HAProxy with the same configuration: *directive-equivalent, not the router*.

The router process does not run. That process would watch an API server and admit Routes (`lab.targets.local` does this
instead). It would have metrics, and it would not be ready during its graceful shutdown delay. The bash script `router.bash` in
this folder starts and reloads HAProxy in place of the router process.

The configuration and its maps have the shape that OKD's router gives them. They are written for HAProxy 2.6 and later, from
the facts of openshift/router's haproxy-config.template:

- Hosts are looked up in maps of regular expressions, one after the other, which is why the number of routes matters.
- Port 443 is a TCP frontend that reads the SNI. Connections of passthrough routes go to the backend unchanged. All others go
  over a unix socket with PROXY protocol to frontends that end TLS and begin HTTP.
- A re-encrypt route opens a new TLS connection to the backend, whose certificate is verified.
- There is one backend per route, with health checks only where the route has several endpoints.

Three things differ: there is no `daemon` (the script runs HAProxy) and no statistics page, and HAProxy serves the health port,
which the router process would serve.

The target `apiserver` runs the router itself, with its Go process, template and HAProxy, if you name the files of its image
(LAB_IMAGES: `haproxy-router: …`). The router's source is in no package registry, and the lab fetches the image only if you name
it. We have never run the router on that target.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.base import quantities
from lab.base.errors import MeasuringError, NotMeasurableError, UsageError, did_you_mean, refuse_if
from lab.model.variants.hosts import ROUTE_LABELS, route_labels
from lab.systems import programs
from lab.systems.haproxy.system import FD_CEILING, HOME, SOCKET, count
from lab.systems.haproxy_router.control import CONF, RUN, TAKEN_S, RouterControl
from lab.systems.manifests.objects import Endpoint, Objects
from lab.systems.manifests.routes import HostRoute
from lab.systems.rendering import render_template
from lab.systems.system import (
    KLOG_FAULT,
    NODE_ADDRESS,
    ContainerProcess,
    Context,
    Controller,
    MachineTool,
    ProxySystem,
    Realisation,
    Root,
    Workers,
    all_cpus,
    extract_messages,
    find_program,
    is_repository_of,
    refuse_open_files,
    refuse_unexpected,
    refuse_workers,
)

IMAGE, NAME = "origin-haproxy-router", "haproxy-router"
CERTIFICATE = f"{HOME}/router/certs/default.pem"
SCRIPT, INSIDE = Path(__file__).with_name("router.bash"), f"{HOME}/router.bash"
_CHECKED = f'mkdir -p {HOME}/run "${{0%/*}}"; cat "$1/tls.crt" "$1/tls.key" >"$0"; shift; exec "$@"'
"""The beginning of router.bash, followed by the checker's command."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
OWN = ("/var/lib/haproxy", "/tmp", "/var/log", "/run")
"""The folders of the router's image of which every container has a copy, on the target `apiserver`."""
SPARE_FDS = 100
"""The number of open files that HAProxy needs besides two per connection.

They are for listeners, pollers and the statistics socket (29 with two threads).
"""

Form = tuple[str, str]
"""A regular expression, and a description of the texts that it matches."""
_ANY: Form = ("", "any text")
_NUMBER: Form = (r"[1-9]\d{0,8}", "a positive integer")
_TRUTH: Form = (r"true|TRUE|1|false|FALSE|0", "true or false")
_ALGORITHM: Form = (r"roundrobin|leastconn|source|random", "an algorithm of HAProxy's")
_TIME, _TIME_LONG, _TIME_SHORT = (
    (r"[1-9]\d*(us|ms|s|m|h|d)?", f"a time such as {like}") for like in ("30s", "30m", "5s")
)
_SYSLOG: Form = (r"[\w.-]+:[1-9]\d{0,4}", "HOST:PORT (the operator's sidecar has a socket: --target kind)")
_TRUE = ("true", "TRUE", "1")

TIMES = {
    "timeout connect": ("ROUTER_DEFAULT_CONNECT_TIMEOUT", "5s"),
    "timeout client": ("ROUTER_DEFAULT_CLIENT_TIMEOUT", "30s"),
    "timeout client-fin": ("ROUTER_CLIENT_FIN_TIMEOUT", "1s"),
    "timeout server": ("ROUTER_DEFAULT_SERVER_TIMEOUT", "30s"),
    "timeout server-fin": ("ROUTER_DEFAULT_SERVER_FIN_TIMEOUT", "1s"),
    "timeout http-request": ("ROUTER_SLOWLORIS_TIMEOUT", "10s"),
    "timeout http-keep-alive": ("ROUTER_SLOWLORIS_HTTP_KEEPALIVE", "300s"),
    "timeout tunnel": ("ROUTER_DEFAULT_TUNNEL_TIMEOUT", "1h"),
}
"""The timeouts of the section `defaults`: directive → (the environment variable that sets it, the router's own default).

The defaults are those of haproxy-config.template.
"""
OPTIONS = {
    "option dontlognull": "ROUTER_DONT_LOG_NULL",
    "option http-ignore-probes": "ROUTER_HTTP_IGNORE_PROBES",
    "option contstats": "ROUTER_HAPROXY_CONTSTATS",
    "option abortonclose": "ROUTER_ABORT_ON_CLOSE",
    "compression algo gzip": "ROUTER_ENABLE_COMPRESSION",
}
"""Directive of the section `defaults` → the environment variable that switches the directive on."""
VARIABLES: Mapping[str, tuple[Form, str | None]] = {
    "ROUTER_SERVICE_HTTP_PORT": (_NUMBER, "80"),
    "ROUTER_SERVICE_HTTPS_PORT": (_NUMBER, "443"),
    "STATS_PORT": (_NUMBER, "1936"),
    "ROUTER_THREADS": (_NUMBER, ""),
    "ROUTER_MAX_CONNECTIONS": (_ANY, "20000"),  # the operator sets 50000, and `auto` for -1
    "ROUTER_HARD_STOP_AFTER": (_TIME_LONG, ""),
    "ROUTER_LOAD_BALANCE_ALGORITHM": (_ALGORITHM, "random"),
    "ROUTER_TCP_BALANCE_SCHEME": (_ALGORITHM, "source"),
    "SSL_MIN_VERSION": (_ANY, "TLSv1.2"),
    "ROUTER_CIPHERS": (_ANY, None),
    "ROUTER_CIPHERSUITES": (_ANY, None),
    **{name: (_TIME, value) for name, value in TIMES.values()},
    **dict.fromkeys(OPTIONS.values(), (_TRUTH, "")),
    "ROUTER_COMPRESSION_MIME": (_ANY, "text/html text/plain text/css"),
    "ROUTER_SYSLOG_ADDRESS": (_SYSLOG, ""),
    "ROUTER_LOG_LEVEL": (("emerg|alert|crit|err|warning|notice|info|debug", "a level of syslog"), "warning"),
    "ROUTER_INSPECT_DELAY": (_TIME_SHORT, "5s"),
    "ROUTER_BACKEND_CHECK_INTERVAL": (_TIME_SHORT, "5000ms"),
    "ROUTER_MAX_REWRITE_SIZE": (_NUMBER, "8192"),
    "ROUTER_BUF_SIZE": (_NUMBER, "32768"),
    "ROUTER_USE_PROXY_PROTOCOL": (_TRUTH, ""),
    "ROUTER_MUTUAL_TLS_AUTH": (("none|optional|required", "none, optional or required"), ""),
    "ROUTER_MUTUAL_TLS_AUTH_CA": (_ANY, ""),
    "DEFAULT_DESTINATION_CA_PATH": (_ANY, ""),
    "ROUTER_GRACEFUL_SHUTDOWN_DELAY": (
        _ANY,
        "45s",
    ),  # from SIGTERM until it ends its HAProxy: the time that cloud balancers take to notice
    "RELOAD_INTERVAL": (_ANY, "5s"),
    "DEFAULT_CERTIFICATE_DIR": (_ANY, None),
    ROUTE_LABELS: ((r"[\w./-]+=[\w.-]+(,[\w./-]+=[\w.-]+)*", "KEY=VALUE,…"), ""),
    # The router's own name and namespace.
    "ROUTER_SERVICE_NAME": (_ANY, ""),
    "ROUTER_SERVICE_NAMESPACE": (_ANY, ""),
    # Any other value would need what is not here.
    "ROUTER_METRICS_TYPE": (("haproxy", ""), "haproxy"),
    "ROUTER_SET_FORWARDED_HEADERS": (("append", ""), "append"),
    "ROUTER_DISABLE_HTTP2": (("true", ""), "true"),
}
"""The environment variables that the lab honours: name → (form of the value, the router's own default).

An empty value also means the default, except where any text is allowed. If the default is None, the variable is required. A
form without a description allows only its own text.
"""


@dataclass(frozen=True, slots=True)
class RouterBackend:
    """One backend of the router's HAProxy: an OpenShift Route, and the ready endpoints to which it leads."""

    route: HostRoute
    endpoints: tuple[Endpoint, ...]

    @property
    def name(self) -> str:
        """The name of the HAProxy backend for an OpenShift Route, as OKD's router would name it (`be_http:NAMESPACE:NAME`)."""
        prefix = {"none": "be_http", "edge": "be_edge_http", "reencrypt": "be_secure", "passthrough": "be_tcp"}
        return f"{prefix[self.route.tls]}:{self.route.namespace}:{self.route.name}"


def realise(context: Context) -> Realisation:
    """Return how the lab starts a HAProxy in place of a container of OKD's router.

    The HAProxy on PATH gets the configuration that the router would write. The script `router.bash` starts and reloads it; the
    router itself does not run.

    Args:
        context: the facts about the container.

    Raises:
        UsageError: for environment variables that the lab cannot apply to this HAProxy.
        NotMeasurableError: for more threads or open files than the container may have on this machine.

    """
    container = context.container
    refuse_unexpected(container, not (container.command or container.args), "neither command nor args", NAME)
    find_program(container.place, "haproxy")
    place = f"{container.place}.env"
    env = _read_variables(place, container.env)
    settings = {
        "http_port": env["ROUTER_SERVICE_HTTP_PORT"],
        "https_port": env["ROUTER_SERVICE_HTTPS_PORT"],
        "stats_port": env["STATS_PORT"],
        "threads": env["ROUTER_THREADS"] or None,
        "max_connections": _read_max_connections(
            f"{place}[ROUTER_MAX_CONNECTIONS]", env["ROUTER_MAX_CONNECTIONS"], context
        ),
        "hard_stop_after": env["ROUTER_HARD_STOP_AFTER"] or None,
        "fd_limit": FD_CEILING if context.open_files > FD_CEILING else None,
        "balance": env["ROUTER_LOAD_BALANCE_ALGORITHM"],
        "tcp_balance": env["ROUTER_TCP_BALANCE_SCHEME"],
        "min_tls": env["SSL_MIN_VERSION"],
        "ciphers": env["ROUTER_CIPHERS"],
        "ciphersuites": env["ROUTER_CIPHERSUITES"],
        "defaults": _render_defaults(env),
        "log": "",
        "inspect_delay": env["ROUTER_INSPECT_DELAY"],
        "check_interval": env["ROUTER_BACKEND_CHECK_INTERVAL"],
        "rewrite_size": env["ROUTER_MAX_REWRITE_SIZE"],
        "buffer_size": env["ROUTER_BUF_SIZE"],
        "accept_proxy": env["ROUTER_USE_PROXY_PROTOCOL"] in _TRUE,
        "clients": "",
        "destination_ca": env["DEFAULT_DESTINATION_CA_PATH"] or None,
    }
    if threads := env["ROUTER_THREADS"]:
        refuse_workers(f"{place}[ROUTER_THREADS]", int(threads), context, "threads")
    if address := env["ROUTER_SYSLOG_ADDRESS"]:  # whatever the host, the log goes to a sink of the lab
        settings["log"] = f"log {NODE_ADDRESS}:{address.rpartition(':')[2]} local1 {env['ROUTER_LOG_LEVEL']}"
    if settings["accept_proxy"] and not context.objects.role("balancer"):
        fault = "nobody in front of the router speaks the PROXY protocol: nothing would be served"
        remedy = "the variant okd-load-balancer+okd-use-proxy-protocol has a load balancer that does"
        raise UsageError(f"{place}[ROUTER_USE_PROXY_PROTOCOL]", fault, remedy)
    if (client_auth := env["ROUTER_MUTUAL_TLS_AUTH"]) not in ("", "none"):
        if not (ca := env["ROUTER_MUTUAL_TLS_AUTH_CA"]):
            fault = f"{client_auth}, and no ROUTER_MUTUAL_TLS_AUTH_CA"
            raise UsageError(f"{place}[ROUTER_MUTUAL_TLS_AUTH]", fault, "name its file")
        settings["clients"] = f" verify {client_auth} ca-file {ca}"
    delay_s = _parse_seconds(f"{place}[ROUTER_GRACEFUL_SHUTDOWN_DELAY]", env["ROUTER_GRACEFUL_SHUTDOWN_DELAY"])
    interval = reload_interval_s(f"{place}[RELOAD_INTERVAL]", env["RELOAD_INTERVAL"])
    labels = route_labels(env[ROUTE_LABELS])
    routes = [route for route in context.objects.host_routes if labels.items() <= route.labels.items()]
    members = (context.objects.members(route.service, route.port, context.addresses) for route in routes)
    certificates = env["DEFAULT_CERTIFICATE_DIR"]
    return Realisation(
        command=("bash", INSIDE, certificates),
        env={**container.env, "RELOAD_INTERVAL": f"{interval}s"},
        files={**render(settings, list(map(RouterBackend, routes, members))), INSIDE: SCRIPT.read_text()},
        checker=("sh", "-euc", _CHECKED, CERTIFICATE, certificates, "haproxy", "-c", "-f", f"{CONF}/haproxy.config"),
        waits=(delay_s, 1.0),
    )


def _read_variables(place: str, env: Mapping[str, str]) -> dict[str, str]:
    """Return the value of every environment variable of OKD's router that the lab knows (`VARIABLES`): name → value.

    A variable that the container does not set gets the router's own default. An empty value is replaced by the default, too,
    except for variables that may have any text.

    Args:
        place: the place of the environment, for error messages.
        env: the container's environment.

    Raises:
        UsageError: for a required variable that is missing, a value of the wrong form, or an unknown variable.

    """
    values: dict[str, str] = {}
    for name, (form, default) in VARIABLES.items():
        value = env.get(name, default)
        if value is None:
            raise UsageError(place, f"'{name}' is missing", "as in manifests/base/haproxy-router")
        if form is not _ANY:
            _refuse_unlike(f"{place}[{name}]", value, form)
            value = value or default or ""
        values[name] = value
    if strange := next((name for name in env if name not in VARIABLES), None):
        remedy = f"{did_you_mean(strange, VARIABLES)} (or --target kind)"
        raise UsageError(place, f"the local target does not honour {strange}", remedy)
    return values


def _refuse_unlike(place: str, text: str, form: Form) -> None:
    """Raise UsageError if the value of an environment variable does not have the required form.

    Args:
        place: the place of the variable, for the error message.
        text: the value.
        form: (pattern, description in words). With a description, the pattern is a regular expression for the value, and an empty
            value is allowed, too. With an empty description, the pattern is the only allowed value.

    """
    pattern, description = form
    if description and text and not re.fullmatch(pattern, text):
        raise UsageError(place, f"expected {description}, got {text!r}", "correct it")
    fault = f"only {pattern!r} can be had here, got {text!r}"
    refuse_if(not description and text != pattern, place, fault, "remove it, or use --target kind")


def _render_defaults(env: Mapping[str, str]) -> list[str]:
    """Return the lines of the section `defaults` of HAProxy's configuration, as OKD's router would write them.

    Args:
        env: the value of every variable in `VARIABLES`.

    """
    lines = [f"{directive} {env[name]}" for directive, (name, _) in TIMES.items()]
    lines += [line for line, name in OPTIONS.items() if env[name] in _TRUE]
    if env["ROUTER_SYSLOG_ADDRESS"]:
        lines = ["option httplog", "log global", *lines]
    return [
        *lines,
        *([f"compression type {env['ROUTER_COMPRESSION_MIME']}"] if "compression algo gzip" in lines else []),
    ]


def _read_max_connections(place: str, text: str, context: Context) -> int | None:
    """Parse the maximum number of connections from the router's environment variable.

    Args:
        place: the place of the variable, for error messages.
        text: the value of the variable.
        context: the facts about the container, with its limit of open files.

    Returns:
        The number. None for `auto` or an empty value: HAProxy then computes the number from the limit of open files.

    Raises:
        UsageError: for a text that is no positive integer.
        NotMeasurableError: when so many connections need more open files than the container may have.

    """
    if text in ("", "auto"):
        return None
    _refuse_unlike(place, text, _NUMBER)
    refuse_open_files(place, 2 * int(text) + SPARE_FDS, context, consumer=f"{text} connections")
    return int(text)


def render(settings: Mapping[str, object], backends: Sequence[RouterBackend]) -> dict[str, str]:
    """Return the files of the HAProxy of OKD's router: path in the container → text.

    They are the configuration, its maps (which lead from a host and path to a backend) and an error page.

    Args:
        settings: name in the template → value. With None, the directive is left out, so that HAProxy's own default applies.
        backends: the routes with their endpoints.

    """
    terminated = [item for item in backends if item.route.tls in ("edge", "reencrypt")]
    passed = [item for item in backends if item.route.tls == "passthrough"]
    allowed = [item for item in terminated if item.route.insecure == "Allow"]
    plain = [item for item in backends if item.route.tls == "none"] + allowed
    redirected = [item for item in terminated + passed if item.route.insecure == "Redirect"]
    config = render_template(
        Path(__file__).with_name("haproxy.config.j2"),
        **settings,
        backends=backends,
        conf=CONF,
        run=RUN,
        socket=SOCKET,
        certificate=CERTIFICATE,
        md5=lambda text: hashlib.md5(text.encode(), usedforsecurity=False).hexdigest(),
        quoted=lambda text: "'" + text.replace("'", r"'\''") + "'",
    )
    return {
        f"{CONF}/haproxy.config": config,
        f"{CONF}/os_http_be.map": _render_map(f"{_match_route(item.route)} {item.name}" for item in plain),
        f"{CONF}/os_route_http_redirect.map": _render_map(f"{_match_route(item.route)} 1" for item in redirected),
        f"{CONF}/os_edge_reencrypt_be.map": _render_map(
            f"{_match_route(item.route)} {item.name}" for item in terminated
        ),
        f"{CONF}/os_sni_passthrough.map": _render_map(rf"^{_escape(item.route.host)}\.?$ 1" for item in passed),
        f"{CONF}/os_tcp_be.map": _render_map(f"{_match_route(item.route)} {item.name}" for item in passed),
        f"{CONF}/cert_config.map": "",  # routes have no certificates here
        f"{CONF}/error-page-503.http": _UNAVAILABLE,
    }


def _render_map(lines: Iterable[str]) -> str:
    """Return the text of a HAProxy map file; each line has a regular expression for requests and a value.

    The lines are sorted in reverse alphabetical order. So `/a/b` comes before `/a`, which would match the same requests.
    """
    return "".join(f"{line}\n" for line in sorted(lines, reverse=True))


def _match_route(route: HostRoute) -> str:
    """Return the regular expression by which HAProxy recognizes the requests that belong to an OpenShift Route.

    The expression matches `HOST[:PORT]PATH`, and all paths below that path.
    """
    return rf"^{_escape(route.host)}\.?(:[0-9]+)?{_escape(route.path)}(/.*)?$"


def _escape(text: str) -> str:
    """Escape a text for a regular expression as the Go function regexp.QuoteMeta does, which OKD's router uses.

    In contrast to `re.escape`, there is no backslash before `-`.
    """
    return re.sub(r"[\\.+*?()|\[\]{}^$]", r"\\\g<0>", text)


_UNAVAILABLE = (
    "HTTP/1.0 503 Service Unavailable\r\nPragma: no-cache\r\nCache-Control: private, max-age=0, no-cache, no-store\r\n"
    "Connection: close\r\nContent-Type: text/plain\r\n\r\nno route has this host, or nothing behind it answers\n"
)


def renew(process: ContainerProcess) -> None:
    """Request a reload of the unchanged configuration from the script `router.bash`, which runs in place of OKD's router.

    Raises:
        MeasuringError: when the script has ended, or does not accept the request in time.

    """
    router, deadline = RouterControl(process, 0.0), time.monotonic() + TAKEN_S
    while not router.ask():
        if process.pid is None or time.monotonic() > deadline:
            raise MeasuringError(process.container.place, f"took no reload within {TAKEN_S:g} s", process.tail(5))
        time.sleep(0.01)


def control(process: ContainerProcess) -> RouterControl:
    """Return the handle by which the lab makes the HAProxy of OKD's router load changes.

    The minimum time between two reloads is the container's environment variable RELOAD_INTERVAL.
    """
    place = f"{process.container.place}.env[RELOAD_INTERVAL]"
    return RouterControl(process, reload_interval_s(place, process.started.env["RELOAD_INTERVAL"]))


def reload_interval_s(place: str, text: str) -> int:
    """Parse the reload interval of OKD's router from Go's notation of durations into seconds (`5s` → 5).

    Args:
        place: the place of the setting, for the error message.
        text: the duration.

    Raises:
        UsageError: when the duration is not 1 to 120 whole seconds; OKD allows no other value.

    """
    seconds = _parse_seconds(place, text)
    fault = f"expected 1s to 120s, got {text}: OKD allows no other minimum interval between reloads"
    refuse_if(not 1 <= seconds <= 120 or seconds != int(seconds), place, fault, "choose whole seconds in that range")
    return int(seconds)


def _parse_seconds(place: str, text: str) -> float:
    if (seconds := quantities.parse_duration_s(text)) is None:
        raise UsageError(place, f"expected a duration such as 15s, got {text!r}", "a number and its unit, s or m")
    return float(seconds)


def syslog_ports(objects: Objects) -> set[int]:
    """Return the numbers of the node's ports to which the OKD routers of a variant send their log by the syslog protocol."""
    containers = (container for pod in objects.pods for container in pod.containers)
    routers = (item for item in containers if is_repository_of(IMAGE, item.repository))
    addresses = (router.env.get("ROUTER_SYSLOG_ADDRESS", "") for router in routers)
    return {int(address.rpartition(":")[2]) for address in addresses if re.fullmatch(_SYSLOG[0], address)}


def realise_router(context: Context) -> Realisation:
    """Return how the lab starts OKD's router itself on the target `apiserver`, from the unpacked files of its image.

    Args:
        context: the facts about the container.

    Raises:
        NotMeasurableError: when these files are missing, or for more threads than the container has CPUs.

    """
    container = context.container
    try:
        files = programs.locate_root_files(NAME, NAME)
    except UsageError:
        fault = "the router's own files are not here"
        remedy = f"LAB_IMAGES=<file> with a line `{NAME}: …` names them: a folder, an archive, or an image; or measure on local or kind"
        raise NotMeasurableError("OKD's router", container.place, fault, remedy) from None
    if (threads := container.env.get("ROUTER_THREADS", "")).isdigit():
        refuse_workers(f"{container.place}.env[ROUTER_THREADS]", int(threads), context, "threads")
    command = (*(container.command or ("/usr/bin/openshift-router",)), *container.args)
    return Realisation(command, {"PATH": PATH, **container.env}, root=Root(files.folder, OWN, "/var/lib/haproxy"))


SYSTEM = ProxySystem(
    name=NAME,
    image=IMAGE,
    realise=realise,
    control=control,
    renew=renew,
    counters=count,
    tools=(
        MachineTool("haproxy", ("-v",), (2, 6), "the OKD router's variants", "apt-get install haproxy"),
        MachineTool("bash", ("--version",), (5, 0), "starts HAProxy anew", "apt-get install bash"),
        MachineTool("socat", ("-V",), (1, 7), "reads HAProxy back, serves WebSockets", "apt-get install socat"),
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
            about=lambda: f"{NAME}: {programs.locate_root_files(NAME, NAME).about}",
            complaints=lambda log: extract_messages(log, KLOG_FAULT),
            load_lines={'"router reloaded"': "Reloaded"},  # its log does not report the beginning
            # No renew: the router decides about its reloads, and no run here has shown them.
        ),
    ),
    config_files=("/var/lib/haproxy/conf/*.config", "/var/lib/haproxy/conf/*.map"),
    interval_variable="RELOAD_INTERVAL",
    definitions=("route-crd.yaml",),
    definitions_of="OKD's router",
    # Without a number: a thread for each CPU that it may use, whatever the limit. OKD's operator configures 4.
    workers=Workers(rules={IMAGE: all_cpus}, variables=("ROUTER_THREADS",)),
)
