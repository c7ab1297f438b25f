"""Check kinds of HAProxy: `haproxy` is a key of `show info`, asked of the running one through its statistics socket.

    Nbthread: 1
    Maxconn: 9985                    key, colon, value

`socat` asks, which the router's image has and scripts/shell brings.

`haproxy-config` is a directive (`timeout client`, `balance`) of the sections of a kind (`context`: defaults, backend, …), or of one section, of the
file that the running HAProxy was started with, `set` where it has no arguments; an older process than that file runs another, which is not ok. What HAProxy says of
itself is asked of it: the balance algorithm, timeouts and sizes it tells nobody.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from lab.model.variants.variants import Check
from lab.targets.base import System
from lab.targets.common.haproxy import SOCKET
from lab.targets.readback.nginx import started
from lab.targets.readback.reading import ABSENT, Reading, UnreadableError, compared, given, joined, processes, run

_CLOCK_S = 1.0
"""Start times of processes are known to the boot time's second."""


def _info(system: System, check: Check) -> Reading:
    name = given(check, "name")
    text = run(system, check, ["sh", "-c", f"echo 'show info' | socat - UNIX-CONNECT:{SOCKET}"])
    rows = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    if "Nbthread" not in rows:
        raise UnreadableError(f"show info answered {text.strip()[:80]!r}")
    return compared(check, rows.get(name, ABSENT).strip())


def _config(system: System, check: Check) -> Reading:
    words = given(check, "name").split()
    running = [process for process in processes(system, check) if re.match(r"(\S*/)?haproxy( |$)", process.title)]
    files = list(dict.fromkeys(file for process in running for file in re.findall(r" -f (\S+)", process.title)))
    if not files:
        raise UnreadableError("no HAProxy with a configuration file runs")
    found = list(_values(run(system, check, ["cat", *files]), words, check.context))
    if check.among:
        found = [check.value if f" {check.value} " in f" {line} " else line for line in found]
    reading = compared(check, joined(found) if found else ABSENT)
    written = int(run(system, check, ["stat", "-c", "%Y", files[0]]))
    if reading.ok and max(started(system, check, [process.pid for process in running])) + _CLOCK_S < written:
        detail = f"{files[0]} was written after the newest HAProxy had started: it is not what it runs"
        return Reading(check, reading.observed, ok=False, detail=detail)
    return reading


def _values(text: str, words: Sequence[str], context: str | None) -> Iterator[str]:
    """The rest of every line that begins with these words, or `set` where there is none, in sections of that kind, or in the one of that name."""
    section = [""]
    for line in text.splitlines():
        parts = line.split()
        if parts and not line[0].isspace() and not line.startswith("#"):
            section = parts
        elif parts[: len(words)] == list(words) and context in (None, section[0], " ".join(section)):
            yield " ".join(parts[len(words) :]) or "set"


READERS = {"haproxy": _info, "haproxy-config": _config}
SPOKEN = {
    "haproxy": "show info: {name}",
    "haproxy-config": "{name} in its running configuration",
}
