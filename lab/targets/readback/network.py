"""Check kinds of a pod's network: `sysctl` and `backlog` in its namespace, `rps` on its interfaces' queues, `ports` of what it connects to,
`entry`, whose address load is sent to; and of the whole node, `node`.

rps     the CPUs to which receive packet steering spreads each queue: `own` = those that the pod's processes may use and that
        are online, else a list such as `0,4`. Every queue must have it (not loopback's)
ports   outgoing connections that are really made use only local ports of the range (`1024 65000`); of a row of `ss -tan`:

        ESTAB 0 0 10.64.0.4:40012 10.64.0.3:8080     →  an outgoing connection from port 40012: nothing listens on it

entry   `pod`: the address of the role's first pod itself. Else the address that it is, a Service's or a node's
node    fs.file-max: /proc/sys; irqbalance: whether the service's process runs; irq-affinity: the CPUs that the interrupts of the
        default route's interface go to

For `ports` a large page is fetched through the entry while the pod is looked at, so that there is one even where none is
kept. Refuses to judge by nothing: no outgoing connection seen = unreadable.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from urllib.parse import urlsplit

from lab.model.variants.variants import Check
from lab.systems.reading import Reading, UnreadableError, compared, given, joined, run
from lab.targets.base import System
from lab.targets.common.sampler import cpu_list

PAGE = "/100MB.bin"
TRIES = 5
TIMEOUT_S = 10.0
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
    wanted = _own(told["own"], told["online"]) if check.value == "own" else check.value
    reading = compared(check, joined([listed(mask) for mask in masks]), wanted)
    return Reading(check, check.value, ok=True) if reading.ok else reading


def _own(mask: str, online: str) -> str:
    """Of a mask of CPUs those that are online, as a list: a queue keeps no others."""
    running = cpu_list(online)
    return ",".join(cpu for cpu in listed(mask).split(",") if cpu != "none" and int(cpu) in running) or "none"


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


def _entry(system: System, check: Check) -> Reading:
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


READERS = {"sysctl": _sysctl, "backlog": _backlog, "rps": _rps, "ports": _ports, "entry": _entry, "node": _node}
