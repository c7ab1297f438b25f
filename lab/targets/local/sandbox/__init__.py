"""The place where a system's processes run: namespaces, network, cgroups, CPUs, disks, links and sysctls."""
