"""The official nginx image: its command as it stands, with the nginx on PATH."""

from __future__ import annotations

import re
import signal

from lab.base.errors import UsageError
from lab.targets.local.containers import Realisation
from lab.targets.local.images import Context, refuse_nginx_workers, refuse_open_files
from lab.targets.local.renewing import by_signal

IMAGE = "nginx"
NOTE = ""
RENEW = by_signal(signal.SIGHUP)
"""As `nginx -s reload` tells it."""
control = None  # its configuration is a ConfigMap, which a pod reads when it starts
_REFUSED = {"worker_processes": refuse_nginx_workers, "worker_rlimit_nofile": refuse_open_files}


def realise(context: Context) -> Realisation:
    """Refuses to guess a command: the image's own entry point is not on this machine."""
    container = context.container
    if not container.command:
        raise UsageError(container.place, "'command' is missing", "name it: [nginx, -c, FILE, -g, daemon off;]")
    if context.pod.role == "proxy":
        sources = filter(None, (volume.source for volume in context.pod.volumes.values()))
        for name in (name for kind, name in sources if kind == "ConfigMap"):
            for key, text in context.objects.configmaps[name].items():
                for directive, refuse in _REFUSED.items():
                    for number in re.findall(rf"^\s*{directive}\s+(\d+)\s*;", text, re.MULTILINE):
                        refuse(f"ConfigMap/{name}: {key}: {directive}", int(number), context)
    command = container.command + container.args
    return Realisation(command, container.env, stop_signal=signal.SIGQUIT, checker=(*command, "-t", "-q"))
