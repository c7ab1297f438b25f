"""Check kind `node`: a setting of the whole node that node-tuning asks for, read on the node itself.

fs.file-max    /proc/sys           irqbalance    whether the service's process runs           irq-affinity    the CPUs
that the interrupts of the default route's interface go to
"""

from __future__ import annotations

from lab.model.variants.variants import Check
from lab.systems.reading import Reading, UnreadableError, compared, given
from lab.targets.base import System

SCRIPT = r"""
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


def _node(system: System, check: Check) -> Reading:
    name = given(check, "name")
    done = system.exec("node", ["sh", "-euc", SCRIPT, "sh", name])
    found = " ".join(done.stdout.split())
    if done.returncode or not found:
        said = done.stderr.strip().splitlines()
        raise UnreadableError(f"{name}: {said[-1] if said else 'the node says nothing'}")
    return compared(check, found, " ".join(check.value.split()))


READERS = {"node": _node}
