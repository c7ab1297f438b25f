"""The official nginx image: its command as it stands, with the nginx on PATH."""

from __future__ import annotations

import re
import signal

from lab.errors import UsageError
from lab.targets.local.images import Context, Realisation, refuse_workers

IMAGE = "nginx"
STOP_SIGNAL = signal.SIGQUIT
_WORKERS = re.compile(r"^\s*worker_processes\s+(\d+)\s*;", re.MULTILINE)


def realise(context: Context) -> Realisation:
    """Refuses to guess a command: the image's own entry point is not on this machine."""
    container = context.container
    if not container.command:
        raise UsageError(container.place, "'command' is missing", "name it: [nginx, -c, FILE, -g, daemon off;]")
    if context.pod.role == "proxy":
        for name in filter(None, (volume.configmap for volume in context.pod.volumes.values())):
            for key, text in context.objects.configmaps[name].items():
                for workers in _WORKERS.findall(text):
                    refuse_workers(f"ConfigMap/{name}: {key}: worker_processes", int(workers), context)
    return Realisation(command=container.command + container.args, env=container.env)
