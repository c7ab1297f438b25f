"""The official nginx image: its command as it stands, with the nginx on PATH."""

from __future__ import annotations

import signal

from lab.errors import UsageError
from lab.targets.local.images import Context, Realisation

IMAGE = "nginx"
STOP_SIGNAL = signal.SIGQUIT


def realise(context: Context) -> Realisation:
    """Refuses to guess a command: the image's own entry point is not on this machine."""
    container = context.container
    if not container.command:
        raise UsageError(container.place, "'command' is missing", "name it: [nginx, -c, FILE, -g, daemon off;]")
    return Realisation(command=container.command + container.args, env=container.env)
