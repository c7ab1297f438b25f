"""Apache httpd: the real one, as its image configures it, with mod_proxy in front of what Gateway API's objects lead to.

    ConfigMap/httpd: server.MaxKeepAliveRequests: "0", host.ProxyTimeout: "30", member.ttl: "60"

A key is a section (`host`: of each virtual host that serves the load; `member`: of each BalancerMember, which has parameters) and a directive
of httpd's own; an empty value leaves out what stands there by itself. The httpd on PATH, else Debian's package, unpacked when a variant first
runs it. Refuses a second certificate on one port, and changes of headers. Modules that serve files and log in users, which the image loads, are
left out: no request reaches them; TLS's are loaded where a certificate or a setting wants them.
"""

from __future__ import annotations

import hashlib
import re
import signal
from collections.abc import Iterator, Mapping, Sequence

from lab.base.errors import refuse_if, refuse_unknown
from lab.systems import programs, settings
from lab.systems.manifests.gateway_api import ANY, Match, Served, rules_of
from lab.systems.renewing import WatchedFiles
from lab.systems.system import Context, Members, Process, ProxySystem, Realisation, Workers, led_to, served_natively

PROGRAM = "apache2"
"""As Debian calls it."""
HOME = "/srv/httpd"
CONFIG = f"{HOME}/httpd.conf"
ARGUMENTS = ("httpd", "-D", "FOREGROUND", "-f", CONFIG)
PORT, STATUS, LOADED, MARK = 8404, "/server-status?auto", "/server-info?config", "LAB_CONFIG"
"""Its own pages, on the pod's loopback, and the variable that tells which configuration its processes run."""
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
"""What the image's own file sets; a route leads on with its host, as Gateway API has it."""
_CHECK = r"""said=$("$0" -t -f "$1" 2>&1) || { printf '%s\n' "$said" | tail -n 1 >&2; exit 1; }"""


def realise(context: Context) -> Realisation:
    container = context.container
    ports = served_natively(context, "httpd", ARGUMENTS)
    program = programs.packaged(container.place, PROGRAM, "apache2-bin", "apache2/modules")
    members, certificates = led_to(context, ports, "httpd", headers=False)
    data = context.objects.configmaps.get("httpd", {})
    own = [f"{section}.{directive}" for section, directives in DEFAULTS.items() for directive in directives]
    for key in (key for key, value in data.items() if not value):  # httpd would never hear of it
        refuse_unknown(key, own, f"ConfigMap/httpd: {key}", "is empty, and nothing stands there by itself")
    sections = settings.sections("ConfigMap/httpd", data, DEFAULTS)
    asks_tls = any(name.startswith("SSL") for section in sections.values() for name in section)
    loaded = (*OF_THE_IMAGE, *TO_PROXY, *(("ssl", "socache_shmcb") if certificates or asks_tls else ()))
    text = "\n".join(_lines(loaded, ports, members, sections))
    marked = text.replace(f"{MARK} -", f"{MARK} {hashlib.sha256(text.encode()).hexdigest()[:16]}")
    files = {_file(name, end): found[f"tls.{end}"] for name, found in certificates.items() for end in ("crt", "key")}
    return Realisation(
        command=(program.inside, *ARGUMENTS[1:]),
        env={"LD_LIBRARY_PATH": programs.LIBRARIES, **container.env},
        files={CONFIG: f"{marked}\n", **files},
        stop_signal=signal.SIGWINCH,  # graceful stop, the image's own
        checker=("env", f"LD_LIBRARY_PATH={programs.LIBRARIES}", "sh", "-c", _CHECK, program.inside, CONFIG),
        programs=program.files(loaded),
        about=" ".join(("httpd", programs.version_of(program.program, r"Apache/(\S+)", program.libraries))),
    )


def _lines(
    loaded: Sequence[str], ports: Sequence[Served], members: Members, sections: Mapping[str, Mapping[str, str]]
) -> Iterator[str]:
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
    rules = rules_of(ports)
    names = {place: f"rule-{number}" for number, place in enumerate(rules)}
    own = [f"{name}={value}" for name, value in sections["member"].items()]
    for place, rule in rules.items():
        yield f"<Proxy balancer://{names[place]}>"
        for member in members[rule.backend] if rule.backend else ():
            yield " ".join([f"BalancerMember http://{member.address}:{member.port}", *own])
        yield "</Proxy>"
    for port in ports:
        yield from _port(port, names, sections["host"])


def _port(port: Served, names: Mapping[str, str], own: Mapping[str, str]) -> Iterator[str]:
    fault = f"{len(port.secrets)} certificates on one port cannot be written for httpd here"
    refuse_if(len(port.secrets) > 1, f"Gateway: port {port.port}", fault, "name one")
    yield f"Listen {port.port}"
    # The first answers for every host that no other names.
    for host in dict.fromkeys((ANY, *port.ordered)):
        yield f"<VirtualHost *:{port.port}>"
        if host != ANY:
            yield from ("ServerName localhost", f"ServerAlias {host}") if "*" in host else (f"ServerName {host}",)
        for secret in port.secrets:
            yield "SSLEngine on"
            yield from (f"SSLCertificateFile {_file(secret, 'crt')}", f"SSLCertificateKeyFile {_file(secret, 'key')}")
        yield from (f"{name} {value}" for name, value in own.items() if value)
        for entry in port.hosts.get(host, ()):
            yield _leads(entry.match, names[entry.rule.place])
        if all(entry.match != Match() for entry in port.hosts.get(host, ())):
            yield "RedirectMatch 404 ^"
        yield "</VirtualHost>"


def _leads(match: Match, balancer: str) -> str:
    """A path to a balancer; the first line that fits counts."""
    to = f"balancer://{balancer}"
    if match.path_kind == "Exact":
        return f'ProxyPassMatch "^{re.escape(match.path)}$" "{to}"'
    stem = match.path.rstrip("/")
    return f'ProxyPass "{stem or "/"}" "{to}{stem or "/"}"'


def _file(secret: str, end: str) -> str:
    return f"{HOME}/certificates/{secret}.{end}"


def control(process: Process) -> WatchedFiles:
    def served(files: Mapping[str, str]) -> bool:
        marks = re.findall(rf"{MARK} (\w+)", files[CONFIG])
        return f"{MARK} {marks[0]}<" in process.ask(PORT, LOADED)

    return WatchedFiles(process, PROGRAM, lambda path: path.startswith(HOME), served, told=signal.SIGUSR1)


def counters(process: Process) -> Mapping[str, int]:
    """Requests that were led on; its own count has its own pages and probes in it."""
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
        rules={"httpd": lambda _limit, _cpus: None},  # threads as load comes and goes, whatever the CPUs
        port=PORT,
        page=STATUS,
        metric="(?:Busy|Idle)Workers",
    ),
)
