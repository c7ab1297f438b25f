"""Check kinds of routes, by real requests through the proxy: `routes` counts hosts, `termination` says where TLS ends,
`shards` counts the proxies that share the routes, `tls` says what a handshake comes to.

termination   certificate that the client sees   what reached the backend (its X-Lab-Scheme header)
none          none                               http
edge          not the backend's                  http
reencrypt     not the backend's                  https
passthrough   the backend's own                  https
"""

from __future__ import annotations

from dataclasses import replace

from lab.base.errors import LabError
from lab.model.endpoint import Endpoint, Response
from lab.model.sweeps import Point
from lab.model.variants.variants import Check
from lab.systems.manifests import certificates
from lab.systems.reading import ABSENT, Reading, UnreadableError, compared, given, joined
from lab.targets.base import System

PAGE = "/1kB.bin"
NOBODY = "nobody.lab.test"
"""A host that no route has."""

CERTIFICATE = "/srv/certificate/tls.crt"
"""In the backend's container, where it serves TLS."""

TIMEOUT_S = 5.0
_ALL = Point(
    name="read-back",
    generator="",
    connections=1,
    rate_rps=None,
    duration_s=1,
    warmup_s=0,
    threads=1,
    page=PAGE,
    routes="all",
)


def _routes(system: System, check: Check) -> Reading:
    """Answering = status 200. That nobody's host answers, too, would make the number mean nothing."""
    entry = _entry(system)
    answering = sum(_ask(system, entry, host).status == 200 for host in entry.hosts)
    reading = compared(check, str(answering))
    if not reading.ok:
        return reading
    if (status := _ask(system, entry, NOBODY).status) == 200:
        detail = f"a host without a route ({NOBODY}) is answered with {status}, too"
        return Reading(check, reading.observed, ok=False, detail=detail)
    return reading


def _termination(system: System, check: Check) -> Reading:
    """Of every route; several when they differ."""
    entry = _entry(system)
    done = system.exec("backend", ["cat", CERTIFICATE])
    own = certificates.subject(done.stdout) if done.returncode == 0 else None
    return compared(check, joined([_ends(host, _ask(system, entry, host), own) for host in entry.hosts]))


def _shards(system: System, check: Check) -> Reading:
    """Each must answer for the first and last of its hosts and for nobody else's; one is not shared."""
    entry = _entry(system)
    for asked in entry.shards:
        for other in entry.shards:
            for host in (other.hosts[0], other.hosts[-1]):
                answered = system.fetch(replace(entry.at(host), base_url=asked.url), PAGE, TIMEOUT_S).status == 200
                if answered != (asked is other):
                    raise UnreadableError(f"{host} is {'' if answered else 'not '}answered by {asked.url}")
    return compared(check, str(len(entry.shards) or 1))


def _ends(host: str, answer: Response, own: str | None) -> str:
    scheme = answer.headers.get("x-lab-scheme") or ("http" if own is None else None)  # it has no TLS of its own
    if answer.status != 200 or scheme not in ("http", "https"):
        raise UnreadableError(f"{host}: status {answer.status}, X-Lab-Scheme {scheme!r}")
    if not answer.tls:
        return "none" if scheme == "http" else "reencrypt without the client's"
    if answer.tls.get("subject") == own:
        return "passthrough" if scheme == "https" else "the backend's certificate without its TLS"
    return "reencrypt" if scheme == "https" else "edge"


def _entry(system: System) -> Endpoint:
    try:
        return system.endpoint(_ALL)
    except LabError as error:  # routes that differ
        raise UnreadableError(error.fault) from None


def _ask(system: System, entry: Endpoint, host: str) -> Response:
    """One request for a host on a connection of its own, by its way in."""
    return system.fetch(entry.at(host), PAGE, TIMEOUT_S)


def _tls(system: System, check: Check) -> Reading:
    """Of every route; several when they differ, `absent` without TLS."""
    entry, name = _entry(system), given(check, "name")
    return compared(check, joined([_ask(system, entry, host).tls.get(name) or ABSENT for host in entry.hosts]))


READERS = {"routes": _routes, "termination": _termination, "tls": _tls, "shards": _shards}
