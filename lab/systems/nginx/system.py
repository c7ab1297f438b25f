"""The official nginx image: its command as it stands, with the nginx on PATH, which the lab's backend runs as well.

And what all systems share that are an nginx below: its version, the refusal of workers, and what a running one tells of itself on the
status page that ingress-nginx gives it, in its pod alone: requests it has begun to answer.

    server accepts handled requests
     12 12 34                             →  {"requests": 34}

The page asks for itself, so each look at it is a request, too. A reload goes on counting, a restart begins anew. Without a number,
`worker_processes auto` is the CPUs that are online, limit or not, with glibc; with musl those that it may use.
"""

from __future__ import annotations

import functools
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence

from lab.base.errors import UsageError
from lab.systems import inside
from lab.systems.nginx import readback
from lab.systems.renewing import by_signal
from lab.systems.system import (
    Context,
    Process,
    ProxySystem,
    ReadbackKind,
    Realisation,
    Workers,
    all_cpus,
    command,
    refuse_open_files,
    refuse_workers,
)

PORT, PATH = 10246, "/nginx_status"
"""StatusPort, and where the controller's template has it (rootfs/etc/nginx/template/nginx.tmpl)."""
LOADER = "nginx: cache loader process"
"""It reads what a cache has on disk and ends by itself, a minute after each start or reload: no process that a proxy must have."""
_COUNTS = re.compile(r"^ *\d+ +\d+ +(\d+) *$", re.MULTILINE)


def refuse_nginx_workers(place: str, workers: int, context: Context) -> None:
    """NotMeasurableError for more workers than CPUs; a UsageError for 0, which nginx takes."""
    if workers == 0:
        fault = "nginx takes 0 and starts no worker: nothing would be served"
        raise UsageError(place, fault, "auto, or a number from 1 on")
    refuse_workers(place, workers, context)


_REFUSED = {"worker_processes": refuse_nginx_workers, "worker_rlimit_nofile": refuse_open_files}


def realise(context: Context) -> Realisation:
    """Refuses to guess a command: the image's own entry point is not on this machine."""
    container = context.container
    own = command(container)
    if context.pod.role == "proxy":
        sources = filter(None, (volume.source for volume in context.pod.volumes.values()))
        for name in (name for kind, name in sources if kind == "ConfigMap"):
            for key, text in context.objects.configmaps[name].items():
                for directive, refuse in _REFUSED.items():
                    for number in re.findall(rf"^\s*{directive}\s+(\d+)\s*;", text, re.MULTILINE):
                        refuse(f"ConfigMap/{name}: {key}: {directive}", int(number), context)
    return Realisation(own, container.env, stop_signal=signal.SIGQUIT, checker=(*own, "-t", "-q"))


@functools.cache
def nginx_version() -> tuple[int, ...]:
    """Of the nginx on PATH. UsageError when it is too old to state what the controller states."""
    try:
        printed = subprocess.run(["nginx", "-v"], capture_output=True, text=True, check=False).stderr
    except FileNotFoundError:
        raise UsageError("nginx", "not found on PATH", "Debian: apt install nginx-light") from None
    if not (match := re.search(r"nginx/(\d+)\.(\d+)\.(\d+)", printed)):
        raise UsageError("nginx -v", f"printed {printed.strip()!r}", "put a real nginx first on PATH")
    version = tuple(map(int, match.groups()))
    if version < (1, 19, 10):
        raise UsageError("nginx", f"{match[0]} is too old: keepalive_time needs 1.19.10", "install a newer one")
    return version


def count(process: Process) -> Mapping[str, int]:
    """Return what the status page counts."""
    return counted(process.ask(PORT, PATH))


def counted(page: str) -> Mapping[str, int]:
    """Empty for anything else than such a page."""
    found = _COUNTS.search(page)
    return {"requests": int(found[1])} if found else {}


def count_workers(processes: Sequence[tuple[int, str]]) -> int:
    """Count workers by their titles: a master, a cache's manager and workers that shut down are none."""
    return sum(title == "nginx: worker process" for _, title in processes)


SYSTEM = ProxySystem(
    name="nginx",
    image="nginx",
    realise=realise,
    # No control: its configuration is a ConfigMap, which a pod reads when it starts.
    renew=by_signal(signal.SIGHUP),  # as `nginx -s reload` tells it
    passing=LOADER,
    counters=count,
    count_script=f"if {{ {inside.asked(PORT, PATH)}; }} 2>/dev/null; then exit 0; fi",
    parse_counts=counted,
    versions={"nginx": lambda: ".".join(map(str, nginx_version()))},
    of_backend=True,
    workers=Workers(
        rules={"nginx": all_cpus},
        directive=re.compile(r"^\s*worker_processes\s+(\d+)\s*;", re.MULTILINE),
        count=count_workers,
    ),
    readbacks={
        "nginx": ReadbackKind(
            read=readback.read,
            possible=frozenset({"context", "among", "times"}),
            spoken="nginx -T: {name}{context}",
            workers={"worker_processes": "workers"},
            open_files=frozenset({"worker_rlimit_nofile"}),
        )
    },
)
