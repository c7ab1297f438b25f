"""Apache httpd itself, whose module mod_proxy forwards requests to backends as Gateway API's objects demand.

    ConfigMap/httpd: server.MaxKeepAliveRequests: "0", host.ProxyTimeout: "30", member.ttl: "60"

A key is the name of a section and a directive of httpd's configuration. The section `host` is for each virtual host that
serves the load. The section `member` has the parameters of each BalancerMember. An empty value removes a default that the lab
writes.

The program is the httpd on PATH, or else Debian's package, which is unpacked when a variant first runs it. A second certificate
on one port is refused, and so are changes of headers. The configuration is that of httpd's image, without the modules that
serve files and log in users, because no request reaches them. The modules for TLS are loaded if a certificate or a setting
needs them.
"""

from __future__ import annotations

import hashlib
import re
import signal
from collections.abc import Iterator, Mapping, Sequence

from lab.base.errors import refuse_if, refuse_unknown
from lab.systems import programs, settings
from lab.systems.manifests.gateway_api import ANY, Match, ServedPort, list_rules
from lab.systems.renewing import WatchedFiles
from lab.systems.system import (
    ContainerProcess,
    Context,
    Members,
    ProxySystem,
    Realisation,
    Workers,
    list_native_served,
    resolve_targets,
)

PROGRAM = "apache2"
"""The name of the program in Debian."""
HOME = "/srv/httpd"
CONFIG = f"{HOME}/httpd.conf"
ARGUMENTS = ("httpd", "-D", "FOREGROUND", "-f", CONFIG)
PORT, STATUS, LOADED, MARK = 8404, "/server-status?auto", "/server-info?config", "LAB_CONFIG"
"""The port and paths of httpd's own pages on the loopback, and the variable that names the loaded configuration."""
OF_THE_IMAGE = ("mpm_event", "authz_core", "reqtimeout", "filter", "env", "headers", "setenvif", "status", "alias")
TO_PROXY = ("info", "proxy", "proxy_http", "proxy_balancer", "slotmem_shm", "lbmethod_byrequests")
DEFAULTS: Mapping[str, Mapping[str, str]] = {
    "server": {
        "LogLevel": "warn",
        "ErrorLog": "/proc/self/fd/2",
        "CustomLog": r'/proc/self/fd/1 "%h %l %u %t \"%r\" %>s %b"',
    },
    "host": {"ProxyPreserveHost": "On"},
    "member": {},
}
"""Section → directive → arguments: the directives that the image's own file sets, and ProxyPreserveHost.

Gateway API demands that the host of a request is preserved.
"""
_CHECK = r"""said=$("$0" -t -f "$1" 2>&1) || { printf '%s\n' "$said" | tail -n 1 >&2; exit 1; }"""


def realise(context: Context) -> Realisation:
    """Return how the lab starts Apache httpd in place of a container of httpd's image.

    The result has the command, the environment, and a configuration that serves the Gateways of httpd's class (a GatewayClass
    with the controller `lab.test/httpd`).

    Args:
        context: the facts about the container.

    Raises:
        UsageError: for a route or setting that httpd's configuration cannot express here, or a container with other arguments
            than `ARGUMENTS`.

    """
    container = context.container
    ports = list_native_served(context, "httpd", ARGUMENTS)
    program = programs.provide_debian_program(container.place, PROGRAM, "apache2-bin", "apache2/modules")
    members, certificates = resolve_targets(context, ports, "httpd", headers=False)
    data = context.objects.configmaps.get("httpd", {})
    defaults = [f"{section}.{directive}" for section, directives in DEFAULTS.items() for directive in directives]
    for key in (key for key, value in data.items() if not value):  # the key would have no effect on httpd
        refuse_unknown(key, defaults, f"ConfigMap/httpd: {key}", "is empty, and there is no default")
    sections = settings.read_sections("ConfigMap/httpd", data, DEFAULTS)
    needs_tls = any(name.startswith("SSL") for section in sections.values() for name in section)
    loaded = (*OF_THE_IMAGE, *TO_PROXY, *(("ssl", "socache_shmcb") if certificates or needs_tls else ()))
    text = "\n".join(_render(loaded, ports, members, sections))
    marked = text.replace(f"{MARK} -", f"{MARK} {hashlib.sha256(text.encode()).hexdigest()[:16]}")
    files = {
        _locate_file(name, end): pair[f"tls.{end}"] for name, pair in certificates.items() for end in ("crt", "key")
    }
    return Realisation(
        command=(program.inside, *ARGUMENTS[1:]),
        env={"LD_LIBRARY_PATH": programs.LIBRARIES, **container.env},
        files={CONFIG: f"{marked}\n", **files},
        stop_signal=signal.SIGWINCH,  # graceful stop, as the image has it
        checker=("env", f"LD_LIBRARY_PATH={programs.LIBRARIES}", "sh", "-c", _CHECK, program.inside, CONFIG),
        programs=program.files(loaded),
        about=" ".join(("httpd", programs.read_version(program.program, r"Apache/(\S+)", program.libraries))),
    )


def _render(
    loaded: Sequence[str], ports: Sequence[ServedPort], members: Members, sections: Mapping[str, Mapping[str, str]]
) -> Iterator[str]:
    """Yield the lines of httpd's configuration.

    Args:
        loaded: the names of the modules to load, without `mod_`.
        ports: the ports that httpd serves, with their routes.
        members: port of a Service → its ready endpoints.
        sections: section → directive → arguments, from the ConfigMap and the defaults.

    """
    yield f"ServerRoot {HOME}"
    yield f"DefaultRuntimeDir {HOME}"
    yield f"PidFile {HOME}/httpd.pid"
    yield "ServerName localhost"
    yield from (f"LoadModule {name}_module {programs.MODULES}/mod_{name}.so" for name in loaded)
    yield from (f"{name} {value}" for name, value in sections["server"].items() if value)
    yield from ("ProxyStatus On", f"Listen 127.0.0.1:{PORT}", f"<VirtualHost 127.0.0.1:{PORT}>", f"SetEnv {MARK} -")
    for page in (LOADED, STATUS):
        path = page.partition("?")[0]
        yield from (f"<Location {path}>", f"SetHandler {path[1:]}", "</Location>")
    yield from ("</VirtualHost>", "Listen 1042", "<VirtualHost *:1042>", "Redirect 200 /healthz", "</VirtualHost>")
    rules = list_rules(ports)
    names = {place: f"rule-{number}" for number, place in enumerate(rules)}
    parameters = [f"{name}={value}" for name, value in sections["member"].items()]
    for place, rule in rules.items():
        yield f"<Proxy balancer://{names[place]}>"
        for member in members[rule.backend] if rule.backend else ():
            yield " ".join([f"BalancerMember http://{member.address}:{member.port}", *parameters])
        yield "</Proxy>"
    for port in ports:
        yield from _render_port(port, names, sections["host"])


def _render_port(port: ServedPort, names: Mapping[str, str], directives: Mapping[str, str]) -> Iterator[str]:
    fault = f"{len(port.secrets)} certificates on one port cannot be written for httpd here"
    refuse_if(len(port.secrets) > 1, f"Gateway: port {port.port}", fault, "name one")
    yield f"Listen {port.port}"
    # The first virtual host answers for every host that has none.
    for host in dict.fromkeys((ANY, *port.ordered)):
        yield f"<VirtualHost *:{port.port}>"
        if host != ANY:
            yield from ("ServerName localhost", f"ServerAlias {host}") if "*" in host else (f"ServerName {host}",)
        for secret in port.secrets:
            yield "SSLEngine on"
            yield from (
                f"SSLCertificateFile {_locate_file(secret, 'crt')}",
                f"SSLCertificateKeyFile {_locate_file(secret, 'key')}",
            )
        yield from (f"{name} {value}" for name, value in directives.items() if value)
        for entry in port.hosts.get(host, ()):
            yield _render_pass(entry.match, names[entry.rule.place])
        if all(entry.match != Match() for entry in port.hosts.get(host, ())):
            yield "RedirectMatch 404 ^"
        yield "</VirtualHost>"


def _render_pass(match: Match, balancer: str) -> str:
    """Return the line of httpd's configuration that forwards requests for a path to a balancer (a named group of endpoints).

    Args:
        match: the path, and whether it is exact or a prefix.
        balancer: the name of the balancer.

    """
    to = f"balancer://{balancer}"
    if match.path_kind == "Exact":
        return f'ProxyPassMatch "^{re.escape(match.path)}$" "{to}"'
    stem = match.path.rstrip("/")
    return f'ProxyPass "{stem or "/"}" "{to}{stem or "/"}"'


def _locate_file(secret: str, end: str) -> str:
    return f"{HOME}/certificates/{secret}.{end}"


def control(process: ContainerProcess) -> WatchedFiles:
    """Return the handle by which the lab makes httpd load a changed configuration, by a graceful restart."""

    def served(files: Mapping[str, str]) -> bool:
        marks = re.findall(rf"{MARK} (\w+)", files[CONFIG])
        return f"{MARK} {marks[0]}<" in process.ask(PORT, LOADED)

    return WatchedFiles(process, PROGRAM, lambda path: path.startswith(HOME), served, reload_signal=signal.SIGUSR1)


def counters(process: ContainerProcess) -> Mapping[str, int]:
    """Return the number of requests that httpd has forwarded to backends, as `{"requests": number}`.

    The total number that httpd reports is not used, because it includes probes and requests for status pages.
    """
    return {"requests": sum(int(number) for number in re.findall(r"Elected: (\d+)", process.ask(PORT, STATUS)))}


SYSTEM = ProxySystem(
    name="httpd",
    image="library/httpd",
    realise=realise,
    note="routes and endpoints change by httpd's own graceful restart (no control plane)",
    control=control,
    counters=counters,
    migrations={"httpd": "migrate.tsv"},
    workers=Workers(
        rules={"httpd": lambda _limit, _cpus: None},  # the threads follow the load, whatever the CPUs
        port=PORT,
        page=STATUS,
        metric="(?:Busy|Idle)Workers",
    ),
)
