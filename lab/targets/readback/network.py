"""Check kinds of a pod's network and by real requests.

In the pod's namespace `sysctl` and `backlog`, `rps` on its interfaces' queues, `ports` of what it connects to; `entry`, whose address load is sent
to; of the whole node, `node`. Through the proxy: `routes` counts hosts, `termination` says where TLS ends, `shards` counts the proxies that
share the routes, `tls` says what a handshake comes to, `echo` what the backend was told of a request. Of a proxy's own interface on its
pod's loopback: `page`.

rps     the CPUs to which receive packet steering spreads each queue: `own` = those that the pod's processes may use and that
        are online, else a list such as `0,4`. Every queue must have it (not loopback's)
ports   outgoing connections that are really made use only local ports of the range (`1024 65000`); of a row of `ss -tan`:

        ESTAB 0 0 10.64.0.4:40012 10.64.0.3:8080     →  an outgoing connection from port 40012: nothing listens on it

        A large page is fetched through the entry meanwhile, so that there is one even where none is kept; none seen = unreadable
entry   `pod`: the address of the role's first pod itself. Else the address that it is, a Service's or a node's
node    fs.file-max: /proc/sys; irqbalance: whether the service's process runs; irq-affinity: the CPUs that the interrupts of the
        default route's interface go to

termination   certificate that the client sees   what reached the backend (its X-Lab-Scheme header)
none          none                               http
edge          not the backend's                  http
reencrypt     not the backend's                  https
passthrough   the backend's own                  https

echo    {kind: echo, name: X-Forwarded-For, value: "203.0.113.7, 198.51.100.4, client"}: a header of a request that came as from two
        proxies, as it arrived at manifests/base/backend. `client` stands for the address of whoever opened the connection, `balancer`
        for that of the load balancer in front. `context`: further headers of the request, `Name: value`, a line each. `absent`: the
        header did not come
page    {kind: page, port: 8404, name: /server-info?config MaxKeepAliveRequests, value: "0"}: `name` is the path, and after a blank the
        words with which a line begins; tags and a number of the line do not count. What stands after them is compared, of several
        lines each once; `absent` without one. So a new proxy needs no kind of its own. An empty page is unreadable
"""

from __future__ import annotations

import html
import re
import threading
from contextlib import suppress
from dataclasses import replace
from urllib.parse import urlsplit

from lab.base.errors import LabError
from lab.model.endpoint import Endpoint, Response
from lab.model.load import FORWARDED
from lab.model.sweeps import Point
from lab.model.variants.variants import Check
from lab.systems.manifests import certificates
from lab.systems.reading import ABSENT, Reading, UnreadableError, asked, compared, given, joined, run
from lab.targets.base import System
from lab.targets.common.sampler import cpu_list

LARGE = "/100MB.bin"
TRIES = 5
LARGE_S = 10.0
QUEUES = r"""
sed -n 's/^Cpus_allowed:[[:space:]]*/own /p' /proc/1/status
echo "online $(cat /sys/devices/system/cpu/online)"
for queue in /sys/class/net/*/queues/rx-*/rps_cpus; do
  case $queue in */net/lo/*) continue ;; esac
  echo "queue $(cat "$queue")"
done
"""
NODE = r"""
case $1 in
irqbalance)
  cat /proc/1/comm >/dev/null
  if cat /proc/[0-9]*/comm 2>/dev/null | grep -qx irqbalance; then echo on; else echo off; fi ;;
irq-affinity)
  device=$(awk '$2 == "00000000" { print $1; exit }' /proc/net/route)
  for folder in "/sys/class/net/$device/device/msi_irqs" "/sys/class/net/$device/device/../msi_irqs"; do
    [ ! -d "$folder" ] || { for irq in $(ls "$folder"); do cat "/proc/irq/$irq/smp_affinity_list"; done; break; }
  done | sort -nu | paste -sd, - ;;
*)
  cat "/proc/sys/$(echo "$1" | tr . /)" ;;
esac
"""

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


def _sysctl(system: System, check: Check) -> Reading:
    path = "/proc/sys/" + given(check, "name").replace(".", "/")
    return compared(check, " ".join(run(system, check, ["cat", path]).split()), " ".join(check.value.split()))


def _backlog(system: System, check: Check) -> Reading:
    """`ss`: state, receive queue, send queue (the backlog of a listening socket), local address, peer."""
    port = given(check, "port")
    rows = [line.split() for line in run(system, check, ["ss", "-lntH"]).splitlines()]
    found = [row[2] for row in rows if len(row) > 3 and row[3].rpartition(":")[2] == port]
    if not found:
        raise UnreadableError(f"nothing listens on port {port}")
    return compared(check, joined(found))


def _rps(system: System, check: Check) -> Reading:
    rows = [line.split() for line in run(system, check, ["sh", "-euc", QUEUES]).splitlines()]
    masks = [row[1] for row in rows if len(row) == 2 and row[0] == "queue"]
    told = {row[0]: row[1] for row in rows if len(row) == 2}
    if not masks or not {"own", "online"} <= told.keys():
        raise UnreadableError("no queue of an interface, or no CPUs of the pod to compare with")
    wanted = check.value
    if wanted == "own":  # a queue keeps none of those that are offline
        running = cpu_list(told["online"])
        own = [cpu for cpu in listed(told["own"]).split(",") if cpu != "none" and int(cpu) in running]
        wanted = ",".join(own) or "none"
    reading = compared(check, joined([listed(mask) for mask in masks]), wanted)
    return Reading(check, check.value, ok=True) if reading.ok else reading


def listed(mask: str) -> str:
    """A mask as the kernel prints it → a list of CPUs; `none` without one.

    >>> listed("00000001,00000003")
    '0,1,32'
    """
    bits = int(mask.replace(",", ""), 16)  # groups of eight digits
    return ",".join(str(cpu) for cpu in range(bits.bit_length()) if bits >> cpu & 1) or "none"


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
            system.fetch(system.entry(), LARGE, LARGE_S)

    fetching = threading.Thread(target=fetch, name="ports", daemon=True)
    fetching.start()
    text = run(system, check, ["ss", "-tanH"])
    fetching.join(LARGE_S)
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


def _way_in(system: System, check: Check) -> Reading:
    entry = system.entry()
    if entry.tls != "none":
        raise UnreadableError(f"load is sent to {entry.host} by its name, which TLS needs")
    address = urlsplit(entry.base_url).hostname or ""
    return compared(check, "pod" if address == system.pod_address(check.role) else address)


def _node(system: System, check: Check) -> Reading:
    name = given(check, "name")
    done = system.exec("node", ["sh", "-euc", NODE, "sh", name])
    found = " ".join(done.stdout.split())
    if done.returncode or not found:
        said = done.stderr.strip().splitlines()
        raise UnreadableError(f"{name}: {said[-1] if said else 'the node says nothing'}")
    return compared(check, found, " ".join(check.value.split()))


def _routes(system: System, check: Check) -> Reading:
    """Answering = status 200. That nobody's host answers, too, would make the number mean nothing."""
    entry = _entry(system)
    reading = compared(check, str(sum(_ask(system, entry, host).status == 200 for host in entry.hosts)))
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
    "sysctl": _sysctl,
    "backlog": _backlog,
    "rps": _rps,
    "ports": _ports,
    "entry": _way_in,
    "node": _node,
    "routes": _routes,
    "termination": _termination,
    "tls": _tls,
    "shards": _shards,
    "echo": _echo,
    "page": _page,
}
