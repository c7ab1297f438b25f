"""Check kinds by real requests. Through the proxy: `routes` counts hosts, `termination` says where TLS ends, `shards` counts the proxies that
share the routes, `tls` says what a handshake comes to, `echo` what the backend was told of a request. To a proxy's own interface on its
pod's loopback: `page`.

termination   certificate that the client sees   what reached the backend (its X-Lab-Scheme header)
none          none                               http
edge          not the backend's                  http
reencrypt     not the backend's                  https
passthrough   the backend's own                  https

echo          {kind: echo, name: X-Forwarded-For, value: "203.0.113.7, 198.51.100.4, client"}: a header of a request that came as from two
              proxies, as it arrived at manifests/base/backend. `client` stands for the address of whoever opened the connection, `balancer`
              for that of the load balancer in front. `context`: further headers of the request, `Name: value`, a line each. `absent`: the
              header did not come
page          {kind: page, port: 8404, name: /server-info?config MaxKeepAliveRequests, value: "0"}: `name` is the path, and after a blank the
              words with which a line begins; tags and a number of the line do not count. What stands after them is compared, of several
              lines each once; `absent` without one. So a new proxy needs no kind of its own. An empty page is unreadable
"""

from __future__ import annotations

import html
import re
from dataclasses import replace

from lab.base.errors import LabError
from lab.model.endpoint import Endpoint, Response
from lab.model.load import FORWARDED
from lab.model.sweeps import Point
from lab.model.variants.variants import Check
from lab.systems.manifests import certificates
from lab.systems.reading import ABSENT, Reading, UnreadableError, asked, compared, given, joined
from lab.targets.base import System

PAGE = "/1kB.bin"
NOBODY = "nobody.lab.test"
"""A host that no route has."""

CERTIFICATE = "/srv/certificate/tls.crt"
"""In the backend's container, where it serves TLS."""

TIMEOUT_S = 5.0
_ADDRESS = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b")
_ENDS = re.compile(r"</?(dd|dt|li|p|tr|br|div|pre)\b[^>]*>", re.IGNORECASE)
_TAG = re.compile(r"<[^>]*>")
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
    for one in entry.shards:
        for other in entry.shards:
            for host in (other.hosts[0], other.hosts[-1]):
                answered = system.fetch(replace(entry.at(host), base_url=one.url), PAGE, TIMEOUT_S).status == 200
                if answered != (one is other):
                    raise UnreadableError(f"{host} is {'' if answered else 'not '}answered by {one.url}")
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


def _echo(system: System, check: Check) -> Reading:
    path = f"/echo/{given(check, 'name').lower()}"
    more = dict(line.split(": ", 1) for line in (check.context or "").splitlines())
    answer = system.fetch(system.entry(), path, TIMEOUT_S, {**FORWARDED, **more})
    if answer.status != 200:
        raise UnreadableError(f"{path} was answered with status {answer.status}")
    said = " ".join([*FORWARDED.values(), *more.values(), check.value])
    balancer = system.pod_address("balancer") if system.pods("balancer") else None

    def named(found: re.Match[str]) -> str:
        return "balancer" if found[0] == balancer else found[0] if found[0] in said else "client"

    return compared(check, _ADDRESS.sub(named, answer.body.decode(errors="replace")) or ABSENT)


def _page(system: System, check: Check) -> Reading:
    path, _, words = given(check, "name").partition(" ")
    text = asked(system, check, int(given(check, "port")), path)
    plain = html.unescape(_TAG.sub("", _ENDS.sub("\n", text))).replace("\xa0", " ")
    stripped = (" ".join(re.sub(r"^\s*(\d+)?:\s+", "", line).split()) for line in plain.splitlines())
    found = list(filter(None, stripped))
    if not found:
        raise UnreadableError(f"port {check.port}: {path} is empty")
    told = [line.removeprefix(words).strip(" :=") for line in found if re.match(rf"{re.escape(words)}(?![\w-])", line)]
    return compared(check, joined(told) if told else ABSENT)


READERS = {
    "routes": _routes,
    "termination": _termination,
    "tls": _tls,
    "shards": _shards,
    "echo": _echo,
    "page": _page,
}
