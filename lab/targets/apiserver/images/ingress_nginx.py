"""The ingress-nginx controller itself: its Go process, template, Lua and nginx, from a root of its own files.

Refuses more workers or open files than a container has here; every other key is the controller's to take or refuse, and what it
says of it is told.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from lab.targets.apiserver import programs
from lab.targets.local.containers import Realisation, Root
from lab.targets.local.images import Context, refuse_open_files, refuse_workers

IMAGE = "ingress-nginx/controller"
CONFIG = "/etc/nginx/nginx.conf"
SYSTEM, SHORT = "ingress-nginx", "ingress-nginx-controller"
ENTRYPOINT = ("/usr/bin/dumb-init", "--")
"""The image's own."""
PATH = "/usr/local/nginx/sbin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
OWN = ("/etc/nginx", "/etc/ingress-controller", "/tmp", "/var/log", "/var/lib/nginx", "/usr/local/nginx", "/run")
SAID = {"backend reload required": "Reload", "Backend successfully reloaded": "Reloaded"}
_LINE = re.compile(r"^[WE]\d{4} \S+\s+\d+ (?P<file>[\w.]+):\d+\] (?P<words>.*)$")
"""klog: level and date, time, process, place."""
_OF_SETTINGS = ("configmap.go", "main.go", "parser.go", "controller.go", "store.go")


def realise(context: Context) -> Realisation:
    container = context.container
    for key, value in _settings(context).items():
        if key == "worker-processes" and value.isdigit():
            refuse_workers(f"{container.place}: {key}", int(value), context)
        if key == "max-worker-open-files" and value.isdigit():
            refuse_open_files(f"{container.place}: {key}", int(value), context)
    root = Root(programs.files(SYSTEM, SHORT).folder, OWN, "/etc/nginx")
    command = (*(container.command or ENTRYPOINT), *container.args)
    return Realisation(command, {"PATH": PATH, **container.env}, root=root)


def about() -> str:
    return f"{SYSTEM}: {programs.files(SYSTEM, SHORT).about}"


def ignored(log: Iterable[str]) -> list[str]:
    lines = (match for line in log if (match := _LINE.match(line)))
    return list(dict.fromkeys(match["words"] for match in lines if match["file"] in _OF_SETTINGS))


def loads(line: str) -> str | None:
    return next((kind for words, kind in SAID.items() if words in line), None)


def _settings(context: Context) -> Mapping[str, str]:
    """The ConfigMap that its arguments name; empty where there is none, which the controller tells itself."""
    given = {name: value for name, _, value in (item.partition("=") for item in context.container.args)}
    return context.objects.configmaps.get(given.get("--configmap", "").rpartition("/")[2], {})
