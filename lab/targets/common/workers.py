"""How many workers or threads a proxy really runs, from its processes' titles and threads: what it was asked for is another thing.

    3 nginx: worker process        →  a worker; the master, a cache's manager and workers that shut down are none
    2 haproxy -f /…                →  as many workers as threads; of two with `-W` one is the master, a thread that serves nobody
    go_sched_gomaxprocs_threads 2  →  of a program in Go, as it tells itself
    server.concurrency: 2          →  of Envoy, the same

Each system has its own way to a number where none is asked for (`lab.systems.workers`). None for a system that is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from lab.systems.envoy import admin as envoy
from lab.systems import inside
from lab.systems.traefik import admin as traefik

LISTED = rf"""
asks=
for p in /proc/[0-9]*; do
  while read -r key value; do
    case $key in Name:) case $value in traefik | envoy) asks=$value ;; esac ;; Threads:) printf '%s ' "$value" ;; esac
  done <$p/status && tr '\0' ' ' <$p/cmdline && echo
done 2>/dev/null
case $asks in
  traefik) {{ {inside.asked(traefik.PORT, traefik.METRICS)}; }} 2>/dev/null | grep ^{traefik.WORKERS} ;;
  envoy) {{ {inside.asked(envoy.PORT, envoy.CONCURRENCY)}; }} 2>/dev/null | grep ^server.concurrency ;;
esac || true
"""
"""Script that prints a line for each process of a container: its threads, and its command line; and what a Traefik or an Envoy counts of its own."""


def listed(text: str) -> list[tuple[int, str]]:
    """(threads, command line) from what `LISTED` printed."""
    pairs = (line.partition(" ") for line in text.splitlines())
    return [(int(threads), title.strip()) for threads, _, title in pairs if threads.isdigit()]


def told(text: str) -> int | None:
    """What a program in Go, or Envoy, tells of itself in that."""
    found = re.search(rf"^{traefik.WORKERS} (\d+)$", text, re.MULTILINE)
    return int(found[1]) if found else envoy.workers(text)


def started(processes: Iterable[tuple[int, str]]) -> int | None:
    """Of one container or of several, from (threads, command line) of every process in them."""
    found = list(processes)
    workers = sum(title == "nginx: worker process" for _, title in found)
    proxies = [
        (count, title.split()) for count, title in found if title.split(" ", 1)[0].rpartition("/")[2] == "haproxy"
    ]
    masters = sum("-W" in words for _, words in proxies) // 2
    return workers + sum(count for count, _ in proxies) - masters or None
