"""What some nginx directives do to one request, seen from the client's place: what they say is one thing, what happens another.

    gzip on                →  a page that compresses comes compressed to a client that accepts it
    proxy_cache ZONE       →  the second of two requests is a hit (the header X-Cache-Status says so)
    access_log PATH        →  one request makes the log longer, unless it is off or buffered

Refuses to guess: a log that is no regular file (a container's output in a cluster) is not looked at.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from lab.model.endpoint import Response
from lab.model.system import System
from lab.model.variants.variants import Check
from lab.systems.reading import UnreadableError, run

PAGE = "/8kB.txt"
TIMEOUT_S = 5.0
_OUTPUT = ("off", "/var/log/nginx/access.log", "/dev/stdout")
_OWN_OUTPUT = "/proc/1/fd/1"
"""Of the container's first process, whose output nginx inherits."""
_SEEN_WITHIN_S = 0.5
"""A line is written right after its response; half a second is what a busy machine may take."""


def fault(system: System, check: Check, arguments: str) -> str:
    """What speaks against the directive being in effect; empty when nothing does, or nothing can be seen."""
    effect = _EFFECTS.get((check.name or "").split()[0])
    return effect(system, check, arguments) if effect is not None else ""


def _gzip(system: System, check: Check, arguments: str) -> str:
    sent = _fetch(system, {"Accept-Encoding": "gzip"}).headers.get("content-encoding", "identity")
    wanted = "gzip" if arguments == "on" else "identity"
    return "" if sent == wanted else f"{PAGE} came with encoding {sent}, expected {wanted}"


def _proxy_cache(system: System, check: Check, arguments: str) -> str:
    if arguments == "off":
        return ""
    _fetch(system)
    status = _fetch(system).headers.get("x-cache-status", "none")
    return "" if status == "HIT" else f"the second request for {PAGE} has the cache status {status}, expected HIT"


def _access_log(system: System, check: Check, arguments: str) -> str:
    """Of a log that is off the container's output is looked at, where it would go as shipped."""
    path, *options = arguments.split()
    if path.startswith("syslog:"):
        return ""
    file = _OWN_OUTPUT if path in _OUTPUT else path
    kept = path == "off" or any(option.startswith(("buffer=", "gzip")) for option in options)
    before = _size(system, check, file)
    _fetch(system)
    if before is None:
        return ""
    deadline = time.monotonic() + _SEEN_WITHIN_S
    while (after := _size(system, check, file)) == before and not kept and time.monotonic() < deadline:
        time.sleep(0.01)
    grown = after != before
    if grown and kept:
        return f"one request made {file} longer, though its log is {'off' if path == 'off' else 'buffered'}"
    return "" if grown or kept else f"a request left {file} as long as it was"


def _fetch(system: System, headers: Mapping[str, str] | None = None) -> Response:
    answer = system.fetch(system.entry(), PAGE, TIMEOUT_S, headers)
    if answer.status != 200:
        raise UnreadableError(f"{PAGE} was answered with status {answer.status}")
    return answer


def _size(system: System, check: Check, file: str) -> int | None:
    """None for what is no regular file, and for the output of a program with file capabilities, which the kernel hides."""
    asked = ["stat", "-L", "-c", "%F:%s", file]
    if file == _OWN_OUTPUT and "Permission denied" in system.exec(check.role, asked).stderr:
        return None
    kind, _, size = run(system, check, asked).strip().rpartition(":")
    return int(size) if kind in ("regular file", "regular empty file") else None


_EFFECTS: dict[str, Callable[[System, Check, str], str]] = {
    "gzip": _gzip,
    "proxy_cache": _proxy_cache,
    "access_log": _access_log,
}
