"""The target `local`: pods run as processes on this machine, without a cluster, Docker or root.

sandbox         namespaces, network, cgroups, CPUs and disks: the environment in which the processes run
kubelet         pods as processes: containers, probes, restarts, and how processes are started from manifests
control_plane   pods that come and go, Services, changes of routes, reloads of proxies, and a record of events
system, target  a running system (variant), and the class that implements the protocol `lab.targets.base.Target`
"""
