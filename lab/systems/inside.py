"""Asking an interface on a container's loopback from inside it, by what its image has: curl, else bash, else wget. Pure.

Apart from `reading`, which asks a system that is up: these are words of scripts that are composed before one is.
The official images of ingress-nginx have curl, Envoy's bash, Traefik's busybox' wget. No container of the lab's own asks where that is
looked for every second: its processes would be among the proxy's.
"""

from __future__ import annotations

from shlex import quote

TIMEOUT_S = 2
HOST = "127.0.0.1"


def asked(port: int, path: str) -> str:
    """A command for `sh` that prints what the interface answers (by bash, its headers first), and fails where none does."""
    url = quote(f"http://{HOST}:{port}{path}")
    request = f"GET %s HTTP/1.1\\r\\nHost: {HOST}\\r\\nConnection: close\\r\\n\\r\\n"  # Envoy refuses HTTP/1.0
    by_bash = f"exec 3<>/dev/tcp/{HOST}/{port} && printf {quote(request)} {quote(path)} >&3 && cat <&3"
    return (
        f"if command -v curl >/dev/null; then curl -gsf -m {TIMEOUT_S} {url}\n"
        f"elif command -v bash >/dev/null; then bash -c {quote(by_bash)} 2>/dev/null\n"
        f"else wget -q -T {TIMEOUT_S} -O - {url}; fi"
    )
