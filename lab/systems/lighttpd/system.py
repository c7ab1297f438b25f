"""lighttpd itself, whose module mod_proxy forwards requests to backends as Gateway API's objects demand.

    ConfigMap/lighttpd: server.max-keep-alive-requests: "0", proxy.balance: '"round-robin"', accesslog.filename: '"/dev/stdout"'

A key is a directive of lighttpd's own configuration. Its value is written as in that configuration, with texts in quotes.
The program is the lighttpd on PATH, or else Debian's package, which is unpacked when a variant first runs it. mod_proxy opens a
connection for every request. Certificates (the module for TLS is a separate package) and changes of headers are refused. More
than one worker is refused, too, because each worker's pages show only its own counts.
"""

from __future__ import annotations

import hashlib
import re
import signal
from collections.abc import Iterator, Mapping, Sequence

from lab.base.errors import refuse_if
from lab.systems import programs, settings
from lab.systems.manifests.gateway_api import ANY, Entry, ServedPort
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

HOME = "/srv/lighttpd"
CONFIG, MARKS, EMPTY = f"{HOME}/lighttpd.conf", f"{HOME}/marks", f"{HOME}/empty"
ARGUMENTS = ("lighttpd", "-D", "-f", CONFIG)
PORT, COUNTS = 8404, "/server-statistics"
"""The port of lighttpd's own pages on the pod's loopback, and the path of its counts.

The page at `/` has the version of the served configuration, from a file with that version as its name and content.
"""
SECTIONS: Mapping[str, Mapping[str, str]] = {"server": {}, "proxy": {}, "accesslog": {}}
_CHECK = r"""said=$("$@" 2>&1); status=$?
printf '%s\n' "$said" | sed -n 's/^[^(]*([^)]*) //p' | head -n 1 >&2
! ((status)) && ! printf '%s' "$said" | grep -q 'unknown config-key'"""
"""The script that checks a configuration: lighttpd accepts an unknown key, and only prints a warning."""
_UNREACHABLE = '( "host" => "127.0.0.1", "port" => 1 )'
"""The address of a backend without endpoints; requests to it are answered 503."""


def realise(context: Context) -> Realisation:
    """Return how the lab starts lighttpd in place of a container of lighttpd's image.

    The result has the command, the environment, and a configuration that serves the Gateways of lighttpd's class (a GatewayClass
    with the controller `lab.test/lighttpd`).

    Args:
        context: the facts about the container.

    Raises:
        UsageError: for a route or setting that lighttpd's configuration cannot express here, or a container with other arguments
            than `ARGUMENTS`.

    """
    container = context.container
    ports = list_native_served(context, "lighttpd", ARGUMENTS)
    program = programs.provide_debian_program(container.place, "lighttpd", "lighttpd", "lighttpd")
    members, certificates = resolve_targets(context, ports, "lighttpd", headers=False)
    refuse_if(
        certificates, "Gateway: spec.listeners", "a certificate cannot be written for lighttpd here", "leave TLS out"
    )
    sections = settings.read_sections("ConfigMap/lighttpd", context.objects.configmaps.get("lighttpd", {}), SECTIONS)
    several, fault = sections["server"].get("max-worker", "0") not in ("0", "1"), "asks for several workers"
    refuse_if(
        several, "ConfigMap/lighttpd: server.max-worker", f"{fault}, whose counts are each its own", "leave it out"
    )
    loaded = ("proxy", "status", *(("accesslog",) if sections["accesslog"] else ()))
    text = "\n".join(_render(loaded, ports, members, sections))
    mark = hashlib.sha256(text.encode()).hexdigest()[:16]
    command = (program.inside, "-m", programs.MODULES, *ARGUMENTS[1:])
    return Realisation(
        command=command,
        env={"LD_LIBRARY_PATH": programs.LIBRARIES, **container.env},
        files={
            CONFIG: f'{text}\nindex-file.names = ("{mark}")\n',
            f"{MARKS}/{mark}": mark,
            f"{EMPTY}/.keep": "",
            f"{HOME}/health/healthz": "ok\n",
        },
        stop_signal=signal.SIGINT,  # graceful shutdown
        checker=("env", f"LD_LIBRARY_PATH={programs.LIBRARIES}", "bash", "-c", _CHECK, "bash", *command, "-tt"),
        programs=program.files(loaded),
        about=" ".join(("lighttpd", programs.read_version(program.program, r"lighttpd/(\S+)", program.libraries))),
    )


def _render(
    loaded: Sequence[str], ports: Sequence[ServedPort], members: Members, sections: Mapping[str, Mapping[str, str]]
) -> Iterator[str]:
    """Yield the lines of lighttpd's configuration.

    Args:
        loaded: the names of the modules to load, without `mod_`.
        ports: the ports that lighttpd serves, with their routes.
        members: port of a Service → its ready endpoints.
        sections: section → directive → value, from the ConfigMap.

    """
    yield f"server.modules = ({', '.join(_quote(f'mod_{name}') for name in loaded)})"
    yield from (f'server.document-root = "{EMPTY}"', 'server.bind = "127.0.0.1"', f"server.port = {PORT}")
    yield from (f"{section}.{name} = {value}" for section, keys in sections.items() for name, value in keys.items())
    yield from (f'$SERVER["socket"] == "127.0.0.1:{PORT}" {{', f'server.document-root = "{MARKS}"')
    yield from (f'status.statistics-url = "{COUNTS}"', "}")
    yield from ('$SERVER["socket"] == "0.0.0.0:1042" {', f'server.document-root = "{HOME}/health"', "}")
    for port in ports:
        yield f'$SERVER["socket"] == "0.0.0.0:{port.port}" {{'
        yield from _chain(
            [(_match_host(host), list(_render_paths(port.hosts[host], members))) for host in port.ordered]
        )
        yield "}"


def _chain(cases: Sequence[tuple[str, Sequence[str]]]) -> Iterator[str]:
    """Yield the lines of an `if … else if … else` chain in lighttpd's configuration.

    Args:
        cases: pairs (condition, lines inside the block). An empty condition always holds, and ends the chain.

    """
    for number, (condition, lines) in enumerate(cases):
        if number and not condition:
            yield "else {"
        elif condition:
            yield f"{'else ' if number else ''}{condition} {{"
        yield from lines
        if number or condition:
            yield "}"
        if not condition:
            return


def _match_host(host: str) -> str:
    """Return the condition by which lighttpd's configuration selects the requests for a host; empty for any host (`*`).

    The condition for `a.test` is `$HTTP["host"] == "a.test"`. For a wildcard such as `*.a.test` it is a regular expression that
    allows a port in the Host header. lighttpd ignores the port only when it compares full names.
    """
    fits = f"=~ {_quote(f'^.+{re.escape(host[1:])}(:[0-9]+)?$')}" if host.startswith("*.") else f"== {_quote(host)}"
    return "" if host == ANY else f'$HTTP["host"] {fits}'


def _render_paths(entries: Sequence[Entry], members: Members) -> Iterator[str]:
    cases: list[tuple[str, Sequence[str]]] = []
    for entry in entries:
        endpoints = members[entry.rule.backend] if entry.rule.backend else ()
        servers = [f'( "host" => "{member.address}", "port" => {member.port} )' for member in endpoints] or [
            _UNREACHABLE
        ]
        exact, stem = entry.match.path_kind == "Exact", entry.match.path.rstrip("/")
        form = f"^{re.escape(entry.match.path)}$" if exact else f"^{re.escape(stem)}(/|$)"
        condition = f'$HTTP["url"] =~ {_quote(form)}' if exact or stem else ""
        cases.append((condition, [f'proxy.server = ( "" => ( {", ".join(servers)} ) )']))
    return _chain(cases)


def _quote(text: str) -> str:
    return f'"{text}"'


def control(process: ContainerProcess) -> WatchedFiles:
    """Return the handle by which the lab makes lighttpd load a changed configuration, by a graceful restart.

    The restart happens in the same process, after the requests in flight have ended. But lighttpd 1.4.64 and later cuts
    requests that take longer than 8 s, the default of its directive `server.graceful-shutdown-timeout`.
    """

    def served(files: Mapping[str, str]) -> bool:
        return f'("{process.ask(PORT, "/").strip()}")' in files[CONFIG]

    return WatchedFiles(process, "lighttpd", lambda path: path.startswith(HOME), served, reload_signal=signal.SIGUSR1)


def count_workers(processes: Sequence[tuple[int, str]]) -> int:
    """Return the number of lighttpd's processes in a list of processes.

    Args:
        processes: pairs (number of threads, command line).

    """
    return sum(f"-f {CONFIG}" in line for _, line in processes)


def count(process: ContainerProcess) -> Mapping[str, int]:
    """Return the number of requests that lighttpd has forwarded to backends, as `{"requests": number}`.

    After a restart of lighttpd, the number begins at 0 again.
    """
    numbers = re.findall(r"^proxy\.requests: (\d+)$", process.ask(PORT, COUNTS), re.MULTILINE)
    return {"requests": sum(map(int, numbers))}


SYSTEM = ProxySystem(
    name="lighttpd",
    image="lighttpd",
    realise=realise,
    note="routes and endpoints change by lighttpd's own graceful restart (no control plane)",
    control=control,
    counters=count,
    workers=Workers(rules={"lighttpd": lambda _limit, _cpus: 1}, count=count_workers),  # one, whatever the CPUs
)
