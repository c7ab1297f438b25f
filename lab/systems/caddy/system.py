"""Caddy by itself: the real one, in the version that its image names, configured from Gateway API's objects.

Settings are a ConfigMap `caddy`, whose keys are paths in Caddy's own JSON configuration (`lab.systems.caddy.config.PARTS`). Its admin
interface shows what it serves: what Caddy does not take, it never shows. Without `GOMAXPROCS` (automaxprocs) it runs as many threads at once
as its CPU limit, rounded down, but one, however many CPUs there are. Check kind `caddy`:

    name: transport.keep_alive.max_idle_conns_per_host     /config/, of every transport (server, reverse_proxy, http, config) of the load
    name: metrics.go_sched_gomaxprocs_threads              /metrics

Refuses to judge by nothing: no such part is unreadable; a path that no part has, and a metric that there is not, are `absent`.
"""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lab.model.system import System
from lab.model.variants.variants import Check
from lab.systems import programs, settings
from lab.systems.caddy.config import CONFIG, FOLDER, HEALTH, NEVER, PARTS, PORT, render
from lab.systems.reading import Reading, asked, given, metric, of_parts
from lab.systems.system import (
    Context,
    Process,
    ProxySystem,
    ReadbackKind,
    Realisation,
    Workers,
    expect,
    led_to,
    limit_down,
)
from lab.systems.watched_files import WatchedFiles

SERVED, METRICS = "/config/", "/metrics"
ARGUMENTS = ("caddy", "run", "--config", CONFIG)
_CHECK = r"""said=$("$0" validate --config "$1" 2>&1) || {
  printf '%s\n' "$said" | sed -n 's/^Error: //p; s/^{"level":"error".*"msg":"\(.*\)"}$/\1/p' | sed 's/\\"/"/g' | head -n 1 >&2
  exit 1
}"""
"""It says more than one line, and why in an error of its log."""
_REQUESTS = re.compile(r"^caddy_http_requests_total\{([^}]*)\} (\S+)$", re.MULTILINE)
"""Counted only where metrics are on."""


def realise(context: Context) -> Realisation:
    container = context.container
    held = not container.command and container.args == ARGUMENTS
    expect(container, held, f"no command, and args {list(ARGUMENTS)}", "caddy")
    program = programs.of_image(container, "caddy")
    own = {"XDG_CONFIG_HOME": f"{FOLDER}/config", "XDG_DATA_HOME": f"{FOLDER}/data"}
    ports = context.objects.served("lab.test/caddy")
    found = settings.of_configmap(context.objects, "caddy", PARTS)
    return Realisation(
        command=(program.inside, *ARGUMENTS[1:]),
        env=own | dict(container.env),
        files=render(ports, *led_to(context, ports, "Caddy", never=NEVER), found),
        checker=("sh", "-c", _CHECK, program.inside, CONFIG),
        programs={program.inside: program.file},
        about=program.about,
    )


def control(process: Process) -> WatchedFiles:
    """It replaces its servers in the same process, and connections stay."""

    def served(files: Mapping[str, str]) -> bool:
        return json.loads(process.ask(PORT, SERVED)) == json.loads(files[CONFIG])

    return WatchedFiles(process, "caddy", lambda path: path == CONFIG, served, told=signal.SIGUSR1)


def count(process: Process) -> Mapping[str, int]:
    """Return the requests: a handler counts what passes it, so the largest of one handler is what came; empty where none is counted."""
    by_handler: dict[str, float] = {}
    for labels, value in _REQUESTS.findall(process.ask(PORT, METRICS)):
        if f'server="{HEALTH}"' not in labels:
            handler = re.search(r'handler="([^"]*)"', labels)
            key = handler[1] if handler else ""
            by_handler[key] = by_handler.get(key, 0.0) + float(value)
    return {"requests": int(max(by_handler.values()))} if by_handler else {}


def read(system: System, check: Check) -> Reading:
    """Read a check of kind `caddy` back."""
    part, _, path = given(check, "name").partition(".")
    if part == "metrics":
        return metric(system, check, PORT, METRICS, path)
    return of_parts(check, parts(json.loads(asked(system, check, PORT, SERVED))), part, path, SERVED)


def parts(config: Any) -> Mapping[str, Sequence[Any]]:
    """Part → what serves the load of that part, in the words of a ConfigMap's keys (`PARTS`)."""
    http = (config.get("apps") or {}).get("http") or {}
    servers = [server for name, server in (http.get("servers") or {}).items() if name != HEALTH]
    proxies = [handler for server in servers for handler in _proxies(server.get("routes") or [])]
    transports = [proxy.get("transport") or {} for proxy in proxies]
    return {"config": [config], "http": [http], "server": servers, "reverse_proxy": proxies, "transport": transports}


def _proxies(routes: Sequence[Any]) -> Iterator[Any]:
    for route in routes:
        for handler in route.get("handle") or []:
            if handler.get("handler") == "reverse_proxy":
                yield handler
            yield from _proxies(handler.get("routes") or [])


SYSTEM = ProxySystem(
    name="caddy",
    image="library/caddy",
    realise=realise,
    note="routes and endpoints change by Caddy's own reload (no control plane)",
    by_tag=True,
    control=control,
    counters=count,
    migrations={"caddy": "migrate.tsv"},
    workers=Workers(
        rules={"caddy": limit_down},
        variables=("GOMAXPROCS",),
        port=PORT,
        page=METRICS,
        metric="go_sched_gomaxprocs_threads",
    ),
    readbacks={"caddy": ReadbackKind(read=read)},
)
