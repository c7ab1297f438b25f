"""Is the knob really set? Each check of a variant is compared with the running system, before a sample counts.

Knows no target: everything is asked through `System`, mostly by commands inside the role's container. One file per
family of checks. Refuses to fail silently: what cannot be read is not ok, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lab.base.files import own_faults
from lab.model.variants.variants import Check
from lab.targets.base import System
from lab.targets.readback import (
    caddy,
    configmap,
    disk,
    echo,
    envoy,
    haproxy,
    network,
    nginx,
    node,
    page,
    pods,
    processes,
    routes,
    traefik,
)
from lab.targets.readback.nginx import directives as directives
from lab.targets.readback.nginx import dump as dump
from lab.targets.readback.reading import ABSENT as ABSENT
from lab.targets.readback.reading import Reader, Reading, UnreadableError

READERS: Mapping[str, Reader] = {
    **caddy.READERS,
    **configmap.READERS,
    **disk.READERS,
    **echo.READERS,
    **envoy.READERS,
    **haproxy.READERS,
    **network.READERS,
    **nginx.READERS,
    **node.READERS,
    **page.READERS,
    **pods.READERS,
    **processes.READERS,
    **routes.READERS,
    **traefik.READERS,
}
"""Kind of each check → its reader."""

SPOKEN: Mapping[str, str] = {
    **configmap.SPOKEN,
    **disk.SPOKEN,
    **echo.SPOKEN,
    **haproxy.SPOKEN,
    **network.SPOKEN,
    **nginx.SPOKEN,
    **node.SPOKEN,
    **page.SPOKEN,
    **pods.SPOKEN,
    **processes.SPOKEN,
    **routes.SPOKEN,
}
"""Kind of a check → its form in words; a kind without one is called by its name."""


def spoken(check: Check) -> str:
    """One check as a sentence's worth of words."""
    context = f" in {check.context}" if check.context else ""
    form = SPOKEN.get(check.kind, "{kind}: {name}{context}")
    what = form.format(kind=check.kind, name=check.name, context=context, port=check.port, process=check.process)
    often = "" if check.times is None else f", {check.times} times"
    return f"{check.role}: {what} = {check.value}{often}"


def read_back(system: System, checks: Sequence[Check]) -> list[Reading]:
    """One reading per check, in their order. Never raises for what it finds, or fails to find, in the system.

    StoreError when this machine lacks what the asking takes (space, descriptors, memory): the knob is not to blame.
    """
    readings = []
    for check in checks:
        try:
            with own_faults("read-back"):
                readings.append(READERS[check.kind](system, check))
        except UnreadableError as error:
            readings.append(Reading(check, "unreadable", ok=False, detail=str(error)))
        except (ValueError, LookupError, StopIteration, OSError) as error:  # garbage in the answer
            readings.append(Reading(check, "unreadable", ok=False, detail=f"{type(error).__name__}: {error}"))
    return readings
