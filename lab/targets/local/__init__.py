"""The local target: no cluster, no Docker, no root.

sandbox         namespaces, network, cgroups, CPUs, disks: where processes run
kubelet         pods as processes: containers, probes, restarts, and from objects to what is started
control_plane   pods that come and go, Services' ways, routes that change, reloads, and what happened meanwhile
system, target  one variant that is up, and the protocol of `lab.targets.base`
"""

from lab.targets.local.system import LocalSystem
from lab.targets.local.target import LocalTarget

__all__ = ["LocalSystem", "LocalTarget"]
