"""Shell commands that run inside a container and query a proxy's interface on the container's loopback.

A command uses the program that the image has: curl, else bash, else wget. The official images of ingress-nginx have curl, those
of Envoy have bash, and those of Traefik have the wget of busybox.

This module is separate from `reading`, which queries a running system: the commands here are composed before a system runs.
The lab does not use them every second in containers that it starts itself, because the commands' processes would count as
processes of the proxy. The module does no I/O.
"""

from __future__ import annotations

from shlex import quote

TIMEOUT_S = 2
HOST = "127.0.0.1"


def compose_query(port: int, path: str) -> str:
    """Compose a shell command that requests a page from a port on the container's loopback, and prints the answer's body.

    The command uses the program that the container has: curl, or else bash, or else wget. If it uses bash, it also prints the
    headers of the answer before the body. If the request fails, the command fails, too.

    Args:
        port: the port.
        path: the path to request, with its query.

    """
    url = quote(f"http://{HOST}:{port}{path}")
    request = f"GET %s HTTP/1.1\\r\\nHost: {HOST}\\r\\nConnection: close\\r\\n\\r\\n"  # Envoy refuses HTTP/1.0
    by_bash = f"exec 3<>/dev/tcp/{HOST}/{port} && printf {quote(request)} {quote(path)} >&3 && cat <&3"
    return (
        f"if command -v curl >/dev/null; then curl -gsf -m {TIMEOUT_S} {url}\n"
        f"elif command -v bash >/dev/null; then bash -c {quote(by_bash)} 2>/dev/null\n"
        f"else wget -q -T {TIMEOUT_S} -O - {url}; fi"
    )
