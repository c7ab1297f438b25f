"""Code that makes the environment of a system's processes: namespaces, network, cgroups, CPUs and volumes on disk."""
