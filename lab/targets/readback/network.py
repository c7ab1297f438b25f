"""The read-backs of a pod's network, such as sysctls, and the read-backs that send real requests, such as `routes`.

Checks in the pod's network namespace: `sysctl`, `backlog`, `rps` (queues of the interfaces), `ports` (outgoing
connections) and `entry` (the address that load is sent to). A check of the whole node: `node`. Checks by requests
through the proxy: `routes` counts hosts, `termination` finds where TLS ends, `shards` counts the proxies that share the
routes, `tls` reads a fact of the handshake, and `echo` reads a header as the backend received it. A check of the
proxy's own HTTP interface on its pod's loopback: `page`.

rps     the CPUs to which receive packet steering spreads each queue: a list such as `0,4`, or `own` for those online
        CPUs that the pod's processes may use. Every queue must have the same CPUs; the loopback's do not count
ports   the range that the local ports of real outgoing connections must be in (`1024 65000`); a row of `ss -tan`:

        ESTAB 0 0 10.64.0.4:40012 10.64.0.3:8080     →  an outgoing connection from port 40012: nothing listens on it

        Meanwhile a large page is fetched through the proxy, so that there is a connection even if the proxy keeps
        none open. If no connection is seen, the check is unreadable
entry   the address that load is sent to: `pod` for that of the role's first pod, else the address of a Service or node
node    a sysctl of the node, such as fs.file-max; or irqbalance: whether this program runs (`on` or `off`); or
        irq-affinity: the CPUs that handle the interrupts of the default route's interface

termination   certificate that the client sees   scheme that the backend reports (its X-Lab-Scheme header)
none          none                               http
edge          not the backend's                  http
reencrypt     not the backend's                  https
passthrough   the backend's own                  https

echo    {kind: echo, name: X-Forwarded-For, value: "203.0.113.7, 198.51.100.4, client"}: a request header as it arrived
        at the backend (manifests/base/backend). The request has the headers of one that has passed two proxies. In the
        value, `client` means the address that opened the connection, and `balancer` that of the load balancer in front.
        `context` contains further headers of the request, `Name: value`, one per line. `absent` means that the header
        did not arrive
page    {kind: page, port: 8404, name: /server-info?config MaxKeepAliveRequests, value: "0"}: `name` contains the path
        and, after a space, the words with which a line of the page begins. HTML tags and a line number are ignored. The
        text after these words is compared; if several lines differ, all texts are listed. `absent` means that there is
        no such line. So a new proxy needs no special kind. An empty page is unreadable
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
from lab.model.sweeps import LoadPoint
from lab.model.variants.variants import Check
from lab.systems.manifests import certificates
from lab.systems.reading import (
    ABSENT,
    Reading,
    UnreadableError,
    compare_value,
    join_distinct,
    request_page,
    require_key,
    run_in_container,
)
from lab.targets.base import System
from lab.targets.common.sampler import cpu_list

LARGE = "/100MB.bin"
"""The large page that is fetched while outgoing connections are listed."""
TRIES = 5
"""The number of attempts to see an outgoing connection."""
LARGE_S = 10.0
"""The timeout of the large page in seconds."""
QUEUES = r"""
sed -n 's/^Cpus_allowed:[[:space:]]*/own /p' /proc/1/status
echo "online $(cat /sys/devices/system/cpu/online)"
for queue in /sys/class/net/*/queues/rx-*/rps_cpus; do
  case $queue in */net/lo/*) continue ;; esac
  echo "queue $(cat "$queue")"
done
"""
"""The shell script that prints the CPUs that the pod may use, the online CPUs, and the CPU mask of each queue."""
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
"""The shell script that reads one setting of the node."""

PAGE = "/1kB.bin"
"""The page that is requested of each host."""
NOBODY = "nobody.lab.test"
"""The name of a host without a route."""

CERTIFICATE = "/srv/certificate/tls.crt"
"""The file of the backend's certificate in its container, if it serves TLS."""

TIMEOUT_S = 5.0
"""The timeout of a request in seconds."""
_ADDRESS = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b")
_ENDS = re.compile(r"</?(dd|dt|li|p|tr|br|div|pre)\b[^>]*>", re.IGNORECASE)
"""The HTML tags that end a line."""
_TAG = re.compile(r"<[^>]*>")
_ALL = LoadPoint(
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
"""The load point that covers all routes."""


def _read_sysctl(system: System, check: Check) -> Reading:
    path = "/proc/sys/" + require_key(check, "name").replace(".", "/")
    return compare_value(
        check, " ".join(run_in_container(system, check, ["cat", path]).split()), " ".join(check.value.split())
    )


def _read_backlog(system: System, check: Check) -> Reading:
    """Compare the check's value with the accept backlog of the sockets that listen on the check's port.

    The backlog is the third column (send queue) of what `ss` prints for a listening socket.
    """
    port = require_key(check, "port")
    rows = [line.split() for line in run_in_container(system, check, ["ss", "-lntH"]).splitlines()]
    backlogs = [row[2] for row in rows if len(row) > 3 and row[3].rpartition(":")[2] == port]
    if not backlogs:
        raise UnreadableError(f"nothing listens on port {port}")
    return compare_value(check, join_distinct(backlogs))


def _read_rps(system: System, check: Check) -> Reading:
    rows = [line.split() for line in run_in_container(system, check, ["sh", "-euc", QUEUES]).splitlines()]
    masks = [row[1] for row in rows if len(row) == 2 and row[0] == "queue"]
    values = {row[0]: row[1] for row in rows if len(row) == 2}
    if not masks or not {"own", "online"} <= values.keys():
        raise UnreadableError("no queue of an interface, or no CPUs of the pod to compare with")
    expected = check.value
    if expected == "own":  # a queue keeps no CPU that is offline
        online = cpu_list(values["online"])
        allowed = [cpu for cpu in format_mask(values["own"]).split(",") if cpu != "none" and int(cpu) in online]
        expected = ",".join(allowed) or "none"
    reading = compare_value(check, join_distinct([format_mask(mask) for mask in masks]), expected)
    return Reading(check, check.value, ok=True) if reading.ok else reading


def format_mask(mask: str) -> str:
    """Convert a CPU mask as the kernel prints it (hexadecimal) to a list of CPU numbers; `none` if the mask is empty.

    >>> format_mask("00000001,00000003")
    '0,1,32'
    """
    bits = int(mask.replace(",", ""), 16)  # groups of eight digits
    return ",".join(str(cpu) for cpu in range(bits.bit_length()) if bits >> cpu & 1) or "none"


def _read_ports(system: System, check: Check) -> Reading:
    try:
        low, high = map(int, check.value.split())
    except ValueError:
        raise UnreadableError(f"expected two ports as in '1024 65000', got {check.value!r}") from None
    used = next((ports for _ in range(TRIES) if (ports := _list_outgoing_ports(system, check))), set[int]())
    if not used:
        raise UnreadableError(f"no outgoing connection seen in {TRIES} tries")
    outside = sorted(port for port in used if not low <= port <= high)
    if outside:
        detail = f"outside {low} to {high}: {', '.join(map(str, outside[:5]))}"
        return Reading(check, f"{min(used)} to {max(used)}", ok=False, detail=detail)
    return Reading(check, check.value, ok=True)


def _list_outgoing_ports(system: System, check: Check) -> set[int]:
    """Fetch a large page through the system, and return the local ports that the pod's outgoing connections use meanwhile."""

    def fetch() -> None:
        with suppress(OSError):  # another check of the lab (the canary) detects a proxy that does not answer
            system.fetch(system.entry(), LARGE, LARGE_S)

    fetching = threading.Thread(target=fetch, name="ports", daemon=True)
    fetching.start()
    text = run_in_container(system, check, ["ss", "-tanH"])
    fetching.join(LARGE_S)
    return parse_outgoing_ports(text)


def parse_outgoing_ports(text: str) -> set[int]:
    """Return the local ports of the connections that a pod has opened to other pods.

    Connections that the pod has accepted, and those over the loopback, are left out.

    Args:
        text: The output of `ss -tanH` in the pod.

    """
    rows = [line.split() for line in text.splitlines()]
    ends = [(row[0], *(end.rpartition(":") for end in row[3:5])) for row in rows if len(row) >= 5]
    listening = {local[2] for state, local, _ in ends if state == "LISTEN"}
    return {
        int(local[2])
        for state, local, peer in ends
        if state != "LISTEN" and local[2] not in listening and local[0] != peer[0] and local[2].isdigit()
    }


def _read_entry(system: System, check: Check) -> Reading:
    entry = system.entry()
    if entry.tls != "none":
        raise UnreadableError(f"load is sent to {entry.host} by its name, which TLS needs")
    address = urlsplit(entry.base_url).hostname or ""
    return compare_value(check, "pod" if address == system.pod_address(check.role) else address)


def _read_node(system: System, check: Check) -> Reading:
    name = require_key(check, "name")
    done = system.exec("node", ["sh", "-euc", NODE, "sh", name])
    value = " ".join(done.stdout.split())
    if done.returncode or not value:
        lines = done.stderr.strip().splitlines()
        raise UnreadableError(f"{name}: {lines[-1] if lines else 'the node says nothing'}")
    return compare_value(check, value, " ".join(check.value.split()))


def _count_routes(system: System, check: Check) -> Reading:
    """Compare the check's value with the number of hosts for which a request is answered with status 200.

    A host without a route is requested, too. If even this request is answered with 200, the reading is not ok, because
    the proxy then answers for any host.
    """
    entry = _find_entry(system)
    reading = compare_value(check, str(sum(_request(system, entry, host).status == 200 for host in entry.hosts)))
    if not reading.ok:
        return reading
    if (status := _request(system, entry, NOBODY).status) == 200:
        detail = f"a host without a route ({NOBODY}) is answered with {status}, too"
        return Reading(check, reading.observed, ok=False, detail=detail)
    return reading


def _read_termination(system: System, check: Check) -> Reading:
    """Compare the check's value with the kind of TLS termination (such as `edge`) that a request to each host shows.

    If the hosts differ, the observed value lists all kinds.
    """
    entry = _find_entry(system)
    done = system.exec("backend", ["cat", CERTIFICATE])
    backend_subject = certificates.subject(done.stdout) if done.returncode == 0 else None
    return compare_value(
        check,
        join_distinct(
            [_classify_termination(host, _request(system, entry, host), backend_subject) for host in entry.hosts]
        ),
    )


def _count_shards(system: System, check: Check) -> Reading:
    """Compare the check's value with the number of proxies among which the routes are divided (shards).

    The number 1 means that one proxy has all routes. The first and the last host of every proxy are requested from
    each proxy: it must answer for its own hosts and for no others.

    Raises:
        UnreadableError: A proxy answers for a host of another proxy, or does not answer for its own.

    """
    entry = _find_entry(system)
    for shard in entry.shards:
        for owner in entry.shards:
            for host in (owner.hosts[0], owner.hosts[-1]):
                answered = system.fetch(replace(entry.at(host), base_url=shard.url), PAGE, TIMEOUT_S).status == 200
                if answered != (shard is owner):
                    raise UnreadableError(f"{host} is {'' if answered else 'not '}answered by {shard.url}")
    return compare_value(check, str(len(entry.shards) or 1))


def _classify_termination(host: str, answer: Response, backend_subject: str | None) -> str:
    """Return where TLS ends for a host, from the certificate that the client got and the scheme at the backend.

    Args:
        host: The host, for the error's text.
        answer: The response to a request for the host. Its header X-Lab-Scheme is the scheme at the backend.
        backend_subject: The common name of the backend's certificate; None if the backend serves no TLS.

    Returns:
        `none`, `edge` (at the proxy), `reencrypt` (at the proxy, with new TLS to the backend) or `passthrough` (at the
        backend). For any other combination, a description in words.

    Raises:
        UnreadableError: The status is not 200, or the scheme at the backend is unknown.

    """
    scheme = answer.headers.get("x-lab-scheme") or ("http" if backend_subject is None else None)
    if answer.status != 200 or scheme not in ("http", "https"):
        raise UnreadableError(f"{host}: status {answer.status}, X-Lab-Scheme {scheme!r}")
    if not answer.tls:
        return "none" if scheme == "http" else "reencrypt without the client's"
    if answer.tls.get("subject") == backend_subject:
        return "passthrough" if scheme == "https" else "the backend's certificate without its TLS"
    return "reencrypt" if scheme == "https" else "edge"


def _find_entry(system: System) -> Endpoint:
    """Return the endpoint of the system that covers the hosts of all its routes.

    Raises:
        UnreadableError: The system has no such endpoint, for example because its routes differ in TLS.

    """
    try:
        return system.endpoint(_ALL)
    except LabError as error:
        raise UnreadableError(error.fault) from None


def _request(system: System, entry: Endpoint, host: str) -> Response:
    """Fetch the test page (PAGE) of a host from the proxy that serves the host, and return the response."""
    return system.fetch(entry.at(host), PAGE, TIMEOUT_S)


def _read_tls(system: System, check: Check) -> Reading:
    """Compare the check's value with one fact of the TLS handshake for each host of the system.

    The check's `name` selects the fact, such as `version`. If the hosts differ, the observed value lists all results.
    A connection without TLS counts as `absent`.
    """
    entry, name = _find_entry(system), require_key(check, "name")
    return compare_value(
        check, join_distinct([_request(system, entry, host).tls.get(name) or ABSENT for host in entry.hosts])
    )


def _read_echo(system: System, check: Check) -> Reading:
    """Send a request, and compare the check's value with one of the request's headers as the backend received it.

    IP addresses are replaced in the observed value: that of the load balancer by `balancer`, and any other that was
    not sent in the request by `client`.
    """
    path = f"/echo/{require_key(check, 'name').lower()}"
    headers = dict(line.split(": ", 1) for line in (check.context or "").splitlines())
    answer = system.fetch(system.entry(), path, TIMEOUT_S, {**FORWARDED, **headers})
    if answer.status != 200:
        raise UnreadableError(f"{path} was answered with status {answer.status}")
    sent = " ".join([*FORWARDED.values(), *headers.values(), check.value])
    balancer = system.pod_address("balancer") if system.pods("balancer") else None

    def name_address(match: re.Match[str]) -> str:
        return "balancer" if match[0] == balancer else match[0] if match[0] in sent else "client"

    return compare_value(check, _ADDRESS.sub(name_address, answer.body.decode(errors="replace")) or ABSENT)


def _read_page(system: System, check: Check) -> Reading:
    path, _, prefix = require_key(check, "name").partition(" ")
    text = request_page(system, check, int(require_key(check, "port")), path)
    plain = html.unescape(_TAG.sub("", _ENDS.sub("\n", text))).replace("\xa0", " ")
    stripped = (" ".join(re.sub(r"^\s*(\d+)?:\s+", "", line).split()) for line in plain.splitlines())
    lines = list(filter(None, stripped))
    if not lines:
        raise UnreadableError(f"port {check.port}: {path} is empty")
    values = [
        line.removeprefix(prefix).strip(" :=") for line in lines if re.match(rf"{re.escape(prefix)}(?![\w-])", line)
    ]
    return compare_value(check, join_distinct(values) if values else ABSENT)


READERS = {
    "sysctl": _read_sysctl,
    "backlog": _read_backlog,
    "rps": _read_rps,
    "ports": _read_ports,
    "entry": _read_entry,
    "node": _read_node,
    "routes": _count_routes,
    "termination": _read_termination,
    "tls": _read_tls,
    "shards": _count_shards,
    "echo": _read_echo,
    "page": _read_page,
}
"""The reader of each kind of check."""
