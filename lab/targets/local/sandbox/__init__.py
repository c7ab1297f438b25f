"""Where a system's processes run: namespaces, network, cgroups, CPUs, disks, links, and the machine's own settings."""
