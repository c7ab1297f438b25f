"""OKD's router itself: its Go process, template and HAProxy, where you name the files of its image.

Nobody but you can: its source is in no package registry, and the image is not fetched unasked (LAB_IMAGES: `haproxy-router: …`).
Never run by us on this target. Refuses more threads than a container has CPUs. Apart from `system`, whose stand-in has nothing of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from lab.base.errors import NotMeasurableError, UsageError
from lab.systems import programs
from lab.systems.system import Context, Controller, Realisation, Root, refuse_workers

SYSTEM = SHORT = "haproxy-router"
PROGRAM = "/usr/bin/openshift-router"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
OWN = ("/var/lib/haproxy", "/tmp", "/var/log", "/run")
_FAULT = re.compile(r"^[EF]\d{4} \S+\s+\d+ [\w.]+:\d+\] (?P<words>.*)$")


def realise(context: Context) -> Realisation:
    container = context.container
    try:
        files = programs.files(SYSTEM, SHORT)
    except UsageError:
        fault = "the router's own files are not here"
        remedy = f"LAB_IMAGES=<file> with a line `{SHORT}: …` names them: a folder, an archive, or an image; or measure on local or kind"
        raise NotMeasurableError("OKD's router", container.place, fault, remedy) from None
    if (threads := container.env.get("ROUTER_THREADS", "")).isdigit():
        refuse_workers(f"{container.place}.env[ROUTER_THREADS]", int(threads), context, "threads")
    command = (*(container.command or (PROGRAM,)), *container.args)
    return Realisation(command, {"PATH": PATH, **container.env}, root=Root(files.folder, OWN, "/var/lib/haproxy"))


def about() -> str:
    return f"{SYSTEM}: {programs.files(SYSTEM, SHORT).about}"


def complaints(log: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(match["words"] for line in log if (match := _FAULT.match(line))))


CONTROLLER = Controller(
    image="origin-haproxy-router",
    realise=realise,
    proxy="haproxy",
    system=SYSTEM,
    short=SHORT,
    config="/var/lib/haproxy/conf/haproxy.config",
    about=about,
    complaints=complaints,
    load_lines={'"router reloaded"': "Reloaded"},  # it tells no beginning
    # No renew: its reloads are the router's own, and no run here has shown them.
)
