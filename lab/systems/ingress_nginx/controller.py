"""The ingress-nginx controller itself: its Go process, template, Lua and nginx, from a root of its own files.

Refuses more workers or open files than a container has here; every other key is the controller's to take or refuse, and what it
says of it is told.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Iterator

from lab.base.errors import UsageError
from lab.systems import programs
from lab.systems.manifests.pods import Container
from lab.systems.nginx.system import refuse_nginx_workers
from lab.systems.renewing import by_signal
from lab.systems.system import Context, Controller, Realisation, Root, refuse_open_files

PROXY, SYSTEM, SHORT = "nginx", "ingress-nginx", "ingress-nginx-controller"
ENTRYPOINT = ("/usr/bin/dumb-init", "--")
"""The image's own."""
PATH = "/usr/local/nginx/sbin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
OWN = ("/etc/nginx", "/etc/ingress-controller", "/tmp", "/var/log", "/var/lib/nginx", "/usr/local/nginx", "/run")
MOST_LINES = 12
"""Of an entry that are told: what follows may be an access log."""
_LINE = re.compile(r"^(?P<level>[IWEF])\d{4} \S+\s+\d+ (?P<file>[\w.]+):\d+\] (?P<words>.*)$")
"""klog: level and date, time, process, place. What follows without such a beginning belongs to it."""
_SETTINGS = "configmap.go"
"""Where the controller reads its ConfigMap."""
_ENDS = re.compile(r"^(?:nginx: )?(?:[\d/]+ [\d:]+ )?(?P<words>(?:panic: |\[emerg\]).*)$")
"""How Go and nginx say that they end."""


_ROUTERS = re.compile(r"ROUTER_\w+|RELOAD_INTERVAL|STATS_PORT")


def refuse_routers(container: Container) -> None:
    """UsageError for variables of OKD's router, of which ingress-nginx would do nothing."""
    if foreign := [name for name in container.env if _ROUTERS.fullmatch(name)]:
        fault = f"{', '.join(foreign)}: variables of OKD's router, which ingress-nginx does not read"
        raise UsageError(f"{container.place}.env", fault, "put them on a variant of the router, such as okd-edge")


def realise(context: Context) -> Realisation:
    container = context.container
    refuse_routers(container)
    given = {name: value for name, _, value in (item.partition("=") for item in container.args)}
    # Of a ConfigMap that is not there the controller tells itself.
    data = context.objects.configmaps.get(given.get("--configmap", "").rpartition("/")[2], {})
    for key, refuse in (("worker-processes", refuse_nginx_workers), ("max-worker-open-files", refuse_open_files)):
        if (value := data.get(key, "")).isdigit():
            refuse(f"{container.place}: {key}", int(value), context)
    root = Root(programs.files(SYSTEM, SHORT).folder, OWN, "/etc/nginx")
    command = (*(container.command or ENTRYPOINT), *container.args)
    return Realisation(command, {"PATH": PATH, **container.env}, root=root)


def ignored(log: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(words for level, file, words in _entries(log) if file == _SETTINGS and level in "WE"))


def complaints(log: Iterable[str]) -> list[str]:
    found = [(file, words) for level, file, words in _entries(log) if level in ("E", "F")]
    ends = [words for file, words in found if not file]
    return list(dict.fromkeys(ends or [words for _, words in found]))


def _entries(log: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """(level, file, words on one line); of nginx's and Go's ends without a file."""
    entries: list[tuple[str, str, list[str]]] = [("", "", [])]
    for line in log:
        if match := _LINE.match(line):
            entries.append((match["level"], match["file"], [match["words"]]))
        elif ends := _ENDS.match(line):
            entries += [("F", "", [ends["words"]]), ("", "", [])]
        else:
            entries[-1][2].append(line)
    for level, file, lines in entries:
        yield level, file, " ".join(" ".join(lines[:MOST_LINES]).split())


CONTROLLER = Controller(
    image="ingress-nginx/controller",
    realise=realise,
    proxy=PROXY,
    system=SYSTEM,
    short=SHORT,
    made=True,
    config="/etc/nginx/nginx.conf",
    renew=by_signal(
        signal.SIGHUP, PROXY
    ),  # as the controller's `nginx -s reload` tells it, of the configuration that is there
    load_lines={
        '"Configuration changes detected, backend reload required"': "Reload",
        '"Backend successfully reloaded"': "Reloaded",
    },
    about=lambda: f"{SYSTEM}: {programs.files(SYSTEM, SHORT).about}",
    ignored=ignored,
    complaints=complaints,
)
