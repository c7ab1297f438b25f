"""The local target: real processes on this machine, without a cluster, Docker or root.

sandbox         namespaces, network, cgroups, CPUs, disks: where processes run
kubelet         pods as processes: containers, probes, restarts, and the way from objects to started processes
control_plane   pods that come and go, the ways of Services, routes that change, reloads, and a record of events
system, target  a variant that is up, and the protocol of `lab.targets.base`
"""

from lab.targets.local.system import LocalSystem
from lab.targets.local.target import LocalTarget

__all__ = ["LocalSystem", "LocalTarget"]
