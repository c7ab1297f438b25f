"""Check kind `ports`: outgoing connections that are really made use only local ports of the range (`1024 65000`).

One row of `ss -tan` in the proxy's pod, and what it says:

    ESTAB 0 0 10.64.0.4:40012 10.64.0.3:8080     →  an outgoing connection from port 40012: nothing listens on it

A large page is fetched through the entry while the pod is looked at, so that there is one even where none is kept.
Refuses to judge by nothing: no outgoing connection seen = unreadable.
"""

from __future__ import annotations

import threading
from contextlib import suppress

from lab.model.variants.variants import Check
from lab.targets.base import System
from lab.targets.readback.reading import Reading, UnreadableError, run

PAGE = "/100MB.bin"
TRIES = 5
TIMEOUT_S = 10.0


def _ports(system: System, check: Check) -> Reading:
    try:
        low, high = map(int, check.value.split())
    except ValueError:
        raise UnreadableError(f"expected two ports as in '1024 65000', got {check.value!r}") from None
    found = next((ports for _ in range(TRIES) if (ports := _outgoing(system, check))), set[int]())
    if not found:
        raise UnreadableError(f"no outgoing connection seen in {TRIES} tries")
    outside = sorted(port for port in found if not low <= port <= high)
    if outside:
        detail = f"outside {low} to {high}: {', '.join(map(str, outside[:5]))}"
        return Reading(check, f"{min(found)} to {max(found)}", ok=False, detail=detail)
    return Reading(check, check.value, ok=True)


def _outgoing(system: System, check: Check) -> set[int]:
    """Local ports of the pod's outgoing connections while a page is on its way."""

    def fetch() -> None:
        with suppress(OSError):  # the canary tells of a proxy that does not answer
            system.fetch(system.entry(), PAGE, TIMEOUT_S)

    fetching = threading.Thread(target=fetch, name="ports", daemon=True)
    fetching.start()
    text = run(system, check, ["ss", "-tanH"])
    fetching.join(TIMEOUT_S)
    return outgoing(text)


def outgoing(text: str) -> set[int]:
    """Local ports of the connections in `ss -tanH` that are not accepted ones, other pods' only (no loopback)."""
    rows = [line.split() for line in text.splitlines()]
    ends = [(row[0], *(end.rpartition(":") for end in row[3:5])) for row in rows if len(row) >= 5]
    listening = {local[2] for state, local, _ in ends if state == "LISTEN"}
    return {
        int(local[2])
        for state, local, peer in ends
        if state != "LISTEN" and local[2] not in listening and local[0] != peer[0] and local[2].isdigit()
    }


READERS = {"ports": _ports}
