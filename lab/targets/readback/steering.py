"""Check kind `rps`: the CPUs to which receive packet steering spreads each queue of the pod's interfaces.

`own` = the CPUs that the pod's processes may use and that are online; else a list such as `0,4`. Every queue must have it (not loopback's).
"""

from __future__ import annotations

from lab.model.variants.variants import Check
from lab.targets.base import System
from lab.targets.common.sampler import cpu_list
from lab.targets.readback.reading import Reading, UnreadableError, compared, joined, run

SCRIPT = r"""
sed -n 's/^Cpus_allowed:[[:space:]]*/own /p' /proc/1/status
echo "online $(cat /sys/devices/system/cpu/online)"
for queue in /sys/class/net/*/queues/rx-*/rps_cpus; do
  case $queue in */net/lo/*) continue ;; esac
  echo "queue $(cat "$queue")"
done
"""


def _rps(system: System, check: Check) -> Reading:
    rows = [line.split() for line in run(system, check, ["sh", "-euc", SCRIPT]).splitlines()]
    masks = [row[1] for row in rows if len(row) == 2 and row[0] == "queue"]
    given = {row[0]: row[1] for row in rows if len(row) == 2}
    if not masks or not {"own", "online"} <= given.keys():
        raise UnreadableError("no queue of an interface, or no CPUs of the pod to compare with")
    wanted = _own(given["own"], given["online"]) if check.value == "own" else check.value
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


READERS = {"rps": _rps}
