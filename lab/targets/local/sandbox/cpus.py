"""Functions that divide this machine's CPUs among the roles, such as proxy, load generator and backend."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from lab.base.errors import refuse_if
from lab.model.endpoint import Role


def list_available() -> list[int]:
    """Return the numbers of the CPUs that this process may use, ordered by socket and core.

    In this order, the sibling threads of a core are next to each other. On systems without CPU affinity (macOS), all
    CPUs are returned in numerical order.
    """
    if not hasattr(os, "sched_getaffinity"):
        return list(range(os.cpu_count() or 1))
    return sorted(os.sched_getaffinity(0), key=_read_topology)


def split(cpus: Sequence[int]) -> Mapping[Role, frozenset[int]]:
    """Divide CPUs among the roles proxy, generator, backend and lab.

    The lab is this process; it shares the CPUs of the backend.

    - 2 CPUs: 1 for the proxy, 1 for generator, backend and lab.
    - 3 CPUs: 1 for the proxy, 1 for the generator, 1 for backend and lab.
    - n ≥ 4 CPUs: n/2 for the proxy, n/4 for the generator, the remaining ones for backend and lab.

    The proxy gets the first CPUs, so that it has complete cores. The generator needs fewer, because one core of a
    generator in C drives several of a proxy.

    Args:
        cpus: The CPUs in the order of `list_available`.

    Raises:
        UsageError: Fewer than two CPUs are given.

    """
    n = len(cpus)
    refuse_if(
        n < 2,
        "local target",
        f"needs two CPUs, one of them for the proxy alone; this process may use {n}",
        "give the lab another CPU (see taskset -p $$)",
    )
    proxy = max(1, n // 2) if n > 3 else 1
    generator = max(1, n // 4)
    remaining = frozenset(cpus[proxy + generator :]) or frozenset(cpus[proxy:])
    return {
        "proxy": frozenset(cpus[:proxy]),
        "generator": frozenset(cpus[proxy : proxy + generator]),
        "backend": remaining,
        "lab": remaining,
    }


def format_list(cpus: frozenset[int]) -> str:
    """Format CPU numbers as a list that the kernel and taskset understand.

    >>> format_list(frozenset({0, 2}))
    '0,2'
    """
    return ",".join(str(cpu) for cpu in sorted(cpus))


def _read_topology(cpu: int) -> tuple[int, int, int]:
    """Return (socket, core, CPU) of a CPU as a key for sorting; socket and core are 0 if the kernel does not report them."""
    topology = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology")
    try:
        return int((topology / "physical_package_id").read_text()), int((topology / "core_id").read_text()), cpu
    except (OSError, ValueError):
        return 0, 0, cpu
