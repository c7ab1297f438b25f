"""Check kind `haproxy`: a key of `show info`, asked of the running HAProxy through its statistics socket.

    Nbthread: 1
    Maxconn: 9985                    key, colon, value

`socat` asks, which the router's image has and scripts/shell brings. Refuses to read the configuration: HAProxy may run another.
"""

from __future__ import annotations

from lab.model.variants.variants import Check
from lab.targets.base import System
from lab.targets.common.haproxy import SOCKET
from lab.targets.readback.reading import ABSENT, Reading, UnreadableError, compared, given, run


def _info(system: System, check: Check) -> Reading:
    name = given(check, "name")
    text = run(system, check, ["sh", "-c", f"echo 'show info' | socat - UNIX-CONNECT:{SOCKET}"])
    rows = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    if "Nbthread" not in rows:
        raise UnreadableError(f"show info answered {text.strip()[:80]!r}")
    return compared(check, rows.get(name, ABSENT).strip())


READERS = {"haproxy": _info}
