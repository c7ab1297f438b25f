"""Check kinds of the kernel's settings in a pod's network namespace: `sysctl`, `backlog`."""

from __future__ import annotations

from lab.model.variants.variants import Check
from lab.targets.base import System
from lab.targets.readback.reading import Reading, UnreadableError, compared, given, joined, run


def _sysctl(system: System, check: Check) -> Reading:
    name = given(check, "name")
    path = "/proc/sys/" + name.replace(".", "/")
    return compared(check, " ".join(run(system, check, ["cat", path]).split()), " ".join(check.value.split()))


def _backlog(system: System, check: Check) -> Reading:
    """`ss`: state, receive queue, send queue (the backlog of a listening socket), local address, peer."""
    port = given(check, "port")
    rows = [line.split() for line in run(system, check, ["ss", "-lntH"]).splitlines()]
    found = [row[2] for row in rows if len(row) > 3 and row[3].rpartition(":")[2] == port]
    if not found:
        raise UnreadableError(f"nothing listens on port {port}")
    return compared(check, joined(found))


READERS = {"sysctl": _sysctl, "backlog": _backlog}
